"""Primitives that write beside loops: annotate and keep_whole."""

from __future__ import annotations

from tilewright.ir.loop import For
from tilewright.schedule.core.notes import WHOLE, Note, Value
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.trace.steps import Loop


@primitive
def annotate(state: State, loop: Loop, key: str, value: Value = True) -> None:
    """Writes beside a loop what others want to know of it.

        for i in n: S(i)   ->   for i in n:  # key=value
                                    S(i)

    Nothing here goes by it; `state.notes.of(loop.var)` has it, as long as there is such a loop.
    Always legal, for texts, numbers and truth values; it replaces what the key was before.
    """
    state.for_(loop)
    if key == WHOLE:
        refuse(f"{WHOLE!r} is what keep_whole writes", state)
    if not isinstance(value, (bool, int, float, str)):
        refuse(
            f"a text, a number or a truth value can be written beside a loop, not {value}", state
        )
    _write(state, loop, key, value)


@primitive
def keep_whole(state: State, loop: Loop) -> None:
    """Forbids to cut a loop: no primitive may split it, peel it, share it among threads, fuse it,
    or change how often it runs.

        for i in n: S(i)   ->   for i in n:  # whole=True
                                    S(i)

    It may be reordered and marked, and vanish as a whole (inline, tensorize). Always legal.
    """
    state.for_(loop)
    _write(state, loop, WHOLE, True)


def _write(state: State, loop: Loop, key: str, value: Value) -> None:
    state.notes = state.notes.with_note(Note(loop.var, key, value, len(state.trace) + 1))


def check_may_cut(state: State, *loops: For) -> None:
    """Refuses loops that are kept whole."""
    for s in loops:
        if state.notes.kept(s.var) is not None:
            refuse(state.notes.reason(s.var), state)
