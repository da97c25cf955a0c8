"""Mutants that no test can notice: what they change cannot be seen in what the compiler makes.

By module, what stood there and what stands there, as tools/mutants.py prints them. A mutant that
only costs time while compiling is here; one that makes a worse schedule, a larger plan or another
estimate is not.
"""

EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("analyze/simplify.py", "atom.a * right", "atom.a // right"): (
        "products are nested to the left, so what is left of the right factor is 1"
    ),
}
