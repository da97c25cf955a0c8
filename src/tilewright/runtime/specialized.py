"""A model whose shapes depend on what some of its inputs hold: one Module for each such contents.

Which inputs these are is found while compiling, and new ones may turn up with other contents (the
two branches of an If, say). A Module is made when a call first brings contents, and kept as long as
it is among those used last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np

from tilewright.base.errors import ContentsError, InputError, ModelError
from tilewright.program.host_program import Slot, SymbolSpec
from tilewright.runtime.array import arrange, as_input
from tilewright.runtime.module import Module, not_picklable
from tilewright.runtime.profile import Profile
from tilewright.runtime.program import TargetFacts

KEPT = 16  # modules, those used last
LARGEST = 64  # elements of an input that may set shapes

Key = tuple[tuple[str, tuple[int, ...], bytes], ...]


class Make(Protocol):
    """Compiles the model for certain contents of inputs, and sizes of symbolic dimensions."""

    def __call__(self, values: Mapping[str, np.ndarray], dims: Mapping[str, int]) -> Module:
        """ContentsError names inputs and dimensions that must be given, too."""
        ...


@dataclass(frozen=True, slots=True)
class Interface:
    """What is known of the model before it is compiled: of its outputs, the names."""

    name: str
    symbols: tuple[SymbolSpec, ...]
    inputs: tuple[Slot, ...]
    outputs: tuple[str, ...]


class SpecializedModule:
    """Called as a Module is. A call whose inputs hold what none of the last ones did compiles the
    model first, while other calls wait.

    `specialize` gives the Module for certain contents, which can be saved. The model file or object
    must stay as it is. An input that shapes depend on has at most 64 elements.
    """

    def __init__(
        self,
        interface: Interface,
        target: TargetFacts,
        make: Make,
        cause: ContentsError,
    ) -> None:
        self.interface = interface
        self.target = target
        self._make = make
        self._modules: OrderedDict[Key, Module] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False
        self._inputs: tuple[str, ...] = ()
        self._symbols: tuple[str, ...] = ()
        self.compiled = 0
        self.reused = 0
        self._add(cause)

    # ------------------------------------------------------------ calling

    def __call__(
        self, *args: Any, out: Any = None, **named: Any
    ) -> np.ndarray | tuple[np.ndarray, ...]:
        """One array, or a tuple in the model's order."""
        values = self._arrange(args, named)
        module = self._find(values)
        return module(*(values[t.name] for t in module.inputs), out=out)

    def run(self, inputs: Mapping[str, Any], *, out: Any = None) -> dict[str, np.ndarray]:
        """The outputs by name, for inputs by name."""
        values = self._arrange((), inputs)
        module = self._find(values)
        return module.run({t.name: values[t.name] for t in module.inputs}, out=out)

    def profile(
        self,
        *args: Any,
        repeat: int = 10,
        watch: Callable[[int, int], None] | None = None,
        **named: Any,
    ) -> Profile:
        """As of the Module for these inputs."""
        values = self._arrange(args, named)
        module = self._find(values)
        arrays = (values[t.name] for t in module.inputs)
        return module.profile(*arrays, repeat=repeat, watch=watch)

    def specialize(self, *args: Any, **named: Any) -> Module:
        """The Module for inputs that hold this, and have these sizes. It takes the others alone."""
        return self._find(self._arrange(args, named))

    # ------------------------------------------------------------ what it is

    @property
    def name(self) -> str:
        return self.interface.name

    @property
    def inputs(self) -> tuple[Slot, ...]:
        """As of a Module."""
        return self.interface.inputs

    @property
    def symbols(self) -> tuple[SymbolSpec, ...]:
        return self.interface.symbols

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.interface.outputs

    @property
    def outputs(self) -> tuple[Slot, ...]:
        """As they were in the last call; their shapes can be others in the next."""
        return self._last().outputs

    @property
    def threads(self) -> int:
        return self._last().threads

    @property
    def specialized_on(self) -> tuple[str, ...]:
        """The inputs whose contents, and the dimensions whose sizes a Module is made for."""
        return (*self._inputs, *self._symbols)

    def source(self, stage: str, kernel: str | None = None) -> str:
        """The program of the last call, at a stage of its compilation."""
        return self._last().source(stage, kernel)

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(self.interface.outputs)
        return (
            f"SpecializedModule({self.name}: {inputs} -> {outputs};"
            f" for each of {self._causes()}: {self.compiled} compiled,"
            f" {len(self._modules)} of at most {KEPT} kept,"
            f" {self.reused} call{'s' if self.reused != 1 else ''} found one ready)"
        )

    # ------------------------------------------------------------ life

    def save(self, path: object) -> int:
        """InputError: a file holds one program."""
        values = _option("values", self._inputs)
        sizes = _option("dims", [s.name for s in self.symbols])
        also = f"; add {sizes} if it fits certain sizes only" if values and sizes else ""
        raise InputError(
            f"{self.name!r} cannot be saved to {path} as it is: its shapes depend on"
            f" {self._causes()}, and a file has one program",
            hint="save the one for certain inputs: module.specialize(…).save(path), or fix what it"
            f" depends on: options=Options({values or sizes}){also}",
        )

    def __reduce__(self) -> NoReturn:
        """InputError, as of a Module."""
        raise not_picklable(self.name)

    def close(self) -> None:
        """Gives code and memory back, when the calls that run now are done."""
        with self._lock:
            self._closed = True
            self._modules.clear()

    @property
    def closed(self) -> bool:
        return self._closed

    def __enter__(self) -> SpecializedModule:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ the modules

    def _arrange(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, np.ndarray]:
        values = arrange(self.inputs, args, named)
        return {t.name: as_input(t, value) for t, value in zip(self.inputs, values, strict=True)}

    def _find(self, values: Mapping[str, np.ndarray]) -> Module:
        with self._lock:
            if self._closed:
                raise InputError(f"{self.name!r} is closed")
            while True:
                contents, dims = self._contents(values), self._sizes(values)
                key: Key = tuple((n, a.shape, a.tobytes()) for n, a in contents.items())
                key += tuple((n, (size,), b"") for n, size in dims.items())
                if key in self._modules:
                    self._modules.move_to_end(key)
                    self.reused += 1
                    return self._modules[key]
                try:
                    module = self._make(contents, dims)
                except ModelError as error:
                    if not self._add(error):
                        raise
                else:
                    self._keep(key, module)
                    return module

    def _add(self, error: ModelError) -> bool:
        """Whether there is more that can be known. A model that fits together only for certain
        sizes, such as one that reshapes [n, 3] to [6, 2], says no more than that it does not."""
        before = self.specialized_on
        if isinstance(error, ContentsError):
            inputs, symbols = error.inputs, error.symbols
        else:
            inputs, symbols = (), tuple(s.name for s in self.symbols)
        self._inputs = tuple(dict.fromkeys((*self._inputs, *inputs)))
        self._symbols = tuple(dict.fromkeys((*self._symbols, *symbols)))
        return self.specialized_on != before

    def _keep(self, key: Key, module: Module) -> None:
        """A Module that is dropped ends with its last call."""
        self.compiled += 1
        self._modules[key] = module
        if len(self._modules) > KEPT:
            self._modules.popitem(last=False)

    def _contents(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = {}
        for tensor in self.inputs:
            if tensor.name in self._inputs:
                array = values[tensor.name]
                if array.size > LARGEST:
                    raise InputError(
                        f"the model's shapes depend on what input {tensor.name!r} holds, and it has"
                        f" {array.size} elements: {LARGEST} are allowed"
                    )
                found[tensor.name] = array
        return found

    def _sizes(self, values: Mapping[str, np.ndarray]) -> dict[str, int]:
        found: dict[str, int] = {}
        for tensor in self.inputs:
            shape = values[tensor.name].shape
            if len(shape) == len(tensor.shape):  # the Module itself refuses others
                named = zip(tensor.shape, shape, strict=True)
                found |= {d: n for d, n in named if isinstance(d, str) and d in self._symbols}
        return found

    def _last(self) -> Module:
        with self._lock:
            if self._closed:
                raise InputError(f"{self.name!r} is closed")
            if self._modules:
                return next(reversed(self._modules.values()))
        raise InputError(
            f"this is known of {self.name!r} once it was called: it depends on {self._causes()}"
        )

    def _causes(self) -> str:
        """ "the contents of 'shape' and the size of n"."""
        causes = [f"the contents of {n!r}" for n in self._inputs]
        return " and ".join([*causes, *(f"the size of {n}" for n in self._symbols)])


def _option(name: str, keys: Sequence[str]) -> str:
    """ "values={'shape': …}"; nothing for nothing."""
    return f"{name}={{{', '.join(f'{key!r}: …' for key in keys)}}}" if keys else ""
