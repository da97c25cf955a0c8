"""--report and --trace: files of the calls that a command times."""

from pathlib import Path

from command_line import command_line  # noqa: F401  (a fixture)

DIGITS = str(Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx")
