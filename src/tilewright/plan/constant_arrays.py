"""Kernels with arrays of a number in its place, which the host keeps, for chips that can load one
and take it no other way: where only loads can begin sums, and where an instruction computes with
two arrays but not with that number.

    C[i, j] = 0             for k: C[i, j] += A[i, k] * B[k, j]     R[i, j] = max(C[i, j], 0)
->  C[i, j] = zeros[j]      for k: C[i, j] += A[i, k] * B[k, j]     R[i, j] = max(C[i, j], zeros[j])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewright.analyze.nests import Nest, nests
from tilewright.analyze.rewrite import replace_in
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Cast, Const, Expr, Load, Symbol, Var, const
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import For, Kernel, Store, Write, loads, walk_statements
from tilewright.ir.substitute import rewrite
from tilewright.plan.unit_form import UnitForm, fresh, made
from tilewright.plan.units import units
from tilewright.target.pairs import selectable
from tilewright.target.target import Target


def constant_forms(kernel: Kernel, target: Target) -> Iterator[UnitForm]:
    """The kernel with arrays along one axis of its results, for each of them, and along all where
    that is refused."""
    every = nests(kernel.body)
    wanted: list[tuple[Nest, Expr]] = [(n, e) for n in every for e in _operations(n, target)]
    sums = [n for n in every if _is_sum_of_number(n)]
    wanted += [(n, n.store.value) for n in sums if not _begins_sums(target, n.store.value)]
    most = max((len(_axes(n)) for n, _ in wanted), default=0)
    found: list[UnitForm] = []
    for d in range(most + (most > 1)):  # along each axis, the innermost first, then along all
        form = UnitForm(kernel)
        for nest, e in wanted:
            axes = _axes(nest)[::-1]
            along = axes[d : d + 1] if d < most else axes[::-1]
            form = _with_array(form, nest, e, along or axes[-1:])
        yield form if d < most else replace(form, instead=tuple(found))
        found.append(form)


def _axes(nest: Nest) -> list[For]:
    return [x for x in nest.axes if x.extent != 1]


def _is_sum_of_number(nest: Nest) -> bool:
    update = nest.update
    return update is not None and update.op is BinaryOp.ADD and isinstance(nest.store.value, Const)


def _begins_sums(target: Target, number: Expr) -> bool:
    """Whether an instruction writes a number where a unit has its sums, or the unit itself does."""
    every = list(units(target))
    memories = {u.result.buffer.memory for u in every}
    stores = (s for i in selectable(target) for s in walk_statements(i.body))
    written = (s for s in stores if isinstance(s, Store) and s.value == number)
    return not every or any(s.buffer.memory in memories for s in written)


# ---------------------------------------------------------------- operators


def _operations(nest: Nest, target: Target) -> Iterator[Binary]:
    """Operations with a number in what a nest stores, where instructions have the operator for two
    arrays alone; the inner ones last."""
    if nest.update is not None:
        return
    operators = [o for i in target.instructions for o in _operators(i)]
    for e in nest.store.value.walk():
        if isinstance(e, Binary) and isinstance(e.b, Const) and any(True for _ in loads(e.a)):
            same = [(i, o) for i, o in operators if o.op is e.op and o.dtype == e.dtype]
            arrays = any(isinstance(o.a, Load) and isinstance(o.b, Load) for _, o in same)
            if arrays and not any(_takes(i, x, e.b) for i, o in same for x in (o.a, o.b)):
                yield e


def _operators(instruction: Instruction) -> Iterator[tuple[Instruction, Binary]]:
    """The operators of an instruction, with those of what it accumulates."""
    for s in walk_statements(instruction.body):
        if isinstance(s, Write):
            yield from ((instruction, e) for e in s.value.walk() if isinstance(e, Binary))


def _takes(instruction: Instruction, operand: Expr, number: Const) -> bool:
    """Whether an operand of an instruction's operator is a number, or a field that can be it."""
    inner = operand.a if isinstance(operand, Cast) else operand
    if isinstance(inner, Symbol) and number.dtype.is_integer:
        field = next((f for f in instruction.fields if f.symbol == inner), None)
        return field is not None and field.admits(int(number.value))
    return operand == number


# ---------------------------------------------------------------- forms


def _with_array(form: UnitForm, nest: Nest, e: Expr, along: Sequence[For]) -> UnitForm:
    """A form with an array in the place of a number in what a nest stores: that is all of it, or
    the second operand of an operation."""
    kernel, number = form.kernel, e.b if isinstance(e, Binary) else e
    assert isinstance(number, Const)
    store = next(n.store for n in nests(kernel.body) if n.buffer == nest.buffer)
    names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
    shape = tuple(int(x.extent) for x in along)
    array = Buffer(fresh("constant", names), number.dtype, shape)
    read = Load(array, tuple(x.var for x in along))

    def replaced(x: Expr) -> Expr:
        same = isinstance(x, Binary) and isinstance(e, Binary) and (x.op, x.b) == (e.op, e.b)
        return x.with_(b=read) if same else x

    value = rewrite(store.value, replaced) if isinstance(e, Binary) else read
    body = replace_in(kernel.body, store, store.with_(value=value))
    new = kernel.with_(inputs=(*kernel.inputs, array), body=body)

    def element(*_: Expr) -> Expr:
        return const(number.value, number.dtype)

    values = made(f"{array.name}_values", list(shape), [], element)
    return UnitForm(new, {**form.made, array.name: values})
