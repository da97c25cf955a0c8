"""Random kernels, written out as Python and read back, mean the same."""

import ast
import linecache

import hypothesis
from hypothesis import strategies as st
from strategies import arrays, kernels, same, symbol_values

from tilewright.base.dtype import DTYPES
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import symbols
from tilewright.ir.python import words as kernel_words
from tilewright.ir.python.kernel import kernel
from tilewright.ir.python.words import BINARY

OPERATORS = {"add": ast.Add, "mul": ast.Mult, "and_": ast.BitAnd, "or_": ast.BitOr}
OPERATORS |= {"xor": ast.BitXor}


class ToPython(ast.NodeTransformer):
    """The text form as the kernel language: what differs is how words are called."""

    def visit_Assign(self, node):
        self.generic_visit(node)
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            if call.func.id == "symbol":
                return None
            if call.func.id == "alloc":
                call.func.id = "local"
        return node

    def visit_Expr(self, node):
        """accumulate(op, place, value) -> place = place op value; the kernel language has no
        hints: nontemporal(place, value) -> place = value, and a prefetch does nothing"""
        self.generic_visit(node)
        if node.value.func.id == "prefetch":
            return ast.Pass()
        *op, place, new = node.value.args
        if op:
            old = ast.parse(ast.unparse(place), mode="eval").body
            new = self.combine(op[0].id, old, new)
        return ast.Assign([ast.parse(f"{ast.unparse(place)} = 0").body[0].targets[0]], new)

    def combine(self, op, a, b):
        if op in BINARY:
            return ast.Call(ast.Name(op, ast.Load()), [a, b], [])
        return ast.BinOp(a, OPERATORS[op](), b)

    def visit_arg(self, node):
        return node

    def visit_Constant(self, node):
        """Numbers without a type are indices in the text form, and bools have their type."""
        kind = {int: "i64", bool: "bool"}.get(type(node.value))
        return ast.Call(ast.Name(kind, ast.Load()), [node], []) if kind else node

    def visit_UnaryOp(self, node):
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return ast.Call(ast.Name("i64", ast.Load()), [node], [])
        return self.generic_visit(node)

    def visit_Call(self, node):
        typed = isinstance(node.func, ast.Name) and node.func.id in DTYPES
        return node if typed else self.generic_visit(node)

    def visit_BinOp(self, node):
        """a / b is the text form's division of integers, too."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Div):
            return ast.Call(ast.Name("div", ast.Load()), [node.left, node.right], [])
        return node


def to_python(program):
    tree = ToPython().visit(ast.parse(str(program)))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def read(folder, program):
    """The kernel that the file of this program's Python holds."""
    path = folder / "kernel.py"
    text = to_python(program)
    path.write_text(text, encoding="utf-8")
    linecache.cache.pop(str(path), None)
    names = {n: getattr(kernel_words, n) for n in ("out", "local", "parallel", "unroll")}
    names |= {**DTYPES, "inf": float("inf"), "nan": float("nan")}
    names |= {s.name: s for s in symbols(program)}
    exec(compile(text, str(path), "exec"), names)
    return kernel(names["random"]).kernel


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=150)
def test_same_results(tmp_path_factory, data):
    program = data.draw(kernels())
    sizes = data.draw(symbol_values(symbols(program)))
    inputs = data.draw(arrays(program.inputs, sizes))
    found = read(tmp_path_factory.getbasetemp(), program)
    assert [b.name for b in found.params] == [b.name for b in program.params]
    expected = interpret(program, inputs, sizes)
    for a, b in zip(expected, interpret(found, inputs, sizes), strict=True):
        assert same(a, b)
