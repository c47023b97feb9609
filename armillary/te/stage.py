"""One stage of a schedule: the loops of one operation and the primitives that shape them.

In: an operation. Out: leaf axes (the loops, outermost first), relations (split, fuse) that derive them from the
operation's axes, notes on axes, and where the stage is computed. Invariant: a primitive checks itself when it is called
(ScheduleError names the stage, the axis and the reason), then records a `Directive`. Loops are derived from this state
by `te/bounds.py` and `te/lower.py`. Several stages together: `te/schedule.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from armillary.base.boundary import boundary, bounded
from armillary.errors import ScheduleError
from armillary.te import index_map
from armillary.te.directives import Directive
from armillary.te.operation import ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp
from armillary.te.prefetch import Request, Sharer, Spread
from armillary.te.tensor import Tensor
from armillary.tir import build as T
from armillary.tir.expr import Expr, IterVar, Range, StringImm, Var
from armillary.tir.stmt import LoopKind

if TYPE_CHECKING:
    from armillary.te.group import StageGroup
    from armillary.te.schedule import Schedule
    from armillary.te.tensor_intrin import TensorIntrin


@dataclass(frozen=True, slots=True)
class Split:
    """parent = outer * extent(inner) + inner; one of `factor` and `nparts` is given.

    With a `step` the inner ones lie that far apart, and as many outer ones interleave:
    parent = (outer // step) * step * extent(inner) + inner * step + outer % step.
    With `is_guarded` False iterations beyond the end are run.
    """

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: Expr | None
    nparts: Expr | None
    step: int = 1
    is_guarded: bool = True


@dataclass(frozen=True, slots=True)
class Fuse:
    """fused = outer * extent(inner) + inner."""

    outer: IterVar
    inner: IterVar
    fused: IterVar


@dataclass(frozen=True, slots=True)
class Singleton:
    """A loop of one iteration, for an operation without axes."""

    iter: IterVar


Relation: TypeAlias = Split | Fuse | Singleton


@dataclass(slots=True)
class Notes:
    """What is attached to one axis."""

    kind: LoopKind = LoopKind.SERIAL
    thread: IterVar | None = None
    pragmas: list[tuple[str, object]] = field(default_factory=list)
    intrinsic: Any = None
    prefetch: list[Request] = field(default_factory=list)

    @property
    def iter_type(self) -> int:
        """The kind of loop, by the numbers of `IterVar`."""
        return IterVar.Tensorized if self.intrinsic is not None else _ITER_TYPES.get(self.kind, IterVar.DataPar)

    @property
    def pragma_keys(self) -> list[StringImm]:
        """The names of the pragmas."""
        return [StringImm(key.removeprefix("pragma_")) for key, _ in self.pragmas]

    @property
    def tensor_intrin(self) -> TensorIntrin | None:
        """The intrinsic that does the work of the loop."""
        result: TensorIntrin | None = self.intrinsic
        return result


_ITER_TYPES = {
    LoopKind.UNROLLED: IterVar.Unrolled,
    LoopKind.VECTORIZED: IterVar.Vectorized,
    LoopKind.PARALLEL: IterVar.Parallelized,
}


@bounded
class Stage:
    """The loops of one operation. Get it with `schedule[tensor]`."""

    def __init__(self, schedule: Schedule, op: Operation, key: str) -> None:
        self.schedule = schedule
        self.origin_op = op
        self.key = key
        self.scope = ""
        self.is_inline = False
        self.attach: tuple[Stage, IterVar] | None = None
        self.group: StageGroup | None = None
        self.double_buffered = False
        self.align: dict[IterVar, tuple[int, int]] = {}
        self.multiples: dict[IterVar, int] = {}
        self.layout: index_map.IndexMap | None = None
        self.redirects: dict[Tensor, Tensor] = {}
        self.reset(op)

    def reset(self, op: Operation) -> None:
        """Take `op` as this stage's operation, with its plain loops."""
        if not isinstance(op, Operation):
            self._refuse("reset", f"{op!r}: wanted an operation")
        self.op = op
        self.relations: list[Relation] = []
        self.notes: dict[IterVar, Notes] = {}
        self.leaf: list[IterVar] = [*op.axis, *op.reduce_axis]
        self._keys: dict[str, IterVar] = {}
        for item in self.leaf:
            self._name(item)
        if isinstance(op, ComputeOp) and op.intrinsic is not None:
            self._attach_intrinsic(*op.intrinsic)

    def _attach_intrinsic(self, intrinsic: TensorIntrin, data: int, reduced: int) -> None:
        """The loops of a compute that is an intrinsic on regions: its own ones are innermost, and tensorized."""
        axes, sums = list(self.op.axis), list(self.op.reduce_axis)
        inner = [*axes[len(axes) - data :], *sums[len(sums) - reduced :]]
        self.leaf = [*axes[: len(axes) - data], *sums[: len(sums) - reduced], *inner]
        if inner:
            self._note(inner[0]).intrinsic = intrinsic

    @property
    def leaf_iter_vars(self) -> tuple[IterVar, ...]:
        """The loops, outermost first."""
        return tuple(self.leaf)

    @property
    def all_iter_vars(self) -> tuple[IterVar, ...]:
        """Every axis, those consumed by split and fuse too."""
        return tuple(self._keys.values())

    @property
    def iter_var_attrs(self) -> dict[IterVar, Notes]:
        """What is attached to the axes that something is attached to."""
        return self.notes

    @property
    def attach_type(self) -> int:
        """Where the stage is computed: 1 at root, 2 in its readers, 4 inside a loop."""
        return 2 if self.is_inline else 1 if self.attach is None else 4

    @property
    def directives(self) -> tuple[Directive, ...]:
        """The directives of this stage, in the order written."""
        return tuple(d for d in self.schedule.directives() if d.stage == self.key)

    def __repr__(self) -> str:
        return f"Stage({self.key})"

    def axis(self, key: str) -> IterVar:
        """The axis of this key (its name; `name#2` for the second of one name)."""
        if not isinstance(key, str) or key not in self._keys:
            raise ScheduleError(f"stage {self.key} has no axis {key!r}", hint=f"it has: {', '.join(self._keys)}")
        return self._keys[key]

    def key_of(self, axis: IterVar) -> str:
        """The key of an axis of this stage."""
        if not isinstance(axis, IterVar):
            self._refuse("key_of", f"{axis!r}: wanted an axis")
        return next((k for k, v in self._keys.items() if v is axis), axis.var.name)

    def _name(self, axis: IterVar) -> None:
        key, count = axis.var.name, 1
        while key in self._keys:
            count += 1
            key = f"{axis.var.name}#{count}"
        self._keys[key] = axis

    def _record(self, primitive: str, **arguments: object) -> None:
        self.schedule.record(Directive(self.key, primitive, tuple(arguments.items())))

    def _refuse(self, primitive: str, reason: str, hint: str = "") -> NoReturn:
        raise ScheduleError(f"{primitive} on stage {self.key}: {reason}", hint=hint)

    def _loop(self, primitive: str, axis: object, *, reshaping: bool = False) -> int:
        """The position of a leaf axis; refuses anything else."""
        if not isinstance(axis, IterVar):
            self._refuse(primitive, f"got {axis!r}, wanted an axis")
        for position, item in enumerate(self.leaf):  # noqa: B007  (read after the loop)
            if item is axis:
                break
        else:
            self._not_a_loop(primitive, axis)
        if not reshaping:
            return position
        for other in self.schedule.stages:
            if other.attach is not None and other.attach[1] is axis and other.attach[0] is self:
                self._refuse(
                    primitive,
                    f"stage {other.key} is computed at axis {axis.var.name}",
                    "split and fuse before compute_at",
                )
        notes = self.notes.get(axis)
        if notes is not None and (notes.kind is not LoopKind.SERIAL or notes.intrinsic is not None):
            self._refuse(primitive, f"axis {axis.var.name} is already {_state(notes)}", "split and fuse come first")
        return position

    def _not_a_loop(self, primitive: str, axis: IterVar) -> NoReturn:
        name = axis.var.name
        for relation in self.relations:
            if isinstance(relation, Split) and relation.parent is axis:
                got = f"{relation.outer.var.name} and {relation.inner.var.name}"
                self._refuse(primitive, f"axis {name} was already split into {got}", "use one of those")
            if isinstance(relation, Fuse) and axis in (relation.outer, relation.inner):
                self._refuse(primitive, f"axis {name} was already fused into {relation.fused.var.name}", "use that")
        loops = ", ".join(a.var.name for a in self.leaf) or "none"
        self._refuse(primitive, f"axis {name} is not a loop of this stage", f"its loops are: {loops}")

    def _note(self, axis: IterVar) -> Notes:
        return self.notes.setdefault(axis, Notes())

    def _check_loops(self, primitive: str) -> None:
        if isinstance(self.op, PlaceholderOp):
            self._refuse(primitive, "it is a placeholder, which has no loops")
        if isinstance(self.op, ExternOp | ScanOp):
            self._refuse(primitive, "its loops are given by its own statement")

    def _check_data_axis(self, primitive: str, axis: IterVar) -> None:
        self._check_loops(primitive)
        if not any(axis is a for a in self.op.axis):
            self._refuse(primitive, f"axis {getattr(axis, 'var', axis)!r} is not a data axis of the operation")

    # loop structure

    def split(
        self,
        parent: IterVar,
        factor: Any = None,
        nparts: Any = None,
        step: int = 1,
        disable_predication: bool = False,
    ) -> tuple[IterVar, IterVar]:
        """`for i: …` becomes `for i.outer: for i.inner: …` with `factor` inner (or `nparts` outer) iterations.

        With a `step` an outer iteration takes every step-th element: by factor 2 and step 3 the six iterations are
        0 3, 1 4, 2 5; what starts beyond the end is left out. With `disable_predication` no condition keeps iterations
        that lie beyond the end from running: memory must be there for them.
        """
        self._check_loops("split")
        position = self._loop("split", parent, reshaping=True)
        if (factor is None) == (nparts is None):
            self._refuse("split", f"axis {parent.var.name} needs one of factor and nparts")
        amount = T.convert(factor if nparts is None else nparts)
        number = T.as_int(amount)
        if not amount.dtype.is_int or (number is not None and number <= 0):
            self._refuse(
                "split",
                f"axis {parent.var.name}: the {'factor' if nparts is None else 'nparts'} is "
                f"{number if number is not None else amount.dtype}, wanted a positive integer",
            )
        if not isinstance(step, int) or step < 1 or (step > 1 and nparts is not None):
            self._refuse("split", f"axis {parent.var.name}: the step is {step!r}, wanted 1, or more beside a factor")
        extent = static_extent(parent)
        outer_extent, inner_extent = _split_extents(extent, number, nparts is None, step)
        name, kind = parent.var.name, parent.kind
        outer = _derived_axis(f"{name}.outer", parent, outer_extent, kind)
        inner = _derived_axis(f"{name}.inner", parent, inner_extent, kind)
        by_factor, by_parts = (amount, None) if nparts is None else (None, amount)
        more: dict[str, object] = {"step": step} if step > 1 else {}
        more |= {"disable_predication": True} if disable_predication else {}
        self._record(
            "split",
            axis=self.key_of(parent),
            **{"factor" if nparts is None else "nparts": number if number is not None else str(amount)},
            **more,
        )
        self.relations.append(Split(parent, outer, inner, by_factor, by_parts, step, not disable_predication))
        self.leaf[position : position + 1] = [outer, inner]
        self._name(outer)
        self._name(inner)
        return outer, inner

    def fuse(self, *axes: IterVar) -> IterVar:
        """`for i: for j: …` becomes `for i.j.fused: …`; the axes must be neighbours, in order."""
        self._check_loops("fuse")
        parts = list(axes[0]) if len(axes) == 1 and isinstance(axes[0], tuple | list) else list(axes)
        if not parts and not self.op.axis:
            return self._singleton()
        if not parts:
            self._refuse("fuse", "no axes given")
        positions = [self._loop("fuse", a, reshaping=True) for a in parts]
        if len({a.kind == "reduce" for a in parts}) > 1:
            self._refuse("fuse", f"{_names(parts)} mix data and reduction axes")
        if positions != list(range(positions[0], positions[0] + len(parts))):
            message = f"{_names(parts)} are not neighbouring loops in this order"
            self._refuse("fuse", message, f"the loops are: {_names(self.leaf)}; reorder first")
        count = math.prod(static_extent(a) or 1 for a in parts)
        if count > 2**31 - 1 and parts[0].var.dtype.bits < 64:
            self._refuse("fuse", f"{_names(parts)} have {count} iterations together, more than int32 counts")
        self._record("fuse", axes=tuple(self.key_of(a) for a in parts))
        fused: IterVar = parts[0]
        for inner in parts[1:]:
            fused = self._fuse_pair(fused, inner)
        return fused

    def _singleton(self) -> IterVar:
        """The loop of one iteration that a stage without axes has."""
        result = IterVar(Range(0, 1), Var("singleton"))
        self._record("fuse", axes=())
        self.relations.append(Singleton(result))
        self.leaf.insert(0, result)
        self._name(result)
        return result

    def _fuse_pair(self, outer: IterVar, inner: IterVar) -> IterVar:
        a, b = static_extent(outer), static_extent(inner)
        fused = _derived_axis(f"{outer.var.name}.{inner.var.name}.fused", outer, a * b if a and b else None, outer.kind)
        position = next(i for i, item in enumerate(self.leaf) if item is outer)
        self.leaf[position : position + 2] = [fused]
        self.relations.append(Fuse(outer, inner, fused))
        self._name(fused)
        return fused

    def reorder(self, *axes: IterVar) -> None:
        """Put the given loops in this order, into the places they occupy together."""
        self._check_loops("reorder")
        positions = [self._loop("reorder", a) for a in axes]
        for number, position in enumerate(positions):
            if position in positions[:number]:
                self._refuse("reorder", f"axis {axes[number].var.name} is given twice")
        self._record("reorder", axes=tuple(self.key_of(a) for a in axes))
        for position, item in zip(sorted(positions), axes, strict=True):
            self.leaf[position] = item

    def tile(self, x_parent: IterVar, y_parent: IterVar, x_factor: object, y_factor: object) -> tuple[IterVar, ...]:
        """Split both axes and put the inner loops innermost: (x.outer, y.outer, x.inner, y.inner)."""
        x_outer, x_inner = self.split(x_parent, factor=x_factor)
        y_outer, y_inner = self.split(y_parent, factor=y_factor)
        self.reorder(x_outer, y_outer, x_inner, y_inner)
        return x_outer, y_outer, x_inner, y_inner

    def _mark(self, primitive: str, axis: IterVar, kind: LoopKind) -> None:
        self._check_loops(primitive)
        self._loop(primitive, axis)
        notes = self._note(axis)
        if notes.kind is not LoopKind.SERIAL and notes.kind is not kind:
            self._refuse(primitive, f"axis {axis.var.name} is already {_state(notes)}")
        self._record(primitive, axis=self.key_of(axis))
        notes.kind = kind

    def vectorize(self, axis: IterVar) -> None:
        """Run the loop as vector operations; its extent must be constant."""
        self._loop("vectorize", axis)
        if axis.kind == "reduce":
            self._refuse(
                "vectorize", f"axis {axis.var.name} is a reduction axis", "vectorize a data axis, or use rfactor"
            )
        if static_extent(axis) is None and self.attach is None:
            self._refuse(
                "vectorize",
                f"the extent of axis {axis.var.name} is not constant",
                "split it by a constant factor first",
            )
        self._mark("vectorize", axis, LoopKind.VECTORIZED)

    def unroll(self, axis: IterVar) -> None:
        """Write the iterations out."""
        self._mark("unroll", axis, LoopKind.UNROLLED)

    def parallel(self, axis: IterVar) -> None:
        """Share the iterations among threads."""
        self._loop("parallel", axis)
        mixed = any(isinstance(r, Fuse) and r.inner.kind != r.outer.kind for r in self.relations)
        if axis.kind == "reduce" and mixed:
            self._refuse("parallel", "data and reduction axes are fused: iterations write one element", "use rfactor")
        self._mark("parallel", axis, LoopKind.PARALLEL)

    def bind(self, axis: IterVar, thread: IterVar) -> None:
        """Give the iterations to the GPU blocks or threads of `thread`."""
        self._check_loops("bind")
        self._loop("bind", axis)
        if not isinstance(thread, IterVar) or thread.kind != "thread":
            self._refuse("bind", f"{thread!r} is not a thread axis", 'make it with te.thread_axis("threadIdx.x")')
        notes = self._note(axis)
        if notes.kind is not LoopKind.SERIAL:
            self._refuse("bind", f"axis {axis.var.name} is already {_state(notes)}")
        self.schedule.remember_thread(thread)
        self._record("bind", axis=self.key_of(axis), thread=thread.thread_tag)
        notes.kind, notes.thread = LoopKind.THREAD, thread

    def tensorize(self, axis: IterVar, intrinsic: TensorIntrin) -> None:
        """Replace the loops from `axis` inwards by a tensor intrinsic (te.decl_tensor_intrin)."""
        self._check_loops("tensorize")
        self._loop("tensorize", axis)
        if not hasattr(intrinsic, "emit") or not hasattr(intrinsic, "name"):
            self._refuse("tensorize", f"{intrinsic!r} is not a tensor intrinsic", "make it with te.decl_tensor_intrin")
        self._record("tensorize", axis=self.key_of(axis), intrinsic=intrinsic.name)
        self._note(axis).intrinsic = intrinsic

    def pragma(self, axis: IterVar, pragma_type: str, pragma_value: object = None) -> None:
        """Leave a note on the loop, for passes and code generators."""
        self._check_loops("pragma")
        self._loop("pragma", axis)
        if not isinstance(pragma_type, str):
            self._refuse("pragma", f"its kind is {type(pragma_type).__name__}, wanted a string")
        if pragma_type in ("vectorize", "unroll", "parallel"):
            getattr(self, pragma_type)(axis)
            return
        value = T.as_int(pragma_value) if isinstance(pragma_value, Expr) else pragma_value
        if not isinstance(value, int | str | None):
            self._refuse("pragma", f"the value of {pragma_type} is {pragma_value!r}, wanted an integer or a string")
        self._record("pragma", axis=self.key_of(axis), pragma_type=pragma_type, pragma_value=value)
        self._note(axis).pragmas.append((f"pragma_{pragma_type}", 1 if value is None else value))

    def prefetch(
        self,
        tensor: Tensor,
        axis: IterVar,
        offset: int,
        locality: int = T.EVERY_CACHE,
        shared: Sequence[Sharer] = (),
        spread: Spread | None = None,
    ) -> None:
        """Ask for the data of `tensor` that the loop needs `offset` iterations later.

        `locality` 3 brings it to every cache, 2 to all but the first, 1 to the last, 0 for one use. Where several tiles
        run this loop over the same data, `shared` says along which of the stage's own axes, which tiles follow one
        another; each asks for its part only. With `spread` an iteration asks for one element, so many behind the
        first of those: tiles then share a run of memory evenly over their iterations, an instruction each.
        """
        self._check_loops("prefetch")
        self._loop("prefetch", axis)
        source, number = self.schedule[tensor], T.as_int(offset)
        if number is None:
            self._refuse("prefetch", f"the offset is {offset!r}, wanted an integer")
        if locality not in range(4):
            self._refuse("prefetch", f"the locality is {locality!r}, wanted 0 to 3")
        own = getattr(self.op, "axis", ())
        for sharer in shared:
            if not any(sharer.axis is a for a in own) or min(sharer.step, sharer.count) < 1:
                hint = "name an axis of the operation, a step and a count from 1 on"
                self._refuse("prefetch", f"{sharer} is no sharer", hint)
        more: dict[str, object] = {} if locality == T.EVERY_CACHE else {"locality": locality}
        if shared:
            more["shared"] = tuple((self.key_of(s.axis), s.step, s.count) for s in shared)
        if spread is not None:
            asked = [(x, t.parts) for t in spread.terms for x, _ in t.of]
            if shared or not all(parts >= 1 and any(x is a for a in (*own, axis)) for x, parts in asked):
                self._refuse("prefetch", f"the spread is {spread}", "wanted data axes and the loop, one part at least")
            more["spread"] = tuple(
                (tuple((self.key_of(x), times) for x, times in t.of), t.by, t.parts, t.shift) for t in spread.terms
            )
        more = {"tensor": source.key, "output": tensor.value_index, "offset": number, **more}
        self._record("prefetch", axis=self.key_of(axis), **more)
        self._note(axis).prefetch.append(Request(tensor, number, locality, tuple(shared), spread))

    # place and storage

    def compute_at(self, parent: Stage, axis: IterVar) -> None:
        """Compute what one iteration of `axis` of the consumer `parent` needs, inside that loop."""
        self._check_loops("compute_at")
        if not isinstance(parent, Stage) or parent.schedule is not self.schedule:
            self._refuse("compute_at", f"{parent!r} is not a stage of this schedule")
        self._check_movable("compute_at")
        if not self.schedule.reads_from(parent, self):
            self._refuse(
                "compute_at",
                f"stage {parent.key} does not read it, directly or through others",
                "attach a producer to one of its consumers",
            )
        parent._loop("compute_at", axis)
        self._record("compute_at", parent=parent.key, axis=parent.key_of(axis))
        self.attach, self.is_inline = (parent, axis), False

    def _check_movable(self, primitive: str) -> None:
        if self.schedule.is_output(self):
            self._refuse(primitive, "it is an output of the schedule")

    def compute_inline(self) -> None:
        """Compute each element where it is read; the stage has no loops and no storage of its own."""
        self._check_loops("compute_inline")
        self._check_movable("compute_inline")
        if isinstance(self.op, ComputeOp) and self.op.is_reduction:
            self._refuse("compute_inline", "it is a reduction, which needs loops of its own", "use compute_at")
        self._record("compute_inline")
        self.attach, self.is_inline = None, True

    def compute_root(self) -> None:
        """Compute the whole tensor before its consumers (the default)."""
        self._record("compute_root")
        self.attach, self.is_inline = None, False

    def set_scope(self, scope: str) -> None:
        """Where the tensor lives: global, local, shared, texture."""
        if not isinstance(scope, str) or not scope:
            self._refuse("set_scope", f"the scope is {scope!r}, wanted a name such as local")
        if self.schedule.is_output(self) and scope != "global":
            self._refuse("set_scope", "it is an output of the schedule, which lives in global memory")
        self._record("set_scope", scope=scope)
        self.scope = scope

    def storage_align(self, axis: IterVar, factor: int, offset: int = 0) -> None:
        """Pad the storage so that the stride of data axis `axis` is k * factor + offset elements."""
        self._check_data_axis("storage_align", axis)
        if not isinstance(factor, int) or factor < 1 or not isinstance(offset, int) or not 0 <= offset < factor:
            self._refuse("storage_align", f"factor {factor!r} and offset {offset!r}: wanted 0 <= offset < factor")
        self._check_movable("storage_align")
        self._record("storage_align", axis=self.key_of(axis), factor=factor, offset=offset)
        self.align[axis] = (factor, offset)

    @boundary("transform_layout", arguments=True, first=1)
    def transform_layout(self, mapping: Any) -> list[IterVar]:  # Any: a function of indices, or an IndexMap
        """Keep the tensor in another layout: `lambda n, c: [n, c // 4, c % 4]`; the loops follow, and are given.

        Of an argument, the caller passes memory in that layout.
        """
        shape = [T.as_int(extent) for extent in self.op.output(0).shape]
        sizes = [n for n in shape if n is not None]
        if not callable(mapping) and not isinstance(mapping, tuple):
            self._refuse("transform_layout", f"{mapping!r}: wanted a function of indices")
        if len(sizes) != len(shape) or self.op.num_outputs != 1 or self.layout is not None:
            self._refuse("transform_layout", "wanted one result of known shape, transformed once")
        if not isinstance(self.op, PlaceholderOp):
            self._check_loops("transform_layout")
            if self.relations or self.attach is not None or self.is_inline:
                self._refuse("transform_layout", "its loops were already scheduled", "transform the layout first")
        dims: index_map.IndexMap = index_map.index_map(mapping, sizes) if callable(mapping) else mapping
        self._record("transform_layout", mapping=dims)
        self.layout = dims
        return [] if isinstance(self.op, PlaceholderOp) or not callable(mapping) else index_map.move_loops(self, dims)

    def round_up(self, axis: IterVar, factor: int) -> None:
        """Computed inside a reader's loop, take a multiple of `factor` along data axis `axis`, as far as there is data.

        A reader of 20 columns then gets 32 of a stage that has as many: two whole vectors, of which it leaves a part.
        """
        self._check_data_axis("round_up", axis)
        if not isinstance(factor, int) or factor < 1:
            self._refuse("round_up", f"factor {factor!r}: wanted at least 1")
        self._check_movable("round_up")
        self._record("round_up", axis=self.key_of(axis), factor=factor)
        self.multiples[axis] = factor

    def set_store_predicate(self, predicate: Expr) -> None:
        """Taken from old scripts, where it kept threads from storing a value twice: all elements are stored."""
        self._check_loops("set_store_predicate")

    def double_buffer(self) -> None:
        """Keep two copies of the storage, so that filling one overlaps with using the other."""
        self._check_loops("double_buffer")
        self._check_movable("double_buffer")
        self._record("double_buffer")
        self.double_buffered = True


def static_extent(axis: IterVar) -> int | None:
    """The extent of an axis on the whole tensor, when it is constant."""
    return None if axis.dom is None else T.as_int(axis.dom.extent)


def _split_extents(extent: int | None, number: int | None, by_factor: bool, step: int) -> tuple[int | None, int | None]:
    if number is None:
        return None, None
    known = number if extent is None else max(1, min(number, -(-extent // step)))
    other = None if extent is None else outer_count(extent, known, step)
    return (other, known) if by_factor else (known, other)


def outer_count(extent: int, size: int, step: int) -> int:
    """How many outer iterations of `size` elements, `step` apart, start inside the extent."""
    whole = max(0, -(-extent // (size * step)) - 1) * step  # all but the last group of interleaved ones
    return whole + min(step, extent - whole * size)


def _derived_axis(name: str, parent: IterVar, extent: int | None, kind: str) -> IterVar:
    dtype = parent.var.dtype
    dom = None if extent is None else Range.from_min_extent(T.const(0, dtype), T.const(extent, dtype))
    return IterVar(dom, Var(name, dtype), kind)


def _names(axes: list[IterVar]) -> str:
    return ", ".join(a.var.name for a in axes)


def _state(notes: Notes) -> str:
    return "tensorized" if notes.intrinsic is not None else "bound" if notes.thread is not None else notes.kind.value
