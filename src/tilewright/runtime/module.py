"""A compiled model that can be called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tilewright.base.errors import InputError
from tilewright.program.host_program import Slot, SymbolSpec
from tilewright.runtime.array import arrange, as_input, check_outputs
from tilewright.runtime.atomic import as_path
from tilewright.runtime.container import write_program
from tilewright.runtime.devices import DeviceTable
from tilewright.runtime.executor import Executor
from tilewright.runtime.host_functions import HostTable
from tilewright.runtime.pool import MAX_THREADS, ThreadPool
from tilewright.runtime.processor import check_machine, runs_here
from tilewright.runtime.profile import Profile, make_profile
from tilewright.runtime.program import Program, TargetFacts
from tilewright.runtime.system import available_cpus

CONCURRENCY = 4  # calls that run at the same time, each with its own scratch memory


class Module:
    """A compiled model: `module(x)`, `module(x, mask=m)`, or `module.run({"x": x})`.

    Inputs are numpy arrays, or anything with `__dlpack__`, of exactly the model's element types;
    they are read where they lie if they are row-major. Python's numbers, and lists of them, take
    the input's type if it can hold them. Outputs are new numpy arrays, or those given as `out=`
    (an input of that name is passed by position or through `run`). The memory of new ones from
    32 MB on stays with the module for its next call, once nobody holds the array.

    Any number of threads may call a module; `concurrency` of them run at the same time, and the
    others wait. `threads` (by default all CPUs) are shared with all modules of this process that
    ask for as many, unless `pool` is given. A module for another machine can be saved here, but
    not called.
    """

    def __init__(
        self,
        program: Program,
        *,
        threads: int | None = None,
        pool: ThreadPool | None = None,
        host: HostTable | None = None,
        concurrency: int = CONCURRENCY,
        devices: DeviceTable | None = None,
        source: Callable[[str, str | None], str] | None = None,
    ) -> None:
        if concurrency < 1:
            raise InputError(f"concurrency is {concurrency}, and must be at least 1")
        if threads is not None and not 1 <= threads <= MAX_THREADS:
            raise InputError(f"threads is {threads}, and must be from 1 to {MAX_THREADS}")
        self.program = program
        self._source = source
        self._inputs, self._outputs = program.host.arguments, program.host.results
        self._types = [t.dtype.numpy for t in self._inputs]
        self._single = len(self._outputs) == 1
        self._closed = False
        self._executor: Executor | None = None
        if runs_here(program.target):
            self._executor = Executor(
                program,
                threads=available_cpus() if threads is None else threads,
                pool=pool,
                host=host,
                concurrency=concurrency,
                devices=devices,
            )

    # ------------------------------------------------------------ calling

    def __call__(
        self, *args: Any, out: Any = None, **named: Any
    ) -> np.ndarray | tuple[np.ndarray, ...]:
        """The outputs: one array, or a tuple in the model's order. Raises InputError for arguments
        that do not fit: their number, names, element types and shapes."""
        executor = self._open()
        if named or len(args) != len(self._types):
            args = tuple(arrange(self.inputs, args, named))
        results = self._run(executor, args, out)
        return results[0] if self._single else tuple(results)

    def run(
        self, inputs: Mapping[str, Any], *others: NoReturn, out: Any = None
    ) -> dict[str, np.ndarray]:
        """All outputs by name, for inputs by name."""
        if others or not isinstance(inputs, Mapping):
            given = ", ".join(type(value).__name__ for value in (inputs, *others))
            raise InputError(
                f"run takes one mapping of inputs by name, and was given: {given}",
                hint='results = module.run({"x": x}); arrays by position: y = module(x)',
            )
        results = self._run(self._open(), arrange(self.inputs, (), inputs), out)
        return {t.name: r for t, r in zip(self.outputs, results, strict=True)}

    def profile(
        self,
        *args: Any,
        repeat: int = 10,
        watch: Callable[[int, int], None] | None = None,
        **named: Any,
    ) -> Profile:
        """Calls the model `repeat` times, after once to warm up, and times every step. Printed, the
        profile is a table. `watch` is told before each call how many of how many are done. (Inputs
        of the names `repeat` and `watch` are passed by position.)"""
        if not isinstance(repeat, Integral) or isinstance(repeat, bool) or repeat < 1:
            raise InputError(
                f"repeat is {repeat!r}, and must be a whole number of 1 or more",
                hint="for example module.profile(x, repeat=10)",
            )
        executor = self._open()
        arrays = self._arrays(arrange(self.inputs, args, named))
        executor.run(arrays)
        stamps = np.empty((repeat, len(self.program.steps) + 1), np.int64)
        for done, row in enumerate(stamps):
            if watch is not None:
                watch(done, repeat)
            executor.run(arrays, times=row)
        return make_profile(self.program, executor.signature(arrays), stamps, executor.threads)

    def _run(self, executor: Executor, values: Any, out: Any) -> list[np.ndarray]:
        arrays = self._arrays(values)
        if out is None:
            return executor.run(arrays)
        given = check_outputs(self.outputs, executor.signature(arrays).outputs, out)
        # Outputs may be written before all inputs are read.
        apart = [a.copy() if any(np.may_share_memory(a, o) for o in given) else a for a in arrays]
        return executor.run(apart, given)

    def _arrays(self, values: Any) -> list[np.ndarray]:
        arrays = []
        for i, (value, wanted) in enumerate(zip(values, self._types, strict=True)):
            if type(value) is np.ndarray and value.dtype is wanted:
                flags = value.flags
                if flags.c_contiguous and flags.aligned:
                    arrays.append(value)
                    continue
            arrays.append(as_input(self.inputs[i], value))
        return arrays

    # ------------------------------------------------------------ what it is

    @property
    def name(self) -> str:
        """The model's."""
        return self.program.host.name

    @property
    def inputs(self) -> tuple[Slot, ...]:
        """Name, element type and shape of each; symbols in shapes are texts."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Slot, ...]:
        """The same of the outputs."""
        return self._outputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the outputs are called, in the order in which a call returns them."""
        return tuple(t.name for t in self.outputs)

    @property
    def symbols(self) -> tuple[SymbolSpec, ...]:
        """The dimensions that a call's inputs settle, with their bounds."""
        return self.program.host.symbols

    @property
    def target(self) -> TargetFacts:
        """What it was compiled for: `name`, LLVM's `triple` and `cpu`, `features`."""
        return self.program.target

    @property
    def threads(self) -> int:
        """How many threads a call runs on."""
        return self._open().threads

    def source(self, stage: str, kernel: str | None = None) -> str:
        """The program at a stage of its compilation, as text."""
        if self._source is None:
            raise InputError(
                f"{self.name!r} was loaded from a compiled file, which holds no sources",
                hint="compile the model to see them",
            )
        return self._source(stage, kernel)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, ts)) for ts in (self.inputs, self.outputs))
        return f"Module({self.name}: {inputs} -> {outputs}; for {self.target})"

    # ------------------------------------------------------------ life

    def save(self, path: str | Path) -> int:
        """Writes the module to a file that `load` reads, all of it or nothing, and returns its size
        in bytes. Devices and pipes are written through; links are followed."""
        return write_program(as_path(path, 'module.save("model.tw")'), self.program)

    def close(self) -> None:
        """Gives code and memory back, when the calls that run now are done."""
        self._executor, self._closed = None, True

    @property
    def closed(self) -> bool:
        """Whether `close` was called: a closed module cannot be."""
        return self._closed

    def __reduce__(self) -> NoReturn:
        """InputError: code and threads of this process are no data."""
        raise not_picklable(self.name)

    def _open(self) -> Executor:
        executor = self._executor
        if executor is None:
            if not self._closed:
                check_machine(self.target)
            raise InputError(f"{self.name!r} is closed")
        return executor

    def __enter__(self) -> Module:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def not_picklable(name: str) -> InputError:
    """What to say to pickle, and to copy.deepcopy."""
    return InputError(
        f"{name!r} cannot be pickled or copied: it is code that is loaded in this process",
        hint="save it with module.save(path), and load it elsewhere with tilewright.load(path)",
    )
