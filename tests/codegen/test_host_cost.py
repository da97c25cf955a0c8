"""Counting what a kernel does."""

from tilewright.backends.host.cost import kernel_cost
from tilewright.base.dtype import f32
from tilewright.ir.evaluate import op_program
from tilewright.ir.expr import Buffer, Symbol
from tilewright.ops.table import OPS

N = Symbol("n")


def cost(op, *shapes, **attrs):
    inputs = [Buffer(f"x{i}", f32, shape) for i, shape in enumerate(shapes)]
    found = kernel_cost(op_program(OPS[op], OPS[op].make_attrs(**attrs), inputs))
    return found.operations, found.bytes


def test_a_product_of_matrices_takes_two_operations_for_each_term():
    assert cost("matmul", (4, 5), (5, 6)) == (2 * 4 * 5 * 6, 4 * (20 + 30 + 24))


def test_costs_follow_the_symbols():
    assert cost("add", (N, 3), (N, 3)) == (3 * N, 36 * N)


def test_padding_is_not_arithmetic():
    once = cost("conv", (1, 2, 8, 8), (4, 2, 3, 3), strides=(1, 1), pads_begin=(1, 1),
                pads_end=(1, 1), dilations=(1, 1))  # fmt: skip
    assert once[0] == 2 * 4 * 64 * 2 * 9


def test_subscripts_are_not_arithmetic():
    assert cost("transpose", (3, 4), perm=(1, 0))[0] == 0


def test_only_what_subscripts_reach_is_read():
    assert cost("slice", (100, 8), starts=(0, 0), sizes=(10, 4), steps=(2, 1))[1] == 2 * 4 * 40
