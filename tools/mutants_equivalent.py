"""Mutants that no test can notice: what they change cannot be seen in what the compiler makes.

By mutant, as tools/mutants.py prints it: file, function, what stood there, what stands there, and
a number if several mutants of the function look the same. A mutant that only costs time while
compiling is here; one that makes a worse schedule, a larger plan or another estimate is not.
"""

EQUIVALENT: dict[tuple[str, ...], str] = {
    ("analyze/simplify.py", "_without_factor", "atom.a * right", "atom.a // right"): (
        "products are nested to the left, so what is left of the right factor is 1"
    ),
}
