"""Mutants that no test can notice: what they change cannot be seen in what the compiler makes.

By module, what stood there and what stands there, as tools/mutants.py prints them. A mutant that
makes a worse schedule, a larger plan or another estimate is none of them, nor is one that only
costs time while compiling.
"""

FIRST_LETTER = "numpy looks at the first letter of the kind of sorting"
IN_ORDER = (
    "accesses come in the order of the program: where the paths of an earlier and a later one part,"
    " both have numbers, and that of the earlier is the smaller"
)
PLACES = "of this statement only the places that it writes are looked at, not its value"

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
    ("backends/native/convert.py", "to.bits > v.dtype.bits", "to.bits >= v.dtype.bits"): (
        "bf16 is handled above and 8-bit floats are expanded before: no two of the others have as"
        " many bits"
    ),
    (
        "analyze/simplify.py",
        "self._extent(atom) if isinstance(atom, Var) else None",
        "self._extent(atom) if True else None",
    ): (
        "extents are known of variables alone, so that others get None as well; that they are noted"
        " as unknown matters to none, for only variables are looked up there"
    ),
    (
        "plan/choose_tiles.py",
        "best = np.argsort(steps.estimate(), kind='stable')[:MOST]",
        "best = np.argsort(steps.estimate(), kind='stable_')[:MOST]",
    ): FIRST_LETTER,
    (
        "plan/choose_tiles.py",
        "order = np.argsort(least, kind='stable')",
        "order = np.argsort(least, kind='stable_')",
    ): FIRST_LETTER,
    (
        "optimize/pack_slots.py",
        "yield np.argsort(random.normal(0, NOISE, len(size)) - np.log(size + 1), kind='stable')",
        "yield np.argsort(random.normal(0, NOISE, len(size)) - np.log(size + 1), kind='stable_')",
    ): FIRST_LETTER,
    (
        "optimize/pack_slots.py",
        "np.argsort(random.normal(0, NOISE, len(size)) - np.log(size + 1), kind='stable')",
        "np.argsort(random.normal(0, NOISE, len(size)) - np.log(size + 1))",
    ): "what is drawn of a normal distribution is all different, and has one order",
    (
        "optimize/pack_slots.py",
        "by_start = np.argsort(starts, kind='stable')",
        "by_start = np.argsort(starts, kind='stable_')",
    ): FIRST_LETTER,
    ("optimize/simplify_nodes.py", "rule.__name__ = f'neutral_{value}'", "pass"): (
        "the name is for who reads a rule in a debugger"
    ),
    (
        "backends/stream/touched.py",
        "if not (isinstance(a, int) and isinstance(b, int) and (a < b)):",
        "if False:",
    ): IN_ORDER,
    (
        "backends/stream/touched.py",
        "isinstance(a, int) and isinstance(b, int) and (a < b)",
        "isinstance(a, int) or isinstance(b, int) or a < b",
    ): IN_ORDER,
    (
        "schedule/primitives/values.py",
        "const(0, store.buffer.dtype)",
        "const(1, store.buffer.dtype)",
    ): PLACES,
    ("schedule/primitives/values.py", "const(0, into.dtype)", "const(1, into.dtype)"): PLACES,
    (
        "sim/replay.py",
        (
            "native.shadow_run(b.arrays, memories, len(order), order, b.first, exact, 0, expected,"
            " digests, np.zeros(1, np.int64))"
        ),
        (
            "native.shadow_run(b.arrays, memories, len(order), order, b.first, exact, 1, expected,"
            " digests, np.zeros(1, np.int64))"
        ),
    ): (
        "what nothing has written is read nowhere in program order, which is checked before; in"
        " another order a box that reads it has another digest, and is returned for that"
    ),
}
