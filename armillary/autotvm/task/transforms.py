"""What a knob may be: splits of an axis, orders of axes, annotations of axes, values.

In: axes, a policy and its options. Out: a list of entities in the order that Relay-era logs count them in; an entity
applies itself to a stage of a schedule. Invariant: the same axes, policy and options give the same entities in the same
order, as an index in a log means an entity. The space of all knobs: `space.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from armillary import te
from armillary.autotvm.errors import InstantiationError, TuningError
from armillary.base.record import record

Schedule = te.Schedule
Annotations = Sequence[str]
ANNOTATIONS = ("none", "unroll", "vec")
BLOCKS, THREADS = ("blockIdx.z", "blockIdx.y", "blockIdx.x"), ("threadIdx.z", "threadIdx.y", "threadIdx.x")


@record
class VirtualAxis:
    """An axis that a space knows by its length alone."""

    length: int
    name: str = ""

    def __repr__(self) -> str:
        return f"vaxis({self.name or self.length})"


@record
class SplitEntity:
    """Sizes of the parts of an axis from the outermost on; the first is -1, what the others leave."""

    size: Sequence[int]
    kind = "sp"

    def apply(self, sch: Schedule, op: object, axis: te.IterVar) -> list[te.IterVar]:  # a tensor or an operation
        """Split `axis` of a stage; the parts, the outermost first."""
        parts = []
        for place in range(1, len(self.size)):
            outer, axis = sch[op].split(axis, math.prod(self.size[place:]))
            parts.append(outer)
        return [*parts, axis]

    def to_json(self) -> list[int]:
        return [int(n) for n in self.size]

    def __repr__(self) -> str:
        return str(list(self.size))


@record
class ReorderEntity:
    """The order of some axes, as their numbers."""

    perm: Sequence[int]
    kind = "re"

    def apply(self, sch: Schedule, op: object, axes: Sequence[te.IterVar]) -> list[te.IterVar]:  # as in SplitEntity
        """Reorder the axes of a stage; they come back in their new order."""
        order = [axes[i] for i in self.perm if i < len(axes)]
        sch[op].reorder(*order)
        return order

    def to_json(self) -> list[int]:
        return [int(n) for n in self.perm]

    def __repr__(self) -> str:
        return str(list(self.perm))


@record
class AnnotateEntity:
    """What is done with each of some axes: none, unroll, vec, fuse, a thread; or where caches are attached."""

    anns: Sequence[Any]  # Any: names of annotations, or numbers of axes
    kind = "an"

    def apply(
        self,
        sch: Schedule,
        op: object,
        axes: list[te.IterVar],
        axis_lens: Sequence[int] | None = None,
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
        cfg: object = None,
        source: Any = None,
    ) -> list[te.IterVar]:
        """Annotate the axes of a stage. `cfg` is told of lengths that do not fit (Any: a ConfigEntity)."""
        if source is not None:
            for tensors, at in zip(source, self.anns, strict=True):
                for tensor in tensors:
                    sch[tensor].compute_at(sch[op], axes[at])
            return axes
        axes = list(axes)
        for place, name in enumerate(self.anns):
            length = axis_lens[place] if axis_lens is not None else 0
            if name == "unroll" and max_unroll and length > max_unroll:
                _refuse(cfg, f"an axis of {length} is too long to unroll, at most {max_unroll} are")
            if name == "vec" and vec_size and length not in vec_size:
                _refuse(cfg, f"an axis of {length} is no vector, wanted {' or '.join(map(str, vec_size))} lanes")
            self._annotate(sch[op], axes, place, name)
        return axes

    def _annotate(self, stage: te.Stage, axes: list[te.IterVar], place: int, name: str) -> None:
        axis = axes[place]
        if name == "unroll":
            stage.unroll(axis)
        elif name == "vec":
            stage.vectorize(axis)
        elif name == "fuse":
            axes[place + 1] = stage.fuse(axis, axes[place + 1])
        elif name != "none":
            stage.bind(axis, te.thread_axis(name))

    def to_json(self) -> list[Any]:  # Any: as anns
        return list(self.anns)

    def __repr__(self) -> str:
        return str(list(self.anns))


@record
class OtherOptionEntity:
    """A value of a knob."""

    val: Any  # Any: what the template gave as a candidate
    kind = "ot"

    def to_json(self) -> Any:  # Any: as val
        return self.val

    def __repr__(self) -> str:
        return str(self.val)


Entity = SplitEntity | ReorderEntity | AnnotateEntity | OtherOptionEntity
KINDS: dict[str, Callable[[Any], Entity]] = {
    "sp": SplitEntity,
    "re": ReorderEntity,
    "an": AnnotateEntity,
    "ot": OtherOptionEntity,
}


def _refuse(cfg: Any, message: str) -> None:  # Any: a ConfigEntity, or None
    if cfg is None:
        raise InstantiationError(message)
    cfg.raise_error(message)


class TransformSpace:
    """The entities that one knob may take. `outputs`: how many axes applying one of them gives."""

    def __init__(self, entities: Sequence[Entity], outputs: int, message: str) -> None:
        self.entities, self.num_output, self._message = list(entities), outputs, message

    def __len__(self) -> int:
        return len(self.entities)

    def __getitem__(self, index: int) -> Entity:
        return self.entities[index]

    def __iter__(self) -> Iterator[Entity]:
        return iter(self.entities)

    def __repr__(self) -> str:
        return f"{self._message} len={len(self)}"


def get_factors(n: int) -> list[int]:
    """The divisors of n, ascending."""
    small = [i for i in range(1, math.isqrt(n) + 1) if n % i == 0]
    return sorted({*small, *(n // i for i in small)})


def get_pow2s(n: int) -> list[int]:
    """The powers of two up to n."""
    return [1 << i for i in range(n.bit_length())]


def split_space(
    axis: VirtualAxis,
    policy: str,
    *,
    num_outputs: int,
    max_factor: int = 1 << 31,
    no_tail: bool | None = None,
    filter: Callable[[SplitEntity], bool] | None = None,
    candidate: Sequence[Sequence[int]] = (),
) -> TransformSpace:
    """Ways to split an axis in `num_outputs`; policies factors, power2, verbose (both), candidate."""
    if num_outputs < 1:
        raise TuningError(f"define_split: num_outputs is {num_outputs}, wanted at least 1")
    candidates = [SplitEntity(tuple(size)) for size in candidate]
    if policy == "candidate":
        for entity in candidates:
            if len(entity.size) != num_outputs:
                raise TuningError(f"define_split: the candidate {entity} has not {num_outputs} parts")
    else:
        factors = [f for f in _factors(axis.length, policy) if f <= max_factor]
        is_whole = policy == "factors" if no_tail is None else no_tail
        candidates = [
            SplitEntity((-1, *reversed(inner)))
            for inner in itertools.product(factors, repeat=num_outputs - 1)
            if _fits(axis.length, math.prod(inner), is_whole)
        ]
    retained = candidates if filter is None else [entity for entity in candidates if filter(entity)]
    message = f"Split(policy={policy}, product={axis.length}, num_outputs={num_outputs})"
    return TransformSpace(retained, num_outputs, message)


def _factors(length: int, policy: str) -> list[int]:
    if policy == "factors":
        return get_factors(length)
    if policy == "power2":
        return get_pow2s(length)
    if policy == "verbose":
        return list(set(get_factors(length)) | set(get_pow2s(length)))  # this order is the one that logs count in
    raise TuningError(f"define_split: unknown policy {policy!r}", hint="factors, power2, verbose or candidate")


def _fits(length: int, inner: int, is_whole: bool) -> bool:
    return inner <= length and (length % inner == 0 or not is_whole)


def reorder_space(
    axes: Sequence[VirtualAxis],
    policy: str,
    *,
    interval: tuple[int, int] = (0, 0),
    candidate: Any = (),
    spatial: Any = (),
    reduce: Any = (),
) -> TransformSpace:
    """Orders of axes; policies identity, all, interval_all, candidate, interleave, interleave_cuda.

    Any: lists of axes, or lists of those.
    """
    number = range(len(axes))
    orders: Sequence[Sequence[int]]
    if policy == "identity":
        orders = [tuple(number)]
    elif policy == "all":
        orders = list(itertools.permutations(number))
    elif policy == "interval_all":
        begin, end = interval
        middle = itertools.permutations(range(begin, end))
        orders = [(*range(begin), *order, *range(end, len(axes))) for order in middle]
    elif policy == "candidate":
        orders = [_numbers(axes, order) for order in candidate]
    elif policy in ("interleave", "interleave_cuda"):
        is_cuda = policy == "interleave_cuda"
        orders = _interleaved([_numbers(axes, c) for c in spatial], [_numbers(axes, c) for c in reduce], is_cuda)
    else:
        known = "identity, all, interval_all, candidate, interleave or interleave_cuda"
        raise TuningError(f"define_reorder: unknown policy {policy!r}", hint=known)
    return TransformSpace([ReorderEntity(tuple(o)) for o in orders], len(axes), f"Reorder(policy={policy})")


def _numbers(axes: Sequence[object], order: Sequence[object]) -> list[int]:  # axes, compared by identity
    places = {id(axis): place for place, axis in enumerate(axes)}
    if any(id(axis) not in places for axis in order):
        raise TuningError("define_reorder: a candidate names an axis that is not among the axes")
    return [places[id(axis)] for axis in order]


def _interleaved(spatial: list[list[int]], reduce: list[list[int]], is_cuda: bool) -> list[list[int]]:
    outer = _merged([chain[:-1] for chain in spatial])
    if is_cuda:
        last = [chain[-1] for chain in spatial]
        return [[*o, *r, *last] for o in outer for r in _merged(reduce)]
    inner = _merged([chain[-1:] for chain in spatial] + reduce)
    return [[*o, *i] for o in outer for i in inner]


def _merged(chains: list[list[int]]) -> list[list[int]]:
    """The chains as one: always the next of the chain that has most left, the first among equals."""
    left, order = [list(chain) for chain in chains], []
    while any(left):
        longest = max(left, key=len)
        order.append(longest.pop(0))
    return [order]


def annotate_space(axes: Sequence[VirtualAxis], policy: str, *, num_anchor: int = 0) -> TransformSpace:
    """Annotations of axes; policies bind_gpu, bind_gpu_virtual, locate_cache, or such as try_unroll_vec."""
    count, message = len(axes), f"Annotate(policy={policy})"
    entities: list[tuple[Any, ...]]  # Any: names, or numbers of axes
    if policy == "locate_cache":
        entities = list(itertools.combinations(range(count), num_anchor))
    elif policy in ("bind_gpu", "bind_gpu_virtual"):
        entities = [_bound(count, is_virtual=policy == "bind_gpu_virtual")]
    else:
        names = policy.replace("try", "none").split("_")
        if not set(names) <= set(ANNOTATIONS):
            hint = "bind_gpu, bind_gpu_virtual, locate_cache, or unroll and vec, with try_ before: try_unroll_vec"
            raise TuningError(f"define_annotate: unknown policy {policy!r}", hint=hint)
        entities = [row for row in itertools.product(names, repeat=count) if row.count("vec") <= 1]
    return TransformSpace([AnnotateEntity(row) for row in entities], count, message)


def _bound(count: int, *, is_virtual: bool) -> tuple[str, ...]:
    step, middle = (3, ("vthread",)) if is_virtual else (2, ())
    used = min(3, count // step)
    if not used:
        raise TuningError(f"define_annotate: {count} axes are too few to bind", hint=f"wanted at least {step}")
    names = (*BLOCKS[3 - used :], *(middle * used), *THREADS[3 - used :])
    return (*(("fuse",) * (count - len(names))), *names)


def option_space(candidate: Sequence[object]) -> TransformSpace:  # values of the template's
    """The candidates of a knob."""
    return TransformSpace([OtherOptionEntity(value) for value in candidate], 0, f"OtherOption({list(candidate)})")
