"""What fits into a terminal of 60, 80 and 200 columns, and into a file."""

import os
import pty
import re
import struct
import sys
import termios
from fcntl import ioctl

import pytest

from tilewright.cli.layout import ENDLESS, Column, fit_table, make_console, wrap
from tilewright.cli.measure import StepRow, costliest
from tilewright.cli.progress import Progress
from tilewright.cli.show import steps_table
from tilewright.report.bounds import StepBound


def row(number, name, nodes, spent, share, bound):
    return StepRow(number, "call", name, "host", nodes, spent, share, 53_800_000, 2_220_000, bound)


ROWS = [
    row(0, "k0_conv_add_relu", ("Conv_0", "BatchNormalization_1", "Relu_2"), 85_100, 0.1,
        StepBound(15_000, "compute")),
    row(1, "k1_encoder_layer_11_attention_output_dense", ("/encoder/layer.11/attention/dense",),
        700_000, 0.8, StepBound(280_000, "memory", "dram")),
    row(2, "unique", ("Unique_7",), 90_000, 0.1, None),
]  # fmt: skip


def shown(what, width):
    console = make_console()
    console.width = width
    with console.capture() as captured:
        console.print(what)
    return [line.rstrip() for line in captured.get().splitlines()]


AT_60 = """\
step  kernel           time   share  of bound  bound by
   0  k0_con…_relu  85.1 µs   10.0%       18%  compute
   1  k1_enc…dense   700 µs   80.0%       40%  memory (dram)
   2  unique          90 µs   10.0%         –  –
      all            875 µs  100.0%       34%
"""
AT_80 = """\
step  kernel              time   share  of bound  bound by       nodes
   0  k0_conv…dd_relu  85.1 µs   10.0%       18%  compute        Conv_0,… Relu_2
   1  k1_enco…t_dense   700 µs   80.0%       40%  memory (dram)  /encode…n/dense
   2  unique             90 µs   10.0%         –  –              Unique_7
      all               875 µs  100.0%       34%
"""
AT_200 = """\
step  kernel                                      device     time   share  operations    bytes\
  of bound  bound by       nodes
   0  k0_conv_add_relu                            host    85.1 µs   10.0%    53.8 Mop  2.22 MB\
       18%  compute        Conv_0, BatchNormalization_1, Relu_2
   1  k1_encoder_layer_11_attention_output_dense  host     700 µs   80.0%    53.8 Mop  2.22 MB\
       40%  memory (dram)  /encoder/layer.11/attention/dense
   2  unique                                      host      90 µs   10.0%    53.8 Mop  2.22 MB\
         –  –              Unique_7
      all                                                  875 µs  100.0%     161 Mop  6.66 MB\
       34%
"""


@pytest.mark.parametrize(
    "width, text", [(60, AT_60), (80, AT_80), (200, AT_200), (ENDLESS, AT_200)]
)
def test_steps_of_a_model(width, text):
    assert "\n".join(shown(steps_table(ROWS, width), width)) + "\n" == text


def test_the_worst_steps_come_first():
    assert "\n".join(shown(steps_table(ROWS, 60, 1), 60)) + "\n" == (
        "step  kernel           time   share  of bound  bound by\n"
        "   1  k1_enc…_dense  700 µs   80.0%       40%  memory (dram)\n"
        "      2 others       175 µs   20.0%\n"
        "      all            875 µs  100.0%       34%\n"
    )
    assert [r.number for r in costliest(ROWS, 2)] == [1, 2]
    assert costliest(ROWS, None) == ROWS
    assert shown(steps_table(ROWS, 60, 3), 60)[-2].startswith("   0  k0")


def test_a_table_that_has_no_room_keeps_its_numbers():
    columns = (Column("name", is_name=True), Column(">number"), Column("more", spare=1))
    rows = [("a long name", "123,456,789", "text"), ("b", "1", "text")]
    assert shown(fit_table(columns, rows, 15), 15) == [
        "n…       number",
        "a…  123,456,789",
        "b             1",
    ]


def test_a_cell_that_goes_on_keeps_numbers_and_units_together():
    columns = (Column("chip"), Column("memories", folds=True))
    rows = [("one", "spad 64.0 KiB, acc 128 bytes"), ("other", "none")]
    assert shown(fit_table(columns, rows, 20), 20) == [
        "chip   memories",
        "one    spad",
        "       64.0 KiB, acc",
        "       128 bytes",
        "other  none",
    ]


# ---------------------------------------------------------------- sentences


@pytest.mark.parametrize(
    "width, lines",
    [
        (80, ["at best: 236 Gop/s (float32), reading from l1 409 GB/s; a step takes 12.3 ms"]),
        (75, ["at best: 236 Gop/s (float32), reading from l1 409 GB/s; a step takes", "  12.3 ms"]),
        (
            36,
            [
                "at best: 236 Gop/s (float32),",
                "  reading from l1 409 GB/s; a step",
                "  takes 12.3 ms",
            ],
        ),
        (
            12,
            [
                *("at best:", "  236 Gop/s", "  (float32),", "  reading", "  from"),
                *("  l1 409 GB/s;", "  a step", "  takes", "  12.3 ms"),
            ],
        ),
    ],
)
def test_a_number_stays_with_its_unit(width, lines):
    text = "at best: 236 Gop/s (float32), reading from l1 409 GB/s; a step takes 12.3 ms"
    assert wrap(text, width).splitlines() == lines


def test_rows_of_a_table_go_on_in_their_last_column():
    text = "queue    works  waits for\nload     48.9%  bandwidth 21.5%, compute 7.2%, store 1.5%"
    assert wrap(text, 40).splitlines() == [
        "queue    works  waits for",
        "load     48.9%  bandwidth 21.5%,",
        "                compute 7.2%, store 1.5%",
    ]


def test_what_fits_stays_as_it_is():
    text = "  a   line\n\nand  another"
    assert wrap(text, 12) == text


# ---------------------------------------------------------------- progress


def test_how_far_it_is_and_how_long_it_takes():
    times = iter([100.0, 100.0, 130.0, 160.0, 279.0, 300.0, 300.0, 304.0, 308.0])
    said = []
    progress = Progress(quiet=False, clock=lambda: next(times))
    with progress.working("compiling"):
        progress._status = said.append
        for done in (0, 1, 2, 5):
            progress.count("kernels", done, 6)
        progress.tell("fuse")
        for done, name in enumerate(("gemm", "add", "store")):  # others, by what is done now
            progress.count(f"tried, now {name}", done, 4)
    assert said == [
        "compiling: 0 of 6 kernels …",
        "compiling: 1 of 6 kernels, 2 min left …",
        "compiling: 2 of 6 kernels, 2 min left …",
        "compiling: 5 of 6 kernels, 36 s left …",
        "compiling: fuse …",
        "compiling: 0 of 4 tried, now gemm …",
        "compiling: 1 of 4 tried, now add, 12 s left …",
        "compiling: 2 of 4 tried, now store, 8 s left …",
    ]


def test_nobody_is_told_where_nobody_sees_it(capsys):
    progress = Progress(quiet=True)
    with progress.working("compiling"):
        progress.count("kernels", 1, 2)
    progress.say("not this")
    assert capsys.readouterr() == ("", "")


def test_a_real_terminal(monkeypatch, tmp_path):
    """Of 60 columns: no line is longer, and no number has lost its unit."""
    product = tmp_path / "product.py"
    product.write_text(PRODUCT)
    child, terminal = pty.fork()
    if child == 0:
        ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 60, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
        command = [sys.executable, "-m", "tilewright", "explain", str(product), "--target", "tiny"]
        os.execve(sys.executable, command, environment | {"TERM": "xterm"})
    found = b""
    while part := _read(terminal):
        found += part
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", found.decode()).replace("\r\n", "\n")
    lines = text[text.index("product on tiny") :].rstrip().splitlines()
    assert max(map(len, lines)) <= 60
    assert len(lines) > 10
    assert not any(re.search(r"\d$", line) for line in lines if "," not in line[-4:])


def _read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end is closed
        return b""


PRODUCT = """
from tilewright import cast, grid, i8, i32, kernel, reduce

@kernel
def product(A: i8[64, 64], B: i8[64, 64], C: i32[64, 64]):
    for i, j in grid(64, 64):
        C[i, j] = 0
        for k in reduce(64):
            C[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
"""
