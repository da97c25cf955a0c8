"""What quantisation loses: each layer alone, on operands of the float model, and all layers so far;
and what it adds to a layer's sums on average, which biases can take away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.base.passes import Watch
from tilewright.quantization.calibrate import Watched
from tilewright.quantization.samples import Samples
from tilewright.quantization.write_pairs import Quantisation, Trial, Written, write_trials


@dataclass
class Noise:
    """Sums of squares of a value and of how far another is from it."""

    signal: float = 0.0
    error: float = 0.0
    largest: float = 0.0

    def add(self, wanted: np.ndarray, found: np.ndarray) -> None:
        difference = found.astype(np.float64) - wanted
        self.signal += float(np.square(wanted, dtype=np.float64).sum())
        self.error += float(np.square(difference).sum())
        self.largest = max(self.largest, float(np.abs(difference).max(initial=0.0)))

    @property
    def decibels(self) -> float | None:
        """The signal-to-noise ratio, -inf where there is noise alone; None where there is none."""
        if self.error == 0:
            return None
        if self.signal == 0:
            return -np.inf
        return float(10 * np.log10(self.signal / self.error))

    @property
    def relative(self) -> float:
        """The root of the mean square error, by that of the value itself."""
        if self.signal == 0:
            return np.inf if self.error else 0.0
        return float(np.sqrt(self.error / self.signal))


@dataclass
class _Mean:
    """The mean difference of each channel."""

    total: np.ndarray | float = 0.0
    count: int = 0

    def add(self, wanted: np.ndarray, found: np.ndarray, axis: int) -> None:
        others = tuple(a for a in range(wanted.ndim) if a != axis % wanted.ndim)
        difference = found.astype(np.float64) - wanted
        self.total = self.total + difference.sum(axis=others)
        self.count += difference.size // max(difference.shape[axis], 1)


@dataclass
class OfLayer:
    """What was found of a layer alone."""

    trial: Trial
    noise: Noise = field(default_factory=Noise)
    mean: _Mean = field(default_factory=_Mean)


def try_layers(q: Quantisation, samples: Samples, watch: Watch) -> list[OfLayer]:
    """Every layer alone, on what the float model gives it."""
    network, trials = write_trials(q)
    found = [OfLayer(t) for t in trials]
    watched = Watched(network, (name for t in trials for pair in t.pairs for name in pair), watch)
    for values in watched.runs(samples, "samples tried, layer by layer"):
        for one in found:
            for wanted, got in one.trial.results:
                one.noise.add(values[wanted], values[got])
            if one.trial.sums is not None:
                wanted, got = one.trial.sums
                one.mean.add(values[wanted], values[got], _channel(one.trial))
    return found


def _channel(trial: Trial) -> int:
    return 1 if trial.layer.node.op_type in ("Conv", "ConvTranspose") else -1


def correct_biases(q: Quantisation, tried: Sequence[OfLayer]) -> Quantisation:
    """Takes from each bias what quantisation adds to the layer's sums on average (Nagel et al.,
    2019), on operands of the float model: what earlier layers add is theirs to lose."""
    biases = dict(q.biases)
    for one in tried:
        node, bias = one.trial.layer.node, biases.get(one.trial.layer.node.name)
        if bias is None or not one.mean.count:
            continue
        mean = np.asarray(one.mean.total) / one.mean.count
        if mean.shape == bias.shape and np.isfinite(mean).all():
            biases[node.name] = (bias - mean).astype(np.float32)
    return q.with_biases(biases)


def measure_errors(
    q: Quantisation, floats: Watched, made: Written, samples: Samples, watch: Watch
) -> dict[str, Noise]:
    """How far the results of layers, and the outputs, are from the float model's, by their name."""
    network = q.network
    wanted = [x.results[0] for x in q.plan.layers]
    wanted += [o for o in network.outputs if network.is_float(o)]
    names = {name: made.back.get(name, name) for name in wanted}
    ours = Watched(made.network, names.values(), watch)
    noise = {name: Noise() for name in wanted}
    what = "samples measured"
    runs = (floats.runs(samples, what), ours.runs(samples, what))
    for a, b in zip(*runs, strict=True):
        for name in wanted:
            noise[name].add(a[name], b[names[name]])
    return noise
