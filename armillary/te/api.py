"""Constructors of tensor expressions: placeholder, compute, reduce_axis, extern, scan…

In: shapes, Python functions over axes, tensors. Out: tensors. Invariant: bad shapes, wrong numbers of axes and
functions that give something else than expressions are refused here, with the name of the compute.
Nodes: `te/operation.py`. Reductions: `te/reduction.py`. Scalar functions: `te/math.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, TypeAlias, cast, overload

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.errors import TypeMismatch
from armillary.te.operation import Attrs, ComputeOp, ExternOp, PlaceholderOp, ScanOp
from armillary.te.tensor import Tensor, shape_text
from armillary.te.tensor_intrin import TensorIntrinCall
from armillary.tir import build as T
from armillary.tir.build import as_extent, as_shape
from armillary.tir.expr import Expr, ExprLike, IntImm, IterVar, Range, Reduce, Var
from armillary.tir.stmt import Buffer, Evaluate, Stmt

Shape: TypeAlias = ExprLike | Sequence[ExprLike]  # one number: rank 1
Values: TypeAlias = tuple[ExprLike, ...] | list[ExprLike]
Outputs: TypeAlias = Any  # Any: a tensor, or a list of them where several shapes or states are given
_TAG: ContextVar[str] = ContextVar("te_tag", default="")


def placeholder(shape: Shape, dtype: str = "float32", name: str = "placeholder") -> Tensor:
    """A tensor given from outside."""
    return PlaceholderOp(name, as_shape(shape, f"te.placeholder {name}"), DType(dtype)).output(0)


def var(name: str = "tindex", dtype: str = "int32") -> Var:
    """A symbolic scalar, such as a dimension."""
    return Var(name, DType(dtype))


def size_var(name: str = "size", dtype: str = "int32") -> Var:
    """A symbolic dimension."""
    return Var(name, DType(dtype))


def reduce_axis(
    dom: Range | Sequence[ExprLike], name: str = "rv", thread_tag: str = "", span: object = None
) -> IterVar:
    """A reduction axis over [low, high), or over a Range."""
    where = f"te.reduce_axis {name}"
    if isinstance(dom, Range):
        low, extent = dom.min, dom.extent
    elif isinstance(dom, tuple | list) and len(dom) == 2:
        low, high = T.convert(dom[0]), T.convert(dom[1])
        extent = T.sub(high, low)
    else:
        raise TypeMismatch(f"{where}: the domain is {dom!r}, wanted (low, high)")
    low, extent = T.match_types(low, extent)
    as_extent(extent, where)
    return IterVar(Range.from_min_extent(low, extent), Var(name, extent.dtype), "reduce", thread_tag)


@boundary("thread_axis", arguments=True)
def thread_axis(
    dom: Range | Sequence[ExprLike] | ExprLike | None = None, tag: str = "", name: str = "", span: object = None
) -> IterVar:
    """An axis of GPU blocks or threads: te.thread_axis("threadIdx.x") or te.thread_axis((0, 64), "threadIdx.x")."""
    if isinstance(dom, str):
        tag, dom = dom, None
    if not tag:
        raise TypeMismatch("te.thread_axis: no tag given", hint='write te.thread_axis("threadIdx.x")')
    domain = None
    if isinstance(dom, tuple | list) and len(dom) == 2:
        low = T.convert(dom[0])
        domain = Range.from_min_extent(low, T.sub(dom[1], low))
    elif isinstance(dom, Range):
        domain = dom
    elif dom is not None:
        domain = Range.from_min_extent(T.const(0), T.convert(cast(ExprLike, dom)))
    return IterVar(domain, Var(name or tag), "thread", tag)


@contextmanager
def tag_scope(tag: str) -> Iterator[None]:
    """Give every te.compute and te.extern inside the tag, unless they name their own."""
    token = _TAG.set(tag)
    try:
        yield
    finally:
        _TAG.reset(token)


def _axis_names(fcompute: Callable[..., object], ndim: int, where: str) -> list[str]:
    """Names of the axes: the function's parameters, then i<k> for those that *args takes."""
    try:
        parameters = list(inspect.signature(fcompute).parameters.values())
    except (TypeError, ValueError) as error:
        raise TypeMismatch(f"{where}: the parameters of {fcompute!r} cannot be found") from error
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) and len(required) <= ndim:
        return [p.name for p in required] + [f"i{k}" for k in range(len(required), ndim)]
    names = [p.name for p in positional][:ndim]
    if len(required) > ndim:
        _refuse_axes(ndim, len(required), where)
    return names


def _refuse_axes(ndim: int, count: int, where: str) -> NoReturn:
    raise TypeMismatch(
        f"{where}: the shape has {ndim} dimensions, but the function takes {count} axes",
        hint="write one parameter per dimension, or *axes",
    )


@overload
def compute(
    shape: Shape, fcompute: Callable[..., ExprLike], name: str = ..., tag: str = ..., attrs: Attrs | None = ...
) -> Tensor: ...


@overload
def compute(
    shape: Shape, fcompute: Callable[..., Values], name: str = ..., tag: str = ..., attrs: Attrs | None = ...
) -> tuple[Tensor, ...]: ...


def compute(
    shape: Shape,
    fcompute: Callable[..., ExprLike | Values],
    name: str = "compute",
    tag: str = "",
    attrs: Attrs | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The tensor whose element at `axes` is `fcompute(*axes)`; a tuple of tensors when it gives a tuple."""
    where = f"te.compute {name}"
    extents = as_shape(shape, where)
    names = _axis_names(fcompute, len(extents), where)
    axes = tuple(
        IterVar(Range.from_min_extent(IntImm(e.dtype, 0), e), Var(n, e.dtype))
        for n, e in zip(names, extents, strict=False)
    )
    value = fcompute(*(a.var for a in axes))
    if isinstance(value, TensorIntrinCall):
        return value.operation(name, axes, extents, tag or _TAG.get()).output(0)
    if len(names) < len(extents):
        _refuse_axes(len(extents), len(names), where)
    many = isinstance(value, tuple | list)
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not values:
        raise TypeMismatch(f"{where}: the function gave no value")
    body = tuple(_body(v, where) for v in values)
    op = ComputeOp(name, axes, body, tag or _TAG.get(), attrs)
    return op.outputs if many else op.output(0)


def _body(value: ExprLike, where: str) -> Expr:
    try:
        result = T.convert(value)
    except TypeMismatch as error:
        raise TypeMismatch(f"{where}: {error.message}", hint=error.hint) from error
    if not isinstance(result, Reduce) and result.dtype.code in ("void", "string"):
        raise TypeMismatch(f"{where}: the function gave a {result.dtype}, wanted a number")
    return result


def _shapes(shape: Shape | Sequence[Shape], where: str) -> list[tuple[Expr, ...]]:
    if isinstance(shape, tuple | list) and shape and isinstance(shape[0], tuple | list):
        return [as_shape(s, where) for s in shape]
    return [as_shape(cast(Shape, shape), where)]


def _extern_dtypes(dtype: str | Sequence[str] | None, inputs: Sequence[Tensor], count: int, where: str) -> list[DType]:
    if dtype is None:
        dtypes = list(dict.fromkeys(t.dtype for t in inputs))
        if len(dtypes) != 1:
            raise TypeMismatch(f"{where}: the dtype of the outputs is not given and cannot be told from the inputs")
        return dtypes * count
    names = [dtype] * count if isinstance(dtype, str) else list(dtype)
    if len(names) != count:
        raise TypeMismatch(f"{where}: {len(names)} dtypes are given for {count} outputs")
    return [DType(n) for n in names]


def _unique_names(wanted: Sequence[str]) -> list[str]:
    counts: dict[str, int] = {}
    names = []
    for name in wanted:
        counts[name] = counts.get(name, 0) + 1
        names.append(name if counts[name] == 1 else f"{name}_{counts[name] - 1}")
    return names


@boundary("extern", arguments=True)
def extern(
    shape: Shape | Sequence[Shape],
    inputs: Sequence[Tensor],
    fcompute: Callable[[list[Buffer], list[Buffer]], Stmt | Expr],
    name: str = "extern",
    dtype: str | Sequence[str] | None = None,
    in_buffers: Sequence[Buffer] | None = None,
    out_buffers: Sequence[Buffer] | None = None,
    tag: str = "",
    attrs: Attrs | None = None,
) -> Outputs:
    """Tensors written by a statement: `fcompute(ins, outs)` gives it over buffers. Several shapes give a list."""
    where = f"te.extern {name}"
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for item in tensors:
        if not isinstance(item, Tensor):
            raise TypeMismatch(f"{where}: an input is {item!r}, wanted a tensor")
    shapes = _shapes(shape, where)
    names = _unique_names([t.op.name for t in tensors])
    ins = list(in_buffers or [Buffer(n, t.shape, t.dtype) for n, t in zip(names, tensors, strict=True)])
    dtypes = [b.dtype for b in out_buffers] if out_buffers else _extern_dtypes(dtype, tensors, len(shapes), where)
    outs = list(
        out_buffers
        or [
            Buffer(name if len(shapes) == 1 else f"{name}_v{k}", s, d)
            for k, (s, d) in enumerate(zip(shapes, dtypes, strict=True))
        ]
    )
    if len(ins) != len(tensors) or len(outs) != len(shapes):
        raise TypeMismatch(
            f"{where}: {len(ins)} and {len(outs)} buffers for {len(tensors)} inputs, {len(shapes)} outputs"
        )
    value = fcompute(ins, outs)
    body = Evaluate(value) if isinstance(value, Expr) else value
    if not isinstance(body, Stmt):
        raise TypeMismatch(
            f"{where}: the function gave {value!r}, wanted a statement", hint="end with `return ib.get()`"
        )
    op = ExternOp(name, tuple(tensors), tuple(ins), tuple(outs), body, tag or _TAG.get(), attrs)
    return op.output(0) if len(shapes) == 1 else list(op.outputs)


@boundary("scan", arguments=True)
def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state_placeholder: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor] = (),
    name: str = "scan",
    tag: str = "",
    attrs: Attrs | None = None,
) -> Outputs:
    """The recurrence state[t] = update(state[t-1], …) along dimension 0, started by `init`."""
    where = f"te.scan {name}"
    many = isinstance(init, tuple | list)
    inits, updates, states = (
        tuple(x) if isinstance(x, tuple | list) else (x,) for x in (init, update, state_placeholder)
    )
    if not len(inits) == len(updates) == len(states):
        raise TypeMismatch(f"{where}: {len(inits)} inits, {len(updates)} updates and {len(states)} states")
    for first, new, state in zip(inits, updates, states, strict=True):
        if not isinstance(state.op, PlaceholderOp):
            raise TypeMismatch(f"{where}: state {state.name} is not a placeholder")
        if not first.ndim == new.ndim == state.ndim >= 1 or not first.dtype == new.dtype == state.dtype:
            raise TypeMismatch(
                f"{where}: init {shape_text(first.shape)} {first.dtype}, update {shape_text(new.shape)} {new.dtype} and "  # noqa: E501
                f"state {shape_text(state.shape)} {state.dtype} do not agree"
            )
    start = inits[0].shape[0]
    axis = IterVar(
        Range.from_min_extent(start, T.sub(updates[0].shape[0], start)), Var(f"{name}.idx", start.dtype), "ordered"
    )
    read = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    op = ScanOp(name, axis, inits, updates, states, read, tag or _TAG.get(), attrs)
    return list(op.outputs) if many else op.output(0)


@boundary("const_tuple", arguments=True)
def const_tuple(values: Sequence[ExprLike]) -> tuple[ExprLike, ...]:
    """Constant expressions as ints; symbolic ones stay."""
    result = []
    for value in values:
        number = T.as_int(value)
        result.append(value if number is None else number)
    return tuple(result)
