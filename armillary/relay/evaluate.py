"""The interpreter: what a graph means, by the reference implementation of each operator.

In: a function (or closed expression), arrays for its parameters, and its module where it calls global functions. Out:
an array, or a tuple of them. Invariant: the walk is iterative; only the chosen branch of an `If` is evaluated; a shared
node is evaluated once per call of its function. Slow and plain on purpose: passes and kernels are compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from armillary.base import slots
from armillary.base.aligned import array_of
from armillary.base.extent import Known, as_size
from armillary.base.node import Rules
from armillary.errors import InternalError, TypeMismatch
from armillary.ir import GlobalVar, IRModule
from armillary.relay.analysis.bind_sizes import bind_attrs, bind_type
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Loop, Tuple, TupleGetItem, Var
from armillary.relay.op import Op
from armillary.relay.op.facts import Fact
from armillary.relay.types import TensorType, TupleType, Type, tensor_fields

Value = Any  # Any: an array, a tuple of values, a closure, a value of a data type or a cell
Task = tuple[Expr, "Frame"]


class Frame:
    """The values of one call of a function; `parent` is where the function was made."""

    __slots__ = ("calls", "module", "parent", "size_values", "values")

    def __init__(self, module: IRModule | None, parent: Frame | None = None) -> None:
        self.module, self.parent = module, parent
        self.size_values: dict[str, Known] = (
            {} if parent is None else parent.size_values
        )  # named ones, as they are known
        self.values: dict[int, Value] = {}
        self.calls: dict[int, Task] = {}

    def find(self, var: Var) -> Value:
        """The value of a variable, here or where the function was made."""
        frame: Frame | None = self
        while frame is not None:
            if id(var) in frame.values:
                return frame.values[id(var)]
            frame = frame.parent
        raise TypeMismatch(f"variable %{var.name_hint} has no value", span=var.span)


class HeldValue:
    """Base of values that are no arrays: of data types, and cells (relay/adt/evaluate.py)."""

    __slots__ = ()


class Closure:
    """A function value."""

    __slots__ = ("frame", "function")

    def __init__(self, function: Function, frame: Frame) -> None:
        self.function, self.frame = function, frame


def evaluate(
    expr: Any,
    inputs: Mapping[str, object] | Sequence[object] = (),
    module: IRModule | None = None,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> Any:  # Any: a module, function or expression; an array or a tuple of arrays
    """The result for the given inputs (by parameter name, or in order). A module means its "main".

    `sizes` are values of named sizes that are no axes of inputs and that nothing here binds.
    """
    if isinstance(expr, IRModule):
        expr, module = expr["main"], expr
    frame = Frame(module)
    frame.size_values.update(sizes)
    if isinstance(expr, Function):
        arrays = _arguments(expr, inputs)
        frame.values.update((id(p), a) for p, a in zip(expr.params, arrays, strict=True))
        frame.size_values.update(_sizes_of_inputs(expr, arrays))
        expr = expr.body
    return _run(expr, frame)


def _arguments(function: Function, inputs: Mapping[str, object] | Sequence[object]) -> list[Value]:
    names = [p.name_hint for p in function.params]
    if isinstance(inputs, Mapping):
        missing, unknown = [n for n in names if n not in inputs], [n for n in inputs if n not in names]
        if missing or unknown:
            problem = f"missing {missing}" if missing else f"unknown {unknown}"
            raise TypeMismatch(f"evaluate: {problem}; the parameters are {names}")
        inputs = [inputs[n] for n in names]
    if len(inputs) != len(names):
        raise TypeMismatch(f"evaluate: got {len(inputs)} inputs, wanted {len(names)}: {names}")
    return [_value(v) for v in inputs]


def _sizes_of_inputs(function: Function, arrays: Sequence[Value]) -> Iterator[tuple[str, int]]:
    """The named sizes that are axes of the inputs, with their values."""
    for parameter, array in zip(function.params, arrays, strict=True):
        ty = parameter.type_annotation
        if isinstance(ty, TensorType) and isinstance(array, np.ndarray) and ty.ndim == array.ndim:
            sizes = ((as_size(dim), length) for dim, length in zip(ty.shape, array.shape))
            yield from ((size.name, length) for size, length in sizes if size is not None)


def _value(value: object) -> Value:
    if isinstance(value, tuple | list):
        return tuple(map(_value, value))
    if isinstance(value, HeldValue | Closure):
        return value
    return array_of(value, "an input")


def _run(root: Expr, top: Frame) -> Value:
    stack: list[Task] = [(root, top)]
    while stack:
        expr, frame = stack[-1]
        if id(expr) in frame.values:
            stack.pop()
            continue
        step = _STEPS.get(type(expr)) or slots.find_step(expr)
        missing = step(expr, frame)
        if not missing:
            stack.pop()
        stack.extend(reversed(missing))
    return top.values[id(root)]


def _missing(exprs: Sequence[Expr], frame: Frame) -> list[Task]:
    return [(e, frame) for e in exprs if id(e) not in frame.values]


# --- one step each: what must come first, or nothing once the value is stored -----------------------------------------


def _var(e: Var, frame: Frame) -> list[Task]:
    frame.values[id(e)] = frame.find(e)
    return []


def _constant(e: Constant, frame: Frame) -> list[Task]:
    frame.values[id(e)] = e.data
    return []


def _tuple(e: Tuple, frame: Frame) -> list[Task]:
    missing = _missing(e.fields, frame)
    if not missing:
        frame.values[id(e)] = tuple(frame.values[id(f)] for f in e.fields)
    return missing


def _item(e: TupleGetItem, frame: Frame) -> list[Task]:
    missing = _missing((e.tuple_value,), frame)
    if not missing:
        fields = frame.values[id(e.tuple_value)]
        if not isinstance(fields, tuple) or not 0 <= e.index < len(fields):
            raise TypeMismatch(f"field {e.index} of a value without it", span=e.span)
        frame.values[id(e)] = fields[e.index]
    return missing


def _let(e: Let, frame: Frame) -> list[Task]:
    if isinstance(e.value, Function):
        frame.values[id(e.var)] = Closure(e.value, frame)  # may call itself
    missing = _missing((e.value,), frame)
    if missing:
        return missing
    frame.values[id(e.var)] = frame.values[id(e.value)]
    return _forward(e, (e.body, frame), frame)


def _if(e: If, frame: Frame) -> list[Task]:
    missing = _missing((e.cond,), frame)
    if missing:
        return missing
    chosen = e.true_branch if bool(frame.values[id(e.cond)]) else e.false_branch
    return _forward(e, (chosen, frame), frame)


def _loop(e: Loop, frame: Frame) -> list[Task]:
    missing = _missing((e.limit, e.going, *e.args, e.body), frame)
    if missing:
        return missing
    closure, values = frame.values[id(e.body)], [frame.values[id(a)] for a in e.args]
    states, fixed = values[: e.states], values[e.states :]
    limit, going = int(frame.values[id(e.limit)]), bool(frame.values[id(e.going)])
    limit = min(limit, e.trips) if isinstance(e.trips, int) and e.trips >= 0 else limit
    ty = bind_type(e.checked_type, frame.size_values)
    scans = [np.zeros(t.static, t.dtype.numpy) for t in tensor_fields(ty)[len(_flat(states)) : -1]]
    count = 0
    while going and count < limit:
        body, inner = _enter(e, closure, [np.asarray(count), np.asarray(going), *states, *fixed], frame)
        again, *results = _run(body, inner)
        states, going = results[: e.states], bool(again)
        for scan, row in zip(scans, results[e.states :], strict=True):
            scan[count] = row
        count += 1
    frame.values[id(e)] = (*states, *scans, np.asarray(count, np.int64))
    return []


def _flat(values: Sequence[Value]) -> list[Value]:
    """The arrays inside tuples of arrays."""
    return [part for v in values for part in (_flat(v) if isinstance(v, tuple) else [v])]


def _forward(e: Expr, task: Task, frame: Frame) -> list[Task]:
    """`e` has the value of another expression."""
    expr, inner = task
    if id(expr) not in inner.values:
        return [task]
    frame.values[id(e)] = inner.values[id(expr)]
    return []


def _function(e: Function, frame: Frame) -> list[Task]:
    frame.values[id(e)] = Closure(e, frame)
    return []


def _call(e: Call, frame: Frame) -> list[Task]:
    if id(e) in frame.calls:
        return _forward(e, frame.calls[id(e)], frame)
    callee = e.op if isinstance(e.op, Expr) and not isinstance(e.op, Op) else None
    missing = _missing((*e.args, callee) if callee is not None else e.args, frame)
    if missing:
        return missing
    arguments = [frame.values[id(a)] for a in e.args]
    if isinstance(e.op, Op):
        _check_open(e, e.op, arguments)
        if Fact.BINDS in e.op.facts:
            frame.values[id(e)] = _value(e.op.evaluate(e.attrs, arguments))
            frame.size_values[str(e.attrs.size)] = int(arguments[0].reshape(()))
            return []
        attrs = bind_attrs(e.attrs, frame.size_values) if frame.size_values and e.attrs is not None else e.attrs
        frame.values[id(e)] = _value(e.op.evaluate(attrs, arguments))
        return []
    closure = _global(e.op, frame) if isinstance(e.op, GlobalVar) else frame.values[id(e.op)]
    if not isinstance(closure, Closure):
        frame.values[id(e)] = slots.construct(closure, arguments, e.span)
        return []
    frame.calls[id(e)] = _enter(e, closure, arguments, frame)
    return _forward(e, frame.calls[id(e)], frame)


def _check_open(e: Call, op: Op, arguments: Sequence[Value]) -> None:
    """Arguments whose shapes are known only now fit each other, as those fit whose types were checked before."""
    if op.infer_rule is None or all(_is_static(getattr(arg, "_type", None)) for arg in e.args):
        return
    types = [_type_of(value) for value in arguments]
    known = [ty for ty in types if ty is not None]
    if len(known) == len(types):
        op.infer_type(e.attrs, known)


def _is_static(ty: object) -> bool:
    if isinstance(ty, TupleType):
        return all(map(_is_static, ty.fields))
    return isinstance(ty, TensorType) and all(isinstance(size, int) for size in ty.shape)


def _type_of(value: Value) -> Type | None:
    """The type of an array or of a tuple of arrays; None for other values."""
    if isinstance(value, tuple):
        fields = [_type_of(field) for field in value]
        return TupleType(tuple(f for f in fields if f is not None)) if None not in fields else None
    if isinstance(value, np.ndarray):
        return Constant(value).checked_type
    return None


def _global(name: GlobalVar, frame: Frame) -> Closure:
    if frame.module is None:
        raise TypeMismatch(f"@{name.name_hint}: a global function can be called only within its module")
    return Closure(frame.module[name], Frame(frame.module))


def _global_value(e: GlobalVar, frame: Frame) -> list[Task]:
    frame.values[id(e)] = _global(e, frame)
    return []


def _enter(e: Call | Loop, closure: Value, arguments: list[Value], frame: Frame) -> Task:
    if not isinstance(closure, Closure):
        raise TypeMismatch("the called value is not a function", span=e.span)
    params = closure.function.params
    if len(params) != len(arguments):
        raise TypeMismatch(f"call: got {len(arguments)} arguments, wanted {len(params)}", span=e.span)
    inner = Frame(frame.module, closure.frame)
    inner.values.update((id(p), a) for p, a in zip(params, arguments, strict=True))
    return closure.function.body, inner


_STEPS: Rules[[Frame], list[Task]] = {
    Var: _var,
    Constant: _constant,
    Tuple: _tuple,
    TupleGetItem: _item,
    Let: _let,
    If: _if,
    Loop: _loop,
    Function: _function,
    Call: _call,
    GlobalVar: _global_value,
}


def evaluate_call(call: Call) -> Any:  # Any: an array or a tuple of them
    """The value of an operator call whose arguments are constants or tuples of constants."""
    if not isinstance(call.op, Op):
        raise InternalError("only calls of operators are evaluated at compile time", span=call.span)
    return _value(call.op.evaluate(call.attrs, [_constant_argument(a) for a in call.args]))


def _constant_argument(expr: Expr) -> Value:
    if isinstance(expr, Tuple):
        return tuple(map(_constant_argument, expr.fields))
    if not isinstance(expr, Constant):
        raise InternalError(f"expected a constant, got {type(expr).__name__}")
    return expr.data
