"""Tensor expressions: what to compute (placeholder, compute, reductions, extern) and how (schedules).

In: shapes and Python functions over axes. Out: tensors, schedules of them, and loops: `lower_schedule(schedule, args)`.
Invariant: a schedule decides how loops run and never which elements are computed. Core modules: api, reduction, math
(constructors), tensor, operation (nodes), schedule, stage (primitives), bounds, lower.
"""

from __future__ import annotations

from armillary.base.lazy import lazy_names
from armillary.te import schedule, tensor
from armillary.te.api import (
    compute,
    const_tuple,
    extern,
    placeholder,
    reduce_axis,
    scan,
    size_var,
    tag_scope,
    thread_axis,
    var,
)
from armillary.te.directives import Directive, apply_directives
from armillary.te.index_map import AXIS_SEPARATOR
from armillary.te.lower import lower_schedule
from armillary.te.math import *  # noqa: F403  (scalar functions: exp, floordiv, select…; listed there)
from armillary.te.math import __all__ as _functions
from armillary.te.operation import ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp
from armillary.te.prefetch import Sharer, Spread, Term
from armillary.te.reduction import all, any, comm_reducer, max, min, prod, sum
from armillary.te.schedule import Schedule, create_schedule
from armillary.te.stage import Stage
from armillary.te.tensor import Tensor, TensorSlice, extents, static_shape
from armillary.te.tensor_intrin import TensorIntrin, decl_tensor_intrin
from armillary.tir import ir_builder
from armillary.tir.build import cast
from armillary.tir.expr import Expr, ExprLike, Index, IterVar, Range, Reduce, Var
from armillary.tir.ir_builder import decl_buffer

__all__ = [
    "AXIS_SEPARATOR",
    "ComputeOp",
    "Directive",
    "Expr",
    "ExprLike",
    "ExternOp",
    "Index",
    "IterVar",
    "Operation",
    "PlaceholderOp",
    "Range",
    "Reduce",
    "ScanOp",
    "Schedule",
    "Sharer",
    "Spread",
    "Stage",
    "Tensor",
    "TensorIntrin",
    "TensorSlice",
    "Term",
    "Var",
    "all",
    "any",
    "apply_directives",
    "cast",
    "comm_reducer",
    "compute",
    "const_tuple",
    "create_schedule",
    "decl_buffer",
    "decl_tensor_intrin",
    "extents",
    "extern",
    "ir_builder",
    "lower_schedule",
    "max",
    "min",
    "placeholder",
    "prod",
    "reduce_axis",
    "scan",
    "schedule",
    "size_var",
    "static_shape",
    "sum",
    "tag_scope",
    "tensor",
    "thread_axis",
    "var",
]
__all__ += _functions
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gradient": "armillary.te.autodiff.gradient:gradient",
        "hybrid": "armillary.te.hybrid",
        "create_prim_func": "armillary.te.prim_func:create_prim_func",
    },
)
