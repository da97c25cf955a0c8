"""The parts of a description: names, queues, and how queues wait for each other."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.check.problem import Problems, error, memories_read, memories_written, warning
from tilewright.ir.expr import DRAM
from tilewright.target.target import Target


def names(target: Target) -> Problems:
    """Every memory has a name of its own."""
    seen = [m.name for m in target.memories]
    for name in dict.fromkeys(n for n in seen if seen.count(n) > 1):
        yield error(
            target, f"memory {name}",
            f"{seen.count(name)} memories are called {name}",
            "operands name their memory by its name", "give each a name of its own",
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
    """Every queue has instructions, every instruction a queue."""
    used = {i.queue for i in target.instructions}
    for q in target.queues:
        if q.name not in used:
            yield warning(
                target, f"queue {q.name}", f"queue {q.name} has no instructions",
                "nothing is ever done there", "give it instructions, or take it away",
            )  # fmt: skip
    for i in target.instructions:
        if not i.queue:
            yield error(
                target, f"instruction {i.name}", f"instruction {i.name} has no queue",
                "a queue runs it, in order with others",
                't.queues("load", "compute", depth=16), then @t.instruction("load")',
            )  # fmt: skip


def registers(target: Target) -> Problems:
    """Registers are set in the queue that uses them, and used."""
    used = {f.register for i in target.instructions for f in i.fields}
    for i in target.instructions:
        for f in i.fields:
            if i.sets_state and (i.name, f.name) not in used:
                yield warning(
                    target, f"instruction {i.name}", f"register {f.name} of {i.name} is never used",
                    "no instruction takes a field from there",
                    f'take it out, or use it: {f.name}: state({i.name}, "{f.name}")',
                )  # fmt: skip
            if f.register is None:
                continue
            setter = target.instruction(f.register[0])
            if setter.queue != i.queue:
                yield error(
                    target, f"instruction {i.name}",
                    f"field {f.name} of {i.name} is in a register that {setter.name} sets, "
                    f"and that is of queue {setter.queue}",
                    f"nothing but a queue's own order says what it holds when {i.name} runs",
                    "give both instructions the same queue",
                )  # fmt: skip


def tokens(target: Target) -> Problems:
    """Tokens link two queues that touch the same data."""
    for a, b in target.tokens:
        if not shared(target, a, b):
            yield warning(
                target, f"tokens {a} {b}", f"tokens between {a} and {b} are never used",
                "no memory is written by one and touched by the other",
                "take them away, or check which queues the instructions are of",
            )  # fmt: skip


def order(target: Target) -> Problems:
    """Queues that touch the same data can wait for each other, if through others."""
    used = [q.name for q in target.queues if any(i.queue == q.name for i in target.instructions)]
    if target.bundles is not None:  # what starts transfers waits for them, too
        return
    for k, a in enumerate(used):
        for b in used[k + 1 :]:
            memories = shared(target, a, b)
            if memories and b not in linked(target, a):
                yield error(
                    target, f"queue {b}",
                    f"nothing makes {a} and {b} wait for each other",
                    f"both use {', '.join(memories)}, and one writes there",
                    f"t.tokens(({a}, {b})), events, barriers or an interlock",
                )  # fmt: skip


def linked(target: Target, queue: str) -> set[str]:
    """The queues that can be made to wait for this one, if through others."""
    if target.interlock or target.events or target.barriers:
        return {q.name for q in target.queues}
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
