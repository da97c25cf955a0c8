"""The version of tilewright: also of the package (pyproject.toml reads it here), and in compiled
files."""

VERSION = "0.1.0"
