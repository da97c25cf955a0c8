"""Functions of f32 on arrays in L1: `python benchmarks/functions.py --before PATH`.

Times this tree beside another checkout of it, which has its own .venv: each function in a process
of each in turn, the fastest of many passes over 2,048 floats. Prints nanoseconds for an element and
the ratio (above 1: faster than before), and their geometric mean; `--json` keeps them, and
`--level sse2` times code for another level than this machine's.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
COUNT = 2048
ROUNDS = 3
RANGES = {  # of the operands
    "exp": [(-10, 10)],
    "log": [(0.01, 100)],
    "sin": [(-10, 10)],
    "cos": [(-10, 10)],
    "tan": [(-10, 10)],
    "asin": [(-1, 1)],
    "acos": [(-1, 1)],
    "atan": [(-10, 10)],
    "sinh": [(-5, 5)],
    "cosh": [(-5, 5)],
    "tanh": [(-4, 4)],
    "asinh": [(-10, 10)],
    "acosh": [(1, 20)],
    "atanh": [(-0.99, 0.99)],
    "erf": [(-3, 3)],
    "erfc": [(-3, 3)],
    "gelu": [(-4, 4)],
    "sigmoid": [(-8, 8)],
    "pow": [(0, 10), (-3, 3)],
    "atan2": [(-3, 3), (-3, 3)],
}

# Runs in the process of either tree: what it uses is there before and after.
WORKER = """
import ctypes, json, sys, time
import numpy as np
try:
    from tilewright.backends.native import passes as backends
except ImportError:  # as the package was before
    from tilewright import backends
from tilewright.base.dtype import f32
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Unary, UnaryOp, Var
from tilewright.ir.loop import For, Kernel, LoopKind, Store
from tilewright.runtime import _native
from tilewright.runtime.loader import load_code
from tilewright.runtime.pool import shared_pool
from tilewright.targets import cpu

REPEATS = 16  # within the kernel: the call itself shall not count
ranges, count, level = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
target = cpu.host(threads=1) if level == "host" else cpu.cpu(level)
lanes = target.vector.bytes // 4


def element(name, xs):
    if name in {op.value for op in BinaryOp}:
        return Binary(BinaryOp(name), *xs)
    if name in {op.value for op in UnaryOp}:
        return Unary(UnaryOp(name), *xs)
    try:
        from tilewright.ops import activation
        return getattr(activation, name, lambda x: None)(*xs)
    except ImportError:
        pass
    if name == "sigmoid":
        from tilewright.ops.elementwise import _sigmoid
        return _sigmoid(None, *xs)
    if name == "gelu":
        (x,) = xs
        return x * 0.5 * (1.0 + Unary(UnaryOp.ERF, x * 0.5**0.5))


def measure(name, bounds):
    outer, lane = Var("i"), Var("lane")
    at = outer * lanes + lane
    inputs = tuple(Buffer(f"x{k}", f32, (count,)) for k in range(len(bounds)))
    output = Buffer("y", f32, (count,))
    value = element(name, [x[at] for x in inputs])
    if value is None:
        return None
    store = Store(output, (at,), value)
    vector = For(lane, lanes, (store,), LoopKind.VECTORIZE)
    again = For(Var("again"), REPEATS, (For(outer, count // lanes, (vector,)),))
    kernel = Kernel("k", inputs, (output,), (again,))
    lowered = backends.lower(kernel, target, None, verify=False)
    code = load_code([("k", backends.to_object(backends.to_llvm(lowered, target), target))], ["k"])
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(bounds) + 2))(code.addresses["k"])
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(low, high, count).astype(np.float32) for low, high in bounds]
    arrays.append(np.empty(count, np.float32))
    places = [_native.pool_address(shared_pool(1).handle), *(a.ctypes.data for a in arrays)]
    best = float("inf")
    for _ in range(1000):
        start = time.perf_counter()
        function(*places)
        best = min(best, time.perf_counter() - start)
    return best / REPEATS / count * 1e9


print(json.dumps({name: measure(name, bounds) for name, bounds in ranges.items()}))
"""


def run(tree: Path, names: list[str], level: str) -> dict[str, float]:
    """Nanoseconds for an element of each function that there is, in the tree's own Python."""
    command = [str(tree / ".venv/bin/python"), "-c", WORKER]
    ranges = {name: RANGES[name] for name in names}
    done = subprocess.run(
        [*command, json.dumps(ranges), str(COUNT), level],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: value for name, value in json.loads(done.stdout).items() if value is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(RANGES)}")
    parser.add_argument("--before", type=Path, required=True, help="another checkout, set up")
    parser.add_argument("--level", default="host", help="host, or an instruction-set level (avx2)")
    parser.add_argument("--json", type=Path, help="write the times here")
    options = parser.parse_args()
    names = options.names or list(RANGES)
    best: dict[str, dict[str, float]] = {"before": {}, "now": {}}
    for _ in range(ROUNDS):
        for label, tree in (("before", options.before), ("now", HERE)):
            for name, value in run(tree, names, options.level).items():
                best[label][name] = min(value, best[label].get(name, math.inf))
    ratios = {name: value / best["now"][name] for name, value in best["before"].items()}
    out = sys.stdout
    out.write(f"{'':9}{'before':>9}{'now':>9}{'faster':>9}   ns for an element\n")
    for name, now in best["now"].items():
        known = name in ratios
        row = f"{best['before'][name]:9.3f}" if known else f"{'none':>9}"
        out.write(f"{name:9}{row}{now:9.3f}{f'{ratios[name]:8.2f}x' if known else ''}\n")
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    out.write(f"geometric mean {mean:.2f}x, least {min(ratios.values()):.2f}x\n")
    if options.json:
        options.json.write_text(json.dumps(best, indent=1) + "\n")


if __name__ == "__main__":
    main()
