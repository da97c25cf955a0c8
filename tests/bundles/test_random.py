"""Random programs of small chips: their bundles are proven, and do what the program says."""

import numpy as np
import pytest
from bundle_programs import SIZE, X, Y, programs, small
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.backends.bundles.program import make_program
from tilewright.backends.bundles.run_bundles import run_cycles
from tilewright.ir.verify.loop import verify_kernel
from tilewright.sim.data import run_stream
from tilewright.targets import cpu

HOST = cpu.host(threads=1)
CHIPS = {
    "one of each": small(),
    "two of each": small(ls=2, alu=2, ready=4, done=3),
    "long operations": small(ls=2, busy=3, done=5),
    "no hardware loops": small(ready=1, done=1, loops=0),
    "long operations and branches": small(ls=2, busy=4, done=1, loops=0),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CHIPS)
@given(data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_bundles_do_what_the_program_says(name: str, data: st.DataObject):
    chip = CHIPS[name]
    kernel = data.draw(programs(chip))
    verify_kernel(kernel)
    program = make_program(kernel, chip)  # refuses what it cannot prove
    x = np.random.default_rng(0).integers(-128, 128, SIZE).astype(np.int8)
    (wanted,) = run_stream(program.stream, HOST, {X: x}, [Y])
    (found,), cycles = run_cycles(program, chip, HOST, {X: x}, [Y])
    np.testing.assert_array_equal(found, wanted)
    assert cycles == program.timeline.busy["bundles"]
