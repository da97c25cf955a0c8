"""The benchmarks are scripts in a folder of their own: make their modules importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
