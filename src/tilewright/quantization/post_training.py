"""Post-training quantisation: a float ONNX model becomes one of 8-bit integers, written as pairs of
QuantizeLinear and DequantizeLinear (QDQ), which other runtimes read too.

    prepare → find layers → observe → choose scales → correct biases → write → measure
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from tilewright.base.errors import ContentsError, InputError, did_you_mean
from tilewright.base.passes import Watch, unwatched
from tilewright.base.version import VERSION
from tilewright.frontends.onnx.load import LoadedModel, ModelSource, import_model, load_model
from tilewright.quantization.calibrate import (
    check_plan,
    choose_scales,
    observe,
    refused,
    sources,
    watch_floats,
)
from tilewright.quantization.layers import Kind, find_layers, find_wide_sums
from tilewright.quantization.measure_errors import (
    Noise,
    OfLayer,
    correct_biases,
    measure_errors,
    try_layers,
)
from tilewright.quantization.network import Network
from tilewright.quantization.prepare import prepare
from tilewright.quantization.ranges import METHODS
from tilewright.quantization.report import FloatNode, LayerError, OutputError, QuantizationReport
from tilewright.quantization.samples import read_samples
from tilewright.quantization.scales import ACTIVATIONS, I8, INT8, POW2, SCHEMES, SYMMETRIC, Scheme
from tilewright.quantization.write_pairs import Quantisation, first_biases, write_model
from tilewright.runtime.atomic import as_path, write_atomically
from tilewright.runtime.system import require_memory

MSE = "mse"


@dataclass(frozen=True)
class QuantizedModel:
    """A quantised model: `model` is ONNX, which `tilewright.compile` and other runtimes take, and
    `report` says what was done and what it loses."""

    model: onnx.ModelProto
    report: QuantizationReport

    def save(self, path: str | os.PathLike[str]) -> int:
        """Writes the model to an .onnx file, all of it or nothing; returns its size in bytes."""
        data = self.model.SerializeToString()
        return write_atomically(
            as_path(path, 'quantized.save("int8.onnx")'), lambda f: f.write(data)
        )


def quantize(
    model: ModelSource,
    samples: Mapping[str, np.ndarray] | np.ndarray,
    *,
    scheme: str = INT8,
    method: str = MSE,
    activations: str = I8,
    per_tensor: bool = False,
    percentile: float = 99.99,
    bias_correction: bool = True,
    wide_sums: bool = False,
    keep_float: Collection[str] = (),
    most: int | None = None,
    watch: Watch | None = None,
) -> QuantizedModel:
    """Quantises a float32 ONNX model to 8 bits, calibrated on samples of its inputs.

    `samples` has an array for each input by its name, or is the array of the only one, with as many
    samples as there are along the first axis (at most `most` are used). What is written is standard
    ONNX: pairs of QuantizeLinear and DequantizeLinear around convolutions, linear layers, and what
    stands between them; the report names the nodes that stay floats, and why.

    `scheme` "int8" has symmetric weights with a scale for each output channel (`per_tensor`: one
    for all) and activations with zero points ("i8", or "u8"; "symmetric" has none); "pow2" has
    symmetric integers and scales that are powers of two, which chips apply by shifting. `method` is
    how ranges are chosen: "minmax", "percentile" (without the rarest beyond `percentile`),
    "entropy" or "mse". With `bias_correction` the mean error of each channel is taken from its
    bias. With `wide_sums` (of "pow2") an addition takes the sums of a convolution or linear layer
    in front of it as they are, not rounded to 8 bits, for chips that add in their accumulators;
    others leave such a layer to the host. Nodes named in `keep_float` stay floats. `watch` is told
    what is done ("samples observed"), how many of these are, and of how many.

    Raises ModelError if the model cannot be read or there is nothing to quantise, InputError if
    options or samples do not fit.
    """
    asked = _check_options(
        scheme, method, activations, per_tensor, percentile, wide_sums=wide_sums, most=most
    )
    tell = watch or unwatched
    loaded = load_model(model, require_memory, whole=True)
    _check_model(loaded)
    network = prepare(loaded)
    excluded = _kept(network, keep_float)
    plan = find_layers(network, excluded)
    check_plan(plan)
    data = read_samples(network, samples, most)
    floats = watch_floats(network, plan, tell)
    data = floats.sized(data)
    observers = observe(floats, sources(plan), data)
    while more := refused(network, plan, observers):
        excluded |= more
        plan = find_layers(network, excluded)
        check_plan(plan)
        if not set(plan.points) <= set(floats.names):
            floats = watch_floats(network, plan, tell)
        observers |= observe(floats, set(sources(plan)) - set(observers), data)
    scales = choose_scales(network, plan, observers, asked)
    for name in find_wide_sums(network, plan) if wide_sums else ():
        del scales[name]
    q = Quantisation(network, plan, asked, scales, first_biases(network, plan))
    tried = try_layers(q, data, tell)
    if bias_correction:
        q = correct_biases(q, tried)
    made = write_model(q)
    noise = measure_errors(q, floats, made, data, tell)
    report = _report(q, tried, noise, data.count)
    return QuantizedModel(_finished(made.network), report)


def _check_options(
    scheme: str,
    method: str,
    activations: str,
    per_tensor: bool,
    percentile: float,
    *,
    wide_sums: bool,
    most: int | None,
) -> Scheme:
    """What is asked for; InputError with what there is."""
    given = {"scheme": (scheme, SCHEMES), "method": (method, METHODS)}
    given |= {"kind of activations": (activations, ACTIVATIONS)}
    for name, (value, known) in given.items():
        if value not in known:
            raise InputError(
                f"there is no {name} called {value!r}", hint=did_you_mean(str(value), known)
            )
    if not 50 < percentile <= 100:
        raise InputError(f"percentile is {percentile}, and must be above 50 and at most 100")
    if most is not None and most < 1:
        raise InputError(f"most is {most}, and must be 1 or more samples")
    if wide_sums and scheme != POW2:
        raise InputError(
            f"wide_sums (--wide-sums) is an option of scheme {POW2!r}, and this is {scheme!r}",
            hint="scales of other schemes have to be multiplied by before an addition",
        )
    if scheme == POW2:
        activations, per_tensor = SYMMETRIC, True
    return Scheme(scheme, method, activations, per_tensor, percentile)


def _check_model(loaded: LoadedModel) -> None:
    """ModelError, which names the node, for a model that cannot be imported."""
    try:
        import_model(loaded)
    except ContentsError:  # its shapes depend on what its inputs hold, which the samples say
        return


def _kept(network: Network, names: Collection[str]) -> dict[str, str]:
    """The nodes that the caller wants in floats."""
    if isinstance(names, str):
        names = [names]
    known = {n.name for n in network.nodes}
    for name in names:
        if name not in known:
            raise InputError(
                f"the model has no node {name!r}", hint=did_you_mean(name, sorted(known))
            )
    return dict.fromkeys(names, "as was asked for")


def _finished(network: Network) -> onnx.ModelProto:
    """The model as it is handed out, with our name as its producer."""
    model = network.proto()
    model.producer_name, model.producer_version = "tilewright", VERSION
    return model


def _report(
    q: Quantisation, tried: Sequence[OfLayer], noise: Mapping[str, Noise], count: int
) -> QuantizationReport:
    names = {n.name: n for n in q.network.nodes}
    alone = {one.trial.layer.node.name: one.noise for one in tried}
    layers = tuple(
        LayerError(
            x.node.name,
            x.node.op_type,
            alone[x.node.name].decibels,
            noise[x.results[0]].decibels,
        )
        for x in q.plan.layers
        if x.kind is not Kind.MOVE
    )
    floats = tuple(FloatNode(name, names[name].op_type, why) for name, why in q.plan.floats.items())
    outputs = tuple(
        OutputError(name, noise[name].decibels, noise[name].relative, noise[name].largest)
        for name in q.network.outputs
        if name in noise
    )
    return QuantizationReport(
        q.scheme.name, q.scheme.method, count, len(q.scales), layers, floats, outputs
    )
