"""Mutants that no test can notice: what they change cannot be seen in what the compiler makes.

By module, what stood there and what stands there, as tools/mutants.py prints them. A mutant that
makes a worse schedule, a larger plan or another estimate is none of them, nor is one that only
costs time while compiling.
"""

EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("analyze/bounds.py", "_names(access, 'x')", "_names(access, 'x_')"): (
        "the names of dimensions within a set; the two kinds stay apart, x_0 and y0"
    ),
    (
        "analyze/dependence.py",
        "q if isinstance(q, int) else ''",
        "q if isinstance(q, int) else '_'",
    ): (
        "a place where one path has a statement and the other a loop; both sides of the one"
        " comparison that is made get the same text"
    ),
    ("analyze/simplify.py", "atom.a * right", "atom.a // right"): (
        "products are nested to the left, so what is left of the right factor is 1"
    ),
    (
        "backends/stream/stream.py",
        "steps is None or listed is None",
        "steps is None and listed is None",
    ): "steps are None just where the operand has no listed axis",
    (
        "ops/check.py",
        "used = {v for i in read.indices for v in i.walk() if isinstance(v, Var)}",
        "used = {v for i in read.indices for v in i.walk() if True}",
    ): "the set is only asked for the variables of axes",
    ("plan/contraction.py", "UNROLLED_WINDOW + 1", "UNROLLED_WINDOW + 2"): (
        "either is more than a window that is unrolled, whatever it is multiplied with"
    ),
    ("plan/pieces.py", "symbol.upper or 1", "symbol.upper or 2"): (
        "hardware loops that a field decides have an upper bound, which times() asserts"
    ),
    ("ops/index.py", "return axis", "return None"): "both callers of the check ignore its result",
    (
        "optimize/simplify_nodes.py",
        "one if one.type == n.outputs[0].type else None",
        "one if True else None",
    ): "what a rule finds is checked for its type by the caller, which goes on to the next rule",
    (
        "backends/stream/iterations.py",
        "step < 0",
        "step <= 0",
    ): "a step of 0 adds nothing to where runs begin",
    ("optimize/pack_slots.py", "max(1, len(size))", "max(2, len(size))"): (
        "for one slot, 20,000 orders may be tried instead of 40,000, of which 100 are"
    ),
    (
        "optimize/merge_common.py",
        "hashlib.blake2b(data, digest_size=16)",
        "hashlib.blake2b(data)",
    ): "digests are only compared with each other, and 64 bytes tell apart what 16 do",
}
