"""Choosing which nodes run as one kernel.

A group has at most one anchor (a reduction, or a complex operator: convolution, matmul) and one
exit: the only node whose results are read outside. Every node of a group leads to its exit, so
groups can be run one after another in the order of their exits, whatever the graph looks like.

The steps, in order:
1. Complex operators, then reductions, take the elementwise nodes behind them, a diamond of them at
   a time (x * sigmoid(x)), as long as the shape stays.
2. Products take the softmax of another product's result, where that is large, and that product.
   Products of few rows take what only lays the other factor's rows side by side. Reductions take
   the injective nodes before them.
3. What injective nodes are left form groups, from the last to the first.
4. A group of a few cheap elementwise nodes moves into all groups that read it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Category
from tilewright.ops.movement import AxisAttrs, TransposeAttrs
from tilewright.optimize.edit import is_view
from tilewright.optimize.recompute import Costs, elements
from tilewright.plan.row_blocks import are_large, suit_blocks
from tilewright.plan.rows_by_rows import are_few

MAX_NODES = 64  # of a group
MAX_COPIES = 64  # of one node's expression, when every value is written out where it is read
DEAR_COPIES = 3  # what a dear function counts for in these: it grows when it is expanded
MAX_RECOMPUTED = 4  # nodes of a group that are computed more often than their results have elements
MAX_TIMES = 4  # how often such a node may be computed, but for broadcasts
MAX_READERS = 4  # groups that a cheap group may move into
LONG_SUM = 16  # terms of a product's sums, which then run along vectors
UNKNOWN_COLUMNS = 2  # rows that are multiplied one at a time, by columns of an unknown number


@dataclass(eq=False)
class Group:
    """Nodes that run as one kernel, in the order of the graph."""

    nodes: list[GraphNode]
    exit: GraphNode
    anchor: GraphNode | None = None


def choose_groups(graph: Graph, apart: Collection[str] = ()) -> list[Group]:
    """Groups of all nodes that become kernels, in the order of their exits. Opaque nodes, views
    and calls are in none; a cheap node may be in several, and operators named in `apart` are alone,
    where their elements are integers."""
    grouping = _Grouping(graph)
    grouping.keep_apart(apart)
    grouping.take_consumers(Category.COMPLEX)
    grouping.take_consumers(Category.REDUCTION)
    grouping.take_scores()
    grouping.take_transposes()
    grouping.take_conversions()
    grouping.take_producers()
    grouping.group_injective()
    grouping.take_conversions()  # again, into these
    grouping.move_cheap()
    return sorted(grouping.groups, key=lambda g: grouping.position[g.exit])


def becomes_kernel(n: GraphNode) -> bool:
    """Whether a node is to be put into a call."""
    return not (n.op.category is Category.OPAQUE or n.op.name == "call" or is_view(n))


def widens(n: GraphNode) -> bool:
    """Whether a node makes the same numbers of more bytes."""
    return n.op.name == "cast" and n.outputs[0].dtype.bytes > n.inputs[0].dtype.bytes


def _meet_rows(product: GraphNode, transpose: GraphNode) -> bool:
    """Whether a product has few rows, which meet rows of what is transposed, and each once."""
    left, right = (v.shape for v in product.inputs)
    perm = transpose.attrs_of(TransposeAttrs).perm
    if len(left) != len(right) or len(left) < 2 or left[:-2] != right[:-2]:
        return False
    rows, terms, columns = left[-2], left[-1], right[-1]
    if not isinstance(rows, int) or not isinstance(terms, int) or perm[-2] != len(perm) - 1:
        return False
    if not isinstance(columns, int):  # one row after another
        return rows <= UNKNOWN_COLUMNS
    return terms >= LONG_SUM <= columns and are_few(rows, terms)


def _is_anchored(group: Group, op: str) -> bool:
    """Whether a group's anchor is an `op`."""
    return group.anchor is not None and group.anchor.op.name == op


def _are_rows(shares: Group, scores: Group) -> bool:
    """Whether a softmax goes along the rows of a product of which there are many."""
    (result,) = scores.exit.outputs
    if shares.anchor is None or result.type.rank < 2:
        return False
    axis = shares.anchor.attrs_of(AxisAttrs).axis
    return axis in (-1, result.type.rank - 1) and are_large(*result.shape[-2:])


def _have_few_columns(scores: Group, values: Group) -> bool:
    """Whether the factors of two products, beside the rows and columns of scores, are narrow."""
    first, last = scores.anchor, values.anchor
    if first is None or last is None:
        return False
    return suit_blocks(first.inputs[0].shape[-1], last.outputs[0].shape[-1])


class _Grouping:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.consumers = graph.consumers()
        self.producers = graph.producers()
        self.outputs = set(graph.outputs)
        self.conversions: set[GraphNode] = set()  # that are in all groups that read them
        self.leaving = {n for n in graph.nodes if self.outputs & set(n.outputs)}
        self.position = {n: i for i, n in enumerate(graph.nodes)}
        self.costs = Costs()
        self.group_of: dict[GraphNode, Group] = {}
        self.groups: list[Group] = []

    def keep_apart(self, names: Collection[str]) -> None:
        """A group for each node of these operators on integers."""
        for n in self.graph.nodes:
            if n.op.name in names and n.outputs[0].dtype.is_integer:
                self._new_group(n)

    # ---------------------------------------------------------- consumers of an anchor

    def take_consumers(self, category: Category) -> None:
        """A group for each node of the category, the last first: where two meet in an addition,
        the later one takes it, and the earlier one's result is its operand."""
        for n in reversed(self.graph.nodes):
            if n.op.category is category and becomes_kernel(n):
                group = self._new_group(n, anchor=n)
                while region := self._region(group):
                    if not self._fits([*group.nodes, *region], region[-1], n):
                        break
                    self._add(group, region)
                    group.exit = region[-1]
                self._leave_conversion(group)

    def _leave_conversion(self, group: Group) -> None:
        """What makes elements larger at the end of a group is left to those that read them, if
        these can do it on the way."""
        if not self._can_be_taken(group.exit):
            return
        while group.exit is not group.anchor and self._converts(group.exit):
            del self.group_of[group.exit]
            group.nodes.remove(group.exit)
            makers = (self.producers.get(v) for v in group.exit.inputs)
            group.exit = next(m for m in makers if m in group.nodes)

    def take_conversions(self) -> None:
        """Element-wise nodes of groups convert to larger elements what they read: the conversion is
        in every group that reads its result."""
        for group in self.groups:
            todo = [n for n in group.nodes if n.op.elementwise and n is not group.anchor]
            while todo:
                n = todo.pop()
                for p in filter(None, map(self.producers.get, n.inputs)):
                    taken = p in self.group_of and p not in self.conversions
                    if taken or p in group.nodes or p.device != n.device:
                        continue
                    if self._converts(p) and self._is_read_by_groups(p):
                        self.conversions.add(p)
                        self._add(group, [p])
                        todo.append(p)

    def _converts(self, p: GraphNode) -> bool:
        """Whether a node makes the same numbers of more bytes, or multiplies such by a constant."""
        if p.op.name != "mul":
            return widens(p)
        makers = [m for v in p.inputs if (m := self.producers.get(v)) is not None]
        rest = [v for v in p.inputs if v not in self.graph.constants]
        return len(rest) == len(makers) == 1 and widens(makers[0])

    def _can_be_taken(self, p: GraphNode) -> bool:
        """Whether all that read a conversion can do it on the way: element-wise nodes, in groups
        already or in ones to come, and reductions."""
        users = set(self.consumers.get(p.outputs[0], []))
        takers = [u for u in users if u.op.elementwise or u.op.category is Category.REDUCTION]
        alike = all(u.device == p.device and becomes_kernel(u) for u in takers)
        few = len(users) <= MAX_READERS
        return p not in self.leaving and len(takers) == len(users) > 0 and few and alike

    def _is_read_by_groups(self, p: GraphNode) -> bool:
        """Whether all that read a conversion can take it, the groups to come included."""
        users = self.consumers.get(p.outputs[0], [])
        alike = all(u.op.elementwise and u.device == p.device and becomes_kernel(u) for u in users)
        return p not in self.leaving and alike

    def _region(self, group: Group) -> list[GraphNode]:
        """The elementwise nodes up to the first through which all paths from the exit lead."""
        if len(group.exit.outputs) != 1 or group.exit.outputs[0] in self.outputs:
            return []
        (value,) = group.exit.outputs
        region: list[GraphNode] = []
        pending = set(self.consumers.get(value, ()))
        while pending and len(region) < MAX_NODES:
            n = min(pending, key=self.position.__getitem__)
            pending.remove(n)
            if not self._may_follow(n, value, group.exit.device):
                return []
            region.append(n)
            if not pending:
                left = len(region) == 1 and self._is_left_to_reduction(n, value)
                return [] if left else region
            if n.outputs[0] in self.outputs or n.outputs[0] not in self.consumers:
                return []
            pending.update(self.consumers[n.outputs[0]])
        return []

    def _may_follow(self, n: GraphNode, value: Value, device: str) -> bool:
        return (
            n not in self.group_of
            and n.op.elementwise
            and n.op.category is Category.INJECTIVE
            and n.device == device
            and len(n.outputs) == 1
            and n.outputs[0].shape == value.shape
        )

    def _is_left_to_reduction(self, n: GraphNode, value: Value) -> bool:
        """Whether `n` is better computed by the reduction that alone reads it. Of what combines
        `value` with another computed tensor as large (a residual addition before a layer
        normalisation) the anchor then has no second large tensor to walk through in tiles; what
        makes elements larger then writes the small ones."""
        (result,) = n.outputs
        readers = self.consumers.get(result, [])
        others = [v for v in n.inputs if v is not value and v not in self.graph.constants]
        if result in self.outputs or len(readers) != 1:
            return False
        (reader,) = readers
        return (
            reader.op.category is Category.REDUCTION
            and becomes_kernel(reader)
            and reader.device == n.device
            and (widens(n) or any(v.shape == result.shape for v in others))
            and self._may_precede(n, Group([reader], reader, reader))
        )

    # ---------------------------------------------------------- producers

    def take_scores(self) -> None:
        """Attention: a product of the softmax of another one's large result is one kernel with
        both, which goes through blocks of rows."""
        taken: set[Group] = set()
        for group in list(self.groups):
            if not _is_anchored(group, "matmul") or group in taken:
                continue
            shares = self._before(group)
            if shares is None or not _is_anchored(shares, "softmax"):
                continue
            scores = self._before(shares)
            if scores is None or not _is_anchored(scores, "matmul") or scores in taken:
                continue
            if _are_rows(shares, scores) and _have_few_columns(scores, group):
                self._add(group, [*shares.nodes, *scores.nodes])
                taken |= {group, shares, scores}
                self.groups = [g for g in self.groups if g not in (shares, scores)]

    def _before(self, group: Group) -> Group | None:
        """The group that makes the first operand of a group's anchor, for it alone."""
        maker = None if group.anchor is None else self.producers.get(group.anchor.inputs[0])
        found = None if maker is None else self.group_of.get(maker)
        if found is None or found.exit is not maker or maker.device != group.exit.device:
            return None
        return found if self._is_only_read_by(maker, group) else None

    def take_transposes(self) -> None:
        """Products of few rows read what a transpose makes of the other factor's rows as it lies:
        the queries of a few tokens by all keys."""
        for group in self.groups:
            n = group.anchor
            if n is None or n.op.name != "matmul":
                continue
            p = self.producers.get(n.inputs[1])
            if p is None or p.op.name != "transpose" or p in self.group_of:
                continue
            if p.device == n.device and self._is_only_read_by(p, group) and _meet_rows(n, p):
                self._add(group, [p])

    def take_producers(self) -> None:
        for n in reversed(self.graph.nodes):
            group = self.group_of.get(n)
            if group is not None and n.op.category is Category.REDUCTION:
                self._absorb(group)

    def group_injective(self) -> None:
        for n in reversed(self.graph.nodes):
            if n not in self.group_of and becomes_kernel(n):
                self._absorb(self._new_group(n))

    def _absorb(self, group: Group) -> None:
        """Takes injective producers that only the group reads, until there are none."""
        changed = True
        while changed and len(group.nodes) < MAX_NODES:
            changed = False
            for n in self._producers_of(group):
                if self._is_only_read_by(n, group) and self._may_precede(n, group):
                    self._add(group, [n])
                    changed = True
                    break

    def _producers_of(self, group: Group) -> list[GraphNode]:
        """Nodes that could join the group as producers, the last first."""
        found = {
            p
            for n in group.nodes
            for v in n.inputs
            if (p := self.producers.get(v)) is not None
            and p not in self.group_of
            and p.op.category is Category.INJECTIVE
            and becomes_kernel(p)
            and p.device == n.device
        }
        return sorted(found, key=self.position.__getitem__, reverse=True)

    def _is_only_read_by(self, n: GraphNode, group: Group) -> bool:
        return all(
            v not in self.outputs and all(c in group.nodes for c in self.consumers.get(v, ()))
            for v in n.outputs
        )

    def _may_precede(self, n: GraphNode, group: Group) -> bool:
        """Whether computing `n` where the group reads it costs little, compared with a kernel of
        its own, which writes the result to memory to be read again."""
        nodes = [n, *group.nodes]
        times = self._times(nodes, group.exit)
        if times[n] > 1 and not (n.op.elementwise and self.costs.is_cheap(n)):
            return False
        if times[n] > MAX_TIMES and not self._is_only_broadcast(n, group):
            return False
        recomputed = sum(times[p] > 1 for p in nodes)
        return recomputed <= MAX_RECOMPUTED and self._fits(nodes, group.exit, group.anchor)

    def _is_only_broadcast(self, n: GraphNode, group: Group) -> bool:
        return all(c.op.elementwise for c in group.nodes if any(v in n.outputs for v in c.inputs))

    def _times(self, nodes: Iterable[GraphNode], exit_: GraphNode) -> dict[GraphNode, float]:
        """How often an element of each node's result is computed if it is computed where it is
        read. Elementwise readers read at one place, and share what they read."""
        ordered = sorted(nodes, key=self.position.__getitem__, reverse=True)
        times: dict[GraphNode, float] = {}
        for n in ordered:
            shared, separate = 0.0, 0.0
            for c in times:
                for i, v in enumerate(c.inputs):
                    if v in n.outputs:
                        reads = times[c] * self.costs.reads(c, i)
                        if c.op.elementwise:
                            shared = max(shared, reads)
                        else:
                            separate += reads
            times[n] = 1.0 if n is exit_ or not (shared or separate) else shared + separate
        return times

    # ---------------------------------------------------------- cheap groups

    def move_cheap(self) -> None:
        """Groups of cheap nodes that read one large tensor are computed by all their readers,
        which saves writing the result; reading it costs them as much as reading that tensor."""
        holders = {n: [group] for n, group in self.group_of.items()}
        for group in sorted(self.groups, key=lambda g: -self.position[g.exit]):
            readers = self._readers(group, holders) if self._is_movable(group) else []
            if not 1 < len(readers) <= MAX_READERS:
                continue
            if not all(self._may_hold(group, reader) for reader in readers):
                continue
            for reader in readers:
                nodes = {*reader.nodes, *group.nodes}
                reader.nodes = sorted(nodes, key=self.position.__getitem__)
            self.groups.remove(group)
            holders |= dict.fromkeys(group.nodes, readers)

    def _is_movable(self, group: Group) -> bool:
        size = max(elements(v.shape) for v in group.exit.outputs)
        outside = {
            v for n in group.nodes for v in n.inputs if self.producers.get(v) not in group.nodes
        }
        large = [
            v for v in outside if v not in self.graph.constants and elements(v.shape) * 2 > size
        ]
        return (
            group.anchor is None
            and len(group.nodes) <= MAX_RECOMPUTED
            and len(large) <= 1
            and all(n.op.elementwise and self.costs.is_cheap(n) for n in group.nodes)
        )

    def _readers(self, group: Group, holders: dict[GraphNode, list[Group]]) -> list[Group]:
        """The groups that read the group's result; none if something else reads it too."""
        found: dict[Group, None] = {}
        for v in group.exit.outputs:
            for c in self.consumers.get(v, ()):
                if v in self.outputs or c not in holders:
                    return []
                found |= dict.fromkeys(holders[c])
        return list(found)

    def _may_hold(self, group: Group, reader: Group) -> bool:
        if reader.anchor is not None and reader.anchor.op.category is Category.COMPLEX:
            return False
        others = [n for n in group.nodes if n is not group.exit]
        together = Group([*others, *reader.nodes], reader.exit, reader.anchor)
        return (
            reader.exit.device == group.exit.device
            and len(together.nodes) < MAX_NODES
            and self._may_precede(group.exit, together)
        )

    # ---------------------------------------------------------- groups

    def _new_group(self, n: GraphNode, anchor: GraphNode | None = None) -> Group:
        group = Group([n], n, anchor)
        self.group_of[n] = group
        self.groups.append(group)
        return group

    def _add(self, group: Group, nodes: Iterable[GraphNode]) -> None:
        for n in nodes:
            self.group_of[n] = group
            group.nodes.append(n)
        group.nodes.sort(key=self.position.__getitem__)

    def _fits(self, nodes: list[GraphNode], exit_: GraphNode, anchor: GraphNode | None) -> bool:
        """Whether the kernel's expressions stay small when values are written out where they are
        read: x = x * x, thirty times over, must not become 2³⁰ factors."""
        ordered = sorted(set(nodes), key=self.position.__getitem__, reverse=True)
        copies = dict.fromkeys(ordered, 0)
        copies[exit_] = 1
        makers = {v: n for n in ordered for v in n.outputs}
        for n in ordered:
            if len(ordered) > MAX_NODES or copies[n] > MAX_COPIES:
                return False
            here = 1 if n is anchor else copies[n]  # an anchor's result is stored
            here *= 1 if self.costs.is_cheap(n) else DEAR_COPIES
            for i, v in enumerate(n.inputs):
                if v in makers:
                    copies[makers[v]] += here * self.costs.mentions(n, i)
        return True
