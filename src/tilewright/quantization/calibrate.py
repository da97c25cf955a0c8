"""Calibration: the float model is run on samples, what its values hold is observed, and scales are
chosen. Values that are moved, or lie side by side in a concatenation, share a scale."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.base.passes import Recorder, Watch
from tilewright.compiler import compile
from tilewright.quantization.layers import Kind, Layer, Plan
from tilewright.quantization.network import Network
from tilewright.quantization.observer import Observer
from tilewright.quantization.samples import Samples
from tilewright.quantization.scales import Scale, Scheme, choose_scale

Values = dict[str, np.ndarray]

NEAR = 0.5  # of a result's range, that of an operand which shares its scale


class Watched:
    """A network whose values can be looked at while it runs, compiled once. `watch` is told how far
    that is, and how many samples were run."""

    def __init__(self, network: Network, names: Iterable[str], watch: Watch) -> None:
        self.watch = watch
        self.names = tuple(dict.fromkeys(names))
        self.made = [name for name in self.names if name not in network.inputs]
        self.given = [name for name in self.names if name in network.inputs]
        recorder = Recorder(keeps=False, watch=watch)
        self.module = compile(network.proto(self.made), recorder=recorder) if self.made else None

    def runs(self, samples: Samples, what: str) -> Iterator[Values]:
        """What the values hold, for some samples after others."""
        self.watch(what, 0, samples.count)
        for done, inputs in samples.batches():
            found = self._run(inputs)
            self.watch(what, done, samples.count)
            yield found

    def sized(self, samples: Samples) -> Samples:
        """The samples, as many at once as the values' sizes allow: those of one are looked at."""
        values = self._run(samples.batch(0, 1)).values()
        return samples.for_elements(sum(a.size for a in values))

    def _run(self, inputs: Mapping[str, np.ndarray]) -> Values:
        found = {name: inputs[name] for name in self.given}
        if self.module is not None:
            results = self.module.run(dict(inputs)).values()  # a module may write names otherwise
            found |= zip(self.made, results, strict=True)
        return found


def watch_floats(network: Network, plan: Plan, watch: Watch) -> Watched:
    """The float model with all that calibration and measuring look at."""
    outputs = (o for o in network.outputs if network.is_float(o))
    return Watched(network, [*plan.points, *outputs], watch)


def observe(floats: Watched, names: Collection[str], samples: Samples) -> dict[str, Observer]:
    """What some values hold."""
    observers = {name: Observer() for name in names}
    for values in floats.runs(samples, "samples observed") if observers else ():
        for name, observer in observers.items():
            observer.add(values[name])
    return observers


def sources(plan: Plan) -> list[str]:
    """The values with pairs but those that a move makes."""
    moved = {r for x in plan.layers if x.kind is Kind.MOVE for r in x.results}
    return [name for name in plan.points if name not in moved]


# ---------------------------------------------------------------- what cannot be


def refused(network: Network, plan: Plan, observers: Mapping[str, Observer]) -> dict[str, str]:
    """Layers whose values 8 bits cannot stand for, by the node's name: why."""
    found: dict[str, str] = {}
    for x in plan.layers:
        names = [n for n in (*x.operands, *x.results) if n in observers]
        broken = next((n for n in names if not observers[n].is_finite), None)
        if broken is not None:
            found[x.node.name] = f"{broken!r} holds numbers that are not finite"
        elif x.node.op_type in ("Add", "Sub") and (lost := _lost(network, x, observers)):
            found[x.node.name] = f"in 8 bits its operand {lost!r} would be nothing beside the other"
    return found


def _lost(network: Network, layer: Layer, observers: Mapping[str, Observer]) -> str | None:
    """An operand that is less than half a step of the sum."""
    (result,) = layer.results
    names = [n for n in layer.operands if n in observers]
    sizes = {n: _most(observers[n]) for n in names if not observers[n].is_empty}
    constant = 0.0
    if layer.weight is not None:
        constant = float(np.abs(network.constants[layer.weight]).max(initial=0.0))
    step = max([_most(observers[result]), constant, *sizes.values()]) / 256
    return next((n for n, most in sizes.items() if 0 < most < step), None)


def _most(observer: Observer) -> float:
    return 0.0 if observer.is_empty else max(-observer.low, observer.high)


# ---------------------------------------------------------------- scales


def choose_scales(
    network: Network, plan: Plan, observers: Mapping[str, Observer], scheme: Scheme
) -> dict[str, Scale]:
    """A scale for every value with a pair. What a concatenation alone reads has the scale of its
    result: with one of its own it would only be rounded twice."""
    readers, made, outputs = network.readers(), plan.made, set(network.outputs)
    groups = _Groups(plan.points)
    for x in plan.layers:
        if x.kind is Kind.MOVE:
            for r in x.results:
                groups.join(r, x.operands[0])
    for x in plan.layers:
        if x.node.op_type == "Concat":
            for o in x.operands:
                members = groups.members()[groups.root(o)]
                others = {id(n) for m in members for n in readers.get(m, ())} - {id(x.node)}
                others -= {id(made[m].node) for m in members if m in made and _keeps(made[m])}
                alone = not others and not outputs.intersection(members)
                if alone or _is_near(members, x.results[0], observers):
                    groups.join(o, x.results[0])
    scales: dict[str, Scale] = {}
    for members in groups.members().values():
        own = [observers[n] for n in members if n in observers and not observers[n].is_empty]
        scale = choose_scale(own or [Observer()], scheme)
        scales |= dict.fromkeys(members, scale)
    return scales


def _keeps(layer: Layer) -> bool:
    """Whether a layer's result may have its operands' scale."""
    return layer.kind is Kind.MOVE or layer.node.op_type == "Concat"


def _is_near(members: Sequence[str], result: str, observers: Mapping[str, Observer]) -> bool:
    """Whether an operand, all of whose values have one scale, loses little on the scale of what it
    becomes a part of."""
    most = max((_most(observers[n]) for n in members if n in observers), default=0.0)
    return most >= NEAR * _most(observers[result])


class _Groups:
    """Values that share a scale."""

    def __init__(self, names: Sequence[str]) -> None:
        self.parents = {name: name for name in names}

    def root(self, name: str) -> str:
        while self.parents[name] != name:
            name = self.parents[name]
        return name

    def join(self, name: str, other: str) -> None:
        self.parents[self.root(name)] = self.root(other)

    def members(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self.parents:
            found.setdefault(self.root(name), []).append(name)
        return found


def check_plan(plan: Plan) -> None:
    """ModelError where nothing is left to quantise."""
    if any(x.kind is Kind.PRODUCT for x in plan.layers):
        return
    reasons = list(dict.fromkeys(f"{name}: {why}" for name, why in plan.floats.items()))[:4]
    raise ModelError(
        "nothing in this model can be quantised: no convolution or product of matrices is left"
        + "".join(f"\n  {line}" for line in reasons)
    )
