"""Ways to run an operator's tensor-expression form. A row is a name and a function (PrimFunc, arrays, outputs) -> None.

The interpreter is the meaning of the loop language; compiled targets are added as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from armillary import te
from armillary.relay.op import Op
from armillary.relay.types import Type, tensor_fields
from armillary.tir.interpreter import interpret
from armillary.tir.stmt import PrimFunc

Array = np.ndarray[Any, Any]
Executor = Callable[[PrimFunc, Sequence[Array]], None]

EXECUTORS: dict[str, Executor] = {"interpreter": lambda func, arrays: interpret(func, *arrays)}


def placeholders(ty: Type, name: str) -> Any:
    """te placeholders for a type."""
    fields = [te.placeholder(t.static, t.dtype, f"{name}{k}") for k, t in enumerate(tensor_fields(ty))]
    return fields[0] if not hasattr(ty, "fields") else tuple(fields)


def lower(op: Op, attrs: Any, types: Sequence[Type]) -> PrimFunc:
    """The loops of one operator under the default schedule: inputs first, then outputs."""
    inputs = [placeholders(ty, f"x{k}_") for k, ty in enumerate(types)]
    made = op.compute_rule(attrs, *inputs)
    outputs = list(made) if isinstance(made, list | tuple) else [made]
    schedule = te.create_schedule([t.op for t in outputs])
    tensors = [t for x in inputs for t in (x if isinstance(x, tuple) else (x,))]
    return te.lower_schedule(schedule, [*tensors, *outputs], "kernel")


def execute(executor: Executor, op: Op, attrs: Any, types: Sequence[Type], arrays: Sequence[Array]) -> list[Array]:
    """Run an operator on arrays; its outputs."""
    result = op.infer_type(attrs, types)
    outputs = [np.zeros(t.static, t.dtype.numpy) for t in tensor_fields(result)]
    executor(lower(op, attrs, types), [*arrays, *outputs])
    return outputs
