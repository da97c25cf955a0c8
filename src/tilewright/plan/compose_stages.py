"""Element-wise stages that one other reads, written into it, before loops are made of them.

    a[i] = x[i] - 3; b[i] = a[i] * s; y[i] = max(b[i], 0)    ->    y[i] = max((x[i] - 3) * s, 0)

`inline` does the same to loops, a stage at a time: a quantised network has dozens of such stages in
a kernel. Constants are written wherever they are read.
"""

from __future__ import annotations

from collections import Counter

from tilewright.ir.expr import Buffer, Const, Expr, Load
from tilewright.ir.loop import loads
from tilewright.ir.substitute import rewrite, substitute
from tilewright.ir.tensor import Item, Scan, Stage, TensorProgram, stages


def compose_stages(program: TensorProgram) -> TensorProgram:
    """The program with fewer stages."""
    every = stages(program.items)
    definitions = Counter(stage.buffer for stage in every)
    reads = Counter(x.buffer for stage in every for x in _reads(stage))
    outer = [s for s in program.items if isinstance(s, Stage) and _is_element_wise(s)]
    plain = {x.buffer for stage in outer for x in _reads(stage)}
    last = {x.buffer: k for k, item in enumerate(program.items) for x in stages([item])}
    known: dict[Buffer, Stage] = {}
    items: list[Item] = []
    for k, item in enumerate(program.items):
        new = _composed(item, known)
        if not isinstance(new, Stage) or any(last.get(x.buffer, -1) > k for x in _reads(new)):
            items.append(new)  # what it reads is written again before others read the stage
            continue
        if _is_element_wise(new) and definitions[new.buffer] == 1:
            once = reads[new.buffer] == 1 and new.buffer in plain
            if new.buffer not in program.outputs and (once or isinstance(new.value, Const)):
                known[new.buffer] = new
                continue
        items.append(new)
    return program if len(items) == len(program.items) else program.with_(items=tuple(items))


def _reads(stage: Stage) -> list[Load]:
    """Every read of a stage, as often as it stands there."""
    places = (*stage.indices, stage.value, *((stage.init,) if stage.init is not None else ()))
    return [x for e in places for x in loads(e)]


def _is_element_wise(stage: Stage) -> bool:
    """Whether a stage makes each element of a buffer of its own, at its place."""
    return stage.op is None and stage.indices == tuple(a.var for a in stage.axes)


def _composed(item: Item, known: dict[Buffer, Stage]) -> Item:
    """The item with the definitions of what it reads."""
    if isinstance(item, Scan):
        return item.with_(items=tuple(_composed(x, known) for x in item.items))

    def visit(x: Expr) -> Expr:
        if not isinstance(x, Load) or x.buffer not in known:
            return x
        made = known[x.buffer]
        return substitute(made.value, dict(zip((a.var for a in made.axes), x.indices, strict=True)))

    init = None if item.init is None else rewrite(item.init, visit)
    indices = tuple(rewrite(i, visit) for i in item.indices)
    return item.with_(indices=indices, value=rewrite(item.value, visit), init=init)
