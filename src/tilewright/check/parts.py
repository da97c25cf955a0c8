"""The parts of a description: names, queues, and how queues wait for each other."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import did_you_mean
from tilewright.check.problem import Problems, error, memories_read, memories_written, warning
from tilewright.ir.expr import DRAM
from tilewright.target.target import Target


def names(target: Target) -> Problems:
    """Every memory and every queue has a name of its own."""
    for kind, found in (("memory", target.memories), ("queue", target.queues)):
        seen = [x.name for x in found]
        for name in dict.fromkeys(n for n in seen if seen.count(n) > 1):
            plural = {"memory": "memories"}.get(kind, f"{kind}s")
            yield error(
                target, f"{kind} {name}",
                f"{seen.count(name)} {plural} are called {name}",
                f"everything else names a {kind} by its name",
                "give each a name of its own",
            )  # fmt: skip


def host_memory(target: Target) -> Problems:
    """The host's memory is there."""
    if DRAM not in [m.name for m in target.memories]:
        yield error(
            target, "target",
            f"there is no memory called {DRAM}",
            "it is where the host puts a kernel's arrays, and where it finds the results",
            f't.memory("{DRAM}", bandwidth=…, latency=…)',
        )  # fmt: skip


def clock(target: Target) -> Problems:
    """Cycles have a length."""
    if target.clock <= 0:
        yield error(
            target, "target", f"the clock is {target.clock} Hz",
            "cycles become seconds by it", f'TargetBuilder("{target.name}", clock=500e6)',
        )  # fmt: skip


def instructions(target: Target) -> Problems:
    """There is something that the chip can do."""
    if not target.instructions:
        yield error(
            target, "target", "there are no instructions", "a chip is what its instructions do",
            "describe one: @t.instruction(queue) above a function",
        )  # fmt: skip


def queues(target: Target) -> Problems:
    """Every queue has instructions and room for them, every instruction a queue."""
    used = {i.queue for i in target.instructions}
    known = [q.name for q in target.queues]
    for q in target.queues:
        if q.name not in used:
            yield warning(
                target, f"queue {q.name}", f"queue {q.name} has no instructions",
                "nothing is ever done there", "give it instructions, or take it away",
            )  # fmt: skip
        if q.depth < 1:
            yield error(
                target, f"queue {q.name}", f"queue {q.name} has a depth of {q.depth}",
                "it never holds an instruction", "give it room for one at least",
            )  # fmt: skip
    for i in target.instructions:
        if i.queue not in known:
            what = f"is of queue {i.queue!r}" if i.queue else "has no queue"
            yield error(
                target, f"instruction {i.name}", f"instruction {i.name} {what}",
                "a queue runs it, in order with others" + ("" if known else ", and there are none"),
                did_you_mean(i.queue, known) if known else 't.queues("load", "compute", depth=16)',
            )  # fmt: skip


def tokens(target: Target) -> Problems:
    """Tokens link two queues that touch the same data."""
    known = [q.name for q in target.queues]
    for a, b in target.tokens:
        part = f"tokens {a} {b}"
        unknown = [n for n in (a, b) if n not in known]
        if unknown:
            yield error(
                target, part, f"tokens link {a} and {b}, and {unknown[0]!r} is no queue",
                "a token is taken by one queue and given by another",
                did_you_mean(unknown[0], known),
            )  # fmt: skip
        elif a == b:
            yield error(
                target, part, f"tokens link {a} with itself",
                "a queue runs its instructions in order: they need not wait for each other",
                "link it with another queue",
            )  # fmt: skip
        elif not shared(target, a, b):
            yield warning(
                target, part, f"tokens between {a} and {b} are never used",
                "no memory is written by one and touched by the other",
                "take them away, or check which queues the instructions are of",
            )  # fmt: skip


def order(target: Target) -> Problems:
    """Queues that touch the same data can wait for each other, if through others."""
    used = [q.name for q in target.queues if any(i.queue == q.name for i in target.instructions)]
    for k, a in enumerate(used):
        for b in used[k + 1 :]:
            memories = shared(target, a, b)
            if memories and b not in linked(target, a):
                yield error(
                    target, f"queue {b}",
                    f"nothing makes {a} and {b} wait for each other",
                    f"both use {', '.join(memories)}, and one writes there",
                    f"t.tokens(({a}, {b})), or with queues between them",
                )  # fmt: skip


def linked(target: Target, queue: str) -> set[str]:
    """The queues that can be made to wait for this one, if through others."""
    found, new = {queue}, [queue]
    while new:
        here = new.pop()
        for pair in target.tokens:
            if here in pair:
                other = pair[1 - pair.index(here)]
                if other not in found:
                    found.add(other)
                    new.append(other)
    return found


def shared(target: Target, a: str, b: str) -> Sequence[str]:
    """The memories that instructions of both queues touch, of which one writes it."""
    touched, written = [], []
    for queue in (a, b):
        mine = [i for i in target.instructions if i.queue == queue]
        written.append(set().union(*(memories_written(i) for i in mine)))
        touched.append(written[-1].union(*(memories_read(i) for i in mine)))
    found = (written[0] & touched[1]) | (touched[0] & written[1])
    return [m.name for m in target.memories if m.name in found]
