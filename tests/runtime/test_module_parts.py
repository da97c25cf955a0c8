"""The parts of the runtime below a module: sizes, plans, linking, and what the machine has."""

import copy
import ctypes
import json

import numpy as np
import pytest
from handmade_programs import affine, facts, kernels, object_code
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import ArtifactError, CompileError, InputError
from tilewright.ir.dims import size_of
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import BinaryOp, Symbol, UnaryOp, as_expr, binary, unary
from tilewright.ir.text.host import parse_host
from tilewright.program.host_program import HostProgram, MemoryKind, MemorySpec, SymbolSpec
from tilewright.program.size import Arithmetic, evaluate_size, format_size
from tilewright.runtime import system
from tilewright.runtime.arena import ArenaSet
from tilewright.runtime.executor import _aligned
from tilewright.runtime.loader import load_code
from tilewright.runtime.program import StepFacts, checked
from tilewright.runtime.records import from_json, to_json
from tilewright.runtime.system import available_cpus, available_memory, format_bytes


def refusal(what, *args, **named):
    with pytest.raises((ArtifactError, InputError)) as caught:
        what(*args, **named)
    return str(caught.value)


# ---------------------------------------------------------------- sizes

ARITHMETIC = [
    BinaryOp.ADD,
    BinaryOp.SUB,
    BinaryOp.MUL,
    BinaryOp.DIV,
    BinaryOp.FLOORDIV,
    BinaryOp.MOD,
    BinaryOp.REM,
    BinaryOp.MIN,
    BinaryOp.MAX,
]
DIMS = st.recursive(
    st.integers(-9, 9).map(as_expr) | st.sampled_from([Symbol("n"), Symbol("m")]),
    lambda inner: st.builds(binary, st.sampled_from(ARITHMETIC), inner, inner),
    max_leaves=8,
)


@given(DIMS, st.integers(-5, 9), st.integers(-5, 9))
def test_sizes_mean_what_dimensions_mean(dim, n, m):
    size = size_of(dim)
    symbols = {"n": n, "m": m}
    try:
        found = evaluate_size(size, symbols)
    except InputError:
        return  # a division by zero: see below
    assert found == evaluate_dim(dim, symbols)


@given(DIMS)
def test_sizes_are_what_they_were_in_json_and_in_text(dim):
    facts = StepFacts(operations=size_of(dim))
    assert from_json(StepFacts, json.loads(json.dumps(to_json(facts))), "here") == facts
    memory = MemorySpec("m", "", MemoryKind.ARENA, size_of(dim))
    symbols = (SymbolSpec("m"), SymbolSpec("n"))
    program = HostProgram("h", symbols, (), (), (memory,), (), ())
    assert parse_host(str(program)) == program


def test_sizes_print_as_python():
    n = Symbol("n")
    size = size_of(binary(BinaryOp.MAX, (n + 1) * 2 // 3 % 5, n - 1))
    assert format_size(size) == "max((n + 1) * 2 // 3 % 5, n - 1)"
    doubled = Arithmetic("mul", Arithmetic("add", "n", 1), 2)
    rest = Arithmetic("mod", Arithmetic("floordiv", doubled, 3), 5)
    assert size == Arithmetic("max", rest, Arithmetic("sub", "n", 1))
    assert format_size(Arithmetic("sub", 1, Arithmetic("sub", "n", "k/0"))) == "1 - (n - k_x2f_0)"


def test_dimensions_that_are_no_sizes():
    with pytest.raises(CompileError) as caught:
        size_of(unary(UnaryOp.ABS, Symbol("n")))
    assert str(caught.value) == (
        "abs(n) is not arithmetic on symbols, and the host computes nothing else"
    )


def test_a_division_by_zero_names_the_symbols():
    size = Arithmetic("mod", 7, Arithmetic("sub", "n", 2))
    assert refusal(evaluate_size, size, {"n": 2, "m": 1}) == (
        "7 % (n - 2) divides by zero for n = 2"
    )


# ---------------------------------------------------------------- programs as JSON


def test_programs_are_what_they_were_in_json():
    program = affine()
    for record in (program.host, program.target, facts(features=("avx2",), bytes_per_second=9)):
        assert from_json(type(record), json.loads(json.dumps(to_json(record))), "x") == record


def edit(value, path, new):
    """The value at `path` replaced; removed for `new` None."""
    for key in path[:-1]:
        value = value[key]
    if new is None:
        del value[path[-1]]
    else:
        value[path[-1]] = new


@pytest.mark.parametrize(
    "path, new, text",
    [
        (["name"], None, "host.name is missing"),
        (["name"], 7, "host.name is not a text"),
        (["symbols"], {}, "host.symbols is not a list"),
        (["symbols", 0], 7, "host.symbols[0] is not an object"),
        (["symbols", 0, "lower"], True, "host.symbols[0].lower is not a whole number"),
        (["symbols", 0, "upper"], "x", "host.symbols[0].upper is not a whole number or null"),
        (["slots", 1, "dtype"], "f33", "host.slots[1].dtype is 'f33' and not one of scalar types"),
        (
            ["slots", 0, "shape", 0],
            1.5,
            "host.slots[0].shape[0] is not a whole number or a text or an object",
        ),
        (
            ["memories", 0, "kind"],
            "magic",
            "host.memories[0].kind is 'magic' and not one of constants, arena, input, output",
        ),
        (["steps", 1, "nodes"], [1], "host.steps[1].nodes[0] is not a text"),
        (
            ["steps", 1, "kind"],
            "jump",
            "host.steps[1].kind is 'jump' and not one of call, host_call, copy, submit, wait",
        ),
    ],
)
def test_json_that_is_no_program(path, new, text):
    value = copy.deepcopy(to_json(affine().host))
    edit(value, path, new)
    assert refusal(from_json, HostProgram, value, "host") == text


def changed(**changes):
    return affine().host.with_(**changes)


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"symbols": (SymbolSpec("n", -1),)}, "n may be -1, and no size is below 0"),
        ({"symbols": (SymbolSpec("n", 3, 2),)}, "no number is from 3 to 2"),
        (
            {"symbols": (SymbolSpec("n"), SymbolSpec("m"))},
            "no dimension of an input is the symbol m, so its value cannot be found",
        ),
        ({"inputs": ("x", "x")}, "two inputs are called x"),
        ({"inputs": ("b", "x")}, "its inputs do not each begin a memory, in order"),
        ({"outputs": ("x",)}, "no output lies in y"),
        ({"output_names": ("u", "v")}, "2 names are given to 1 outputs"),
        ({"output_names": ("u",)}, None),
    ],
)
def test_programs_that_do_not_hold_together(changes, text):
    host = changed(**changes)
    known = tuple(StepFacts() for _ in host.steps)
    if text is None:
        assert checked(host, known) is host
        return
    assert refusal(checked, host, known) == (
        f"the program of 'model' does not hold together: {text}"
    )


@pytest.mark.parametrize(
    "slot, memory, text",
    [
        ({"offset": -4}, {}, "the offset is -4"),
        ({"offset": 4}, {}, "output y does not begin where its memory begins"),
        (
            {"shape": (1 << 63,)},
            {},
            "a dimension is 9223372036854775808, which does not fit in 64 bits",
        ),
        ({"shape": (Arithmetic("pow", 2, 3),)}, {}, "a dimension has the operator 'pow'"),
        ({"shape": ("m",)}, {}, "a dimension is m, and m is no symbol of the program"),
        ({"memory": "z"}, {}, "there is no memory called 'z'"),
        ({}, {"size": "k"}, "the size is k, and k is no symbol of the program"),
        (
            {},
            {"kind": MemoryKind.CONSTANTS},
            "memory y (constants) comes behind b (input)",
        ),
    ],
)
def test_slots_and_memories_that_do_not_hold_together(slot, memory, text):
    host = affine().host
    slots = [s.with_(**slot) if s.name == "y" else s for s in host.slots]
    memories = [m.with_(**memory) if m.name == "y" else m for m in host.memories]
    host = host.with_(slots=tuple(slots), memories=tuple(memories))
    assert refusal(checked, host, tuple(StepFacts() for _ in host.steps)) == (
        f"the program of 'model' does not hold together: {text}"
    )


def test_facts_of_other_steps():
    assert refusal(checked, affine().host, ()) == "0 facts are given of 2 steps"


# ---------------------------------------------------------------- linking

GETTER = "define i32 @{0}() {{ ret i32 {1} }}"


def call(address):
    return ctypes.CFUNCTYPE(ctypes.c_int32)(address)()


def test_two_models_may_use_the_same_names():
    codes = [load_code([("a", object_code(GETTER.format("f", i)))], ["f"]) for i in (1, 2)]
    assert [call(c.addresses["f"]) for c in codes] == [1, 2]
    codes[0].close()
    codes[0].close()
    assert call(codes[1].addresses["f"]) == 2


def test_objects_call_each_other_and_functions_from_outside():
    caller = (
        "declare i32 @g()\ndeclare i64 @tw_now()\ndeclare double @cbrt(double)\n"
        "define i32 @f() {\n %a = call i32 @g()\n %t = call i64 @tw_now()\n"
        " %c = call double @cbrt(double 27.0)\n %d = fptosi double %c to i32\n"
        " %e = add i32 %a, %d\n ret i32 %e\n}"
    )
    objects = [("a", object_code(caller)), ("b", object_code(GETTER.format("g", 5)))]
    code = load_code(objects, ["f"])
    assert call(code.addresses["f"]) == 8


def test_symbols_of_the_callers():
    function = ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: 42)
    address = ctypes.cast(function, ctypes.c_void_p).value
    text = "declare i32 @mine()\ndefine i32 @f() {\n %a = call i32 @mine()\n ret i32 %a\n}"
    code = load_code([("a", object_code(text))], ["f"], {"mine": address})
    assert call(code.addresses["f"]) == 42


def test_code_that_cannot_be_linked():
    f = object_code(GETTER.format("f", 1))
    needy = object_code("declare void @zz()\ndeclare void @aa()\ndefine void @f() {\n"
                        " call void @zz()\n call void @aa()\n ret void\n}")  # fmt: skip
    assert refusal(load_code, [("a", f)], ["g"]) == "the model's code has no function g"
    assert refusal(load_code, [("a", needy)], ["f"]) == (
        "object 'a' calls what this machine does not have: aa, zz"
    )
    assert refusal(load_code, [("a", f), ("b", f)], ["f"]).startswith(
        "the model's code cannot be linked: "
    )
    assert refusal(load_code, [("a", b"")], ["f"]) == "object 'a' is not a 64-bit ELF file"
    assert refusal(load_code, [("a", f[:200])], ["f"]) == "object 'a' is damaged"
    assert refusal(load_code, [("a", f[:16] + b"\3\0" + f[18:])], ["f"]) == (
        "object 'a' is an ELF file that is not an object file"
    )
    foreign = f[:18] + (b"\xb7\0" if f[18:20] != b"\xb7\0" else b"\x3e\0") + f[20:]
    other = "aarch64" if system.host_triple().startswith("x86") else "x86_64"
    here = system.host_triple().split("-")[0]
    assert refusal(load_code, [("a", foreign)], ["f"]) == (
        f"object 'a' is code for {other}, and this machine is {here}"
    )


@given(st.data())
def test_a_damaged_object_is_an_error_and_not_a_crash(data):
    """Only what reads it before LLVM does, which takes objects on trust."""
    whole = kernels()
    broken = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, 64) | st.integers(len(whole) - 600, len(whole) - 1))
        broken[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for candidate in (bytes(broken), whole[:cut]):
        try:
            load_code([("a", candidate)], ["no such function"])
        except ArtifactError:
            continue
        pytest.fail("it has no such function")


# ---------------------------------------------------------------- memory and machine


def test_arenas_grow_and_stay():
    arenas = ArenaSet(1, 2)
    assert arenas.growth([100, 0]) == 100
    arenas.ensure([100, 0])
    first = arenas.addresses[0]
    assert first % 64 == 0
    assert arenas.addresses[1] == 0
    arenas.ensure([50, 10])
    assert arenas.addresses[0] == first
    assert arenas.growth([150, 10]) == 50
    arenas.ensure([8 << 20, 10])
    assert arenas.addresses[0] % (2 << 20) == 0


def test_what_this_machine_has():
    memory = available_memory()
    assert memory is None or memory > 1 << 20
    assert available_cpus() >= 1


def group(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A tree of control groups, and the file that says where this process is in it."""
    monkeypatch.setattr(system, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(system, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(system, "MEMORY", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 1000 kB\nSwapFree: 24 kB\n")
    (tmp_path / "membership").write_text("0::/user/job\n")
    return tmp_path


def test_memory_is_what_machine_and_groups_leave(groups):
    assert available_memory() == 1024 * 1024
    group(groups / "cgroup/user/job", memory__max="max\n", memory__current="7\n")
    assert available_memory() == 1024 * 1024
    stat = "anon 5\ninactive_file 300\nactive_file 2\n"
    group(groups / "cgroup/user", memory__max="5000\n", memory__current="4000\n", memory__stat=stat)
    assert available_memory() == 1300
    group(groups / "cgroup/user/job", memory__max="2000\n", memory__current="3000\n")
    assert available_memory() == 0


def test_memory_of_older_control_groups(groups):
    (groups / "membership").write_text("9:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n")
    group(
        groups / "cgroup/memory/a/b",
        memory__limit_in_bytes="6000\n",
        memory__usage_in_bytes="5500\n",
        memory__stat="total_inactive_file 20\n",
    )
    group(groups / "cgroup/cpu/a", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert available_memory() == 520
    group(groups / "cgroup/cpu", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")
    assert available_cpus() == 1


def test_a_container_that_sees_its_group_as_the_root(groups):
    (groups / "membership").write_text("0::/../../outside\n")
    group(
        groups / "cgroup", memory__max="5000\n", memory__current="4000\n", cpu__max="150000 100000"
    )
    assert available_memory() == 1000
    assert available_cpus() <= 2


def test_a_system_that_says_nothing(groups, monkeypatch):
    for name in ("membership", "meminfo"):
        (groups / name).unlink()
    monkeypatch.setattr(system.os, "sysconf", lambda name: 8)
    assert available_memory() == 64

    def refuse(name):
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(system.os, "sysconf", refuse)
    assert available_memory() is None


@pytest.mark.parametrize(
    "count, text",
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KiB"),
        (3 << 30, "3.0 GiB"),
        (1 << 60, "1024.0 PiB"),
    ],
)
def test_sizes_for_people(count, text):
    assert format_bytes(count) == text


def test_constants_are_aligned():
    room = np.zeros(200, np.uint8)
    start = -room.ctypes.data % 64 + 4
    from_elsewhere = room[start : start + 64]
    from_elsewhere[...] = 5
    copied = _aligned(from_elsewhere)
    assert copied.ctypes.data % 64 == 0
    np.testing.assert_array_equal(copied, from_elsewhere)
    assert _aligned(copied).ctypes.data == copied.ctypes.data
