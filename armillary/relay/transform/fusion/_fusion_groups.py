"""Which calls become one kernel: grouping by post-dominators over operator kinds.

In: the nodes of a function in post order. Out: a group number per node. The rules, in three rounds over the nodes, each
looking at its immediate post-dominator P (the node all of its consumers' paths meet in):

- round 0: a contraction joins P if it reaches it elementwise only, through nodes no more than broadcast;
- rounds 0 and 1: an elementwise or broadcast node joins P if all between is at most injective, and P is broadcast,
  injective, a reduction, or in the group of a contraction;
- round 1: an injective node or tuple joins P if everything up to and with P is at most injective (a transposition stays
  alone before a reshape that nothing follows: the reshape is a view then, and the loops of one axis more are faster);
- round 2: an at most injective node joins a tuple that is itself part of an injective kernel.
- what depends on sizes alone and is dear stays apart from what reads inputs (OfSizes);
- last, what widens numbers at the end of one kernel (a cast of bytes, and arithmetic with constants behind it) goes
  over to the kernel that reads the result, so that bytes lie between them.

Invariant: a group has one node (its root) whose value leaves it, no group spans two scopes, none exceeds `max_depth`
nodes, a reduction never starts a group, and nothing fuses into or out of opaque operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from armillary.base.record import record
from armillary.relay.analysis.bind_sizes import attr_sizes
from armillary.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem
from armillary.relay.op import Kind, Op, has
from armillary.relay.op.facts import Fact
from armillary.relay.types import TensorType
from armillary.relay.walk import Scope, children

FEWEST = 3  # operators of a value that is worth a kernel
_OF_RUNS = (Fact.BINDS, Fact.COMPARES, Fact.RUNS_AFTER, Fact.DYNAMIC)

TRANSPOSITIONS = ("layout_transform", "transpose")
_POOLS = ("nn.avg_pool2d", "nn.global_avg_pool2d")  # in blocks of channels: they widen what they read


@record(frozen=False, eq=False)
class FusionNode:
    """A node of the graph being fused. `users` are (index, kind of the edge); `kept` says its value must exist."""

    expr: Expr
    kind: Kind
    scope: Scope | None
    users: list[tuple[int, Kind]] = field(default_factory=list)
    kept: bool = False
    parent: int | None = None  # the immediate post-dominator
    depth: int = 0
    reach: Kind = Kind.OPAQUE  # the largest edge kind on the way to it


class Groups:
    """Union-find over nodes; the kind and size of a group are kept at its representative."""

    def __init__(self, nodes: list[FusionNode], max_depth: int) -> None:
        self.nodes, self.max_depth = nodes, max_depth
        self.link = list(range(len(nodes)))
        self.kind = [n.kind for n in nodes]
        self.size = [1 if isinstance(n.expr, Call) else 0 for n in nodes]

    def find(self, index: int) -> int:
        while self.link[index] != index:
            self.link[index] = self.link[self.link[index]]
            index = self.link[index]
        return index

    def merge(self, child: int, into: int) -> None:
        child, into = self.find(child), self.find(into)
        if child == into:
            return
        self.size[into] += self.size[child]
        self.kind[into] = max(self.kind[child], self.kind[into])
        self.link[child] = into


class OfSizes:
    """Of the expressions that depend on no input: whether sizes are in them, and how many operators they take.

    Such a value is worth a kernel of its own, which runs when sizes are bound (program/prepare.py), where it is floats
    of a few operators: positions, and comparisons of them, which a processor computes about as fast as it reads them,
    stay in their readers.
    """

    def __init__(self, order: Sequence[Expr], is_outside: Callable[[Expr], bool]) -> None:
        self.early: dict[int, tuple[bool, int]] = {}
        for expr in order:
            if is_outside(expr):
                self._add(expr)

    def _add(self, expr: Expr) -> None:
        parts = [id(child) for child in children(expr) if not isinstance(child, Constant | Op)]
        is_call = isinstance(expr, Call) and isinstance(expr.op, Op)
        if not (is_call or isinstance(expr, Tuple | TupleGetItem)) or any(part not in self.early for part in parts):
            return
        has_sizes, count = any(self.early[part][0] for part in parts), sum(self.early[part][1] for part in parts)
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            if expr.op.stateful or any(has(expr, fact) for fact in _OF_RUNS):
                return
            has_sizes, count = has_sizes or any(True for _ in attr_sizes(expr.attrs)), count + 1
        self.early[id(expr)] = has_sizes, count

    def is_apart(self, value: Expr, reader: Expr) -> bool:
        """Whether a value is computed in a kernel that does not join its reader's, which depends on inputs."""
        has_sizes, count = self.early.get(id(value), (False, 0))
        if not has_sizes or count < FEWEST or id(reader) in self.early:
            return False
        ty = value.checked_type
        return isinstance(ty, TensorType) and ty.dtype.is_float


def build_nodes(order: list[Expr], root: Expr, scope_of: dict[int, Scope]) -> list[FusionNode]:
    """One FusionNode per expression, with users and post-dominators."""
    nodes = [FusionNode(e, _kind(e), scope_of.get(id(e))) for e in order]
    index = {id(e): k for k, e in enumerate(order)}
    of_sizes = OfSizes(order, lambda e: scope_of.get(id(e)) is scope_of.get(id(root)))
    for k, node in enumerate(nodes):
        is_op = isinstance(node.expr, Call) and isinstance(node.expr.op, Op)
        fuses = is_op or isinstance(node.expr, Tuple | TupleGetItem)
        for child in children(node.expr):
            if id(child) not in index:
                continue
            target = nodes[index[id(child)]]
            if fuses and target.scope is node.scope and not of_sizes.is_apart(child, node.expr):
                target.users.append((k, _edge(node, child)))
            else:
                target.kept = True
    if id(root) in index:
        nodes[index[id(root)]].kept = True
    _post_dominate(nodes)
    return nodes


def _kind(expr: Expr) -> Kind:
    if isinstance(expr, Call) and isinstance(expr.op, Op):
        return expr.op.kind
    if isinstance(expr, Tuple):
        return Kind.TUPLE
    return Kind.INJECTIVE if isinstance(expr, TupleGetItem) else Kind.OPAQUE


def _edge(user: FusionNode, child: Expr) -> Kind:
    if user.kind == Kind.TUPLE:
        return Kind.INJECTIVE
    if user.kind == Kind.BROADCAST and _shape(child) == _shape(user.expr):
        return Kind.ELEMENTWISE
    if isinstance(user.expr, TupleGetItem) and isinstance(child, Call):
        return Kind.OPAQUE if _kind(child) == Kind.OPAQUE else Kind.INJECTIVE
    return user.kind


def _shape(expr: Expr) -> object:
    ty = expr.checked_type
    return getattr(ty, "shape", ty)


def _post_dominate(nodes: list[FusionNode]) -> None:
    """Users come later in post order, so going backwards each node's users are done."""
    for node in reversed(nodes):
        if node.kept or not node.users:
            continue
        parent: int | None = node.users[0][0]
        reach = Kind.ELEMENTWISE
        for user, kind in node.users:
            reach = max(reach, kind)
            parent, reach = _meet(nodes, parent, user, reach)
        node.parent, node.reach = parent, reach
        node.depth = nodes[parent].depth + 1 if parent is not None else 0


def _meet(nodes: list[FusionNode], a: int | None, b: int | None, reach: Kind) -> tuple[int | None, Kind]:
    """The nearest common post-dominator, and the largest edge kind passed on the way."""
    while a != b:
        if a is None or b is None:
            return None, Kind.OPAQUE
        if nodes[a].depth < nodes[b].depth:
            a, b = b, a
        step = nodes[a]
        reach = max(reach, step.reach)
        if nodes[a].depth == nodes[b].depth:
            reach = max(reach, nodes[b].reach)
            b = nodes[b].parent
        a = step.parent
    return (a, reach) if a is not None else (None, Kind.OPAQUE)


def group(nodes: list[FusionNode], max_depth: int) -> Groups:
    """Run the three rounds."""
    groups = Groups(nodes, max_depth)
    for phase in range(3):
        for k in range(len(nodes)):
            _consider(groups, k, phase)
    return groups


def _consider(groups: Groups, k: int, phase: int) -> None:
    node = groups.nodes[k]
    kind = groups.kind[groups.find(k)]
    if node.kind == Kind.OPAQUE or kind == Kind.OPAQUE or node.parent is None:
        return
    parent = groups.find(node.parent)
    if phase == 2:
        is_chain = groups.kind[parent] <= Kind.INJECTIVE or groups.nodes[node.parent].kind == Kind.TUPLE
        fused_tuple = groups.nodes[node.parent].kind == Kind.TUPLE and parent != node.parent
        if kind <= Kind.INJECTIVE and fused_tuple and is_chain:
            _try(groups, k, node.parent, Kind.INJECTIVE, Kind.TUPLE, False)
        return
    if groups.find(k) == parent or groups.nodes[node.parent].kind == Kind.TUPLE:
        return
    if kind == Kind.CONTRACTION:
        if phase == 0 and node.reach == Kind.ELEMENTWISE:
            _try(groups, k, node.parent, Kind.BROADCAST, Kind.BROADCAST, False)
    elif kind <= Kind.BROADCAST:
        if node.reach <= Kind.REDUCE:
            _try(groups, k, node.parent, Kind.INJECTIVE, Kind.REDUCE, True)
    elif kind in (Kind.INJECTIVE, Kind.TUPLE) and phase == 1 and not _is_before_a_view(groups, node):
        _try(groups, k, node.parent, Kind.INJECTIVE, Kind.INJECTIVE, False)


def _is_before_a_view(groups: Groups, node: FusionNode) -> bool:
    """Whether a transposition is all that a reshape reads which no map of elements follows."""
    after = None if node.parent is None else groups.nodes[node.parent]
    if after is None or _name(node) not in TRANSPOSITIONS or not has(after.expr, Fact.VIEW) or len(node.users) > 1:
        return False
    return node.users[0][0] == node.parent and all(kind > Kind.INJECTIVE for _, kind in after.users)


def _name(node: FusionNode) -> str:
    expr = node.expr
    return expr.op.name if isinstance(expr, Call) and isinstance(expr.op, Op) else ""


def _try(groups: Groups, source: int, sink: int, between: Kind, last: Kind, contraction: bool) -> None:
    """Merge all nodes on the paths from source to sink, if each may be on them."""
    path = _path(groups, source, sink)
    if len({id(groups.nodes[k].scope) for k in (source, *path)}) > 1:
        return
    for k in path:
        kind = groups.kind[groups.find(k)]
        limit = last if k == sink else between
        if kind > limit and not (contraction and k == sink and kind == Kind.CONTRACTION):
            return
    members = {groups.find(k) for k in (source, *path)}
    if sum(groups.size[m] for m in members) > groups.max_depth:
        return
    for k in (source, *path):
        groups.merge(k, sink)


def _path(groups: Groups, source: int, sink: int) -> list[int]:
    """Every node on a path from source to sink, the sink included, the source not."""
    result: list[int] = []
    seen = {source}
    stack = [source]
    while stack:
        for user, _ in groups.nodes[stack.pop()].users:
            if user not in seen:
                seen.add(user)
                result.append(user)
                if user != sink:
                    stack.append(user)
    return result


# --- bytes between kernels --------------------------------------------------------------------------------------------


def assigned(groups: Groups) -> list[int]:
    """The group of each node, with what widens a group's result moved to its readers."""
    result = [groups.find(k) for k in range(len(groups.nodes))]
    roots = {group: k for k, group in enumerate(result)}  # the last member
    for group, root in roots.items():
        reader = _only_reader(groups, result, root)
        tail = [] if reader is None else _widening(groups.nodes, result, root)
        if reader is None or not tail or groups.size[reader] + len(tail) > groups.max_depth:
            continue
        for k in tail:
            result[k] = reader
        groups.size[reader] += len(tail)
        groups.size[group] -= len(tail)
    return result


def _only_reader(groups: Groups, members: list[int], root: int) -> int | None:
    """The one other group that reads a value, element by element or in loops that read it once each."""
    node = groups.nodes[root]
    readers = {members[user] for user, _ in node.users}
    if node.kept or len(readers) != 1 or not all(_reads_once(groups.nodes[user], kind) for user, kind in node.users):
        return None
    (reader,) = readers
    return reader if reader != members[root] else None


def _reads_once(user: FusionNode, kind: Kind) -> bool:
    is_loop = isinstance(user.expr, Call) and kind <= Kind.REDUCE and kind != Kind.BROADCAST
    is_pool = _name(user) in _POOLS and isinstance(user.expr, Call)
    return is_loop or (is_pool and len(user.expr.attrs.layout) > len("NCHW"))  # type: ignore[attr-defined]


def _widening(nodes: list[FusionNode], members: list[int], root: int) -> list[int]:
    """The members behind the narrowest value of the chain of elementwise calls that ends at the root."""
    index = {id(nodes[k].expr): k for k in range(root + 1) if members[k] == members[root]}
    chain, cut, narrowest = [root], 0, _bits_of(nodes[root].expr)
    while nodes[chain[-1]].kind <= Kind.BROADCAST:
        inside = [child for child in children(nodes[chain[-1]].expr) if not isinstance(child, Constant)]
        inner = [index.get(id(child)) for child in inside]
        if len(inside) == 1 and inner[0] is None and _has_shape_of(inside[0], nodes[root]):
            return chain if _bits_of(inside[0]) < narrowest else chain[:cut]
        if len(inner) != 1 or inner[0] is None or len(nodes[inner[0]].users) != 1 or nodes[inner[0]].kept:
            break
        if not _has_shape_of(nodes[inner[0]].expr, nodes[root]):
            break
        if _bits_of(nodes[inner[0]].expr) < narrowest:
            cut, narrowest = len(chain), _bits_of(nodes[inner[0]].expr)
        chain.append(inner[0])
    return chain[:cut]


def _has_shape_of(expr: Expr, node: FusionNode) -> bool:
    return _shape(expr) == _shape(node.expr)


def _bits_of(expr: Expr) -> int:
    ty = expr.checked_type
    return ty.dtype.bits if isinstance(ty, TensorType) else 0
