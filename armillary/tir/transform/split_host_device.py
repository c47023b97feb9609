"""`split-host-device`: a lowered function as kernels of a device and the order of their launches.

In: a flat PrimFunc whose loops may be bound to `blockIdx` and `threadIdx` axes. Out: a `DeviceFunction`: each
outermost nest of bound loops is a kernel; a `parallel` loop is one of a work-item per iteration; other statements make
kernels of one work-item. Allocations outside kernels get places in the workspace. Invariant: loops bound to one axis
inside a kernel run on the same work-items (those past an extent do nothing), with barriers between what work-items of
a group tell each other (`insert_barriers.py`). The CPU's own exit: `split_phases.py`. Emitter: `codegen/opencl/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from armillary.base.extent import Known, ceil_div, most, sizes_of
from armillary.base.node import post_order, replace
from armillary.errors import UnsupportedError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, free_vars, has_loads
from armillary.tir.extents import from_expr
from armillary.tir.phases import TAGS, DeviceFunction, DeviceKernel, Grid, Sizes
from armillary.tir.substitute import map_stmt, rename_buffers, substitute
from armillary.tir.transform.insert_barriers import global_buffers, insert_barriers, shared_buffers
from armillary.tir.transform.private_memory import check_private_memory
from armillary.tir.transform.split_phases import buffer_bytes, constant_bytes
from armillary.transform import BARRIER, PassContext

GROUP = 64  # work-items of a group, where a loop does not say
ALIGN = 512  # bytes, of what shares the workspace: no device asks for more
PRIVATE_BYTES = 64 * 1024  # of one work-item
Wrap = Callable[[S.Stmt], S.Stmt]


def split_host_device(func: S.PrimFunc, name: str = "") -> DeviceFunction:
    """Cut a lowered function into kernels.

    Raises UnsupportedError for sizes that are no expression over the function's variables.
    """
    label = name or func.get_attr("global_symbol", "main")
    tensors = tuple(p for p in func.params if isinstance(p, S.Buffer))
    scalars = (*(p for p in func.params if isinstance(p, E.Var)), *free_vars(func))
    splitter = _Splitter(label)
    splitter.stmt(func.body, lambda s: s)
    splitter.flush()
    workspace, total = _places(splitter.global_buffers)
    known = (*tensors, *workspace)
    symbol = func.get_attr(S.KERNEL_SYMBOL, label)
    kernels = [_kernel(f"{symbol}_kernel{k}", body, known, scalars) for k, body in enumerate(splitter.bodies)]
    return DeviceFunction(
        name=label,
        params=tensors,
        shapes=func.get_attr("tensor_shapes") or tuple(t.shape for t in tensors),
        vars=scalars,
        kernels=tuple(kernels),
        workspace=workspace,
        workspace_bytes=total,
        noalias=bool(func.get_attr("noalias", True)),
    )


@dataclass
class _Splitter:
    """Walks top-level statements; `wrap` puts back the conditions and lets around a kernel's body."""

    name: str
    bodies: list[S.Stmt] = field(default_factory=list)
    global_buffers: list[S.Buffer] = field(default_factory=list)
    pending: list[S.Stmt] = field(default_factory=list)

    def stmt(self, item: S.Stmt, wrap: Wrap) -> None:
        if isinstance(item, S.Allocate):
            self.global_buffers.append(item.buffer)
            self.stmt(item.body, wrap)
        elif isinstance(item, S.SeqStmt):
            for part in item.statements:
                self.stmt(part, wrap)
        elif isinstance(item, S.For) and item.kind in (S.LoopKind.THREAD, S.LoopKind.PARALLEL):
            self.flush()
            self.bodies.append(wrap(item if item.kind is S.LoopKind.THREAD else _as_bound(item)))
        elif _has_bound(item):
            self.inside(item, wrap)
        else:
            self.pending.append(wrap(item))

    def inside(self, item: S.Stmt, wrap: Wrap) -> None:
        """What stands around bound loops goes into their kernels; loops around them make one work-item of them."""
        if isinstance(item, S.AttrStmt):
            self.stmt(item.body, wrap)
        elif isinstance(item, S.LetStmt) and not has_loads(item.value):
            self.stmt(item.body, lambda s: wrap(S.LetStmt(item.var, item.value, s)))
        elif isinstance(item, S.AssertStmt) and has_loads(item.condition):
            self.pending.append(
                wrap(replace(item, body=S.Evaluate(build.const(0))))
            )  # said once, before what reads more
            self.stmt(item.body, wrap)
        elif isinstance(item, S.AssertStmt):
            self.stmt(item.body, lambda s: wrap(replace(item, body=s)))
        elif isinstance(item, S.IfThenElse) and not has_loads(item.condition):
            self.stmt(item.then_body, lambda s: wrap(S.IfThenElse(item.condition, s)))
            if item.else_body is not None:
                self.stmt(item.else_body, lambda s: wrap(S.IfThenElse(E.Not(item.condition), s)))
        else:
            self.pending.append(wrap(_serial(item)))

    def flush(self) -> None:
        """Close the kernel of one work-item that was collected so far."""
        if self.pending:
            self.bodies.append(_serial(S.seq(*self.pending)))
            self.pending = []


def _has_bound(item: S.Stmt) -> bool:
    kinds = (S.LoopKind.THREAD, S.LoopKind.PARALLEL)
    return any(isinstance(n, S.For) and n.kind in kinds for n in all_statements(item))


def _serial(item: S.Stmt) -> S.Stmt:
    mapped = map_stmt(item, lambda e: e, _serial)
    if isinstance(mapped, S.For) and mapped.kind in (S.LoopKind.THREAD, S.LoopKind.PARALLEL):
        return replace(mapped, kind=S.LoopKind.SERIAL, thread_tag="")
    return mapped


def _with_own_memory(item: S.Stmt) -> S.Stmt:
    """A body that one work-item runs alone: nothing that it allocates is shared with the others of its group."""
    shared = {n.buffer for n in all_statements(item) if isinstance(n, S.Allocate) and n.buffer.scope == "shared"}
    own = {buffer: replace(buffer, scope="local") for buffer in shared}

    def visit(s: S.Stmt) -> S.Stmt:
        mapped = map_stmt(s, lambda e: e, visit)
        is_moved = isinstance(mapped, S.Allocate) and mapped.buffer in own
        return replace(mapped, buffer=own[mapped.buffer]) if is_moved else mapped  # type: ignore[attr-defined]

    return visit(rename_buffers(item, own)) if own else item


def _as_bound(item: S.For) -> S.Stmt:
    """A parallel loop over groups of work-items."""
    body, dtype = _with_own_memory(_serial(item.body)), item.var.dtype
    extent = build.as_int(item.extent)
    items = GROUP if extent is None else max(1, min(GROUP, extent))
    outer, inner = E.Var(f"{item.var.name}.outer", dtype), E.Var(f"{item.var.name}.inner", dtype)
    count = build.const(items, dtype)
    place = build.add(build.mul(outer, count), inner)
    if extent is None or extent % items:
        body = S.IfThenElse(build.less(place, item.extent), substitute(body, {item.var: build.add(item.min, place)}))
    else:
        body = substitute(body, {item.var: build.add(item.min, place)})
    zero = build.const(0, dtype)
    groups = build.floordiv(build.add(item.extent, build.const(items - 1, dtype)), count)
    inside = S.For(inner, zero, count, S.LoopKind.THREAD, body, "threadIdx.x")
    return S.For(outer, zero, groups, S.LoopKind.THREAD, inside, "blockIdx.x")


def _kernel(name: str, body: S.Stmt, known: tuple[S.Buffer, ...], scalars: tuple[E.Var, ...]) -> DeviceKernel:
    extents = _extents(body, scalars, name)
    axes = {tag: E.Var(tag.replace("Idx.", "_"), E.INT32) for tag in extents}
    check_private_memory(body, axes, extents, name)
    bound = _bind(body, axes, extents)
    threads, groups = (
        frozenset(axes[tag] for tag, extent in extents.items() if tag.startswith(kind) and extent != 1)
        for kind in ("threadIdx", "blockIdx")
    )
    watched = shared_buffers(bound)
    if PassContext.current().get(BARRIER):
        watched |= global_buffers(bound, threads, groups, name)
    synced = insert_barriers(bound, threads, name, watched) if threads else bound
    _check_private(synced, name)
    touched = {n for n in post_order(synced) if isinstance(n, S.Buffer)}
    used = {n for n in post_order(synced) if isinstance(n, E.Var)}
    return DeviceKernel(
        name=name,
        buffers=tuple(b for b in known if b in touched),
        vars=tuple(v for v in scalars if v in used),
        axes={tag: var for tag, var in axes.items() if var in used},
        groups=_grid(extents),
        items=_sizes(extents),
        body=synced,
    )


def _extents(body: S.Stmt, scalars: tuple[E.Var, ...], name: str) -> dict[str, Known]:
    """Of each axis the largest extent of its loops."""
    result: dict[str, Known] = {}
    for item in all_statements(body):
        if isinstance(item, S.For) and item.kind is S.LoopKind.THREAD:
            size = _extent(item, scalars, name)
            result[item.thread_tag] = most(result.get(item.thread_tag, size), size)
    return result


def _extent(item: S.For, scalars: tuple[E.Var, ...], name: str) -> Known:
    if item.thread_tag not in TAGS:
        hint = f"axes are {', '.join(TAGS)} and vthread"
        raise UnsupportedError(f"{name}: a loop is bound to {item.thread_tag!r}", hint=hint)
    extent = build.as_int(item.extent)
    if extent is not None:
        return extent
    known = from_expr(item.extent)
    variables = (size.origin for size in sizes_of([known]).values())
    if item.thread_tag.startswith("threadIdx") or not all(v is None or v in scalars for v in variables):
        message = f"{name}: the extent {item.extent!r} of {item.thread_tag} is known only when it runs"
        raise UnsupportedError(message, hint="fix the shape (freeze_shapes), or split one loop by a constant")
    return known


def _bind(item: S.Stmt, axes: dict[str, E.Var], extents: dict[str, Known]) -> S.Stmt:
    mapped = map_stmt(item, lambda e: e, lambda s: _bind(s, axes, extents))
    if not isinstance(mapped, S.For) or mapped.kind is not S.LoopKind.THREAD:
        return mapped
    axis = axes[mapped.thread_tag]
    place = build.add(mapped.min, build.cast(axis, mapped.var.dtype))
    body = substitute(mapped.body, {mapped.var: place})
    if from_expr(mapped.extent) != extents[mapped.thread_tag]:
        body = S.IfThenElse(build.less(axis, build.cast(mapped.extent, axis.dtype)), body)
    return body


def _grid(extents: dict[str, Known]) -> Grid:
    x, y, z = (extents.get(f"blockIdx.{axis}", 1) for axis in "xyz")
    return x, y, z


def _sizes(extents: dict[str, Known]) -> Sizes:
    x, y, z = (n for n in (extents.get(f"threadIdx.{axis}", 1) for axis in "xyz") if isinstance(n, int))  # all are
    return x, y, z


def _check_private(body: S.Stmt, name: str) -> None:
    private = [n.buffer for n in all_statements(body) if isinstance(n, S.Allocate) and n.buffer.scope != "shared"]
    total = sum(constant_bytes(buffer, name) for buffer in private)
    if total > PRIVATE_BYTES:
        message = f"{name}: each work-item would need {total} bytes of its own, more than {PRIVATE_BYTES}"
        raise UnsupportedError(message, hint="compute the largest stage at root, or give its buffer the scope shared")


def _places(buffers: list[S.Buffer]) -> tuple[dict[S.Buffer, Known], Known]:
    """One after another: launches follow each other, but what they leave may be read by any later one."""
    places: dict[S.Buffer, Known] = {}
    total: Known = 0
    for buffer in buffers:
        places[buffer] = total
        total = total + ceil_div(most(1, buffer_bytes(buffer)), ALIGN) * ALIGN
    return places, total
