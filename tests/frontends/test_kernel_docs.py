"""The examples of docs/kernels.md run, and print what the page says; so do those in examples."""

import contextlib
import importlib.util
import io
import linecache
import re
from pathlib import Path

import pytest

from tilewright.targets import cpu

PROJECT = Path(__file__).parents[2]
BLOCKS = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)


def test_page(tmp_path):
    """All examples in one module, each from a file of its own: kernels are read from files."""
    names = {}
    page = (PROJECT / "docs" / "kernels.md").read_text(encoding="utf-8")
    for position, (source, printed) in enumerate(BLOCKS.findall(page)):
        path = tmp_path / str(position) / "kernels.py"
        path.parent.mkdir()
        path.write_text(source, encoding="utf-8")
        linecache.checkcache(str(path))
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(source, str(path), "exec"), names)
        assert said.getvalue() == printed


def example(name):
    path = PROJECT / "examples" / "kernels" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TARGETS = [cpu.host(threads=1), cpu.host(threads=2)]


@pytest.mark.parametrize("target", TARGETS, ids=["alone", "shared"])
def test_gemm(target):
    module = example("gemm")
    s = module.schedule(module.gemm.bind(M=256, N=128, K=3), target)
    s.check(target=target)


@pytest.mark.parametrize("target", TARGETS, ids=["alone", "shared"])
def test_gemm_is_right(target):
    module = example("gemm")
    s = module.schedule(module.gemm.bind(M=128, N=128, K=128), target)
    assert module.measure(s.build(target), 128) > 0
