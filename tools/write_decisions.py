"""What the compiler decides for some thousand programs, as text: tests/decisions/*.txt.

python tools/write_decisions.py              write all of it (`make decisions` does)
python tools/write_decisions.py nodes        write one file
python tools/write_decisions.py nodes 7      print an entry with all that led to it
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from decisions import FOLDER
from decisions_table import CORPORA


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("corpus", nargs="?", choices=CORPORA, metavar="corpus")
    parser.add_argument("number", nargs="?", type=int)
    options = parser.parse_args()
    if options.number is not None:
        entry = CORPORA[options.corpus].make(options.number)
        print(f"{entry.line}\n{entry.text}")
        return 0
    for name in [options.corpus] if options.corpus else CORPORA:
        corpus = CORPORA[name]
        lines = "".join(f"{corpus.make(i).line}\n" for i in range(corpus.count))
        (FOLDER / f"{name}.txt").write_text(lines, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
