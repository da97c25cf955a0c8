"""The parts of the runtime below a module: sizes, plans, linking, and what the machine has."""

import copy
import ctypes
import json

import numpy as np
import pytest
from handmade_programs import affine, facts, kernels, object_code
from hypothesis import given
from hypothesis import strategies as st

from tilewright.backends.host.plan import size_json
from tilewright.base.errors import ArtifactError, InputError
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import BinaryOp, Symbol, as_expr, binary
from tilewright.runtime import system
from tilewright.runtime.arena import ArenaSet
from tilewright.runtime.executor import _aligned
from tilewright.runtime.loader import load_code
from tilewright.runtime.plan import (
    check_plan,
    plan_from_json,
    plan_to_json,
    target_from_json,
    target_to_json,
)
from tilewright.runtime.size import evaluate_size, format_size, size_from_json, size_to_json
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
    size = size_from_json(json.loads(json.dumps(size_json(dim))), "here")
    assert size_to_json(size) == size_json(dim)
    symbols = {"n": n, "m": m}
    try:
        found = evaluate_size(size, symbols)
    except InputError:
        return  # a division by zero: see below
    assert found == evaluate_dim(dim, symbols)


def test_sizes_print_as_python():
    n = Symbol("n")
    size = size_from_json(size_json(binary(BinaryOp.MAX, (n + 1) * 2 // 3 % 5, n - 1)), "here")
    assert format_size(size) == "max((((n + 1) * 2) // 3) % 5, n - 1)"
    assert size == (
        "max",
        ("mod", ("floordiv", ("mul", ("add", "n", 1), 2), 3), 5),
        ("sub", "n", 1),
    )


def test_a_division_by_zero_names_the_symbols():
    assert refusal(evaluate_size, ("mod", 7, ("sub", "n", 2)), {"n": 2, "m": 1}) == (
        "7 % (n - 2) divides by zero for n = 2"
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1.5,
        [],
        ["add", 1],
        ["pow", 1, 2],
        [1, 1, 1],
        {"add": 1},
        ["add", ["add", 1, None], 1],
        1 << 63,
    ],
)
def test_what_is_no_size(value):
    assert refusal(size_from_json, value, "header.x") == "header.x is not a size"


def test_a_size_that_is_too_deep():
    value = 1
    for _ in range(5000):
        value = ["add", value, 1]
    assert refusal(size_from_json, value, "header.x") == "header.x is not a size"


# ---------------------------------------------------------------- plans


def test_plans_are_what_they_were_in_json():
    plan = affine().plan
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan))), "plan") == plan
    target = facts(features=("avx2", "fma"), operations_per_second=10**12)
    assert target_from_json(json.loads(json.dumps(target_to_json(target))), "x") == target


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
        (["name"], None, "plan.name is missing"),
        (["name"], 7, "plan.name is not a text"),
        (["symbols"], {}, "plan.symbols is not a list"),
        (["symbols", 0], 7, "plan.symbols[0] is not an object"),
        (["symbols", 0, "lower"], -1, "plan.symbols[0].lower is not a whole number from 0 on"),
        (["symbols", 0, "upper"], "x", "plan.symbols[0].upper is not a whole number from 0 on"),
        (["inputs", 1, "dtype"], "f33", "plan.inputs[1].dtype is 'f33', which is no scalar type"),
        (["inputs", 0, "shape", 0], [], "plan.inputs[0].shape[0] is not a size"),
        (["inputs", 0, "memory"], True, "plan.inputs[0].memory is not a whole number from 0 on"),
        (["outputs", 0, "offset"], None, "plan.outputs[0].offset is missing"),
        (
            ["memories", 0, "kind"],
            "magic",
            "plan.memories[0].kind is 'magic' and not one of constants, arena, input, output",
        ),
        (["memories", 0, "size"], "z", "'z' is not one of its symbols"),
        (["steps", 1, "nodes"], [1], "plan.steps[1].nodes[0] is not a text"),
        (["steps", 0, "bytes"], [2], "plan.steps[0].bytes is not a size"),
        (["outputs", 0, "memory"], 9, "'y' lies in memory 9 of 5"),
        (["outputs", 0, "memory"], 0, "no output lies in 'y'"),
        (["outputs", 0, "offset"], 4, "output 'y' does not begin where its memory begins"),
        (["inputs", 0, "memory"], 3, "its inputs do not each begin a memory, in order"),
        (["inputs", 0, "name"], "b", "two inputs are called 'b'"),
        (
            ["memories", 0, "kind"],
            "output",
            "its memories are not in the order constants, arenas, inputs, outputs",
        ),
    ],
)
def test_plans_that_do_not_hold_together(path, new, text):
    value = copy.deepcopy(plan_to_json(affine().plan))
    edit(value, path, new)
    found = refusal(plan_from_json, value, "plan")
    assert found in (text, f"the plan of 'model' does not hold together: {text}")


def test_a_symbol_that_no_input_has():
    value = plan_to_json(affine().plan)
    value["symbols"].append({"name": "m", "lower": 1, "upper": None})
    assert refusal(plan_from_json, value, "plan") == (
        "the plan of 'model' does not hold together: no dimension of an input is the symbol 'm',"
        " so its value cannot be found"
    )


def test_a_good_plan_is_returned():
    plan = affine().plan
    assert check_plan(plan) is plan


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
