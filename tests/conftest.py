"""For all tests: the same random examples in every run; `make fuzz` is for new ones."""

import sys
from pathlib import Path

import hypothesis

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")

TESTS = Path(__file__).parent
# Strategies, which all tests share; the benchmarks, which are scripts, and their kernels.
sys.path[:0] = [str(TESTS), str(TESTS.parent / "benchmarks")]
