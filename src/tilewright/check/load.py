"""Descriptions and kernels in files: FILE.py, or FILE.py:FUNCTION. Loading one runs its file, as
Python runs any file of its user's: load only what you would run."""

from __future__ import annotations

import inspect
import linecache
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tilewright.base.errors import TargetError, TilewrightError, did_you_mean
from tilewright.ir.python.kernel import KernelFunction
from tilewright.target.target import Target

_FORM = re.compile(r"(?P<file>.*\.py)(:(?P<function>\w*))?\Z")


def is_file(name: str) -> bool:
    """Whether a target's name is that of a description in a file."""
    return _FORM.match(name) is not None


def load_target(name: str) -> Target:
    """The target that FILE.py:FUNCTION describes. The function may be left out where the file has
    only one that can be meant. TargetError for whatever is wrong there."""
    match = _FORM.match(name)
    if match is None:
        raise TargetError(f"{name} is no description", hint="name it FILE.py or FILE.py:FUNCTION")
    path = Path(match["file"])
    module = _run(path)
    found = _choose(path, module, match["function"] or "")
    missing = [
        p.name
        for p in inspect.signature(found).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    where = f"{path}:{found.__name__}"
    if missing:
        raise TargetError(
            f"{where} cannot be called without {', '.join(missing)}",
            hint="give its parameters defaults, or add a function without any that calls it",
        )
    with _blamed(path):
        target = found()
    if not isinstance(target, Target):
        kind = type(target).__name__
        raise TargetError(
            f"{where} returned a value of type {kind}, not a Target",
            hint="end it with: return t.build()",
        )
    return target


def load_kernel(name: str) -> KernelFunction:
    """The kernel that FILE.py:FUNCTION has; the function may be left out where it is the only one.
    TargetError for whatever is wrong there."""
    match = _FORM.match(name)
    if match is None:
        raise TargetError(f"{name} is no kernel", hint="name it FILE.py or FILE.py:FUNCTION")
    path, wanted = Path(match["file"]), match["function"] or ""
    found = {k: v for k, v in vars(_run(path)).items() if isinstance(v, KernelFunction)}
    if wanted in found:
        return found[wanted]
    if not found:
        raise TargetError(f"{path} has no kernel", hint="a kernel is a function under @kernel")
    if wanted:
        hint = did_you_mean(wanted, list(found))
        raise TargetError(f"{path} has no kernel called {wanted!r}", hint=hint)
    if len(found) > 1:
        first = next(iter(found))
        raise TargetError(f"{path} has {len(found)} kernels", hint=f"say which: {path}:{first}")
    return next(iter(found.values()))


def _run(path: Path) -> types.ModuleType:
    """The file as a module; what is beside it can be imported."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise TargetError(f"cannot read {path}: {reason}") from None
    linecache.checkcache(str(path.resolve()))
    module = types.ModuleType(f"tilewright_description_{path.stem}")
    module.__file__ = str(path.resolve())
    sys.modules[module.__name__] = module  # where dataclasses and annotations look it up
    with _blamed(path), _importable(path.resolve().parent):
        code = compile(text, module.__file__, "exec", dont_inherit=True)
        exec(code, module.__dict__)
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


@contextmanager
def _blamed(path: Path) -> Iterator[None]:
    """Errors as the file's own: with its line that was run last."""
    try:
        yield
    except SyntaxError as error:
        where = f"{path}:{error.lineno}"
        shown = (error.text or "").strip()
        raise TargetError(f"{where}: {error.msg}", program=shown or None) from None
    except TilewrightError as error:
        line, text = _last_line(error, path)
        if line:
            error.add_context(f"running {path}:{line}: {text}")
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's file: anything
        line, text = _last_line(error, path)
        kind = type(error).__name__
        where = f"{path}:{line}" if line else str(path)
        raise TargetError(f"{where}: {kind}: {error}", program=text or None) from None


def _last_line(error: BaseException, path: Path) -> tuple[int, str]:
    """The last line of the file that was being run, and its text."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if f.filename == str(path.resolve())]
    return (mine[-1].lineno or 0, mine[-1].line or "") if mine else (0, "")


def _choose(path: Path, module: types.ModuleType, name: str) -> Callable[..., object]:
    """The function that is meant: the one named, the one called as the file, or the only one."""
    own = _functions(path, module)
    if name:
        if name not in own:
            hint = did_you_mean(name, list(own)) if own else _EMPTY
            raise TargetError(f"{path} has no function called {name!r}", hint=hint)
        return own[name]
    if not own:
        raise TargetError(f"{path} has no function", hint=_EMPTY)
    if path.stem in own or len(own) == 1:
        return own.get(path.stem, next(iter(own.values())))
    makers = [f for f in own.values() if f.__annotations__.get("return") in (Target, "Target")]
    if len(makers) == 1:
        return makers[0]
    raise TargetError(
        f"{path} has {len(own)} functions, and none is called {path.stem}",
        hint=f"say which: {path}:{(makers or list(own.values()))[0].__name__}",
    )


_EMPTY = "a description is a function that returns a Target; tilewright new-target NAME writes one"


def _functions(path: Path, module: types.ModuleType) -> Mapping[str, Callable[..., object]]:
    """The functions that the file defines, not those that it imports."""
    file = str(path.resolve())
    return {
        name: f
        for name, f in vars(module).items()
        if isinstance(f, types.FunctionType)
        and not name.startswith("_")
        and f.__code__.co_filename == file
    }
