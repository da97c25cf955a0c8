"""Encodings: whether all instructions have one, are told apart, and can say what streams need."""

from __future__ import annotations

from tilewright.backends.stream.decode import ambiguous_pairs
from tilewright.check.data_flow import least_bytes
from tilewright.check.problem import Problems, error, warning
from tilewright.ir.instruction import Instruction
from tilewright.target.encoding import Carries, Encoding
from tilewright.target.encoding_faults import fit_faults
from tilewright.target.target import Target


def missing(target: Target) -> Problems:
    """All instructions have an encoding, or none."""
    without = [i for i in target.instructions if target.encoding(i) is None]
    if len(without) == len(target.instructions):
        return
    for i in without:
        yield error(
            target, f"instruction {i.name}", f"{i.name} has no encoding",
            "other instructions have one: a stream with this one cannot be encoded",
            "say its bits: @t.instruction(…, encoding=bits(128, …))",
        )  # fmt: skip


def narrow(target: Target) -> Problems:
    """The bits hold what the description allows."""
    told = set()  # instructions that share a list have one fault
    for i in target.instructions:
        for fault in fit_faults(target, i):
            if fault in told and i.micro_ops is not None:
                continue
            told.add(fault)
            yield error(
                target, f"instruction {i.name}", f"the encoding of {i.name}: {fault.what}",
                "it is refused when a stream is encoded, lest bits are lost", fault.hint,
            )  # fmt: skip


def ambiguity(target: Target) -> Problems:
    """A decoder can tell instructions apart."""
    for a, b in ambiguous_pairs(target):
        yield error(
            target, f"instruction {b}", f"the encodings of {a} and {b} cannot be told apart",
            "no bit is a constant of both with another value in each",
            "give them constants that differ, at the same bits",
        )  # fmt: skip


def addresses(target: Target) -> Problems:
    """An instruction says where its operands are, unless there is but one place."""
    sizes = {m.name: m.size for m in target.memories}
    for k, i in enumerate(target.instructions):
        encoding = target.encoding(i)
        if encoding is None:
            continue
        least = least_bytes(target, k)
        for c, o in enumerate(i.operands):
            size = sizes.get(o.memory)
            carried = encoding.find(Carries.ADDRESS, o.name) is not None
            if carried or i.listed(o) is not None or size == least[c]:
                continue
            yield warning(
                target, f"instruction {i.name}",
                f"the encoding of {i.name} does not say where operand {o.name} is",
                f"it can only be at the start of {o.memory}",
                f'add address("{o.name}", …) to it',
            )  # fmt: skip


def lists(target: Target) -> Problems:
    """Micro-operations have an encoding where instructions have."""
    for i in target.instructions:
        if i.micro_ops and target.encoding(i) is not None and target.entry(i) is None:
            yield error(
                target, f"instruction {i.name}", f"the micro-operations of {i.name} have no bits",
                f"what is loaded into {i.micro_ops.memory} is made of them",
                f't.micro_ops("{i.micro_ops.memory}", encoding=bits(32, address(…), …))',
            )  # fmt: skip


def waits(target: Target) -> Problems:
    """An instruction has bits for every queue that it may have to wait for, and for no other."""
    for i in target.instructions:
        encoding = target.encoding(i)
        if encoding is None:
            continue
        linked = {b for pair in target.tokens if i.queue in pair for b in pair} - {i.queue}
        for carries, verb in ((Carries.POP, "take"), (Carries.PUSH, "give")):
            has = {p.name for p in encoding.parts if p.carries is carries}
            for name in sorted(linked - has):
                yield error(
                    target, f"instruction {i.name}",
                    f"the encoding of {i.name} cannot {verb} a token of {name}",
                    f"queues {i.queue} and {name} wait for each other with tokens",
                    f'add {carries.value}("{name}") to it',
                )  # fmt: skip
            for name in sorted(has - linked):
                yield warning(
                    target, f"instruction {i.name}",
                    f"a bit of {i.name} for tokens of {name} is never used",
                    f"no tokens link {i.queue} and {name}",
                    f"pass None: {carries.value}(None) leaves the bit 0",
                )  # fmt: skip
        if target.events:
            yield from _other_waits(target, i, encoding, Carries.AWAITS, f"({target.events})")
            yield from _other_waits(target, i, encoding, Carries.SETS, f"({target.events})")
        if target.barriers:
            yield from _other_waits(target, i, encoding, Carries.BARRIER, "()")


def _other_waits(
    target: Target, i: Instruction, encoding: Encoding, carries: Carries, form: str
) -> Problems:
    if encoding.find(carries) is None:
        what = {Carries.AWAITS: "wait for events", Carries.SETS: "set events"}
        yield error(
            target, f"instruction {i.name}",
            f"the encoding of {i.name} cannot {what.get(carries, 'stand behind a barrier')}",
            "that is how queues wait for each other", f"add {carries.value}{form} to it",
        )  # fmt: skip
