"""The compile cache under attack: results must be right, and every compilation succeed.

    python tools/fuzz_cache.py
    python tools/fuzz_cache.py --kills 20 --bits 30

Processes that compile are killed at random moments; four compile the same models at once, while a
fifth removes entries; the disk is full, or the folder a file; entries are of another version, cut
short, exchanged, or have one bit flipped. After each attack the models are compiled with what is
left of the cache, and give what they give without one. Exit code 1: they do not, or one raises.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
from leaks import make_model
from tqdm import tqdm

import tilewright
from tilewright import compile_cache
from tilewright.runtime.cache import Cache
from tilewright.targets import cpu

MODELS = tuple(range(0, 40, 10))  # of three layers
WRITERS = 4


def result(number: int, cache: Path | bool) -> np.ndarray:
    """What a model gives, compiled with a cache or without."""
    model = make_model(number)
    options = tilewright.Options(cache=cache)
    module = tilewright.compile(model, target=cpu.host(threads=1), options=options)
    rows = np.linspace(-1, 1, 4 * module.inputs[0].shape[1], dtype=np.float32).reshape(4, -1)
    found = module(rows)
    assert isinstance(found, np.ndarray)
    return found


class Attacks:
    """Each returns True once the models are right again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.expected = {n: result(n, False) for n in MODELS}
        started = time.perf_counter()
        self.compile_all()
        self.seconds = time.perf_counter() - started

    def compile_all(self) -> None:
        """With the cache; an AssertionError says which model is wrong."""
        for n in MODELS:
            np.testing.assert_array_equal(result(n, self.folder), self.expected[n], f"model {n}")

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.folder.exists():
            self.folder.unlink()

    def entries(self) -> list[Path]:
        return sorted(e.path for e in Cache(self.folder).entries())

    def is_right(self) -> bool:
        """In a process of its own, which may crash."""
        return in_child(self.compile_all) == 0

    def kill(self) -> bool:
        """Some start from nothing, others find what the one before left."""
        if self.random.random() < 0.5:
            self.clear()
        child = fork(self.compile_all)
        time.sleep(self.random.uniform(0, 1.2 * self.seconds))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return self.is_right()

    def write_at_once(self) -> bool:
        self.clear()
        children = [fork(self.compile_all) for _ in range(WRITERS)]
        remover = fork(self.remove_all_the_time)
        codes = [os.waitpid(child, 0)[1] for child in children]
        os.kill(remover, signal.SIGKILL)
        os.waitpid(remover, 0)
        return not any(codes) and self.is_right()

    def remove_all_the_time(self) -> None:
        while True:
            Cache(self.folder).trim(self.random.randrange(100_000))

    def fill_disk(self) -> bool:
        """No file may be larger than so many bytes."""

        def compile_little() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            most = self.random.randrange(40_000)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            self.compile_all()

        self.clear()
        return in_child(compile_little) == 0 and self.is_right()

    def deny(self) -> bool:
        """Where the folder should be there is a file."""
        self.clear()
        self.folder.write_bytes(b"no folder")
        right = self.is_right()
        self.clear()
        return right

    def other_version(self) -> bool:
        """What another compiler wrote, with the same names or others."""

        def compile_as_another() -> None:
            other = self.random.randbytes(32)
            compile_cache.compiler_version = lambda: other  # type: ignore[assignment]
            self.compile_all()

        right = in_child(compile_as_another) == 0
        paths = self.entries()
        contents = [p.read_bytes() for p in paths]
        self.random.shuffle(contents)
        kernels = [(p, c) for p, c in zip(paths, contents, strict=True) if p.suffix == ".kernel"]
        for path, content in kernels:  # a kernel's entry knows its name
            path.write_bytes(content)
        return right and self.is_right()

    def cut(self) -> bool:
        for path in self.entries():
            os.truncate(path, self.random.randrange(path.stat().st_size + 1))
        return self.is_right()

    def flip(self) -> bool:
        self.compile_all()
        path = self.random.choice(self.entries())
        content = bytearray(path.read_bytes())
        at = self.random.randrange(len(content))
        content[at] ^= 1 << self.random.randrange(8)
        path.write_bytes(content)
        return self.is_right()


def fork(work: Callable[[], None]) -> int:
    """A process that does it, and ends with 1 if it raises."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except Exception:  # noqa: BLE001 (it is told, and counted)
        traceback.print_exc()
    finally:
        os._exit(code)


def in_child(work: Callable[[], None]) -> int:
    return os.waitpid(fork(work), 0)[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, count in (("kills", 200), ("writers", 20), ("bits", 300), ("others", 10)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        attacks = Attacks(Path(folder, "cache"), options.seed)
        plan = {
            attacks.kill: options.kills,
            attacks.write_at_once: options.writers,
            attacks.flip: options.bits,
        }
        rest = (attacks.fill_disk, attacks.deny, attacks.other_version, attacks.cut)
        plan |= dict.fromkeys(rest, options.others)
        wrong = 0
        for attack, count in plan.items():
            name = attack.__name__.replace("_", " ")
            failed = sum(not attack() for _ in tqdm(range(count), desc=name))
            print(f"{name}: {count} times, {failed} wrong")
            wrong += failed
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
