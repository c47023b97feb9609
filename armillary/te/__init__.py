"""Tensor expressions: what to compute (placeholder, compute, reductions, extern) and how (schedules).

In: shapes and Python functions over axes. Out: tensors, schedules of them, and loops: `lower_schedule(schedule, args)`.
Core modules: api, reduction, math (constructors), tensor, operation (nodes), schedule (primitives), bounds, lower.
"""

from __future__ import annotations

from armillary.lazy import lazy_names
from armillary.te.api import (
    compute,
    const_tuple,
    decl_buffer,
    extern,
    placeholder,
    reduce_axis,
    scan,
    size_var,
    tag_scope,
    thread_axis,
    var,
)
from armillary.te.math import *  # noqa: F403  (scalar functions: exp, floordiv, select…; see __all__ there)
from armillary.te.operation import ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp
from armillary.te.reduction import all, any, comm_reducer, max, min, prod, sum
from armillary.te.tensor import Tensor, TensorSlice, static_shape
from armillary.tir.build import cast
from armillary.tir.expr import Expr, IterVar, Range, Reduce, Var

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Schedule": "armillary.te.schedule:Schedule",
        "Stage": "armillary.te.schedule:Stage",
        "apply_directives": "armillary.te.directives:apply_directives",
        "create_prim_func": "armillary.te.lower:create_prim_func",
        "create_schedule": "armillary.te.schedule:create_schedule",
        "decl_tensor_intrin": "armillary.te.tensor_intrin:decl_tensor_intrin",
        "ir_builder": "armillary.te.ir_builder",
        "lower_schedule": "armillary.te.lower:lower_schedule",
        "schedule": "armillary.te.schedule",
        "tensor": "armillary.te.tensor",
    },
)
