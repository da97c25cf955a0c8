"""Kernels in text files, for tests: what is written, `----`, what comes of it, `====`."""

import linecache
import math
from pathlib import Path

import pytest

import tilewright
from tilewright.base.dtype import DTYPES
from tilewright.ir.python import words as kernel_words

HERE = Path(__file__).parents[1] / "frontends"


def cases(name):
    """The pairs in a file, as parameters of a test."""
    text = (HERE / name).read_text(encoding="utf-8")
    pairs = [case.strip("\n").split("\n----\n") for case in text.split("\n====\n")]
    return [pytest.param(*pair, id=_title(pair[0])) for pair in pairs]


def _title(source):
    lines = [line for line in source.splitlines() if not line.startswith("@")]
    return lines[0][:40]


def scope():
    """What a kernel's file may have imported, some sizes, and values that are no use to it."""
    words = {n: w for n, w in vars(kernel_words).items() if isinstance(w, kernel_words.Word)}
    types = {name: dtype for name, dtype in DTYPES.items() if name != "bool"}
    m, n, k = tilewright.dims("M N K", min=8)
    names = {"M": m, "N": n, "K": k, "ALPHA": 0.5, "FLAG": True, "TILE": (4, 8)}
    modules = {"math": math, "tilewright": tilewright, "tw": tilewright}
    tools = {"kernel": tilewright.kernel, "out": tilewright.out, "dims": tilewright.dims}
    return {**types, **words, **names, **modules, **tools, "bool_": tilewright.bool_}


def run_file(folder, text):
    """Runs a file kernel.py that says `text`; gives its global names."""
    path = folder / "kernel.py"
    path.write_text(text, encoding="utf-8")
    linecache.checkcache(str(path))
    names = scope()
    exec(compile(text, str(path), "exec"), names)
    return names
