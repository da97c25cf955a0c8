"""The engines that are compared, behind one small interface: import, load, run.

Each is told to compute in float32 with exactly `threads` threads and otherwise left at its
defaults for low latency. Libraries are imported when an engine is used, so that one which is not
installed does not stop the others.
"""

import importlib
import importlib.util
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

Arrays = dict[str, np.ndarray]

LEVEL, PRECISION = "TILEWRIGHT_BENCH_LEVEL", "TILEWRIGHT_BENCH_PRECISION"
"""Environment variables: an instruction-set level that engines are held to, and the precision of
products of floats. Workers inherit them."""
HELD = {"ONEDNN_MAX_CPU_ISA": str.upper, "DNNL_MAX_CPU_ISA": str.upper}
"""The variables that hold OpenVINO to a level, and what they make of its name."""


def set_conditions(level: str | None, precision: str | None) -> None:
    """What engines that are started from now on are held to; None for nothing."""
    if level is not None:
        os.environ[LEVEL] = level
        os.environ.update({name: value(level) for name, value in HELD.items()})
    if precision is not None:
        os.environ[PRECISION] = precision


class Engine(ABC):
    """One way to run an ONNX file. `load` is what is timed as compilation."""

    name: str
    package: str
    modules: tuple[str, ...]
    """Everything `load` needs, imported before it so that importing is not timed as compilation."""

    def __init__(self) -> None:
        self.library, *_ = (importlib.import_module(module) for module in self.modules)

    @abstractmethod
    def load(self, path: Path, threads: int) -> None:
        """From a file to something that runs."""

    @abstractmethod
    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """One inference: inputs by name -> outputs in the model's order."""

    can_be_held = True
    """Whether `set_conditions` does anything to it."""

    @classmethod
    def installed_version(cls) -> str | None:
        """The installed version, or None."""
        if importlib.util.find_spec(cls.modules[0]) is None:
            return None
        try:
            return metadata.version(cls.package)
        except metadata.PackageNotFoundError:
            return "unknown"


class Tilewright(Engine):
    """This project's compiler."""

    name = package = "tilewright"
    modules = ("tilewright", "tilewright.targets.cpu")

    def load(self, path: Path, threads: int) -> None:
        """Reading the file is part of it, as it is for the others."""
        level = os.environ.get(LEVEL)
        cpu = self.library.targets.cpu
        host = cpu.host(threads=threads)
        target = host if level is None else cpu.cpu(level, cores=threads, **_caches(host))
        precision = os.environ.get(PRECISION, "f32")
        cold = self.library.Options(cache=False, precision=precision)
        self._module = self.library.compile(path, target=target, options=cold)

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """A module returns its outputs by name, in a tuple, or one array alone."""
        results: Any = self._module(**inputs)
        if isinstance(results, Mapping):
            results = [results[t.name] for t in self._module.outputs]
        elif not isinstance(results, tuple | list):
            results = [results]
        return [np.asarray(result) for result in results]


def _caches(host: Any) -> dict[str, int]:
    """Sizes of a machine's caches, by their names."""
    return {m.name: m.size for m in host.memories if m.cached}


class OnnxRuntime(Engine):
    """onnxruntime's CPU provider, all graph optimizations (its default)."""

    name = package = "onnxruntime"
    modules = ("onnxruntime",)
    can_be_held = False

    def load(self, path: Path, threads: int) -> None:
        """A session with one operator at a time on `threads` threads, the caller's included."""
        options = self.library.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors only
        providers = ["CPUExecutionProvider"]
        self._session = self.library.InferenceSession(str(path), options, providers=providers)

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """Fresh arrays each time."""
        return self._session.run(None, inputs)


class OpenVino(Engine):
    """OpenVINO's CPU plug-in; float32 must be asked for where the machine has bfloat16."""

    name = package = "openvino"
    modules = ("openvino",)

    def load(self, path: Path, threads: int) -> None:
        """One stream for latency, and one request that is used again and again."""
        properties = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": os.environ.get(PRECISION, "f32"),
        }
        compiled = self.library.Core().compile_model(str(path), "CPU", properties)
        self._request = compiled.create_infer_request()
        # bf16 is handed out as f16, which has other numbers for the same bits
        short = [x.get_element_type().get_type_name() == "bf16" for x in compiled.outputs]
        self._kinds = [ml_dtypes.bfloat16 if is_short else None for is_short in short]

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """Inputs and outputs are shared, not copied; the next run overwrites the outputs."""
        results = self._request.infer(inputs, share_inputs=True, share_outputs=True)
        return [results[i] if k is None else results[i].view(k) for i, k in enumerate(self._kinds)]


ENGINES: dict[str, type[Engine]] = {
    engine.name: engine for engine in (Tilewright, OnnxRuntime, OpenVino)
}
