"""The documents say what is so: their examples parse, their tables match the code."""

import re
from pathlib import Path

import pytest

from tilewright.base.dtype import DTYPES, Kind
from tilewright.ir.expr import BinaryOp, CompareOp, UnaryOp
from tilewright.ir.loop import LoopKind
from tilewright.ir.text.graph import parse_graph
from tilewright.ir.text.host import parse_host
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.text.tensor import parse_program
from tilewright.ir.verify.expr import BINARY_TAKES, UNARY_TAKES
from tilewright.ir.verify.graph import verify_graph
from tilewright.ir.verify.host import verify_host
from tilewright.ir.verify.loop import verify_kernel
from tilewright.ir.verify.tensor import verify_program
from tilewright.ops.table import OPS

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"


def document(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def parse_whole_graph(text: str):
    return parse_graph(text, OPS, {})


READERS = {
    "kernel": (parse_kernel, verify_kernel),
    "program": (parse_program, verify_program),
    "graph": (parse_whole_graph, verify_graph),
    "host": (parse_host, verify_host),
}
EXAMPLES = re.findall(r"^```python (\w+)\n(.*?)\n```", document("text-form.md"), re.M | re.S)


@pytest.mark.parametrize("kind, text", EXAMPLES, ids=[kind for kind, _ in EXAMPLES])
def test_text_form_examples(kind, text):
    parse, verify = READERS[kind]
    program = parse(text)
    verify(program)
    assert str(program) == text


def test_every_kind_has_an_example():
    assert {kind for kind, _ in EXAMPLES} == set(READERS)


def test_the_error_that_the_text_form_shows():
    shown = re.search(r"```text\n(.*?)\n```", document("text-form.md"), re.S)[1]
    text = "def k(x: f32[4], y: out(f32[4])):\n    for i in range(4):\n        y[i] = x[i] + 1"
    with pytest.raises(Exception, match="line 3") as caught:
        parse_kernel(text)
    assert str(caught.value) == shown


def test_what_each_operator_takes():
    words = {
        "floats": {Kind.FLOAT},
        "integers": {Kind.INT, Kind.UINT},
        "bool": {Kind.BOOL},
        "anything; false < true": set(Kind),
    }
    told = {}
    table = document("semantics.md").split("| operators | take |")[1].split("\n\n")[0]
    for row in table.splitlines()[2:]:
        _, names, takes, _ = row.split("|")
        kinds = set().union(*(words[w.strip()] for w in takes.split(",")))
        told |= {name.strip("`"): kinds for name in names.split()}
    takes_all = {op.value: set(Kind) for op in CompareOp}
    known = {op.value: set(kinds) for op, kinds in (UNARY_TAKES | BINARY_TAKES).items()}
    assert told == known | takes_all
    assert set(known) == {op.value for op in (*UnaryOp, *BinaryOp)}


def test_every_scalar_type_is_described():
    table = document("semantics.md").split("## Types")[1].split("\n\n")[1]
    assert set(re.findall(r"`(\w+)`(?=[ |])", table)) - {"fn", "uz"} == set(DTYPES)


def test_the_text_form_names_every_loop_kind():
    grammar = document("text-form.md")
    assert f"kind: {' '.join(kind.value for kind in LoopKind)}" in grammar


@pytest.mark.parametrize("name", ["semantics.md", "glossary.md", "text-form.md"])
def test_modules_and_links_in_documents_are_there(name):
    text = document(name)
    for path in re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text):
        found = [PROJECT / path, PROJECT / "src" / "tilewright" / path]
        assert any(p.exists() for p in found), path
    for link in re.findall(r"\]\(([\w.-]+)\)", text):
        assert (DOCS / link).exists(), link
