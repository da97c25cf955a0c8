"""Networks of bytes, after every pass and as a whole, to the bit; `make fuzz` tries thousands."""

from __future__ import annotations

import pytest
from compiled_graphs import check_compiled
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import arrays, symbol_values
from strategies_quantised import quantised_networks

from tilewright.assemble import target_facts
from tilewright.ir.graph import Graph
from tilewright.options import Options
from tilewright.runtime.processor import runs_here
from tilewright.targets import cpu

TARGETS = {"host": cpu.host(threads=1), "avx2": cpu.cpu("avx2"), "sse2": cpu.cpu("sse2")}
LONG = {"sse2": [pytest.mark.long]}
HERE = [
    pytest.param(name, marks=LONG.get(name, []))
    for name, t in TARGETS.items()
    if runs_here(target_facts(t))
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", HERE)
@settings(max_examples=7, deadline=None)
@given(graph=quantised_networks(3), data=st.data())
def test_networks(name: str, graph: Graph, data: st.DataObject):
    values = data.draw(symbol_values(graph.symbols()))
    inputs = data.draw(arrays(graph.inputs, values))
    check_compiled(graph, inputs, values, TARGETS[name], Options(verify=True))
