"""A convolution as one instruction, in no memory in particular, and kernels that it may do."""

import numpy as np
from strategies import array

import tilewright
from tilewright import grid, i8, i32, reduce
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Call, Kernel, walk_statements
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.ir.verify.loop import verify_kernel
from tilewright.kernels import KernelFunction
from tilewright.schedule.schedule import Schedule
from tilewright.target.describe import Range, flag, limit, read_instruction, view

CO, CI = dims("CO CI", max=8)
IH, IW, OH, OW = dims("IH IW OH OW", max=24)
KH, KW = dims("KH KW", max=8)
STEP, BYTE = Range(0, 1 << 20), Range(-128, 127)


@read_instruction
def conv(
    x: view(i8[CI, IH, IW], "x_plane", "x_row"),
    w: i8[CO, CI, KH, KW],
    b: i32[CO],
    y: view(out(i8[CO, OH, OW]), "y_plane", "y_row"),
    x_plane: STEP,
    x_row: STEP,
    y_plane: STEP,
    y_row: STEP,
    stride: Range(1, 3),
    far: Range(1, 2),
    top: Range(0, 6),
    left: Range(0, 6),
    bias: flag,
    scale: Range(1, 255),
    shift: Range(0, 31),
    low: BYTE,
    high: BYTE,
):
    limit(top < KH * far, left < KW * far)
    for f, h, v in grid(CO, OH, OW):
        acc: i32 = 0
        for c, r, s in reduce(CI, KH, KW):
            i = h * stride + r * far - top
            j = v * stride + s * far - left
            acc += i32(x[c, i, j] if 0 <= i < IH and 0 <= j < IW else 0) * i32(w[f, c, r, s])
        total = (acc + (b[f] if bias == 1 else 0)) * i32(scale) >> i32(shift)
        y[f, h, v] = i8(max(min(total, i32(high)), i32(low)))


def layer(
    channels: int = 2, size: int = 12, filters: int = 3, k: int = 3, stride: int = 1, pad: int = 1
) -> KernelFunction:
    """A convolution with everything that the instruction has, the sums in a variable."""
    made = (size + 2 * pad - k) // stride + 1

    @tilewright.kernel
    def padded(
        X: i8[channels, size, size],
        W: i8[filters, channels, k, k],
        b: i32[filters],
        Y: i8[filters, made, made],
    ):
        for f, h, v in grid(filters, made, made):
            acc: i32 = 0
            for c, r, s in reduce(channels, k, k):
                i = h * stride + r - pad
                j = v * stride + s - pad
                inside = 0 <= i < size and 0 <= j < size
                acc += i32(X[c, i, j] if inside else 0) * i32(W[f, c, r, s])
            Y[f, h, v] = i8(min(max((acc + b[f]) * 3 >> 4, -100), 90))

    return padded


def almost(seed: int) -> Schedule:
    """A convolution whose steps, window, guards and tiles are any; nearly one, often."""

    def number(low: int, high: int) -> int:
        nonlocal seed
        seed, found = divmod(seed, high - low + 1)
        return low + found

    form, split, tile = number(0, 3), number(0, 5), number(2, 3)
    stride, far, k = number(1, 2), number(1, 2), number(1, 3)
    other = stride if number(0, 5) else 3 - stride
    rows, columns = number(1, 5), number(1, 4)
    high, wide = (rows - 1) * stride + (k - 1) * far, (columns - 1) * other + (k - 1) * far
    at, low, end, first = number(0, 2), number(-1, 2), high - number(0, 3), number(-1, 2)

    @tilewright.kernel
    def windows(
        X: i8[2, high + 3, wide + 3], W: i8[2, 2, k, k], b: i32[2], Y: i8[2, rows, columns]
    ):
        for f, h, v in grid(2, rows, columns):
            acc: i32 = 0
            for c, r, s in reduce(2, k, k):
                i = h * stride + r * far
                j = v * other + s * far
                box = low <= i and i <= end and first <= j
                ends = low <= i and j < wide
                rest = i + j < end if form == 2 else h > 0
                ok = box if form == 0 else ends if form == 1 else rest
                acc += i32(X[c, i + at, j + 1] if ok else 0) * i32(W[f, c, r, s])
            Y[f, h, v] = i8(min(max((acc + b[f]) >> 3, -100), 90))

    s = Schedule(windows.kernel)
    loops = [x for x in s.loops()[:3] if s.for_(x).extent != 1]
    if split < len(loops):
        s.split(loops[split], tile)
    return s


def check(s: Schedule) -> None:
    """The schedule's program is one, and computes what the kernel does."""
    verify_kernel(s.kernel)
    check_same(s.original, s.kernel)


def check_same(a: Kernel, b: Kernel) -> None:
    inputs = [array(2 * i + 1, x.dtype, x.shape) for i, x in enumerate(a.inputs)]
    for wanted, found in zip(interpret(a, inputs), interpret(b, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


def call_of(s: Schedule) -> Call:
    """The one call of the program."""
    (call,) = (x for x in walk_statements(s.kernel.body) if isinstance(x, Call))
    return call


def fields(s: Schedule) -> dict[str, str]:
    """What the call gives the instruction's fields."""
    call = call_of(s)
    return {f.name: str(v) for f, v in zip(call.instruction.fields, call.fields, strict=True)}
