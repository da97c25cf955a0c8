"""What quantising a model did: layers with their errors, nodes that stayed floats, outputs."""

from __future__ import annotations

from dataclasses import dataclass

NOISELESS = "exact"


@dataclass(frozen=True)
class LayerError:
    """One quantised layer: its first node's name and operator, and the signal-to-noise ratio of its
    result in decibels: `alone` on operands of the float model, before biases are corrected, and
    `so_far` with all before it quantised as well. None is without noise."""

    node: str
    operator: str
    alone: float | None
    so_far: float | None


@dataclass(frozen=True)
class FloatNode:
    """A node that is computed in floats, and why."""

    node: str
    operator: str
    reason: str


@dataclass(frozen=True)
class OutputError:
    """How far an output is from the float model's on the calibration data: the signal-to-noise
    ratio in decibels (None without noise), the root mean square error by that of the output, and
    the largest difference."""

    name: str
    decibels: float | None
    relative: float
    largest: float


@dataclass(frozen=True)
class QuantizationReport:
    """What was done to a model. `samples` is how many it was calibrated on, `values` how many
    values have scales."""

    scheme: str
    method: str
    samples: int
    values: int
    layers: tuple[LayerError, ...]
    floats: tuple[FloatNode, ...]
    outputs: tuple[OutputError, ...]

    def __str__(self) -> str:
        counts = f"{len(self.layers)} layers in {self.scheme}, {len(self.floats)} nodes in floats"
        lines = [f"{counts}; calibrated on {self.samples} samples by {self.method}"]
        for x in self.layers:
            alone, so_far = (decibels_text(d) for d in (x.alone, x.so_far))
            lines.append(f"  {x.node} ({x.operator}): {alone} alone, {so_far} so far")
        lines += [f"  {n.node} ({n.operator}) in floats: {n.reason}" for n in self.floats]
        lines += [
            f"output {o.name}: {decibels_text(o.decibels)}, off by {o.largest:.3g} at most"
            for o in self.outputs
        ]
        return "\n".join(lines)


def decibels_text(decibels: float | None) -> str:
    """ "31.4 dB"."""
    return NOISELESS if decibels is None else f"{decibels:.1f} dB"
