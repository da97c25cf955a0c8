"""Models on chips beside the host: what runs where, and that results are the interpreter's."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from fuzz_devices import trial
from onnx import helper, numpy_helper
from small_models import residual_model

import tilewright
from tilewright.base.dtype import i8
from tilewright.base.errors import CompileError
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.evaluate import evaluate_graph
from tilewright.ir.expr import Buffer
from tilewright.optimize.move_arrays import Held
from tilewright.options import Options
from tilewright.program.host_program import Submit, name_of_step
from tilewright.runtime.cache import Cache
from tilewright.targets import cpu
from tilewright.targets.chips import CHIPS

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
LAYERS = 4  # three convolutions and the linear layer
POOLS = {"vta": 1}  # kernels that a chip with an ALU does besides: the largest of windows
STREAMS = {"vta": 1, "tiny": 4}  # of the layers: others leave the pooling between them to the host
HALF_UP = Options(dims={"batch": 1}, rounding="half_up")


@pytest.fixture(scope="session")
def held_out():
    """Images [360, 1, 8, 8] and their labels."""
    with np.load(DIGITS / "held_out.npz") as file:
        return file["images"], file["labels"]


@pytest.fixture(scope="session")
def on_chip(digits):
    """The network compiled for the host with a chip; once for each."""
    made = {}

    def compiled(chip, subgraphs=True):
        if (chip, subgraphs) not in made:
            devices = {"host": "host", "npu": CHIPS[chip]()}
            options = replace(HALF_UP, subgraphs=subgraphs)
            made[chip, subgraphs] = tilewright.compile(digits, target=devices, options=options)
        return made[chip, subgraphs]

    return compiled


def submitted(module):
    """Device and facts of each kernel that a device is given."""
    steps = zip(module.program.host.steps, module.program.steps, strict=True)
    return [(s.device, facts) for s, facts in steps if isinstance(s, Submit)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("chip", list(CHIPS))
def test_every_layer_runs_on_the_chip(chip, on_chip, digits, held_out):
    module = on_chip(chip)
    steps = submitted(module)
    assert len(steps) == STREAMS.get(chip, 2)
    assert sum(len(f.pieces) or 1 for _, f in steps) == LAYERS + POOLS.get(chip, 0)
    assert all(device == "npu" and f.cycles and f.picoseconds for device, f in steps)
    graph = import_model(digits, dims={"batch": 1}, half_up=True)
    for image in held_out[0][:3]:
        (wanted,) = evaluate_graph(graph, [image[None]])
        assert np.array_equal(module(image[None]), wanted)


@pytest.mark.long
def test_what_is_quantised_twice_with_one_scale_is_quantised_once(on_chip):
    """Around the largest of windows stand pairs, as runtimes like them; its kernel has none."""
    steps = on_chip("vta", subgraphs=False).program.host.steps
    names = [name_of_step(s).split("_", 1)[1] for s in steps if isinstance(s, Submit)]
    assert names == [
        *["conv_add_shr_cast"] * 2,
        "max_pool",
        "conv_add_shr_cast",
        "matmul_add_shr_cast",
    ]


def test_accuracy_is_that_of_floats_within_a_point(on_chip, held_out):
    images, labels = held_out
    module = on_chip("gemmini")
    found = np.array([module(x[None]).argmax() for x in images])
    floats = tilewright.compile(DIGITS / "digits.onnx")(images).argmax(1)
    assert (found == labels).mean() >= (floats == labels).mean() - 0.01


def test_calls_of_several_threads_share_the_chip(on_chip, held_out):
    module, images = on_chip("gemmini"), held_out[0][:24]
    wanted = [module(x[None]) for x in images]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(lambda x: module(x[None]), images))
            assert all(map(np.array_equal, found, wanted))


def test_a_saved_module_runs_in_a_new_process(on_chip, held_out, tmp_path):
    module, image = on_chip("vta"), held_out[0][:1]
    module.save(tmp_path / "digits.tw")
    np.save(tmp_path / "image.npy", image)
    code = (
        "import numpy as np, tilewright as t;"
        "m = t.load('digits.tw'); np.save('scores.npy', m(np.load('image.npy')))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120)
    assert np.array_equal(np.load(tmp_path / "scores.npy"), module(image))


def test_a_loaded_module_has_the_chips_part(on_chip, tmp_path):
    on_chip("tiny").save(tmp_path / "digits.tw")
    loaded = tilewright.load(tmp_path / "digits.tw")
    (part,) = loaded.program.parts
    names = [name for name, _ in part.files]
    assert (part.device, part.kind) == ("npu", "simulator")
    assert sum(name.endswith(".npz") for name in names) == LAYERS
    assert submitted(loaded) == submitted(on_chip("tiny"))


def test_the_rounding_of_onnx_leaves_what_follows_sums_to_the_host(digits, held_out):
    """Halves to even take more than a shift: tiny, which only sums, keeps its part."""
    devices = {"host": "host", "npu": CHIPS["tiny"]()}
    module = tilewright.compile(digits, target=devices, options=Options(dims={"batch": 1}))
    assert len(submitted(module)) == LAYERS
    image = held_out[0][:1]
    (wanted,) = evaluate_graph(import_model(digits, dims={"batch": 1}), [image])
    assert np.array_equal(module(image), wanted)


def test_a_model_on_chips_is_found_in_the_cache(digits, held_out, tmp_path):
    targets = {"npu": CHIPS["tiny"](), "host": cpu.host(threads=1)}
    options = [Options(dims={"batch": 2}, cache=c) for c in (False, tmp_path, tmp_path)]
    modules = [tilewright.compile(digits, target=targets, options=o) for o in options]
    x = held_out[0][:2]
    for module in modules:
        np.testing.assert_array_equal(module(x), modules[0](x))
        assert module.program.parts[0].files == modules[0].program.parts[0].files
    assert [e.kind for e in Cache(tmp_path).entries()].count("tw") == 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize("chip,kernels", [("vta", 1), ("gemmini", 2), ("conv_engine", 2)])
def test_neighbouring_kernels_are_one_stream(chip, kernels, digits, on_chip, held_out, tmp_path):
    """What passes between them is neither copied nor rearranged: fewer steps and fewer cycles. On
    VTA that is all of the network; elsewhere the host's pooling stands between layers."""
    module, alone = on_chip(chip), on_chip(chip, subgraphs=False)
    assert len(submitted(module)) == kernels
    cycles, before = (sum(f.cycles for _, f in submitted(m)) for m in (module, alone))
    assert cycles < before
    for _, facts in submitted(module):
        assert sum(p.cycles for p in facts.pieces) in (0, facts.cycles)
        assert all(p.nodes and p.operations for p in facts.pieces)
    assert len(module.program.host.steps) < len(alone.program.host.steps)
    module.save(tmp_path / "digits.tw")
    loaded = tilewright.load(tmp_path / "digits.tw")
    for image in held_out[0][:3]:
        assert np.array_equal(module(image[None]), alone(image[None]))
        assert np.array_equal(loaded(image[None]), alone(image[None]))


def test_a_view_of_what_another_stream_makes():
    """conv1 is a result of the model: the stream behind it reads it flattened, too."""
    random = np.random.default_rng(0)
    scales = {"s": np.float32(0.25), "fine": np.float32(1 / 64), "z": np.int8(0)}
    sizes = {"w1": (16, 16, 3, 3), "w2": (16, 16, 8, 8), "w3": (1024, 16)}
    held = {k: random.integers(-20, 20, n).astype(np.int8) for k, n in sizes.items()}
    nodes = [helper.make_node("DequantizeLinear", [k, "fine", "z"], [f"{k}_f"]) for k in sizes]

    def both(value, name):
        nodes.append(helper.make_node("QuantizeLinear", [value, "s", "z"], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", "s", "z"], [name]))

    nodes.append(helper.make_node("DequantizeLinear", ["x", "s", "z"], ["picture"]))
    nodes.append(helper.make_node("Conv", ["picture", "w1_f"], ["c1"], pads=[1] * 4))
    both("c1", "first")
    nodes.append(helper.make_node("Conv", ["first", "w2_f"], ["c2"]))
    both("c2", "second")
    nodes.append(helper.make_node("Flatten", ["first"], ["flat"]))
    nodes.append(helper.make_node("Flatten", ["second"], ["other"]))
    nodes.append(helper.make_node("MatMul", ["flat", "w3_f"], ["product"]))
    nodes.append(helper.make_node("Add", ["product", "other"], ["sum"]))
    both("sum", "y")
    shapes = [("x", (1, 16, 8, 8)), ("y_q", None), ("first_q", None)]
    x, *ends = (helper.make_tensor_value_info(n, onnx.TensorProto.INT8, s) for n, s in shapes)
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in (scales | held).items()]
    graph = helper.make_graph(nodes, "model", [x], ends, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    devices = {"host": "host", "npu": CHIPS["vta"]()}
    module = tilewright.compile(model, target=devices, options=Options(rounding="half_up"))
    image = random.integers(-128, 128, (1, 16, 8, 8)).astype(np.int8)
    wanted = evaluate_graph(import_model(model.SerializeToString(), half_up=True), [image])
    for found, array in zip(module(image), wanted, strict=True):
        assert np.array_equal(found, array)
    assert len(submitted(module)) == 2


def test_a_chip_alone_needs_a_host(digits):
    with pytest.raises(CompileError) as caught:
        tilewright.compile(digits, target="vta", options=HALF_UP)
    assert str(caught.value) == (
        "vta can run 5 of 7 kernels of digits; a host has to do the rest (image.int8,"
        " scores+scores.int8+scores.back) and call them\n"
        '  hint: target={"host": "host", "vta": vta()}; on the command line, --target host'
        " --target vta"
    )


def test_what_is_assigned_to_a_chip_has_to_fit(digits):
    devices = {"host": "host", "npu": CHIPS["gemmini"]()}

    def assign(node):
        return "npu" if node.op.name == "max_pool" else None

    options = Options(dims={"batch": 1}, rounding="half_up", assign=assign)
    with pytest.raises(CompileError, match="value6 was assigned to 'npu', which cannot run it"):
        tilewright.compile(digits, target=devices, options=options)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("node", ["value4", "value5.int8", "value6"])
def test_pins_hold(node, digits, held_out, on_chip):
    """A pinned node's kernel is the host's, and the chip has the others."""
    devices = {"host": "host", "npu": CHIPS["vta"]()}
    options = replace(HALF_UP, pins={node: "host"})
    module = tilewright.compile(digits, target=devices, options=options)
    facts = zip(module.program.host.steps, module.program.steps, strict=True)
    there = {n for s, _ in facts if isinstance(s, Submit) for n in s.nodes}
    assert node not in there
    assert "value1" in there
    image = held_out[0][:1]
    assert np.array_equal(module(image), on_chip("vta")(image))


@pytest.mark.parametrize(
    "pins,message",
    [
        (
            {"value4": "tpu"},
            "'value4' is pinned to 'tpu', and there is no such device\n  hint: did you mean 'npu'",
        ),
        (
            {"value77": "npu"},
            "'value77' is pinned to 'npu', but no kernel of digits computes a node of that name",
        ),
        (
            {"value6": "npu"},
            "value6 was pinned to 'npu', which cannot run it: ",
        ),
        (
            {"value4": "npu", "value5.int8": "host"},
            "'value4' is pinned to 'npu' and 'value5.int8' to 'host', but they are one kernel",
        ),
    ],
)
def test_pins_that_cannot_be(pins, message, digits):
    devices = {"host": "host", "npu": CHIPS["gemmini"]()}
    with pytest.raises(CompileError) as caught:
        tilewright.compile(digits, target=devices, options=replace(HALF_UP, pins=pins))
    assert str(caught.value).startswith(message)


def test_only_one_device(digits):
    """What it cannot run is listed, with the reasons."""
    devices = {"host": "host", "npu": CHIPS["vta"]()}
    with pytest.raises(CompileError) as caught:
        tilewright.compile(digits, target=devices, options=replace(HALF_UP, only="npu"))
    assert str(caught.value) == (
        "npu cannot run 2 of 7 kernels of digits:\n"
        "  image.int8: no instruction of vta computes with f32\n"
        "  scores, scores.int8, scores.back: no instruction of vta computes with f32\n"
        "  hint: without only (--only), the host runs them"
    )
    with pytest.raises(CompileError, match="only 'vta' is to run kernels, and there is no such"):
        tilewright.compile(digits, target=devices, options=replace(HALF_UP, only="vta"))
    everything = tilewright.compile(digits, target=devices, options=replace(HALF_UP, only="host"))
    assert not submitted(everything)


def test_a_dimension_without_a_number_keeps_kernels_on_the_host(digits):
    devices = {"host": "host", "npu": CHIPS["vta"]()}
    module = tilewright.compile(digits, target=devices, options=Options(rounding="half_up"))
    assert not submitted(module)
    reasons = {why for facts in module.program.steps for why in facts.obstacles}
    assert reasons == {"npu: batch has no number (dims={…} gives one)"}


@pytest.mark.long
def test_an_input_in_two_shapes():
    """A convolution reads the one row of the picture as a row, the addition as pixels alone."""
    rng = np.random.default_rng(0)
    shapes = {"w": (16, 16, 3, 3), "v": (16, 16, 1, 1)}
    weights = [
        numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4, kernel_shape=[3, 3]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("Add", ["c", "x"], ["y"]),
    ]
    x = rng.normal(size=(1, 16, 1, 4)).astype(np.float32)
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, x.shape) for n in "xy"]
    graph = helper.make_graph(nodes, "row", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = tilewright.quantize(model, {"x": x}, scheme="pow2").model
    devices = {"npu": CHIPS["conv_engine"](), "host": "host"}
    options = Options(rounding="half_up")
    module = tilewright.compile(model, target=devices, options=options)
    assert np.array_equal(module(x), tilewright.compile(model, options=options)(x))


def test_one_score_of_a_flattened_picture():
    """A column of weights that the chip has in the shape of the picture, among others of zeros."""
    rng = np.random.default_rng(0)
    shapes = {"w": (8, 8, 3, 3), "v": (1, 8 * 4 * 4)}
    weights = [
        numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node("Flatten", ["a"], ["b"]),
        helper.make_node("Gemm", ["b", "v"], ["y"], transB=1),
    ]
    x = rng.normal(size=(1, 8, 4, 4)).astype(np.float32)
    ends = [
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s)
        for n, s in (("x", x.shape), ("y", (1, 1)))
    ]
    graph = helper.make_graph(nodes, "score", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = tilewright.quantize(model, {"x": x}, scheme="pow2").model
    options = Options(rounding="half_up")
    module = tilewright.compile(
        model, target={"npu": CHIPS["vta"](), "host": "host"}, options=options
    )
    assert len(submitted(module)) == 1
    assert np.array_equal(module(x), tilewright.compile(model, options=options)(x))


@pytest.mark.parametrize(
    "seed", [3, 14, *(pytest.param(n, marks=pytest.mark.long) for n in (17, 7003, 200307))]
)
def test_random_networks(seed):
    """`make fuzz-devices` has many: the quick ones of three chips, and an array with a border, of
    which another form would read less than lies in memory."""
    assert "submitted" in trial(seed, list(CHIPS))


@pytest.mark.long
def test_limits_of_their_own_are_pieces_of_a_stream():
    """The signal processor narrows bytes within the limits of their type: a finer branch, within 64
    of 0, is limited behind its convolution, and all is one stream."""
    model = residual_model((0, 1, 0, 1), both=True, shape=(16, 8, 8))
    options = Options(rounding="half_up")
    devices = {"npu": CHIPS["dsp"](), "host": "host"}
    module = tilewright.compile(model, target=devices, options=options)
    ((_, facts),) = submitted(module)
    assert len(facts.pieces) == 3  # two convolutions, of which one has limits, and the addition
    x = np.random.default_rng(0).integers(-128, 128, (1, 16, 8, 8)).astype(np.int8)
    assert np.array_equal(module(x), tilewright.compile(model, options=options)(x))


def test_arrays_are_arranged_alike_whichever_operands_they_are():
    """Two programs of one content would be one symbol twice where kernels come from the cache."""
    plain = Held.row_major(Buffer("x", i8, (4, 16)))
    first, second = (replace(plain, operands=(k,)) for k in (0, 1))
    assert first != second
    assert first.arrangement == second.arrangement
    assert plain.arrangement == plain
