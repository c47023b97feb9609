"""Ways to run one operator. A row is a name and a function (Op, attrs, types, arrays, known) -> outputs.

`arrays` are the leaves of the arguments in order; `known` says which arguments (none of them tuples in part) the
compiler is told the values of. The interpreter is the meaning of the loop language: it runs the operator's compute
under the default schedule. The compiled rows walk the whole path - graph passes, schedules, code generation, executor -
at every level, as what a pass rewrites hides what a lower level makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from armillary import te
from armillary.driver.build import build
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, var
from armillary.relay.op import Op
from armillary.relay.types import Type, tensor_fields
from armillary.tir.interpreter import interpret
from armillary.tir.stmt import PrimFunc
from armillary.transform import PassContext

Array = np.ndarray[Any, Any]
Executor = Callable[[Op, Any, Sequence[Type], Sequence[Array], Sequence[int]], list[Array]]


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


def by_interpreter(
    op: Op, attrs: Any, types: Sequence[Type], arrays: Sequence[Array], known: Sequence[int] = ()
) -> list[Array]:
    """The operator's loops, one statement after another."""
    result = op.infer_type(attrs, types)
    outputs = [np.zeros(t.static, t.dtype.numpy) for t in tensor_fields(result)]
    interpret(lower(op, attrs, types), *arrays, *outputs)
    return outputs


def by_compiler(
    target: str,
    level: int,
    op: Op,
    attrs: Any,
    types: Sequence[Type],
    arrays: Sequence[Array],
    known: Sequence[int] = (),
) -> list[Array]:
    """A network of one operator, built for a target and run by the graph executor."""
    leaves, arguments, params, inputs = iter(arrays), [], [], {}
    for k, ty in enumerate(types):
        values = [next(leaves) for _ in tensor_fields(ty)]
        if k in known:
            arguments.append(constants(ty, values))
            continue
        params.append(var(f"x{k}", ty))
        arguments.append(params[-1])
        inputs.update(zip(leaf_names(f"x{k}", ty), values, strict=True))
    with PassContext(opt_level=level):
        library = build(Function(tuple(params), Call(op, tuple(arguments), attrs)), target)
    graph = library["default"]()
    for name, value in inputs.items():
        graph.set_input(name, value)
    graph.run()
    return [graph.get_output(k).numpy() for k in range(graph.get_num_outputs())]


def constants(ty: Type, values: Sequence[Array]) -> Expr:
    """A tensor, or a tuple of tensors, with these values."""
    made = tuple(Constant(v) for v in values)
    return Tuple(made) if hasattr(ty, "fields") else made[0]


def leaf_names(name: str, ty: Type) -> list[str]:
    """What the graph calls the tensors of a parameter."""
    count = len(tensor_fields(ty))
    return [name] if count == 1 else [f"{name}.{k}" for k in range(count)]


EXECUTORS: dict[str, Executor] = {
    "interpreter": by_interpreter,
    **{f"llvm-O{level}": partial(by_compiler, "llvm", level) for level in (0, 1, 2, 3)},
    **{f"c-O{level}": partial(by_compiler, "c", level) for level in (0, 3)},
}


def execute(
    executor: Executor, op: Op, attrs: Any, types: Sequence[Type], arrays: Sequence[Array], known: Sequence[int] = ()
) -> list[Array]:
    """Run an operator on arrays; its outputs."""
    return executor(op, attrs, types, arrays, known)
