"""Arrays for a model from the command line, and its results to files."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np

from tilewright.base.dtype import DType, Kind
from tilewright.base.errors import InputError, did_you_mean
from tilewright.program.host_program import Slot, SymbolSpec
from tilewright.program.size import evaluate_size
from tilewright.runtime.atomic import Sink, write_atomically
from tilewright.runtime.system import available_memory, format_bytes

RANDOM = "random"
LONGEST = 18  # digits of a dimension
T = TypeVar("T")
WORKING = 8  # bytes of an element while it is made


def parse_dims(texts: Sequence[str]) -> dict[str, int]:
    """`batch=4` … as a mapping."""
    dims = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or not value.strip().isdecimal():
            raise InputError(f"--dim {text}: not NAME=NUMBER", hint="for example --dim batch=4")
        if len(value) > LONGEST:
            raise InputError(f"--dim {name}: a number of {len(value)} digits")
        dims[name.strip()] = int(value)
    return dims


def parse_pins(texts: Sequence[str]) -> dict[str, str]:
    """`conv1=host` … as a mapping from nodes to devices."""
    pins = {}
    for text in texts:
        node, equals, device = text.rpartition("=")
        if not node or not equals or not device:
            raise InputError(f"--pin {text}: not NODE=TARGET", hint="for example --pin conv1=host")
        pins[node] = device
    return pins


def parse_values(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """`shape=shape.npy` … as a mapping from inputs to what they hold in every call."""
    values = {}
    for text in texts:
        name, equals, source = text.rpartition("=")
        if not name or not equals or not source:
            raise InputError(f"--value {text}: not NAME=FILE", hint="for example --value k=k.npy")
        values[name] = _read_array(Path(source))
    return values


def make_inputs(
    inputs: Sequence[Slot],
    symbols: Sequence[SymbolSpec],
    given: Sequence[str],
    dims: Mapping[str, int],
    seed: int,
) -> dict[str, np.ndarray]:
    """An array for each input: from the files that were `given`, else random numbers.

    Symbols that neither files nor `dims` settle are as small as the model allows, but not 0.
    """
    tensors = {t.name: t for t in inputs}
    arrays = {n: _read(path, tensors[n]) for n, path in _files(inputs, given).items()}
    sizes = {s.name: max(1, s.lower) for s in symbols}
    for tensor in inputs:
        if tensor.name in arrays and len(tensor.shape) == arrays[tensor.name].ndim:
            found = zip(tensor.shape, arrays[tensor.name].shape, strict=True)
            sizes |= {d: n for d, n in found if isinstance(d, str)}
    unknown = sorted(set(dims) - {s.name for s in symbols})
    if unknown:
        raise InputError(
            f"the model has no dimension called {unknown[0]!r}",
            hint=did_you_mean(unknown[0], [s.name for s in symbols]),
        )
    sizes |= dims
    shapes = {t.name: [evaluate_size(d, sizes) for d in t.shape] for t in inputs}
    _check_room([(t, shapes[t.name]) for t in inputs if t.name not in arrays])
    for position, tensor in enumerate(inputs):  # equal seeds give equal arrays
        if tensor.name not in arrays:
            generator = np.random.default_rng([seed, position])
            arrays[tensor.name] = random_array(generator, tensor.dtype, shapes[tensor.name])
    return {t.name: arrays[t.name] for t in inputs}


def _check_room(wanted: Sequence[tuple[Slot, Sequence[int]]]) -> None:
    """Before anything is allocated: InputError if random inputs would take more than there is."""
    needed = sum((t.dtype.bytes + WORKING) * math.prod(shape) for t, shape in wanted)
    room = available_memory()
    if room is not None and needed > room:
        shapes = ", ".join(f"{t.name}: {t.dtype}{list(shape)}" for t, shape in wanted)
        raise InputError(
            f"random inputs need {format_bytes(needed)} of memory, and {format_bytes(room)} are"
            f" available: {shapes}",
            hint="choose smaller dimensions with --dim",
        )


def random_array(generator: np.random.Generator, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """Floats as from a normal distribution; integers 0 and 1, which are indices of anything."""
    if dtype.kind is Kind.FLOAT:
        return generator.standard_normal(shape, np.float32).astype(dtype.numpy)
    return generator.integers(0, 2, shape).astype(dtype.numpy)


def drawn_inputs(inputs: Sequence[Slot], given: Sequence[str]) -> list[str]:
    """The names of those that are random."""
    files = _files(inputs, given)
    return [t.name for t in inputs if t.name not in files]


def _files(inputs: Sequence[Slot], given: Sequence[str]) -> dict[str, Path]:
    """Where each input comes from that is not random."""
    names = [t.name for t in inputs]
    files: dict[str, Path] = {}
    for text in given:
        name, equals, source = text.rpartition("=")
        if not equals:
            if len(inputs) != 1:
                raise InputError(
                    f"--input {text}: not NAME=FILE",
                    hint=f"the model's inputs are {', '.join(map(str, inputs))}",
                )
            name = inputs[0].name
        if name not in names:
            hint = did_you_mean(name, names)
            raise InputError(f"--input {text}: the model has no input {name!r}", hint=hint)
        if source != RANDOM:
            files[name] = Path(source)
    return files


def _read(path: Path, tensor: Slot) -> np.ndarray:
    array = _read_array(path)
    wanted = tensor.dtype.numpy
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)  # types beyond numpy's own lose their name in a file
    return array


def _read_array(path: Path) -> np.ndarray:
    array = _load(path, lambda held: held, InputError(f"{path} is not a .npy file of numbers"))
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path} holds several arrays", hint="give one .npy file for each input")
    return array


def read_arrays(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    """The arrays of a .npz file by name, or the one of a .npy file."""

    def every(held: Any) -> np.ndarray | dict[str, np.ndarray]:
        if isinstance(held, np.ndarray):
            return held
        with held:
            return {name: held[name] for name in held.files}

    refusal = InputError(
        f"{path} is not a .npz file of numbers",
        hint="np.savez(FILE, NAME=array) writes one, with an array for each input",
    )
    return _load(path, every, refusal)


def _load(path: Path, take: Callable[[Any], T], refusal: InputError) -> T:
    """What is taken of a file that numpy wrote; the refusal for a damaged one."""
    try:
        with path.open("rb") as file:  # which numpy leaves open if it is damaged
            return take(np.load(file, allow_pickle=False))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except (
        ValueError, EOFError, KeyError, BadZipFile, zlib.error, NotImplementedError, RuntimeError
    ):  # fmt: skip
        raise refusal from None


# ---------------------------------------------------------------- results


def output_files(names: Sequence[str], given: Sequence[str]) -> dict[str, Path]:
    """Where each output that is wanted in a file goes: NAME=FILE, FILE.npy for the only one, or a
    folder for all."""
    files: dict[str, Path] = {}
    for text in given:
        name, equals, file = text.rpartition("=")
        if equals and name not in names:
            hint = did_you_mean(name, names)
            raise InputError(f"--output {text}: the model has no output {name!r}", hint=hint)
        if not equals and file.endswith(".npy") and len(names) > 1:
            raise InputError(
                f"--output {text}: the model has {len(names)} outputs",
                hint=f"give NAME={text}, or a folder; outputs: {', '.join(names)}",
            )
        if equals:
            files[name] = Path(file)
        elif file.endswith(".npy"):
            files[names[0]] = Path(file)
        else:
            files |= {n: Path(file) / f"{_file_name(n)}.npy" for n in names}
    return files


def write_outputs(files: Mapping[str, Path], results: Mapping[str, np.ndarray]) -> None:
    for name, path in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the folder {path.parent}: {error.strerror or error}"
            ) from None

        def fill(sink: Sink, array: np.ndarray = results[name]) -> None:
            np.save(sink, array, allow_pickle=False)

        write_atomically(path, fill)


def _file_name(name: str) -> str:
    """An output's name as a file's: names in models may hold slashes."""
    return name.replace("/", "_").replace("\0", "_") or "output"
