"""Random networks, quantised: valid ONNX, the same to our compiler, to the interpreter, and to
another runtime."""

import numpy as np
import onnx
from fuzz_devices import Network
from hypothesis import given, settings
from hypothesis import strategies as st
from quantization_peers import HAS_PEER, in_peer, steps_of

import tilewright
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.evaluate import evaluate_graph

EXAMPLES = 3  # a second or two each


@settings(max_examples=EXAMPLES)
@given(
    st.integers(0, 1 << 32),
    st.sampled_from(["int8", "pow2"]),
    st.sampled_from(["i8", "u8"]),
    st.booleans(),
)
def test_all_agree_on_what_a_quantised_network_means(seed, scheme, activations, wide):
    random = np.random.default_rng(seed)
    network = Network(random)
    model = network.model()
    samples = {"x": random.normal(size=(1, *network.input[1:])).astype(np.float32)}
    chosen = {"scheme": scheme, "activations": activations}
    chosen["wide_sums"] = wide and scheme == "pow2"
    made = tilewright.quantize(model, samples, **chosen).model
    onnx.checker.check_model(made, full_check=True)
    step = steps_of(made)["y"]
    x = samples["x"] * 1.5  # beyond what was seen
    ours = tilewright.compile(made)(x)
    (meant,) = evaluate_graph(import_model(made), [x])
    allowed = 0 if scheme == "pow2" else 1.01 * (step or 1e-4 * np.abs(meant).max())
    assert np.abs(ours - meant).max() <= allowed
    if HAS_PEER:
        (theirs,) = in_peer(made, {"x": x})
        assert np.abs(ours - theirs).max() <= 2.01 * (step or 1e-2 * np.abs(meant).max())
