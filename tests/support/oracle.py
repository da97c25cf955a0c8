"""Whether a rewrite is legal, decided by running it: no analysis of the compiler's is trusted.

Programs run on terms. A term is how a value was computed from elements of the inputs: two programs
whose outputs are equal terms give the same for all data. Operands of sums, products and extremes
may stand in either order (docs/semantics.md). What is accumulated is the multiset of what was
combined, so that the order of a reduction is left open, as `Accumulate` says, and nothing else is;
sums of integers are multisets however they are written, since they are not rounded.
Every term has a number beside it, from random data; subscripts and conditions that hang on memory
go by that, so several data are tried.

A program with parallel loops is legal only where no two iterations touch one element, one of them
writing; one with vector loops, where its lanes in step give the same terms.

`unchecked` lets a primitive do its edit with its own questions of legality answered yes.
"""

from __future__ import annotations

import contextlib
import copy
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fast_interpret import Memory, Numbers, OutsideError, Program, places
from strategies import array
from strategies_schedule import packed, unpacked

from tilewright.base.dtype import DType, from_numpy, index
from tilewright.base.errors import TilewrightError
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import COMMUTATIVE, BinaryOp, CompareOp, Load, Select, UnaryOp
from tilewright.ir.loop import If, Kernel, expressions, walk_statements
from tilewright.ir.tensor import neutral
from tilewright.ir.tensor_type import Layout

Layouts = Mapping[str, Sequence[Layout]]


# ---------------------------------------------------------------- terms


class Term:
    """How a value was computed. Terms are the same object where they are equal."""

    __slots__ = ("key", "number", "summand", "value")

    def __init__(self, key: Any, value: Any, summand: tuple[BinaryOp, int] | None = None) -> None:
        self.key, self.value, self.summand = key, value, summand
        self.number = random.getrandbits(128)  # a multiset is the sum of its members' numbers

    @property
    def is_const(self) -> bool:
        return self.key[0] == "const"

    def __str__(self) -> str:
        return f"{self.key[0]}({', '.join(map(str, self.key[1:]))})"


class Terms:
    """The algebra of terms (fast_interpret.Algebra). If `loose`, sums, products and extremes are
    what accumulations are: there are primitives that make one the other."""

    plain = "{}.value"

    def __init__(self, *, loose: bool = False) -> None:
        self.loose = loose
        self.known: dict[Any, Term] = {}
        self.numbers = Numbers()

    def make(self, key: Any, value: Callable[[], Any], summand: Any = None) -> Term:
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = Term(key, value(), summand)
        return found

    def leaf(self, name: str, place: Any, value: Any) -> Term:
        return self.make(("element", name, place), lambda: value)

    def const(self, value: Any, dtype: DType) -> Term:
        number = self.numbers.const(value, dtype)
        return self.make(("const", repr(number), dtype), lambda: number)

    def undefined(self, dtype: DType) -> Term:
        return self.make(("undefined", dtype), lambda: self.numbers.undefined(dtype))

    def apply(self, key: Any, function: Callable[..., Any]) -> Callable[..., Term]:
        """Operators on constants are constants: the simplifier may have computed them."""

        def term(*operands: Term) -> Term:
            whole = (key, *operands)
            found = self.known.get(whole)
            if found is None:
                value = function(*(x.value for x in operands))
                zero = _is_nothing(key, operands)
                if zero is not None:
                    found = zero
                elif all(x.is_const for x in operands):
                    name = ("const", repr(value), from_numpy(value.dtype))
                    found = self.make(name, lambda: value)
                else:
                    found = Term(whole, value)
                self.known[whole] = found
            return found

        return term

    def unary(self, op: UnaryOp, dtype: DType) -> Callable[[Any], Any]:
        return self.apply(("unary", op), self.numbers.unary(op, dtype))

    def binary(self, op: BinaryOp, dtype: DType) -> Callable[[Any, Any], Any]:
        key = ("binary", op)
        in_order = self.apply(key, self.numbers.binary(op, dtype))
        if op not in COMMUTATIVE:
            return in_order

        def exact(a: Term, b: Term) -> Term:
            return in_order(a, b) if a.number <= b.number else in_order(b, a)

        if not self.loose and not (op is BinaryOp.ADD and dtype.is_integer):
            return exact
        multiset = self.accumulate(op, dtype)

        def term(a: Term, b: Term) -> Term:
            known = (a.is_const and b.is_const) or _is_nothing(key, (a, b)) is not None
            return exact(a, b) if known else multiset(a, b)

        return term

    def compare(self, op: CompareOp) -> Callable[[Any, Any], Any]:
        return self.apply(("compare", op), self.numbers.compare(op))

    def cast(self, dtype: DType) -> Callable[[Any], Any]:
        return self.apply(("cast", dtype), self.numbers.cast(dtype))

    def bitcast(self, dtype: DType) -> Callable[[Any], Any]:
        return self.apply(("bitcast", dtype), self.numbers.bitcast(dtype))

    def infix(self, op: BinaryOp, dtype: DType) -> str | None:
        return None

    def accumulate(self, op: BinaryOp, dtype: DType) -> Callable[[Any, Any], Any]:
        """The multiset of what was combined; a neutral element is nothing."""
        nothing = self.const(neutral(op, dtype).value, dtype)
        combine = self.numbers.binary(op, dtype)

        def members(x: Term) -> int:
            if x is nothing:
                return 0
            return x.summand[1] if x.summand is not None and x.summand[0] is op else x.number

        def term(old: Term, value: Term) -> Term:
            total = members(old) + members(value)
            if total == 0:
                return nothing
            key = ("accumulate", op, dtype, total)
            return self.make(key, lambda: combine(old.value, value.value), (op, total))

        return term


def _is_nothing(key: Any, operands: Sequence[Term]) -> Term | None:
    """The zero of a product of integers, which is zero whatever the other is: what pads a buffer
    may be anything."""
    if key != ("binary", BinaryOp.MUL):
        return None
    zeros = (x for x in operands if x.is_const and x.key[2].is_integer and x.value == 0)
    return next(zeros, None)


# ---------------------------------------------------------------- verdicts


@dataclass(frozen=True)
class Verdict:
    legal: bool
    why: str = ""


class Oracle:
    """Judges what became of one kernel, on one or several data."""

    def __init__(
        self,
        kernel: Kernel,
        sizes: Mapping[str, int],
        seeds: Sequence[int],
        *,
        loose: bool = False,
    ) -> None:
        self.kernel, self.sizes = kernel, sizes
        seeds = seeds if _hangs_on_data(kernel) else seeds[:1]
        self.runs = [_Run(kernel, sizes, seed, Terms(loose=loose)) for seed in seeds]

    def judge(self, rewritten: Kernel, layouts: Layouts | None = None) -> Verdict:
        for run in self.runs:
            verdict = run.judge(rewritten, layouts or {})
            if not verdict.legal:
                return verdict
        return Verdict(True)


def _hangs_on_data(kernel: Kernel) -> bool:
    """Whether a subscript or condition reads memory: then one run says nothing of others."""
    for stmt in walk_statements(kernel.body):
        for e in expressions(stmt):
            if isinstance(stmt, If) and any(isinstance(x, Load) for x in e.walk()):
                return True
            for x in e.walk():
                inside = x.indices if isinstance(x, Load) else ()
                inside = (x.cond,) if isinstance(x, Select) else inside
                if any(isinstance(y, Load) for i in inside for y in i.walk()):
                    return True
        places = getattr(stmt, "indices", ())
        if any(isinstance(y, Load) for i in places for y in i.walk()):
            return True
    return False


class _Run:
    """One kernel on one data."""

    def __init__(self, kernel: Kernel, sizes: Mapping[str, int], seed: int, terms: Terms) -> None:
        self.kernel, self.sizes, self.terms = kernel, sizes, terms
        self.inputs = []
        for number, buffer in enumerate(kernel.inputs):
            data = array(seed + number, buffer.dtype, _shape(buffer, sizes))
            found = np.empty(data.shape, object)
            for place in np.ndindex(data.shape):
                found[place] = self.terms.leaf(buffer.name, place, data[place])
            self.inputs.append(found)
        memories = [_memory(a) for a in self.inputs]
        outputs = Program(kernel, sizes, self.terms)(memories)
        shapes = [_shape(b, sizes) for b in kernel.outputs]
        self.wanted = [_array(m, n) for m, n in zip(outputs, shapes, strict=True)]

    def judge(self, rewritten: Kernel, layouts: Layouts) -> Verdict:
        memories = []
        for buffer, terms in zip(self.kernel.inputs, self.inputs, strict=True):
            for layout in layouts.get(buffer.name, ()):
                terms = _packed(layout, terms, self.terms.undefined(buffer.dtype))
            memories.append(_memory(terms))
        program = Program(rewritten, self.sizes, self.terms, watch=True)
        try:
            outputs = program(memories)
        except OutsideError as error:
            return Verdict(False, f"outside of a buffer: {error}")
        except ValueError as error:
            return Verdict(False, f"lanes do not run in step: {error}")
        if program.watch.races:
            return Verdict(False, f"a race: {program.watch.races[0]}")
        for buffer, new, memory, wanted in zip(
            self.kernel.outputs, rewritten.outputs, outputs, self.wanted, strict=True
        ):
            found = _array(memory, _shape(new, self.sizes))
            found = _unpacked(layouts.get(buffer.name, ()), found, wanted.shape)
            for place in np.ndindex(wanted.shape):
                if found[place] is not wanted[place]:
                    return Verdict(False, f"{buffer.name}{list(place)} is another value")
        return Verdict(True)


def _shape(buffer: Any, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate_dim(d, sizes) for d in buffer.shape)


def _memory(terms: np.ndarray) -> Memory:
    return dict(zip(places(terms.shape), terms.reshape(-1), strict=True))


def _array(memory: Memory, shape: Sequence[int]) -> np.ndarray:
    found = np.empty(len(memory), object)
    for i, value in enumerate(memory.values()):
        found[i] = value
    return found.reshape(shape)


def _packed(layout: Layout, terms: np.ndarray, padding: Term) -> np.ndarray:
    """Terms as a layout arranges numbers."""
    numbers = packed(layout, np.arange(terms.size).reshape(terms.shape), index)
    found = np.empty(numbers.shape, object)
    flat = terms.reshape(-1)
    for place in np.ndindex(numbers.shape):
        number = numbers[place]
        found[place] = flat[number] if number < terms.size else padding
    return found


def _unpacked(layouts: Sequence[Layout], terms: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    shapes = [shape]
    for layout in layouts:
        shapes.append(tuple(int(n) for n in layout.physical_shape(shapes[-1])))
    for layout, extents in zip(reversed(layouts), reversed(shapes[:-1]), strict=True):
        terms = unpacked(layout, terms, extents)
    return terms


# ---------------------------------------------------------------- edits without their checks

# Questions of legality, by the name that modules of schedule/ ask them under, and the answer "yes".
QUESTIONS: dict[str, Callable[..., Any]] = {
    "violation": lambda *args, **kwargs: None,
    "conflict": lambda *args, **kwargs: None,
    "_check_kept": lambda *args, **kwargs: None,
    "_check_repeatable": lambda *args, **kwargs: None,
}
WRITTEN = {"tilewright.schedule.primitives.caching": "buffers_written"}  # cache_read asks this way


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Primitives do not ask whether they are legal."""
    changed: list[tuple[Any, str, Any]] = []
    for name, module in list(sys.modules.items()):
        if not name.startswith("tilewright.schedule."):
            continue
        answers = {q: a for q, a in QUESTIONS.items() if hasattr(module, q)}
        if name in WRITTEN:
            answers[WRITTEN[name]] = lambda block: set()
        for question, answer in answers.items():
            changed.append((module, question, getattr(module, question)))
            setattr(module, question, answer)
    try:
        yield
    finally:
        for module, question, was in reversed(changed):
            setattr(module, question, was)


@dataclass(frozen=True)
class Edit:
    """What a primitive makes of a program without asking: the program, or why it makes none."""

    kernel: Kernel | None
    refused: str = ""


def edit(schedule: Any, step: Callable[[Any], Any]) -> Edit:
    """A step applied to a copy of a schedule, without questions."""
    twin = copy.copy(schedule)
    with unchecked():
        try:
            step(twin)
        except TilewrightError as error:
            return Edit(None, error.what)
        except Exception as error:  # noqa: BLE001 - it was never meant to be edited so
            return Edit(None, f"{type(error).__name__}: {error}")
    return Edit(twin.kernel)
