"""Every place where the compiler can be mutated, and the mutated module.

A mutant is one node of a module's syntax tree, changed by one operator of `OPERATORS`; all of them
are equally likely to be drawn. Left alone is what no test of behaviour could see: docstrings and
texts with blanks, what is raised and what is asserted, annotations, decorators, `__repr__`, names
of types, `if TYPE_CHECKING`, `strict=` of a zip. Literal parts of f-strings stay; what is computed
in them does not.
"""

from __future__ import annotations

import ast
import copy
import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from mutants_record import PACKAGE, SCOPE

COMPARISONS = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot}
COMPARISONS |= {ast.In: ast.NotIn} | {new: old for old, new in COMPARISONS.items()}
COMPARISONS[ast.NotIn] = ast.In
ARITHMETIC = {ast.Add: ast.Sub, ast.Mult: ast.FloorDiv, ast.LShift: ast.RShift}
ARITHMETIC |= {new: old for old, new in ARITHMETIC.items()} | {ast.Mod: ast.FloorDiv}
ARITHMETIC |= {ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.BitXor: ast.BitOr}
ARITHMETIC |= {ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr}
SEQUENCES = (ast.List, ast.Tuple, ast.ListComp, ast.JoinedStr)
SYMMETRIC = ("min", "max", "isinstance", "getattr", "hasattr", "cast", "issubclass")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Slot:
    """A node, what holds it, and the statement and function that it is in."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    statement: ast.AST
    function: str

    def put(self, node: ast.AST) -> None:
        ast.copy_location(node, self.node)
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


@dataclass(frozen=True)
class Mutant:
    """`lines` are the mutated node's, `statement` the first of the statement that it is in."""

    file: str
    function: str
    operator: str
    original: str
    mutated: str
    number: int  # of equal mutants of one function
    slot: int
    lines: tuple[int, int]
    statement: int
    imported: bool  # outside of functions: it runs when the module is imported

    @property
    def key(self) -> tuple[str, ...]:
        """Names the mutant while its function stays: lines may move."""
        number = () if self.number == 0 else (str(self.number),)
        return (self.file, self.function, self.original, self.mutated, *number)


# ---- what is mutated ----------------------------------------------------------------------------


def skipped(parent: ast.AST, field: str, node: ast.AST) -> bool:
    """A part of a module that is left alone, with all that is in it."""
    match parent, field, node:
        case _, ("annotation" | "returns" | "decorator_list" | "bases" | "exc" | "type_params"), _:
            return True
        case _, _, ast.Assert() | ast.Import() | ast.ImportFrom() | ast.FunctionDef(
            name="__repr__"
        ):
            return True
        case _, _, ast.If(test=test) if ast.unparse(test).endswith("TYPE_CHECKING"):
            return True
        case _, _, ast.keyword(arg="strict"):
            return True
        case ast.Call(func=ast.Name(id="cast" | "TypeVar")), "args", _:
            return node is parent.args[0] or parent.func.id == "TypeVar"
        case ast.Module(), _, ast.Assign(value=ast.Subscript() | ast.BinOp(op=ast.BitOr())):
            return True  # the name of a type
        case ast.Module(), _, ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case _, _, ast.Expr(value=ast.Constant()):
            return True  # a docstring
    return False


def slots(tree: ast.Module) -> Iterator[Slot]:
    def visit(
        parent: ast.AST, statement: ast.stmt | None, names: tuple[str, ...]
    ) -> Iterator[Slot]:
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names = (*names, parent.name)
        for field, value in ast.iter_fields(parent):
            for i, node in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(node, ast.AST) or skipped(parent, field, node):
                    continue
                stated = node if isinstance(node, ast.stmt) else statement
                index = i if isinstance(value, list) else None
                if stated is not None:
                    yield Slot(node, parent, field, index, stated, ".".join(names))
                yield from visit(node, stated, names)

    yield from visit(tree, None, ())


# ---- operators: what a slot's node becomes, if anything -----------------------------------------


def compare(slot: Slot) -> ast.AST | None:
    "a < b  ->  a <= b"
    if not isinstance(slot.node, ast.Compare):
        return None
    ops = [COMPARISONS[type(slot.node.ops[0])](), *slot.node.ops[1:]]
    return ast.Compare(slot.node.left, ops, slot.node.comparators)


def calculate(slot: Slot) -> ast.AST | None:
    "a + b  ->  a - b;  sequence + more  ->  sequence"
    match slot.node:
        case ast.BinOp(left, ast.Add(), right) if isinstance(left, SEQUENCES):
            return right
        case ast.BinOp(left, ast.Add(), right) if isinstance(right, SEQUENCES):
            return left
        case ast.BinOp(left, op, right) if type(op) in ARITHMETIC and not text(left):
            return ast.BinOp(left, ARITHMETIC[type(op)](), right)
        case ast.AugAssign(target, op, value) if isinstance(value, SEQUENCES):
            return ast.Pass()
        case ast.AugAssign(target, op, value) if type(op) in ARITHMETIC:
            return ast.AugAssign(target, ARITHMETIC[type(op)](), value)
    return None


def text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def constant(slot: Slot) -> ast.AST | None:
    "n  ->  n + 1;  True  ->  False;  'word'  ->  'word_'"
    if isinstance(slot.parent, ast.JoinedStr | ast.FormattedValue):
        return None
    match slot.node:
        case ast.Constant(bool() as value):
            return ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            return ast.Constant(value + 1)
        case ast.Constant(str() as value) if " " not in value:
            return ast.Constant(value + "_")
    return None


def boolean(slot: Slot) -> ast.AST | None:
    "a and b  ->  a or b;  not a  ->  a"
    match slot.node:
        case ast.BoolOp(ast.And(), values):
            return ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(ast.Or(), values):
            return ast.BoolOp(ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
    return None


def always(slot: Slot) -> ast.AST | None:
    "if a  ->  if True"
    tested = isinstance(slot.parent, ast.If | ast.IfExp) and slot.field == "test"
    tested = tested or (isinstance(slot.parent, ast.comprehension) and slot.field == "ifs")
    return ast.Constant(True) if tested else None


def never(slot: Slot) -> ast.AST | None:
    "if a  ->  if False;  while a  ->  while False"
    looped = isinstance(slot.parent, ast.While) and slot.field == "test"
    return ast.Constant(False) if looped or always(slot) else None


def remove(slot: Slot) -> ast.AST | None:
    "f(x)  ->  pass;  a[i] = x  ->  pass;  raise  ->  pass"
    match slot.node:
        case ast.Expr() | ast.AugAssign() | ast.Raise(exc=ast.AST()) | ast.Delete():
            return ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            return ast.Pass()
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            reads = (n.id for n in ast.walk(value) if isinstance(n, ast.Name))
            return ast.Pass() if name in reads else None  # others would leave a name unbound
        case ast.Continue():
            return ast.Break()
    return None


def swap(slot: Slot) -> ast.AST | None:
    "f(a, b)  ->  f(b, a)"
    match slot.node:
        case ast.Call(ast.Name(id=name), _, _) if name in SYMMETRIC:
            return None
        case ast.Call(func, [ast.expr() as a, ast.expr() as b, *more], keywords):
            starred = isinstance(a, ast.Starred) or isinstance(b, ast.Starred)
            if not starred and ast.dump(a) != ast.dump(b):
                return ast.Call(func, [b, a, *more], keywords)
    return None


def nothing(slot: Slot) -> ast.AST | None:
    "return a  ->  return None;  return [a]  ->  return []"
    match slot.node:
        case ast.Return(ast.Constant()) | ast.Return(None):
            return None
        case ast.Return(ast.List() | ast.ListComp()):
            return ast.Return(ast.List([], ast.Load()))
        case ast.Return(ast.Tuple() | ast.Call(func=ast.Name(id="tuple"))):
            return ast.Return(ast.Tuple([], ast.Load()))
        case ast.Return():
            return ast.Return(ast.Constant(None))
    return None


def shift(slot: Slot) -> ast.AST | None:
    "range(n)  ->  range(n - 1);  a[i:j]  ->  a[i + 1:j];  a[:j]  ->  a[:j - 1]"
    one = ast.Constant(1)
    match slot.node:
        case ast.Call(ast.Name(id="range"), [stop], []):
            return ast.Call(ast.Name("range", ast.Load()), [ast.BinOp(stop, ast.Sub(), one)], [])
        case ast.Call(ast.Name(id="range"), [start, stop, *step], []):
            shorter = [start, ast.BinOp(stop, ast.Sub(), one), *step]
            return ast.Call(ast.Name("range", ast.Load()), shorter, [])
        case ast.Slice(ast.expr() as lower, upper, step):
            return ast.Slice(ast.BinOp(lower, ast.Add(), one), upper, step)
        case ast.Slice(None, ast.expr() as upper, step):
            return ast.Slice(None, ast.BinOp(upper, ast.Sub(), one), step)
    return None


def drop(slot: Slot) -> ast.AST | None:
    "[a, b, c]  ->  [a, c]: which one follows from the text"
    node = copy.copy(slot.node)
    table = isinstance(slot.parent, ast.Module | ast.ClassDef | ast.Compare | ast.For | ast.Assign)
    table = table or (isinstance(slot.parent, ast.Call) and len(slot.parent.args) == 1)
    match node:
        case ast.Tuple(elements, ast.Load()) if table and slot.field in ("value", "args", "iter"):
            if isinstance(slot.parent, ast.Assign) and isinstance(
                slot.parent.targets[0], ast.Tuple
            ):
                return None
        case ast.Tuple(elements, ast.Load()) if isinstance(slot.parent, ast.Compare):
            pass
        case ast.List(elements, ast.Load()) | ast.Set(elements):
            pass
        case ast.Dict(keys, values):
            at = len(words(slot.node)) % len(keys) if len(keys) > 1 else None
            if at is None:
                return None
            return ast.Dict(keys[:at] + keys[at + 1 :], values[:at] + values[at + 1 :])
        case _:
            return None
    if len(elements) < 2:
        return None
    at = len(words(slot.node)) % len(elements)
    node.elts = elements[:at] + elements[at + 1 :]
    return node


OPERATORS = {
    f.__name__: f
    for f in (
        *(compare, calculate, constant, boolean, always, never),
        *(remove, swap, nothing, shift, drop),
    )
}

# ---- mutants ------------------------------------------------------------------------------------


@functools.cache
def source_of(file: str) -> str:
    return (PACKAGE / file).read_text(encoding="utf-8")


def files() -> list[str]:
    paths = [p for name in SCOPE for p in (PACKAGE / name).rglob("*.py")]
    return sorted(str(p.relative_to(PACKAGE)) for p in paths)


def mutants(file: str) -> list[Mutant]:
    tree, seen, found = ast.parse(source_of(file)), Counter(), []
    functions = [n for n in ast.walk(tree) if isinstance(n, FUNCTIONS)]
    inside = {id(n) for f in functions for s in body(f) for n in ast.walk(s)}
    for at, slot in enumerate(slots(tree)):
        for name, operator in OPERATORS.items():
            new = operator(slot)
            if new is None:
                continue
            was, now = words(slot.node), words(new)
            number = seen[slot.function, was, now]
            seen[slot.function, was, now] += 1
            lines = (slot.node.lineno, slot.node.end_lineno) if hasattr(slot.node, "lineno") else ()
            if not lines:  # a slice's or a comprehension's: its parent has them
                lines = (slot.statement.lineno, slot.statement.lineno)
            place = (at, lines, slot.statement.lineno, id(slot.node) not in inside)
            found.append(Mutant(file, slot.function, name, was, now, number, *place))
    return found


def body(function: ast.AST) -> list[ast.AST]:
    return function.body if isinstance(function.body, list) else [function.body]


def words(node: ast.AST) -> str:
    node = ast.fix_missing_locations(copy.deepcopy(node))
    return " ".join(ast.unparse(node).split())


def mutated_tree(mutant: Mutant) -> ast.Module:
    tree = ast.parse(source_of(mutant.file))
    slot = next(s for i, s in enumerate(slots(tree)) if i == mutant.slot)
    slot.put(OPERATORS[mutant.operator](slot))
    return ast.fix_missing_locations(tree)


def mutated_code(mutant: Mutant) -> object:
    path = str(PACKAGE / mutant.file)
    return compile(mutated_tree(mutant), path, "exec", dont_inherit=True)
