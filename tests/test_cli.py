"""The command line: what goes to stdout and stderr, exit codes, and the words of errors."""

import dataclasses
import json
import os
import pty
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
import schemas
from command_line import failure, run_commands  # noqa: F401  (a fixture: `tilewright`)
from onnx import TensorProto, helper, numpy_helper

from tilewright.cli import check as cli_check
from tilewright.cli import main as cli
from tilewright.cli import session as cli_session
from tilewright.compiled import load
from tilewright.compiler import STAGES, compile
from tilewright.ir.graph import Graph
from tilewright.ops.table import OPS
from tilewright.targets.names import find_target

W = np.arange(12, dtype=np.float32).reshape(3, 4) / 10


@pytest.fixture
def model(tmp_path, monkeypatch):
    """y = relu(x w) + 1, z = -x, in the current folder."""
    monkeypatch.chdir(tmp_path)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Relu", ["p"], ["r"], name="rectify"),
        helper.make_node("Softmax", ["r"], ["s"], name="normalize"),
        helper.make_node("Add", ["s", "one"], ["y"], name="shift"),
        helper.make_node("Neg", ["x"], ["z"], name="negate"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3))],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 4)),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ("n", 3)),
        ],
        [
            numpy_helper.from_array(W, "w"),
            numpy_helper.from_array(np.ones(1, np.float32), "one"),
        ],
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), "small.onnx")
    return tmp_path / "small.onnx"


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def expected(x):
    return softmax(np.maximum(x @ W, 0)) + 1


# ---------------------------------------------------------------- run


def test_run_shows_outputs(tilewright, model):
    code, out, err = tilewright("run", "small.onnx", "--dim", "n=2", "--seed", "1")
    assert code == 0
    header, *lines = [line.split() for line in out.splitlines()]
    assert header[:5] == ["output", "type", "min", "mean", "max"]
    assert [line[:3] for line in lines] == [["y", "f32[2,", "4]"], ["z", "f32[2,", "3]"]]
    assert err.startswith("target: host (")


def test_run_in_json(tilewright, model):
    code, out, err = tilewright("run", "small.onnx", "--json", "--check", "--output", "out")
    found = json.loads(out)
    assert (code, err) == (0, "")
    y, z = found["outputs"]
    assert (y["name"], y["dtype"], y["shape"], y["file"]) == ("y", "f32", [1, 4], "out/y.npy")
    assert found["check"]["agrees"] is True
    assert [c["name"] for c in found["check"]["outputs"]] == ["y", "z"]
    assert np.load("out/z.npy").tolist()[0] == z["first"]


def test_quiet_says_nothing_beside_results(tilewright, model):
    assert tilewright("run", "small.onnx", "--quiet")[2] == ""
    assert tilewright("compile", "small.onnx", "-q") == (0, "", "")


def test_inputs_from_files_and_outputs_to_files(tilewright, model):
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    np.save("x.npy", x)
    for spec in ("x=x.npy", "x.npy"):
        code, _, _ = tilewright("run", "small.onnx", "--input", spec, "--output", "y=r/y.npy")
        assert code == 0
        np.testing.assert_allclose(np.load("r/y.npy"), expected(x), rtol=1e-5)
    assert sorted(os.listdir("r")) == ["y.npy"]


def test_equal_seeds_give_equal_inputs(tilewright, model):
    runs = [tilewright("run", "small.onnx", "--seed", s)[1] for s in ("3", "3", "4")]
    assert runs[0] == runs[1] != runs[2]


def test_a_model_that_was_compiled_before(tilewright, model, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", "kept")
    assert ", compiled in " in tilewright("compile", "small.onnx")[1]
    assert ", found in the cache in " in tilewright("compile", "small.onnx")[1]
    found = [json.loads(tilewright("compile", "small.onnx", "--json")[1])["from_cache"]]
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    found += [json.loads(tilewright("compile", "small.onnx", "--json")[1])["from_cache"]]
    assert found == [True, False]


def test_a_compiled_model(tilewright, model):
    code, out, _ = tilewright("compile", "small.onnx", "-o", "small.tw")
    assert code == 0
    assert "wrote small.tw: " in out
    assert ", compiled in " in out
    x = np.ones((7, 3), np.float32)
    np.save("x.npy", x)
    code, _, err = tilewright("run", "small.tw", "--input", "x=x.npy", "--output", ".")
    assert (code, err) == (0, "")
    np.testing.assert_allclose(np.load("y.npy"), expected(x), rtol=1e-5)
    shapes = json.loads(tilewright("run", "small.tw", "--dim", "n=9", "--json")[1])["outputs"]
    assert [r["shape"] for r in shapes] == [[9, 4], [9, 3]]


def test_fixed_dimensions_are_compiled_in(tilewright, model):
    found = json.loads(tilewright("compile", "small.onnx", "--dim", "n=6", "--json")[1])
    assert found["inputs"] == [{"name": "x", "dtype": "f32", "shape": [6, 3]}]
    assert found["file"] == "small.tw"
    assert found["bytes"] == os.path.getsize("small.tw")


def test_a_model_compiled_to_stdout(model):
    """Nothing else is there: what was done is told on stderr."""
    for name in ("/dev/stdout", "-"):
        command = [sys.executable, "-m", "tilewright", "compile", "small.onnx", "-o", name]
        done = subprocess.run(command, capture_output=True, check=True)
        (model.parent / "got.tw").write_bytes(done.stdout)
        assert "n, 3" in str(load("got.tw"))
        assert "wrote /dev/stdout: " in done.stderr.decode()
    assert not os.path.exists("-")


def test_a_compiled_model_is_not_for_terminals(model):
    ours, theirs = pty.openpty()
    with start("compile", "small.onnx", "-q", "-o", "-", stdout=theirs) as process:
        err = process.stderr.read().decode()
    os.close(theirs)
    os.close(ours)
    assert (process.returncode, err) == (
        2,
        "error: a compiled model is not for a terminal to show\n  hint: give a file: -o model.tw\n",
    )


def test_a_model_from_a_pipe(model):
    command = [sys.executable, "-m", "tilewright", "run", "/dev/stdin", "--json"]
    done = subprocess.run(command, input=model.read_bytes(), capture_output=True, check=True)
    assert [r["shape"] for r in json.loads(done.stdout)["outputs"]] == [[1, 4], [1, 3]]


def test_a_model_for_another_machine(tilewright, model):
    other = "neon" if find_target("host", 1).native.triple.startswith("x86") else "avx2"
    arch = find_target(other, 1).native.triple.split("-")[0]
    assert tilewright("compile", "small.onnx", "-o", "other.tw", "--target", other)[0] == 0
    assert failure(tilewright("run", "other.tw")).startswith(f"error: the code is for {arch}, ")


# ---------------------------------------------------------------- check


def break_op(monkeypatch, name, *, also_import=False):
    """Compiles models as if the operator `name` were another: a wrong compiler, or importer."""
    original = cli_session.compile

    def broken(graph):
        nodes = [
            dataclasses.replace(n, op=OPS["abs"]) if n.op.name == name else n for n in graph.nodes
        ]
        outputs = {v for n in nodes for v in n.outputs}
        assert outputs == {v for n in graph.nodes for v in n.outputs}
        return graph.with_(nodes=tuple(nodes))

    def wrong(model, *, until=None, **settings):
        if not isinstance(model, Graph):
            model = compile(model, until="graph", **settings)
            model = broken(model) if also_import else model
        if until == "graph":
            return model
        return original(broken(model), until=until, **settings)

    monkeypatch.setattr(cli_session, "compile", wrong)


def test_a_check_that_fails_names_the_node(tilewright, model, monkeypatch):
    break_op(monkeypatch, "relu")
    code, out, _ = tilewright("run", "small.onnx", "--check", "--json", "--dim", "n=4")
    schemas.validate("run", json.loads(out))
    found = json.loads(out)["check"]
    assert code == 1
    assert found["agrees"] is False
    assert found["first_difference"]["stage"] == "compiled"
    assert "rectify" in found["first_difference"]["nodes"]
    code, out, _ = tilewright("run", "small.onnx", "--check", "--dim", "n=4")
    assert code == 1
    lines = out.splitlines()
    assert lines[3].startswith("check: differs from ")
    assert lines[4].startswith("  output y: ")
    assert "rectify" in lines[5]
    assert lines[5].endswith(": the compiled step differs from what the model means")


def test_a_check_that_fails_because_of_the_importer(tilewright, model, monkeypatch):
    break_op(monkeypatch, "neg", also_import=True)
    code, out, _ = tilewright("run", "small.onnx", "--check", "--json", "--dim", "n=4")
    found = json.loads(out)["check"]["first_difference"]
    assert code == 1
    assert (found["stage"], found["nodes"], found["name"]) == ("imported", ["negate"], "z")


def test_names_that_are_no_identifiers(tilewright, model, tmp_path):
    nodes = [helper.make_node("Relu", ["in.put/1:0"], ["out put"], name="one")]
    graph = helper.make_graph(
        nodes,
        "odd",
        [helper.make_tensor_value_info("in.put/1:0", TensorProto.FLOAT, (2,))],
        [helper.make_tensor_value_info("out put", TensorProto.FLOAT, (2,))],
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), "odd.onnx")
    code, out, _ = tilewright("run", "odd.onnx", "--check", "--output", "out")
    assert code == 0
    assert "check: agrees with " in out
    assert len(os.listdir("out")) == 1


def test_the_reference_of_onnx_itself(tilewright, model, monkeypatch):
    monkeypatch.setattr(cli_check.importlib.util, "find_spec", lambda name: None)
    found = json.loads(tilewright("run", "small.onnx", "--check", "--json")[1])["check"]
    assert found["agrees"]
    assert found["reference"] == f"onnx {onnx.__version__} reference"


@pytest.mark.parametrize(
    "found, wanted, problem",
    [
        ([1.0, 2.0], [1.0, 2.0], None),
        ([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], None),
        ([1.0, 2.0005], [1.0, 2.0], None),
        ([1.0, 2.1], [1.0, 2.0], "2.1 instead of 2.0 at [1]"),
        ([1.0, np.nan], [1.0, 2.0], "nan instead of 2.0 at [1]"),
        ([1.0, 2.0], [1.0, np.nan], "2.0 instead of nan at [1]"),
        ([np.inf], [-np.inf], "inf instead of -inf at [0]"),
        ([1], [2], "1 instead of 2 at [0]"),
        ([], [], None),
        ([1.0], [1.0, 2.0], "it is float32[1] and should be float32[2]"),
    ],
)
def test_comparing(found, wanted, problem):
    kind = np.int64 if found and isinstance(found[0], int) else np.float32
    report = cli_check.compare("x", np.array(found, kind), np.array(wanted, kind))
    assert report.problem == problem


# ---------------------------------------------------------------- bench, explain, dump


def test_bench(tilewright, model):
    code, out, _ = tilewright("bench", "small.onnx", "--seconds", "0.01", "--threads", "1")
    assert code == 0
    assert " a call (fastest " in out
    found = json.loads(tilewright("bench", "small.onnx", "--seconds", "0.01", "--json")[1])
    assert found["nanoseconds"]["fastest"] <= found["nanoseconds"]["median"]
    assert found["calls"] >= 5


def test_explain(tilewright, model):
    code, out, _ = tilewright("explain", "small.onnx", "--dim", "n=8", "--repeat", "3")
    assert code == 0
    assert out.split()[:4] == ["step", "kernel", "device", "time"]
    tilewright("compile", "small.onnx")
    for file in ("small.onnx", "small.tw"):
        found = json.loads(tilewright("explain", file, "--json")[1])
        nodes = [n for s in found["steps"] for n in s["nodes"]]
        assert {"product", "rectify", "normalize", "shift", "negate"} <= set(nodes)
        assert abs(sum(s["share"] for s in found["steps"]) - 1) < 1e-6
        assert found["limits"]["operations_per_second"] > 1e8
        assert {s["bound_by"] for s in found["steps"]} <= {"compute", "memory", "overhead"}


@pytest.mark.parametrize("stage", [s for s in STAGES if s != "stream"])
def test_dump(tilewright, model, stage):
    code, out, err = tilewright("dump", "small.onnx", "--stage", stage, "--quiet")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) > 3
    programs = json.loads(tilewright("dump", "small.onnx", "--stage", stage, "--json")[1])[
        "programs"
    ]
    assert "\n\n".join(programs.values()) + "\n" == out
    for name in programs:
        if name:
            one = tilewright("dump", "small.onnx", "--stage", stage, "--kernel", name, "-q")
            assert one == (0, programs[name] + "\n", "")


def test_ops(tilewright):
    code, out, _ = tilewright("ops")
    assert code == 0
    assert len(out.splitlines()) == len(OPS) + 1
    code, out, _ = tilewright("ops", "conv")
    assert out.startswith("conv: ")
    assert "dilations" in out
    assert tilewright("ops", "neg")[1].endswith("no attributes\n")
    found = json.loads(tilewright("ops", "conv", "--json")[1])
    assert [a["name"] for a in found["attributes"]][:2] == ["strides", "pads_begin"]
    assert {o["name"] for o in json.loads(tilewright("ops", "--json")[1])} == set(OPS)


def test_targets(tilewright):
    assert "avx512" in tilewright("targets")[1]
    found = json.loads(tilewright("targets", "--json", "--threads", "3")[1])
    assert found[0]["name"] == "host"
    assert found[0]["cores"] == 3


def test_the_environment_sets_defaults(tilewright, model):
    result = tilewright("bench", "small.onnx", "--seconds", "0", "--json", TILEWRIGHT_THREADS="1")
    assert json.loads(result[1])["threads"] == 1
    result = tilewright("run", "small.onnx", TILEWRIGHT_TARGET="zz")
    assert failure(result).startswith("error: there is no target called 'zz', and a file's name")


# ---------------------------------------------------------------- help and mistakes


@pytest.mark.parametrize(
    "command", ["run", "compile", "bench", "explain", "dump", "ops", "targets"]
)
def test_every_command_has_help_with_an_example_and_json(tilewright, command):
    code, out, _ = tilewright(command, "--help")
    assert code == 0
    assert f"Example: tilewright {command} " in out
    assert "--json" in out


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["run", "zz.onnx"], "cannot read 'zz.onnx': No such file or directory"),
        (["run", "zz.tw"], "cannot read zz.tw: No such file or directory"),
        (
            ["run", "small.onnx", "--input", "z=a.npy"],
            "--input z=a.npy: the model has no input 'z'\n  hint: known: x",
        ),
        (
            ["run", "small.onnx", "--input", "x=a.npy"],
            "cannot read a.npy: No such file or directory",
        ),
        (
            ["run", "small.onnx", "--input", "x=text.npy"],
            "text.npy is not a .npy file of numbers",
        ),
        (
            ["run", "small.onnx", "--input", "x=empty.npy"],
            "empty.npy is not a .npy file of numbers",
        ),
        (
            ["run", "small.onnx", "--input", "x=objects.npy"],
            "objects.npy is not a .npy file of numbers",
        ),
        (
            ["run", "small.onnx", "--input", "x=many.npz"],
            "many.npz holds several arrays\n  hint: give one .npy file for each input",
        ),
        (
            ["run", "small.onnx", "--input", "x=wide.npy"],
            (
                "input 'x' has elements of type f64; the model takes f32[n, 3]\n"
                "  hint: convert it first: .astype('float32')"
            ),
        ),
        (
            ["run", "small.onnx", "--output", "q=a.npy"],
            "--output q=a.npy: the model has no output 'q'\n  hint: known: y, z",
        ),
        (
            ["run", "small.onnx", "--output", "a.npy"],
            (
                "--output a.npy: the model has 2 outputs\n"
                "  hint: give NAME=a.npy, or a folder; outputs: y, z"
            ),
        ),
        (
            ["run", "small.onnx", "--output", "text.npy/x"],
            "cannot make the folder text.npy/x: Not a directory",
        ),
        (
            ["run", "small.onnx", "--dim", "n"],
            "--dim n: not NAME=NUMBER\n  hint: for example --dim batch=4",
        ),
        (
            ["run", "small.onnx", "--target", "avx"],
            (
                "there is no target called 'avx', and a file's name would be FILE.py[:FUNCTION]\n"
                "  hint: did you mean 'avx2' or 'avx512'?"
            ),
        ),
        (
            ["dump", "small.onnx", "--stage", "zz"],
            (
                "there is no stage called 'zz'\n  hint: stages: graph, optimized, tensor, loops,"
                " scheduled, lowered, llvm, asm, host, stream"
            ),
        ),
        (
            ["dump", "small.onnx", "--stage", "graph", "--kernel", "k0"],
            (
                "stage 'graph' has no kernel 'k0'\n"
                "  hint: kernels: it is one program for the whole model"
            ),
        ),
        (["ops", "cnov"], "there is no operator called 'cnov'\n  hint: did you mean 'conv'?"),
    ],
)
def test_mistakes(tilewright, model, arguments, text):
    (model.parent / "text.npy").write_text("hello")
    (model.parent / "empty.npy").write_text("")
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    np.savez("many.npz", a=np.ones(1))
    np.save("wide.npy", np.ones((1, 3)))
    assert failure(tilewright(*arguments)) == f"error: {text}\n"


def test_commands_that_need_the_source(tilewright, model):
    tilewright("compile", "small.onnx")
    hint = "  hint: give the model that it was compiled from\n"
    assert failure(tilewright("dump", "small.tw", "--stage", "loops")) == (
        f"error: small.tw is compiled: what it was compiled from is not in it\n{hint}"
    )
    assert failure(tilewright("run", "small.tw", "--check")) == (
        "error: small.tw cannot be checked: what it was compiled from is not in it\n"
        "  hint: check the model that it was compiled from\n"
    )
    assert failure(tilewright("compile", "small.tw")) == (
        "error: small.tw is compiled already\n  hint: give an .onnx model\n"
    )
    np.save("x.npy", np.ones((1, 3), np.float32))
    for options in (["--checks"], ["--target", "avx2"], ["--value", "x=x.npy"]):
        for command in ("run", "bench", "explain"):
            assert failure(tilewright(command, "small.tw", *options)) == (
                f"error: small.tw is compiled already, and {options[0]} says how to compile\n"
                "  hint: give the .onnx model that it was compiled from\n"
            )
    assert tilewright("run", "small.tw", "-q", TILEWRIGHT_TARGET="avx2")[0] == 0  # a default
    assert failure(tilewright("run", "small.tw", "--dim", "m=3")) == (
        "error: the model has no dimension called 'm'\n  hint: known: n\n"
    )


def test_a_command_that_is_not_there(tilewright):
    code, out, err = tilewright("rnu")
    assert (code, out) == (2, "")
    assert "rnu" in err


def test_a_failed_command_leaves_no_files(tilewright, model, monkeypatch):
    def fail(*arguments):
        raise cli_session.ModelError("no")

    monkeypatch.setattr(cli, "check_results", fail)
    before = sorted(os.listdir("."))
    assert failure(tilewright("run", "small.onnx", "--check", "--output", "out")) == "error: no\n"
    assert sorted(os.listdir(".")) == before
    assert tilewright("compile", "small.onnx", "-o", "no/such/folder.tw")[0] == 2
    assert sorted(os.listdir(".")) == before


# ---------------------------------------------------------------- as a process


def start(*arguments, **settings):
    command = [sys.executable, "-c", "from tilewright.cli.main import main; main()", *arguments]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    return subprocess.Popen(command, **settings)


def test_control_c(model):
    with start("bench", "small.onnx", "--seconds", "60") as process:
        assert process.stderr.readline().startswith(b"target: ")  # it has begun
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_a_reader_that_has_seen_enough(model):
    with start("dump", "small.onnx", "--stage", "asm", "--quiet") as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_progress_is_for_terminals(model):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from tilewright.cli.main import main; main()"]
    arguments = ["bench", "small.onnx", "--seconds", "0.3"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        command + arguments, stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:
                break
            if not chunk:
                break
            seen += chunk
        out = process.stdout.read()
    os.close(ours)
    assert "timing …".encode() in seen
    assert b"\x1b" not in out
    assert process.returncode == 0
