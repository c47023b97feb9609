"""combine-parallel-dense: dense layers of the same data as one.

In: a module. Out: one where at least `min_num_branches` nn.dense of the same data are one nn.dense and a slice for
each; with `to_batch`, as scripts of the Relay era mean it unless they say otherwise, those of equal weights are one
nn.batch_matmul. The wider product is faster, so builds ask for that. Invariant: each consumer reads what it read
before.

    def @main(%x: Tensor[(1, 4), float32], %v: Tensor[(2, 4), float32], %w: Tensor[(3, 4), float32]) {
      %0 = nn.dense(%x, %v);
      %1 = nn.dense(%x, %w);
      (%0, %1)
    }
    ->
    def @main(%x: Tensor[(1, 4), float32], %v: Tensor[(2, 4), float32], %w: Tensor[(3, 4), float32]) {
      %0 = (%v, %w);
      %1 = concatenate(%0);
      %2 = nn.dense(%x, %1);
      %3 = strided_slice(%2, begin=(0, 0), end=(-1, 2), strides=(1, 1), slice_mode="size");
      %4 = strided_slice(%2, begin=(0, 2), end=(-1, 3), strides=(1, 1), slice_mode="size");
      (%3, %4)
    }
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

from armillary.base.lazy import deferred
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, Tuple, TupleGetItem, known_of, tensor_of
from armillary.relay.transform._rules import on_functions
from armillary.relay.transform.simplify._combine import ParallelBranch, combine_all, computed, groups, same_readers
from armillary.relay.walk import post_order, substitute, users
from armillary.transform import define_pass

with deferred():
    from armillary.ops.nn.dense import batch_matmul as _batch_matmul
    from armillary.ops.shape.shape import expand_dims as _expand_dims
    from armillary.ops.shape.shape import squeeze as _squeeze
    from armillary.ops.shape.transform import split as _split
    from armillary.ops.shape.transform import stack as _stack

NAME = "nn.dense"


@define_pass("combine-parallel-dense", opt_level=4)
def combine_parallel_dense(module: IRModule, *, min_num_branches: int = 3, to_batch: bool = True) -> IRModule:
    """Join sibling nn.dense calls."""
    if to_batch:
        return on_functions(module, lambda f: _batched(f, min_num_branches))
    return on_functions(module, lambda f: combine_all(f, DENSE, min_num_branches))


def _key(expr: Call) -> Hashable | None:
    weight = tensor_of(expr.args[1])
    return None if weight is None else (weight.dtype, repr(dataclasses.replace(expr.attrs, units=None)))


def _attrs(attrs: Any, outputs: int) -> object:  # Any: the operator's attrs
    return dataclasses.replace(attrs, units=outputs if attrs.units is not None else None)


def _alike(expr: Call) -> Hashable | None:
    weight, data = tensor_of(expr.args[1]), known_of(expr.args[0])
    is_plain = weight is not None and data is not None and data.ndim == 2
    return (weight.shape, weight.dtype, expr.attrs.out_dtype) if is_plain and weight is not None else None


def _batched(function: Function, least: int) -> Expr | None:
    """Join until nothing is left to join; None where nothing was."""
    result: Expr | None = None
    current: Expr = function
    while isinstance(current, Function) and (siblings := next(iter(groups(current, _ALIKE, least)), None)) is not None:
        ends, joined = siblings, _as_batch(siblings)
        readers = users(post_order(current))
        while (step := _batched_tail(ends, joined, readers)) is not None:
            ends, joined = step
        parts = _split(joined, indices_or_sections=len(ends), axis=0)
        apart: dict[int, Expr] = {id(s): _squeeze(TupleGetItem(parts, k), axis=(0,)) for k, s in enumerate(ends)}
        result = current = substitute(current, apart)
    return result


def _as_batch(siblings: list[Call]) -> Call:
    """The products of one matrix with several as one batched product."""
    data, weights = (_stacked([s.args[k] for s in siblings], 2) for k in range(2))
    result: Call = _batch_matmul(data, weights, out_dtype=siblings[0].attrs.out_dtype)
    return result


def _batched_tail(siblings: list[Call], joined: Call, readers: dict[int, list[Expr]]) -> tuple[list[Call], Call] | None:
    """What follows each alike, once for all: other operands stand behind one another."""
    tails = same_readers(siblings, readers)
    if tails is None:
        return None
    args: list[Expr] = []
    for k in range(len(tails[0].args)):
        column = [t.args[k] for t in tails]
        if all(a is s for a, s in zip(column, siblings, strict=True)):
            args.append(joined)
            continue
        types = [known_of(a) for a in column]
        if any(t is None or t != types[0] for t in types) or any(map(computed, column)):
            return None
        args.append(_stacked(column, 2))
    call = Call(tails[0].op, tuple(args), tails[0].attrs, tails[0].span)
    return (tails, call) if any(a is joined for a in args) and call.checked_type == joined.checked_type else None


def _stacked(column: list[Expr], ndim: int) -> Expr:
    """Tensors behind one another, each with axes in front up to `ndim`."""
    raised = []
    for expr in column:
        whole = expr
        for _ in range(ndim - expr.checked_type.ndim):  # type: ignore[attr-defined]
            whole = _expand_dims(whole, axis=0)
        raised.append(whole)
    result: Expr = _stack(Tuple(tuple(raised)), axis=0)
    return result


_ALIKE = ParallelBranch(NAME, _alike, lambda e: 0, lambda e: 0, _attrs)
DENSE = ParallelBranch(NAME, _key, lambda e: 0, lambda e: e.checked_type.ndim - 1, _attrs)  # type: ignore[attr-defined]
