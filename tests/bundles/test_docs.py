"""The examples of docs/bundles.md run, and print what the page says."""

import contextlib
import io
import linecache
import re
from pathlib import Path

PROJECT = Path(__file__).parents[2]
BLOCKS = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)


def test_page(tmp_path):
    """All examples in one module, each from a file of its own: kernels are read from files."""
    names = {}
    page = (PROJECT / "docs" / "bundles.md").read_text(encoding="utf-8")
    for position, (source, printed) in enumerate(BLOCKS.findall(page)):
        path = tmp_path / str(position) / "bundles.py"
        path.parent.mkdir()
        path.write_text(source, encoding="utf-8")
        linecache.checkcache(str(path))
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(source, str(path), "exec"), names)
        assert said.getvalue() == printed
