"""What parts of the compiler decide, as text, for the tests that compare: tests/decisions/*.txt.

python tools/part_decisions.py              write all of it (`make decisions` does)
python tools/part_decisions.py nodes        write one file
python tools/part_decisions.py nodes 7      print an entry with all that led to it
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = (
    "bounds",
    "bundles",
    "chips",
    "parts",
    "random",
    "streams",
)  # of tests, test_decisions_….py


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("corpus", nargs="?")
    parser.add_argument("number", nargs="?", type=int)
    options = parser.parse_args()
    folders = ("", "support", "sim", "bundles")
    sys.path[:0] = [str(ROOT / "benchmarks"), *(str(ROOT / "tests" / f) for f in folders)]
    for module in (import_module(f"test_decisions_{name}") for name in MODULES):
        for name, corpus in module.CORPORA.items():
            if options.corpus not in (None, name):
                continue
            if options.number is not None:
                entry = corpus.make(options.number)
                print(f"{entry.line}\n{entry.text}")
                continue
            lines = "".join(f"{corpus.make(i).line}\n" for i in range(corpus.count))
            (ROOT / f"tests/decisions/{name}.txt").write_text(lines, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
