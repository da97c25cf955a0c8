"""For all tests: the same random examples in every run; `make fuzz` is for new ones."""

import os
import sys
from pathlib import Path

import hypothesis

os.environ["TILEWRIGHT_CACHE"] = "off"  # what is compiled is to be seen

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")

TESTS = Path(__file__).parent
# What helps tests, and what is tested beside the package.
FOLDERS = ("tests/support", "tools", "benchmarks", "examples")
sys.path[:0] = [str(TESTS.parent / folder) for folder in FOLDERS]
