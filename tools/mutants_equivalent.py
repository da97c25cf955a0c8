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
    ("analyze/simplify.py", "k * side", "k // side"): "the side is 1 or -1",
    ("backends/stream/addresses.py", "turns == 1", "turns == 2"): (
        "what is larger than a bank is refused three lines below as well, however often it turns"
    ),
    ("backends/stream/order_transfers.py", "nearest = 0", "nearest = 1"): (
        "it is read behind `run and` alone, and set where a run begins"
    ),
    ("backends/stream/stream.py", "np.prod(shape, dtype=np.int64)", "np.prod(shape)"): (
        "numpy's own choice for whole numbers of Python, where there are 64 bits"
    ),
    (
        "optimize/choose_layout.py",
        "layouts = {f'x{i}': v.type.layout for i, v in enumerate(inputs) if v.type.layout}",
        "layouts = {f'x{i}': v.type.layout for i, v in enumerate(inputs) if True}",
    ): "they are only asked for with `get`, which gives None where there is none, too",
    ("optimize/use_integers.py", "sign > 0", "sign >= 0"): "the sign is 1 or -1",
    ("plan/accelerate.py", "extent + 1", "extent + 2"): (
        "of the numbers up to there that divide the extent are taken, and extent + 1 does not"
    ),
    ("backends/native/convert.py", "dtype.bits <= 16", "dtype.bits <= 17"): ("no type has 17 bits"),
    (
        "ops/check.py",
        "limits(canonical(lookup.extent))[0] or 0",
        "limits(canonical(lookup.extent))[0] or 1",
    ): "max(1, ...) is taken of it",
    ("optimize/group_nodes.py", "return []", "return []"): "the same statement",
    ("schedule/primitives/loops.py", "i < j", "i <= j"): "i and j are different: `if j != i`",
    (
        "sim/meaning.py",
        (
            "{'fields': [f.name for f in instruction.fields], 'operands': names,"
            " 'lists': [f'{name}.list' for name in names]}"
        ),
        (
            "{'fields_': [f.name for f in instruction.fields], 'operands': names,"
            " 'lists': [f'{name}.list' for name in names]}"
        ),
    ): "what an argument is called in LLVM's text; it is passed by its position",
    (
        "backends/bundles/program.py",
        "np.where(needed >= 0, started[np.maximum(needed, 0), q] + 1, 0)",
        "np.where(needed >= 0, started[np.maximum(needed, 0), q] + 1, 1)",
    ): "the next line takes it only where needed >= 0",
    ("lower/vectorize.py", "self.values.enter(None, 1)", "self.values.enter(None, 2)"): (
        "outside of a vector loop no place steps with lanes, and nothing asks for their number"
    ),
    ("schedule/match/unify.py", "(None, 0)", "(None, 1)"): (
        "who asks for a flag and its value looks at the value where there is a flag"
    ),
}
