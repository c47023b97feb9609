"""Operators whose result has as many rows as their values say: argwhere, sparse_fill_empty_rows.

In: tensors. Out: tensors whose first size is not known before the program runs. Invariant: no kernel computes them:
the interpreter does, and executors of the kind "vm"; of constants they are folded. With a bound on their rows
`bounded_nonzero` and `topi.argwhere` are compiled.
"""

from __future__ import annotations

import numpy as np

from armillary.base.dtype import DType
from armillary.errors import TypeMismatch
from armillary.ops._types import check_kind, check_same_dtype
from armillary.relay.evaluate import evaluate_call
from armillary.relay.expr import Call, Constant, Expr, Tuple
from armillary.relay.op import Array, Kind, Op, state
from armillary.relay.op.facts import Fact
from armillary.relay.types import ANY_DIM, TensorType, TupleType

argwhere = Op("argwhere", kind=Kind.OPAQUE, inputs=("condition",), doc="Coordinates of what is not zero, a row each.")


@argwhere.infer
def _infer_argwhere(attrs: None, condition: TensorType) -> TensorType:
    return TensorType((ANY_DIM, condition.ndim), DType("int32"))


@argwhere.reference
def _argwhere(attrs: None, condition: Array) -> Array:
    return np.argwhere(condition).astype(np.int32)


@argwhere.decompose
def _folded_argwhere(attrs: None, condition: Expr) -> Expr | None:
    return _folded(argwhere, condition)


def _folded(op: Op, *args: Expr) -> Expr | None:
    """The value of a call whose arguments are constants."""
    if not all(isinstance(a, Constant) for a in args):
        return None
    value = evaluate_call(Call(op, args))
    parts = tuple(Constant(np.array(v, order="C")) for v in (value if isinstance(value, tuple) else (value,)))
    return Tuple(parts) if isinstance(value, tuple) else parts[0]


_FILL = "sparse_fill_empty_rows"
_INPUTS = ("sparse_indices", "sparse_values", "dense_shape", "default_value")
sparse_fill_empty_rows = Op(_FILL, kind=Kind.OPAQUE, inputs=_INPUTS, doc="A sparse matrix without empty rows.")


@sparse_fill_empty_rows.infer
def _infer_fill(
    attrs: None, where: TensorType, values: TensorType, shape: TensorType, default: TensorType
) -> TupleType:
    for name, ty in (("sparse_indices", where), ("dense_shape", shape)):
        check_kind(_FILL, name, ty, "integer")
    check_same_dtype(_FILL, (values, default))
    if where.ndim != 2 or values.ndim != 1 or shape.ndim != 1 or default.ndim > 1:
        raise TypeMismatch(f"{_FILL}: got {where}, {values}, {shape} and {default}")
    return TupleType(
        (
            TensorType((ANY_DIM, where.shape[1]), where.dtype),
            TensorType((ANY_DIM,), values.dtype),
            TensorType((ANY_DIM,), DType("bool")),
        )
    )


@sparse_fill_empty_rows.reference
def _fill(attrs: None, where: Array, values: Array, shape: Array, default: Array) -> tuple[Array, Array, Array]:
    rows = int(shape[0])
    if len(where) and not 0 <= where[:, 0].min() <= where[:, 0].max() < rows:
        raise TypeMismatch(f"{_FILL}: a position lies outside the {rows} rows")
    is_empty = np.bincount(where[:, 0], minlength=rows)[:rows] == 0
    added = np.zeros((int(is_empty.sum()), where.shape[1]), where.dtype)
    added[:, 0] = np.flatnonzero(is_empty)
    places = np.concatenate([where, added])
    order = np.argsort(places[:, 0], kind="stable")
    filled = np.concatenate([values, np.full(len(added), np.reshape(default, -1)[0], values.dtype)])
    return places[order], filled[order], is_empty


@sparse_fill_empty_rows.decompose
def _folded_fill(attrs: None, *inputs: Expr) -> Expr | None:
    return _folded(sparse_fill_empty_rows, *inputs)


state(f"argwhere {_FILL}", Fact.FLAT)
