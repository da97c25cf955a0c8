"""What the kernels of this folder share: vectors, arrays to run on, and a clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright import Schedule, f32
from tilewright.kernels import BuiltKernel
from tilewright.schedule.core.state import Loop
from tilewright.target.target import Target

LEAST = 1e-3  # seconds that the clock tells from none
LINE = 64  # bytes of a cache line, and of the longest vector


@dataclass(frozen=True)
class Case:
    """A scheduled kernel, and arrays to run it on: the last one is the result."""

    schedule: Schedule
    target: Target
    arrays: tuple[np.ndarray, ...]
    expected: Callable[[], np.ndarray]  # the result, by numpy
    flops: float = 0.0
    bytes: float = 0.0  # read and written, each element once

    @cached_property
    def built(self) -> BuiltKernel:
        return self.schedule.build(self.target)

    def run(self) -> None:
        self.built(*self.arrays)

    def check(self) -> None:
        self.run()
        expected = self.expected()
        scale = float(np.abs(expected).max())
        np.testing.assert_allclose(self.arrays[-1], expected, rtol=1e-4, atol=1e-6 * scale)

    def show(self) -> None:
        """Prints the program and how fast it is."""
        print(self.schedule.show(), end="\n\n")
        self.check()
        seconds = fastest(self.run, self.target.cores)
        peak = 2 * self.target.cores * self.target.peak(f32)
        if self.flops:
            rate = self.flops / seconds
            reached = f"{rate / 1e9:.1f} GFLOP/s: {rate / peak:.0%} of the peak"
        else:
            reached = f"{self.bytes / seconds / 1e9:.1f} GB/s"
        print(f"{seconds * 1e3:.2f} ms, {reached}")


def fastest(call: Callable[[], object], cores: int = 1, seconds: float = 1.0) -> float:
    """Seconds of the fastest of many calls; on one core the processor's own, without the waiting
    while other programs run."""
    clock = time.thread_time if cores == 1 else time.perf_counter

    def took(count: int) -> float:
        start = clock()
        for _ in range(count):
            call()
        return clock() - start

    count = 1
    while took(count) < LEAST:
        count *= 2
    times = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        times.append(took(count) / count)
    return min(times)


def zeros(*shape: int) -> np.ndarray:
    """An array that begins at a cache line, as those of compiled models do."""
    count = int(np.prod(shape)) * 4
    room = np.zeros(count + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    return room[start : start + count].view(np.float32).reshape(shape)


def random(*shape: int) -> np.ndarray:
    """Such an array of numbers between -1 and 1."""
    array = zeros(*shape)
    array[...] = np.random.default_rng(0).random(shape, np.float32) * 2 - 1
    return array


def vectors(s: Schedule, loop: Loop, lanes: int) -> None:
    """Makes a loop copies of vectors."""
    if s.for_(loop).extent != lanes:
        outer, loop = s.split(loop, lanes)
        s.unroll(outer)
    s.vectorize(loop)
