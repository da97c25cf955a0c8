"""Which function of a recurrent operator is where, and the names of many axes."""

from tilewright.base.dtype import f32
from tilewright.ir.evaluate import op_program
from tilewright.ir.expr import Buffer
from tilewright.ops.table import OPS


def test_names_of_many_batches():
    """Letters as long as there are some."""
    o = OPS["matmul"]
    for batches, names in ((7, "b, c, d, e, f, g, h, m, n"), (8, "b0, b1, b2, b3, b4, b5, b6")):
        x = [Buffer(n, f32, (*(2,) * batches, 3, 3)) for n in "xy"]
        assert f"define(matmul[{names}" in str(op_program(o, o.make_attrs(), x))


def test_functions_of_an_lstm():
    """Of gates, of what enters the cell, of the cell: each in its place."""
    o = OPS["lstm"]
    attrs = o.make_attrs(
        activations=("sigmoid", "relu", "tanh"), alphas=(0.0,) * 3, betas=(0.0,) * 3
    )
    shapes = {"x": (5, 2, 12), "r": (3, 12), "h": (2, 3), "c": (2, 3)}
    text = str(op_program(o, attrs, [Buffer(n, f32, s) for n, s in shapes.items()]))
    cell, hidden = (next(x for x in text.splitlines() if f"define({n}_1" in x) for n in "ch")
    assert [cell.count(f) for f in ("sigmoid", "max(", "tanh")] == [2, 1, 0]
    assert [hidden.count(f) for f in ("sigmoid", "max(", "tanh")] == [1, 0, 1]
