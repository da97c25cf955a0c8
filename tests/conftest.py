"""For all tests: the same random examples in every run; `make fuzz` is for new ones."""

import sys
from pathlib import Path

import hypothesis

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")

sys.path.insert(0, str(Path(__file__).parent))  # for strategies.py, which all tests share
