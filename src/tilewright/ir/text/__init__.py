"""The text forms, read back: what prints parses, and prints the same again (docs/text-form.md).

The printers stand beside the records (ir/loop.py, tensor.py, graph.py; program/host_program.py).
All text is Python syntax and read through Python's own parser; a mistake in it is a CompileError
with the line.
"""
