"""What devices are handed: the listing, the folder, and that VTA as it was published, of which the
compiler knows nothing, makes of the folder what our simulator makes."""

import itertools
import json
import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import schemas
import vta_machine as v
from command_line import failure, run_commands  # noqa: F401  (a fixture: `tilewright`)
from vta_beside import Beside
from vta_published import Chip, Dump, Fault

import tilewright
from tilewright.base.errors import ArtifactError, CompileError, TargetError
from tilewright.ir.evaluate import evaluate_program
from tilewright.ir.text.host import parse_host
from tilewright.ir.text.tensor import parse_program
from tilewright.options import Options
from tilewright.program.host_program import Submit
from tilewright.runtime.simulator import Simulator
from tilewright.targets.chips import CHIPS

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
ORDERS = list(itertools.permutations(range(3)))  # load, compute, store: which goes on first


def options(**more):
    return Options(dims={"batch": 1}, rounding="half_up", **more)


def handed(digits, chip, **more):
    devices = {"host": "host", "npu": CHIPS[chip]()}
    return tilewright.compile(digits, target=devices, options=options(**more), until="stream")


KERNELS = pytest.param(False, id="kernels", marks=pytest.mark.long)


@pytest.fixture(scope="session", params=[KERNELS, pytest.param(True, id="subgraphs")])
def compiled(request, digits, tmp_path_factory):
    """The network on VTA: a module's file, and the folder of what VTA is handed."""
    folder = tmp_path_factory.mktemp("dump")
    devices = {"host": "host", "npu": CHIPS["vta"]()}
    chosen = options(subgraphs=request.param)
    tilewright.compile(digits, target=devices, options=chosen).save(folder / "digits.tw")
    found = handed(digits, "vta", subgraphs=request.param)
    written = found.save(folder / "dump")
    assert written == sum(f.stat().st_size for f in (folder / "dump").rglob("*") if f.is_file())
    return folder


# ---------------------------------------------------------------- the published machine


SOME = [o if k == 0 else pytest.param(o, marks=pytest.mark.long) for k, o in enumerate(ORDERS)]


@pytest.mark.parametrize("order", SOME)
@pytest.mark.parametrize("deep", [{}, {"commands": 8, "tokens": 8}], ids=["deep", "eight"])
def test_published_vta_makes_what_the_simulator_makes(compiled, digit_images, order, deep):
    """Each submit gives the same bytes, whichever queue goes on first, in queues of any depth."""
    made = []

    def beside(part):
        made.append(Beside(part, Dump(compiled / "dump"), order=order, **deep))
        return made[-1]

    published = tilewright.load(compiled / "digits.tw", devices={"simulator": beside})
    ours = tilewright.load(compiled / "digits.tw")
    for image in digit_images[:2]:
        assert np.array_equal(published(image[None]), ours(image[None]))
    (device,) = made
    submits = len(device.dump.submits)
    assert len(device.reports) == submits
    counts = [r.counts for r in device.reports]
    assert all(c["finish"] == 1 for c in counts)
    assert sum(r.rows["gemm"] for r in device.reports if "gemm" in r.rows) > 500
    assert all(max(r.held.values()) <= deep.get("commands", 200) for r in device.reports)


@pytest.fixture
def first(compiled, digit_images):
    """The first submit's words, and DRAM with a random operand."""
    dump = Dump(compiled / "dump")
    submit = dump.submits[0]
    words = np.fromfile(dump.folder / submit["instructions"]["file"], "<u8").reshape(-1, 2)
    dram = np.fromfile(dump.folder / submit["memories"][0]["file"], np.uint8)
    for o in submit["operands"]:
        some = np.random.default_rng(0).integers(0, 128, o["bytes"], np.uint8)
        dram[o["address"] : o["address"] + o["bytes"]] = some
    return words, dram


def opcodes(words):
    return (words[:, 0] & np.uint64(7)).astype(int)


BITS = {"pop_prev": 3, "pop_next": 4, "push_prev": 5, "push_next": 6}


def having(words, opcode, bit):
    """The rows with this opcode and token."""
    return np.flatnonzero(
        (opcodes(words) == opcode) & (words[:, 0] >> np.uint64(BITS[bit]) & np.uint64(1) == 1)
    )


def without(words, row, *bits):
    changed = words.copy()
    for bit in bits:
        changed[row, 0] &= ~np.uint64(1 << BITS[bit])
    return changed


def givers(words, taker):
    """Instructions of compute before one of store that give store a token."""
    found = np.concatenate([having(words[:taker], k, "push_next") for k in (v.GEMM, v.ALU_CODE)])
    return np.sort(found)


def fault(words, dram, **more):
    """What goes wrong in one order at least."""

    def run():
        for order in ORDERS:
            Chip(dram, order=order, **more).run(words)

    with pytest.raises(Fault) as caught:
        run()
    return str(caught.value)


def test_a_wait_left_out_is_a_race(first):
    words, dram = first
    taker = having(words, v.STORE, "pop_prev")[0]
    giver = givers(words, taker)[-1]
    alone = without(without(words, taker, "pop_prev"), giver, "push_next")
    assert "touch the same bytes of out, and no token orders them" in fault(alone, dram)


def test_tokens_too_few_and_too_many_are_noticed(first):
    words, dram = first
    taker = having(words, v.STORE, "pop_prev")[0]
    more = words.copy()
    more[-1, 0] |= np.uint64(1 << BITS["push_next"])
    assert fault(more, dram) == "tokens are left when the program ends: compute for store"
    giver = givers(words, taker)[-1]
    assert "the program stops for good" in fault(without(words, giver, "push_next"), dram)


def test_a_program_without_an_end_is_refused(first):
    words, dram = first
    assert fault(words[:-1], dram) == "a program ends with FINISH, and has one"


def test_what_is_not_written_is_not_read(first):
    words, dram = first
    keep = np.ones(len(words), bool)
    lists = np.flatnonzero(
        (opcodes(words) == v.LOAD) & (words[:, 0] >> np.uint64(7) & np.uint64(7) == v.UOPS)
    )
    keep[lists[0]] = False
    assert "reads uop, where nothing was written" in fault(words[keep], dram)


def test_an_accumulator_written_twice_in_a_row_is_a_fault(first):
    words, dram = first
    changed = words.copy()
    row = np.flatnonzero(opcodes(words) == v.ALU_CODE)[0]
    changed[row, 1] &= ~np.uint64((1 << 22) - 1)  # its steps along rows
    assert "writes an accumulator twice within 3" in fault(changed, dram)


# ---------------------------------------------------------------- the folder


def test_the_index_says_all_that_an_interpreter_needs(compiled):
    dump = Dump(compiled / "dump")
    assert {k: dump.index[k] for k in ("format", "model", "byte_order", "address_bytes")} == {
        "format": 1, "model": "digits", "byte_order": "little", "address_bytes": 1,
    }  # fmt: skip
    host = parse_host((compiled / "dump" / "host.txt").read_text())
    steps = [s for s in host.steps if isinstance(s, Submit)]
    assert [(s.kernel, list(s.nodes)) for s in steps] == [
        (s["kernel"], s["nodes"]) for s in dump.submits
    ]
    for step, s in zip(steps, dump.submits, strict=True):
        given = s["operands"] + [c for c in s["constants"] if c["holds"] == "operand"]
        in_order = sorted(given, key=lambda o: o["argument"])
        assert [o["slot"] for o in in_order] == list(step.inputs)
        assert [o["slot"] for o in s["results"]] == list(step.outputs)
        (memory,) = s["memories"]
        places = sorted((o["address"], o["bytes"]) for o in (*given, *s["results"]))
        assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(places))
        assert places[-1][0] + places[-1][1] <= memory["bytes"]
        image = np.fromfile(dump.folder / memory["file"], np.uint8)
        for o in s["operands"]:  # what comes with each call is not in the image
            assert not image[o["address"] : o["address"] + o["bytes"]].any()
        assert any(c["holds"] == "micro-operations" for c in s["constants"])


class Watched:
    """The simulator, and what it was given."""

    given: ClassVar[list] = []

    def __init__(self, part):
        self.inner = Simulator(part)

    def submit(self, kernel, inputs, outputs):
        self.given.append([x.copy() for x in inputs])
        self.inner.submit(kernel, inputs, outputs)

    def wait(self):
        """Everything is done."""


def test_the_index_says_how_operands_lie_in_memory(compiled, digit_images):
    """What the simulator is given is what the operand's program makes of some image, in memory by
    the operand's form."""
    Watched.given.clear()
    tilewright.load(compiled / "digits.tw", devices={"simulator": Watched})(digit_images[:1])
    (o,) = Dump(compiled / "dump").submits[0]["operands"]
    memory = Watched.given[0][o["argument"]]
    assert list(memory.shape) == o["shape"]
    size = int(np.prod(o["form"]["shape"]))
    places = in_memory(np.arange(1, size + 1).reshape(o["form"]["shape"]), o["form"])
    form = np.zeros(size + 1, np.int8)
    form[places] = memory.reshape(places.shape)
    form = form[1:].reshape(o["form"]["shape"])
    program = parse_program(o["made_by"])
    shape = tuple(int(n) for n in program.inputs[0].shape)
    numbers = np.arange(1, np.prod(shape) + 1, dtype=np.int8).reshape(shape)
    (sources,) = evaluate_program(program, [numbers])
    image = np.zeros(numbers.size + 1, np.int8)
    image[sources] = form
    assert image[1:].any()
    (again,) = evaluate_program(program, [image[1:].reshape(shape)])
    assert np.array_equal(again, form)


def in_memory(array, form):
    """As docs/stream-binary.md has it: axes filled up to their blocks, in order, blocks inside."""
    factors = [
        int(np.prod([f for a, f in form["blocks"] if a == axis])) for axis in range(array.ndim)
    ]
    array = np.pad(array, [(0, -n % f) for n, f in zip(array.shape, factors, strict=True)])
    axes, shape = [], []
    for axis, factor in enumerate(factors):
        axes.append(len(shape))
        shape.append(array.shape[axis] // factor)
        shape += [f for a, f in form["blocks"] if a == axis]
    inner = []
    seen = dict.fromkeys(range(array.ndim), 0)
    for axis, _ in form["blocks"]:
        seen[axis] += 1
        inner.append(axes[axis] + seen[axis])
    return array.reshape(shape).transpose([*(axes[a] for a in form["order"]), *inner])


# ---------------------------------------------------------------- other chips, and what is refused


@pytest.mark.parametrize(
    "chip", ["conv_engine", *(pytest.param(c, marks=pytest.mark.long) for c in ("tiny", "gemmini"))]
)
def test_every_chip_with_an_encoding_is_written(chip, digits, tmp_path):
    found = handed(digits, chip)
    found.save(tmp_path / "out")
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    assert [s["target"] for s in index["submits"]] == [chip] * len(found.submits)
    for s in index["submits"]:
        code = (tmp_path / "out" / s["instructions"]["file"]).read_bytes()
        assert len(code) == s["instructions"]["bytes"] > 0


@pytest.mark.long
def test_a_chip_without_an_encoding_is_refused(digits, tmp_path):
    found = handed(digits, "dsp")
    assert "get_i8" in str(found)  # the listing needs no bits
    with pytest.raises(TargetError) as caught:
        found.save(tmp_path / "out")
    assert str(caught.value) == (
        "get_i8 of dsp has no encoding\n"
        "  hint: say its bits: @t.instruction(…, encoding=bits(128, …))"
    )
    assert not list(tmp_path.iterdir())


def test_a_model_of_which_nothing_is_submitted():
    with pytest.raises(CompileError) as caught:
        tilewright.compile(DIGITS / "digits.onnx", until="stream")
    assert str(caught.value) == (
        "nothing of digits is submitted: the host runs all of it\n"
        "  hint: tilewright explain says why, for each step; --target host --target NAME gives a"
        " chip beside the host"
    )


def test_a_folder_with_something_in_it_is_not_replaced(digits, tmp_path):
    found = handed(digits, "tiny")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("kept")
    for name, why in (
        ("full", "the folder is not empty"),
        ("full/mine", "it is there, and no folder"),
    ):
        with pytest.raises(ArtifactError) as caught:
            found.save(tmp_path / name)
        assert str(caught.value) == (
            f"cannot write {tmp_path / name}: {why}\n"
            "  hint: name one that is not there, or is empty"
        )
    assert [p.name for p in tmp_path.rglob("*")] == ["full", "mine"]
    (tmp_path / "empty").mkdir()
    found.save(tmp_path / "empty")
    assert (tmp_path / "empty" / "index.json").exists()


# ---------------------------------------------------------------- the command


ON_ENGINE = ("--dim", "batch=1", "--target", "host", "--target", "conv_engine")
ON_ENGINE += ("--rounding", "half_up")
STREAM = ("--stage", "stream")


@pytest.mark.long
def test_dump_lists_every_submit(tilewright, digits):
    code, out, err = tilewright("dump", str(digits), *ON_ENGINE, *STREAM, "--quiet")
    assert (code, err) == (0, "")
    heads = [line for line in out.splitlines() if line.startswith("submit ")]
    assert [h.split(":")[0] for h in heads] == [f"submit {k} to conv_engine" for k in range(2)]
    assert heads[0].split("; ")[0].endswith("nodes value1, value2.int8, value4, value5.int8")
    assert re.search(r" = dram\[0x0\], .* -> \S+ = dram\[0x[0-9a-f]+\]$", heads[0])
    assert sum(" load " in line for line in out.splitlines()) > 4
    found = json.loads(tilewright("dump", str(digits), *ON_ENGINE, *STREAM, "--json")[1])
    assert "\n\n".join(found["programs"].values()) + "\n" == out
    name = list(found["programs"])[1]
    one = tilewright("dump", str(digits), *ON_ENGINE, *STREAM, "--kernel", name, "-q")
    assert one == (0, found["programs"][name] + "\n", "")


def test_dump_writes_a_folder(tilewright, digits, tmp_path):
    out = tmp_path / "out"
    written = tilewright(
        "dump", str(digits), *ON_ENGINE, *STREAM, "--binary", "-o", str(out), "--json"
    )
    found = json.loads(written[1])
    schemas.validate("dump", found)
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    assert found == {
        "model": str(digits), "stage": "stream", "folder": str(out), "bytes": size, "submits": 2,
        "instructions": found["instructions"],
    }  # fmt: skip
    again = tmp_path / "again"
    code, said, _ = tilewright(
        "dump", str(digits), *ON_ENGINE, *STREAM, "--binary", "-o", str(again)
    )
    assert code == 0
    assert " ".join(said.split()).startswith(f"wrote {again}: 2 submits of ")
    same = [p.relative_to(out) for p in sorted(out.rglob("*")) if p.is_file()]
    assert same == [p.relative_to(again) for p in sorted(again.rglob("*")) if p.is_file()]
    assert all((out / p).read_bytes() == (again / p).read_bytes() for p in same)


NOWHERE = (
    "--output is where --binary writes, and dump prints to stdout without it\n"
    "  hint: add --binary --stage stream, or write what is printed to a file: > FILE"
)
ELSE = (
    "--binary writes all that devices are handed, and {} asks for something else\n"
    "  hint: --stage stream --binary -o FOLDER"
)
FULL = "cannot write .: the folder is not empty\n  hint: name one that is not there, or is empty"


@pytest.mark.parametrize(
    "arguments, text",
    [
        ([*STREAM, "-o", "out"], NOWHERE),
        (["--stage", "host", "--binary", "-o", "out"], ELSE.format("--stage host")),
        ([*STREAM, "--binary", "-o", "out", "--kernel", "k1"], ELSE.format("--kernel")),
        ([*STREAM, "--binary"], "--binary writes a folder, and none is named\n  hint: -o FOLDER"),
        ([*STREAM, "--binary", "-o", "."], FULL),
    ],
)
def test_mistakes_of_the_command(tilewright, digits, arguments, text, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").touch()
    monkeypatch.chdir(tmp_path / "here")
    assert failure(tilewright("dump", str(digits), *ON_ENGINE, *arguments)) == f"error: {text}\n"
