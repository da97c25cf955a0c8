"""`targets`, `check-target`, `new-target`: what they print, exit codes, and files they write."""

import functools
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from tilewright.check.conformance import check_conformance
from tilewright.check.skeleton import SKELETON
from tilewright.cli import listing
from tilewright.cli import main as cli
from tilewright.targets.chips import CHIPS

MANUAL = Path(__file__).parent / "check" / "manual.txt"
SMALL = """
from tilewright import cast, grid, i8, i32, reduce
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, cost, view
from tilewright.target.encoding import address, bits, constant, end_entry, field, first_entry, pop

def small():
    t = TargetBuilder("small", clock=250e6)
    t.memory("dram", bandwidth=8, latency=20)
    t.memory("spad", 4096, unit=16)
    t.memory("lists", 64)
    load, compute = t.queues("load", "compute", depth=4)
    t.tokens((load, compute))
    n = dims("n", max=16)
    listed = t.micro_ops("lists", encoding=bits(16, address("c", 8)))

    @t.instruction(load, encoding=bits(
        64, constant(2, 3), pop(compute), address("a", 24), address("c", 8),
        field("rows", 6, minus=1), field("step", 12, unit=16)))
    def mvin(a: view(i8[64, 16] @ "dram", "step"), c: out(i8[64, 16] @ "spad"),
             rows: Range(1, 64), step: Range(0, 65520, multiple=16)):
        \"\"\"Rows of 16 bytes.\"\"\"
        for i, j in grid(rows, 16):
            c[i, j] = a[i, j]
        cost(setup=4, bytes=rows * 16)

    @t.instruction(compute, encoding=bits(
        32, constant(1, 3), first_entry(5), end_entry(6), field("by", 8, signed=True)))
    def fill(c: view(out(i8[n, 16] @ "spad"), listed), by: Range(-128, 127)):
        for i, j in grid(n, 16):
            c[i, j] = cast(i8, by)
        cost(busy=n)

    return t.build()
"""


@pytest.fixture
def tilewright(capsys, monkeypatch, tmp_path):
    """Runs a command in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", ["tilewright", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return run


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


# ---------------------------------------------------------------- targets


def test_the_list(tilewright):
    code, out, err = tilewright("targets")
    assert (code, err) == (0, "")
    found = lines(out)
    assert found[0].split() == [
        "target", "processor", "cores", "vector", "registers", "caches",
    ]  # fmt: skip
    at = found.index("")
    assert found[at + 1].split() == ["chip", "clock", "instructions", "queues", "memories"]
    assert [line.split()[0] for line in found[at + 2 :]] == list(CHIPS)
    rows = json.loads(tilewright("targets", "--json")[1])
    kinds = {r["name"]: r["kind"] for r in rows}
    assert (kinds["host"], kinds["avx2"], kinds["tiny"]) == ("processor", "processor", "chip")
    assert next(r for r in rows if r["name"] == "tiny")["queues"] == ["load", "compute", "store"]


@pytest.mark.parametrize("columns", [80, 120])
def test_the_manual(tilewright, tmp_path, columns: int):
    (tmp_path / "small.py").write_text(SMALL)
    code, out, err = tilewright("targets", "small.py", columns=columns)
    assert (code, err) == (0, "")
    assert lines(out) == MANUAL.read_text(encoding="utf-8").splitlines()


def test_the_manual_of_a_processor(tilewright):
    code, out, _ = tilewright("targets", "avx2")
    assert code == 0
    assert "  meaning   for i in range(8):" in lines(out)
    assert "queue" not in out


def test_the_manual_in_json(tilewright):
    found = json.loads(tilewright("targets", "tiny", "--json")[1])
    assert [i["name"] for i in found["instructions"]] == ["mvin", "gemm", "mvout"]
    assert found["instructions"][0]["fields"][0] == {
        "name": "rows", "low": 1, "high": 64, "multiple": 1, "register": None,
    }  # fmt: skip


def test_a_target_that_is_not_there(tilewright):
    assert tilewright("targets", "tinny") == (
        2,
        "",
        (
            "error: there is no target called 'tinny', and a file's name would be"
            " FILE.py[:FUNCTION]\n"
            "  hint: did you mean 'tiny'?\n"
        ),
    )


# ---------------------------------------------------------------- new-target and check-target


def test_a_new_target_passes_as_it_is(tilewright, tmp_path):
    code, out, err = tilewright("new-target", "mychip")
    assert (code, err) == (0, "")
    assert out == "wrote mychip.py; next: tilewright check-target mychip.py\n"
    assert os.listdir(tmp_path) == ["mychip.py"]
    assert stat.S_IMODE((tmp_path / "mychip.py").stat().st_mode) & 0o400
    code, out, err = tilewright("check-target", "mychip.py")
    assert (code, err) == (0, "")
    assert lines(out) == [
        "lint: nothing to say",
        "",
        "instruction  queue    cases  passed  encoding",
        "mvin         load        12      12  128 bits",
        "gemm         compute     12      12  128 bits",
        "mvout        store       12      12  128 bits",
        "",
        "hazards: 6 pairs of instructions ordered by their waits; 6 waits left out, 6 caught",
        "queues: 4 pairs filled beyond their depth",
        (
            "nothing makes one wait for the other directly: mvin then mvout on dram, "
            "mvout then mvin on dram"
        ),
        "passed: 0 errors, 36 of 36 cases",
    ]


def test_a_file_is_never_overwritten(tilewright, tmp_path):
    (tmp_path / "mine.py").write_text("# mine")
    assert tilewright("new-target", "mine") == (
        2, "", "error: mine.py exists already\n  hint: take another name, or move it away\n",
    )  # fmt: skip
    assert (tmp_path / "mine.py").read_text() == "# mine"


@pytest.mark.parametrize("name", ["my-chip", "1chip", "class", "a/b", ""])
def test_names_that_are_none(tilewright, tmp_path, name: str):
    assert tilewright("new-target", name) == (
        2,
        "",
        (
            f"error: {name!r} cannot be a chip's name: a function is called so\n"
            "  hint: letters, digits and underscores, a letter first\n"
        ),
    )
    assert os.listdir(tmp_path) == []


TOKENS = "    t.tokens((load, compute), (compute, store))"


def spoiled(*changes: tuple[str, str]) -> str:
    """The skeleton with some other words."""
    text = SKELETON.replace("NAME", "chip")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def test_a_description_with_errors(tilewright, tmp_path):
    """It is tried all the same, and the exit code says that it has errors."""
    text = spoiled(
        ("    load, compute, store =", '    t.memory("rom", 64)\n    load, compute, store ='),
        ("tokens((load, compute), (compute, store))", "tokens((load, compute))"),
        ("code(1, load, store, product)", "code(1, load, None, product)"),
        ("code(2, compute, None, moved)", "code(2, None, None, moved)"),
    )
    (tmp_path / "chip.py").write_text(text)
    code, out, err = tilewright("check-target", "chip.py")
    assert (code, err) == (1, "")
    found = lines(out)
    assert found[0] == "lint: 2 errors, 1 warning"
    assert found[-1] == "failed: 2 errors, 36 of 36 cases"
    found = json.loads(tilewright("check-target", "chip.py", "--json")[1])
    assert (found["passes"], found["report"]["conforms"]) == (False, True)
    assert [p["where"].split(":")[0] for p in found["problems"]] == ["chip.py"] * 3


def test_a_description_whose_parts_do_not_fit(tilewright, tmp_path):
    text = spoiled(("dst: out(i8[64, mesh] @ spad)", 'dst: out(i8[64, mesh] @ "pad")'))
    (tmp_path / "chip.py").write_text(text)
    code, out, err = tilewright("check-target", "chip.py")
    assert (code, err) == (1, "")
    line, tokens = (1 + text.splitlines().index(x) for x in ("    def mvin(", TOKENS))
    assert lines(out) == [
        "lint: 1 error, 1 warning",
        f"chip.py:{line}: error: operand dst of mvin lies in 'pad'",
        "  why: the compiler must know where to put it",
        "  hint: did you mean 'spad'?",
        f"chip.py:{tokens}: warning: tokens between load and compute are never used",
        "  why: no memory is written by one and touched by the other",
        "  hint: take them away, or check which queues the instructions are of",
        "failed: nothing was tried, for the parts do not fit together",
    ]


def test_a_chip_that_fails(tilewright, monkeypatch):
    """A simulator with a fault: the case is named, and the exit code says so."""

    def broken(stream, waits, memories):
        memories["acc"][:64] ^= 1

    tried = functools.partial(check_conformance, engine=broken)
    monkeypatch.setattr(listing, "check_conformance", tried)
    code, out, _ = tilewright("check-target", "tiny")
    assert code == 1
    assert lines(out)[-1].startswith("failed: ")
    assert any(line.startswith("failed: mvin(src=dram[0x") for line in lines(out))


def test_a_processor_is_not_tried(tilewright):
    assert tilewright("check-target", "avx2") == (
        2, "", "error: avx2 is a processor\n  hint: check-target is for chips with queues\n",
    )  # fmt: skip


# ---------------------------------------------------------------- explain


KERNELS = """
from tilewright import cast, dims, grid, i8, i32, kernel, reduce

N = dims("N")

@kernel
def product(A: i8[N, 64], B: i8[64, 32], C: i32[N, 32]):
    for i, j in grid(N, 32):
        C[i, j] = 0
        for k in reduce(64):
            C[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])

@kernel
def copy(A: i8[16], B: i8[16]):
    for i in range(16):
        B[i] = A[i]
"""


@pytest.fixture
def kernels(tmp_path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)


def test_a_kernel_is_explained(tilewright, kernels):
    arguments = ("explain", "kernels.py:product", "--target", "tiny", "--dim", "N=64")
    code, out, err = tilewright(*arguments)
    assert (code, err) == (0, "")
    found = lines(out)
    assert found[0].startswith("product on tiny: ")
    assert any(line.startswith("bottleneck: ") for line in found)
    facts = json.loads(tilewright(*arguments, "--json")[1])
    assert found[0].startswith(f"product on tiny: {facts['cycles']:,} cycles (")


@pytest.mark.parametrize(
    "arguments, error",
    [
        (("kernels.py",), "kernels.py has 2 kernels\n  hint: say which: kernels.py:product"),
        (
            ("kernels.py:produkt",),
            "kernels.py has no kernel called 'produkt'\n  hint: did you mean 'product'?",
        ),
        (
            ("kernels.py:product",),
            (
                "no --dim says how large N of product is, and instructions are for certain sizes\n"
                "  hint: --dim N=…"
            ),
        ),
        (
            ("kernels.py:copy", "--input", "A=random"),
            "a kernel is explained without its inputs\n  hint: leave out --input",
        ),
        (
            ("kernels.py:copy", "--target", "avx2"),
            (
                "avx2 is a processor, and kernels are explained on chips with queues\n"
                "  hint: --target FILE.py, or one of tiny, vta, gemmini, conv_engine, dsp"
            ),
        ),
        (
            ("kernels.py:copy", "--target", "vta", "--target", "tiny"),
            "a kernel is explained on one target\n  hint: --target tiny",
        ),
        (("none.py",), "cannot read none.py: No such file or directory"),
        (
            ("empty.py",),
            "empty.py has no kernel\n  hint: a kernel is a function under @kernel",
        ),
    ],
    ids=lambda x: x[0] if isinstance(x, tuple) else "",
)
def test_a_kernel_that_cannot_be_explained(tilewright, kernels, tmp_path, arguments, error: str):
    (tmp_path / "empty.py").write_text("")
    chip = () if "--target" in arguments else ("--target", "tiny")
    assert tilewright("explain", *arguments, *chip) == (2, "", f"error: {error}\n")
