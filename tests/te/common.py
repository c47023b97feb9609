"""Run schedules on numpy arrays: lower, interpret, give the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from armillary import te
from armillary.tir.interpreter import interpret

Array = np.ndarray[Any, Any]


def run(schedule: te.Schedule, tensors: Sequence[te.Tensor], inputs: Sequence[Array], **dims: int) -> list[Array]:
    """Interpret the schedule's loops; outputs start as NaN or a large integer, so that gaps show."""
    function = te.lower_schedule(schedule, list(tensors))
    outputs = []
    for tensor in tensors[len(inputs) :]:
        shape = [getattr(e, "value", None) if hasattr(e, "value") else dims[e.name] for e in tensor.shape]
        fill = np.nan if tensor.dtype.is_float else 77
        outputs.append(np.full(shape, fill, tensor.dtype.numpy))
    interpret(function, *inputs, *outputs)
    return outputs


def randoms(*shapes: tuple[int, ...], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype("float32") for s in shapes]


def matmul(n: int = 9, m: int = 10, k: int = 7) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a = te.placeholder((n, k), name="A")
    b = te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), "k")
    return a, b, te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
