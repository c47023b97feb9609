"""Ways to run one operator. A row is a name and a function (Op, attrs, types, arrays) -> outputs.

The interpreter is the meaning of the loop language: it runs the operator's compute under the default schedule. The
compiled rows walk the whole path - graph passes, schedules, code generation, executor - at the lowest and highest level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from armillary import te
from armillary.driver.build import build
from armillary.relay.expr import Call, Function, var
from armillary.relay.op import Op
from armillary.relay.types import Type, tensor_fields
from armillary.tir.interpreter import interpret
from armillary.tir.stmt import PrimFunc
from armillary.transform import PassContext

Array = np.ndarray[Any, Any]
Inputs = Sequence[Any]  # one array or tuple of arrays per argument
Executor = Callable[[Op, Any, Inputs, Sequence[bool]], list[Array]]


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


def by_interpreter(op: Op, attrs: Any, types: Sequence[Type], arrays: Sequence[Array]) -> list[Array]:
    """The operator's loops, one statement after another."""
    result = op.infer_type(attrs, types)
    outputs = [np.zeros(t.static, t.dtype.numpy) for t in tensor_fields(result)]
    interpret(lower(op, attrs, types), *arrays, *outputs)
    return outputs


def by_compiler(
    target: str, level: int, op: Op, attrs: Any, types: Sequence[Type], arrays: Sequence[Array]
) -> list[Array]:
    """A network of one operator, built for a target and run by the graph executor."""
    params = tuple(var(f"x{k}", ty) for k, ty in enumerate(types))
    with PassContext(opt_level=level):
        library = build(Function(params, Call(op, params, attrs)), target)
    graph = library["default"]()
    names = [n for k, ty in enumerate(types) for n in leaf_names(f"x{k}", ty)]
    for name, array in zip(names, arrays, strict=True):
        graph.set_input(name, array)
    graph.run()
    return [graph.get_output(k).numpy() for k in range(graph.get_num_outputs())]


def leaf_names(name: str, ty: Type) -> list[str]:
    """What the graph calls the tensors of a parameter."""
    count = len(tensor_fields(ty))
    return [name] if count == 1 else [f"{name}.{k}" for k in range(count)]


EXECUTORS: dict[str, Executor] = {
    "interpreter": by_interpreter,
    "llvm-O0": partial(by_compiler, "llvm", 0),
    "llvm-O3": partial(by_compiler, "llvm", 3),
    "c-O3": partial(by_compiler, "c", 3),
}


def execute(executor: Executor, op: Op, attrs: Any, types: Sequence[Type], arrays: Sequence[Array]) -> list[Array]:
    """Run an operator on arrays; its outputs."""
    return executor(op, attrs, types, arrays)
