"""The meaning of expressions: each becomes a Python closure over an environment.

In: an expression and a scope (which list slot holds which variable or buffer). Out: a function `environment -> value`.
Invariant: a scalar integer is a Python int inside the range of its dtype, a bool a Python bool, a float a
numpy scalar of
its dtype, a vector a numpy array of `lanes` elements. Statements and entry points: `tir/interpreter.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from armillary.base.aliases import AnyFunction, Array
from armillary.base.dtype import DType
from armillary.base.functions import called
from armillary.base.node import Node, Rules
from armillary.errors import ExecutionError, UnsupportedError
from armillary.tir import expr as E
from armillary.tir.build import wrap
from armillary.tir.intrinsics import BFLOAT16, INTRINSICS
from armillary.tir.stmt import Buffer
from armillary.tir.vendor_intrinsics import resolved

Number: TypeAlias = Any  # Any: what an expression's value is: an int, a bool, a numpy scalar, a vector of them
Env = list[Any]  # Any: numbers, and the arrays of buffers, by slot
Value = Callable[[Env], Number]
Place = Callable[[Env, int], Number]
Combine = Callable[[Number, Number], Number]
Extern = AnyFunction


class Scope:
    """Slots of variables and buffers, and the foreign functions that call_extern may name."""

    def __init__(self, externs: dict[str, Extern]) -> None:
        self.slots: dict[Node, int] = {}
        self.externs = externs
        self.tiles = [np.zeros((16, 64), np.uint8) for _ in range(8)]

    @property
    def size(self) -> int:
        return len(self.slots)

    def slot(self, item: Node) -> int:
        return self.slots.setdefault(item, len(self.slots))


def compile_expr(item: E.Expr, scope: Scope) -> Value:
    """The expression as a function of the environment."""
    rule = EXPR_RULES.get(type(item))
    if rule is None:
        name = type(item).__name__
        raise UnsupportedError(f"the interpreter has no rule for {name}", hint="lower TE expressions first")
    return rule(item, scope)


def compile_indices(buffer: Buffer, indices: tuple[E.Expr, ...], scope: Scope, action: str) -> list[Place]:
    """One function per dimension giving the checked index; each takes the environment and the extent."""
    return [_index(buffer, i, scope, action) for i in indices]


def _index(buffer: Buffer, index: E.Expr, scope: Scope, action: str) -> Place:
    value = compile_expr(index, scope)

    def refuse(at: object, extent: int) -> ExecutionError:
        return ExecutionError(f"{action} out of bounds: {buffer.name}[{index!r}] at {at}, the extent is {extent}")

    def scalar(env: Env, extent: int) -> Number:
        at = value(env)
        if 0 <= at < extent:
            return at
        raise refuse(at, extent)

    def vector(env: Env, extent: int) -> Number:
        at = value(env)
        if at.min() >= 0 and at.max() < extent:
            return at
        raise refuse(at.tolist(), extent)

    return scalar if index.dtype.lanes == 1 else vector


def _to_number(dtype: DType) -> Callable[[Number], Number]:
    """How an array element or ufunc result of this dtype becomes a value of the interpreter."""
    if dtype.lanes > 1:
        kind = dtype.numpy
        return lambda v: np.asarray(v).astype(kind, copy=False)
    if dtype.is_bool:
        return bool
    return dtype.numpy.type if dtype.is_float else int


def _constant(value: object) -> Value:
    return lambda env: value


def _int(e: E.IntImm, scope: Scope) -> Value:
    return _constant(bool(e.value) if e.dtype.is_bool else e.value)


def _var(e: E.Var, scope: Scope) -> Value:
    return operator.itemgetter(scope.slot(e))


def _arithmetic(function: Combine) -> Callable[[E.Binary, Scope], Value]:
    """Add, Sub and Mul: numpy rounds floats and wraps vectors; scalar integers wrap here."""

    def rule(e: E.Binary, scope: Scope) -> Value:
        a, b = compile_expr(e.a, scope), compile_expr(e.b, scope)
        if e.dtype.lanes > 1 or e.dtype.is_float:
            return lambda env: function(a(env), b(env))
        dtype, low, high = e.dtype, e.dtype.min_value, e.dtype.max_value

        def integer(env: Env) -> int:
            result: int = function(a(env), b(env))
            return result if low <= result <= high else wrap(result, dtype)

        return integer

    return rule


def _trunc_div(a: Number, b: Number) -> Number:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _vector_trunc_div(a: Number, b: Number) -> Number:
    quotient = a // b
    return quotient + ((quotient < 0) & (quotient * b != a)).astype(quotient.dtype)


def _division(scalar: Combine, vector: Combine) -> Callable[[E.Binary, Scope], Value]:
    def rule(e: E.Binary, scope: Scope) -> Value:
        a, b = compile_expr(e.a, scope), compile_expr(e.b, scope)
        dtype = e.dtype
        if dtype.is_float:
            return lambda env: vector(a(env), b(env))

        def integer(env: Env) -> Number:
            x, y = a(env), b(env)
            if dtype.lanes > 1:
                if not y.all():
                    raise ExecutionError(f"integer division by zero in {e!r}")
                return vector(x, y)
            if y == 0:
                raise ExecutionError(f"integer division by zero in {e!r}")
            return wrap(scalar(x, y), dtype)

        return integer

    return rule


def _pick(vector: Combine, first: Callable[[Number, Number], bool]) -> Callable[[E.Binary, Scope], Value]:
    """Min and Max: NaN wins."""

    def rule(e: E.Binary, scope: Scope) -> Value:
        a, b = compile_expr(e.a, scope), compile_expr(e.b, scope)
        if e.dtype.lanes > 1:
            return lambda env: vector(a(env), b(env))

        def scalar(env: Env) -> Number:
            x, y = a(env), b(env)
            return x if first(x, y) or x != x else y

        return scalar

    return rule


def _compare(function: Combine) -> Callable[[E.Binary, Scope], Value]:
    def rule(e: E.Binary, scope: Scope) -> Value:
        a, b = compile_expr(e.a, scope), compile_expr(e.b, scope)
        if e.dtype.lanes > 1:
            return lambda env: function(a(env), b(env))
        return lambda env: bool(function(a(env), b(env)))

    return rule


def _not(e: E.Not, scope: Scope) -> Value:
    a = compile_expr(e.a, scope)
    return (lambda env: ~a(env)) if e.dtype.lanes > 1 else (lambda env: not a(env))


def _select(e: E.Select, scope: Scope) -> Value:
    test, yes, no = (compile_expr(x, scope) for x in (e.condition, e.true_value, e.false_value))
    if e.condition.dtype.lanes > 1:
        return lambda env: np.where(test(env), yes(env), no(env))

    def scalar(env: Env) -> Number:
        x, y = yes(env), no(env)  # both are evaluated
        return x if test(env) else y

    return scalar


def _load(e: E.BufferLoad, scope: Scope) -> Value:
    if e.buffer.dtype.lanes > 1:
        raise UnsupportedError(f"the interpreter has no buffers of vectors ({e.buffer.name}: {e.buffer.dtype})")
    slot = scope.slot(e.buffer)
    place = compile_indices(e.buffer, e.indices, scope, "load")
    finish = _to_number(e.dtype)
    if len(place) == 1:
        only = place[0]

        def flat(env: Env) -> Number:
            array = env[slot]
            return finish(array[only(env, array.shape[0])])

        return flat

    def load(env: Env) -> Number:
        array = env[slot]
        return finish(array[tuple([f(env, n) for f, n in zip(place, array.shape)])])

    return load


def _ramp(e: E.Ramp, scope: Scope) -> Value:
    base, stride = compile_expr(e.base, scope), compile_expr(e.stride, scope)
    steps = np.arange(e.lanes).astype(e.dtype.numpy)
    inner = e.base.dtype.lanes
    if inner == 1:
        kind = e.dtype.numpy.type
        return lambda env: kind(base(env)) + kind(stride(env)) * steps
    return lambda env: (np.tile(base(env), e.lanes) + np.tile(stride(env), e.lanes) * np.repeat(steps, inner)).astype(
        e.dtype.numpy
    )


def _broadcast(e: E.Broadcast, scope: Scope) -> Value:
    value, lanes = compile_expr(e.value, scope), e.lanes
    kind = e.dtype.numpy
    if e.value.dtype.lanes == 1:
        return lambda env: np.full(lanes, value(env), kind)
    return lambda env: np.tile(value(env), lanes)


def _let(e: E.Let, scope: Scope) -> Value:
    value, slot = compile_expr(e.value, scope), scope.slot(e.var)
    body = compile_expr(e.body, scope)

    def bind(env: Env) -> Number:
        env[slot] = value(env)
        return body(env)

    return bind


def _cast(e: E.Cast, scope: Scope) -> Value:
    value, to, source = compile_expr(e.value, scope), e.dtype, e.value.dtype
    kind = to.numpy
    if to.lanes > 1:
        return lambda env: _vector_cast(value(env), to)
    if to.is_float:
        exact = source.is_int and source.bits > 32
        number = np.int64 if source.code == "int" else np.uint64
        if exact:
            return lambda env: number(value(env)).astype(kind)
        return lambda env: np.asarray(value(env)).astype(kind)[()]
    if to.is_bool:
        return lambda env: bool(value(env) != 0)
    if source.is_float:
        return lambda env: _float_to_int(value(env), to)
    return lambda env: wrap(int(value(env)), to)


def _float_to_int(value: Number, to: DType) -> int:
    """C leaves values out of range open; here they wrap (NaN and infinities become 0)."""
    number = float(value)
    return wrap(int(number), to) if np.isfinite(number) else 0


def _vector_cast(value: Number, to: DType) -> Number:
    if to.is_bool:
        return value != 0
    if to.is_int and value.dtype.kind not in "iub":
        return np.array([_float_to_int(v, to) for v in value]).astype(to.numpy)
    return value.astype(to.numpy)


def _call(e: E.Call, scope: Scope) -> Value:
    rule = _CALLS.get(e.name)
    if rule is not None:
        return rule(e, scope)
    row = INTRINSICS.get(e.name)
    if row is None or row.evaluate is None:
        raise ExecutionError(f"the interpreter has no rule for intrinsic {e.name!r}")
    evaluate, finish = row.evaluate, _to_number(e.dtype)
    arguments = [_typed(a, scope) for a in e.args]
    if len(arguments) == 1:
        only = arguments[0]
        return lambda env: finish(evaluate(only(env)))
    return lambda env: finish(evaluate(*[a(env) for a in arguments]))


def _typed(e: E.Expr, scope: Scope) -> Value:
    """An argument as a numpy value of its dtype (ufuncs need that to round and wrap as the dtype does)."""
    value = compile_expr(e, scope)
    if e.dtype.lanes > 1 or e.dtype.is_float or e.dtype.code in ("string", "handle"):
        return value
    kind = e.dtype.numpy.type
    return lambda env: kind(value(env))


def _if_then_else(e: E.Call, scope: Scope) -> Value:
    test, yes, no = (compile_expr(a, scope) for a in e.args)
    if e.args[0].dtype.lanes > 1:
        raise ExecutionError(f"if_then_else needs a scalar condition: {e!r}")
    return lambda env: yes(env) if test(env) else no(env)


def compile_masked(
    mask: E.Expr, buffer: Buffer, indices: tuple[E.Expr, ...], scope: Scope, action: str
) -> Callable[[Env], tuple[Array, tuple[Array, ...]]]:
    """The lanes that a mask has, and their checked indices in each dimension; the others name no element."""
    chosen, slot = compile_expr(mask, scope), scope.slot(buffer)
    places, lanes = [compile_expr(i, scope) for i in indices], mask.dtype.lanes

    def run(env: Env) -> tuple[Array, tuple[Array, ...]]:
        keep = np.broadcast_to(chosen(env), lanes)
        at = tuple(np.broadcast_to(place(env), lanes)[keep] for place in places)
        for one, extent in zip(at, env[slot].shape, strict=True):
            if one.size and not 0 <= one.min() <= one.max() < extent:
                raise ExecutionError(f"{action} out of bounds: {buffer.name} at {one.tolist()}, the extent is {extent}")
        return keep, at

    return run


def _masked_load(e: E.Call, scope: Scope) -> Value:
    load, kind = e.args[1], e.dtype.numpy
    if not isinstance(load, E.BufferLoad):
        raise ExecutionError(f"masked_load of what is no load: {e!r}")
    slot, places = scope.slot(load.buffer), compile_masked(e.args[0], load.buffer, load.indices, scope, "load")

    def run(env: Env) -> Array:
        keep, at = places(env)
        result = np.zeros(e.dtype.lanes, kind)
        result[keep] = env[slot][at]
        return result

    return run


def _likely(e: E.Call, scope: Scope) -> Value:
    return compile_expr(e.args[0], scope)


def _reinterpret(e: E.Call, scope: Scope) -> Value:
    value, source, to = compile_expr(e.args[0], scope), e.args[0].dtype, e.dtype
    if source.bytes != to.bytes:
        raise ExecutionError(f"reinterpret from {source} to {to}: the sizes differ")
    finish = _to_number(to)
    if to.lanes > 1:
        return lambda env: np.ascontiguousarray(value(env)).view(to.numpy)
    return lambda env: finish(np.array([value(env)], source.numpy).view(to.numpy)[0])


def _extern(e: E.Call, scope: Scope) -> Value:
    name = e.args[0].value if e.args and isinstance(e.args[0], E.StringImm) else ""
    function = scope.externs.get(name)
    if function is None:
        raise ExecutionError(f"foreign function {name!r} has no meaning here", hint="pass it in interpret(externs=…)")
    arguments, finish = [_typed(a, scope) for a in e.args[1:]], _to_number(e.dtype)
    return lambda env: finish(function(*[a(env) for a in arguments]))


def _vendor(e: E.Call, scope: Scope) -> Value:
    """An instruction of a processor, by LLVM's name."""
    row, _ = resolved(e)
    arguments, kind, evaluate = [_typed(a, scope) for a in e.args[1:]], e.dtype.numpy, row.evaluate
    return lambda env: evaluate(kind, *[a(env) for a in arguments])


def _reduce_add(e: E.Call, scope: Scope) -> Value:
    value, finish = compile_expr(e.args[0], scope), _to_number(e.dtype)
    kind = e.dtype.numpy
    return lambda env: finish(np.add.reduce(value(env), dtype=kind))


def _numbers(e: E.Call, *places: int) -> list[int]:
    numbers = [e.args[k] for k in places]
    if not all(isinstance(a, E.IntImm) for a in numbers):
        raise ExecutionError(f"the interpreter knows tiles by constant numbers only: {e!r}")
    return [a.value for a in numbers]  # type: ignore[attr-defined]  # all are IntImm


def _tile_rows(e: E.Call, scope: Scope) -> Callable[[Env], list[Array]]:
    """Rows of 64 bytes from an element of a buffer on."""
    element, (stride, count) = e.args[1], _numbers(e, 2, 3)
    if not isinstance(element, E.BufferLoad):
        raise ExecutionError(f"{e.name} takes an element of a buffer: {e!r}")
    slot, place = scope.slot(element.buffer), compile_indices(element.buffer, element.indices, scope, e.name)

    def rows(env: Env) -> list[Array]:
        array = env[slot]
        at = np.ravel_multi_index([f(env, n) for f, n in zip(place, array.shape, strict=True)], array.shape)
        memory, first = array.reshape(-1).view(np.uint8), int(at) * array.itemsize
        if first + (count - 1) * stride + 64 > memory.size:
            raise ExecutionError(f"{e.name} out of bounds: {element.buffer.name} from element {at} on")
        return [memory[first + k * stride : first + k * stride + 64] for k in range(count)]

    return rows


def _tile_zero(e: E.Call, scope: Scope) -> Value:
    tiles, (tile,) = scope.tiles, _numbers(e, 0)
    return lambda env: tiles[tile].fill(0)


def _tile_load(e: E.Call, scope: Scope) -> Value:
    tiles, (tile,), rows = scope.tiles, _numbers(e, 0), _tile_rows(e, scope)

    def load(env: Env) -> int:
        rows_read = rows(env)
        tiles[tile][: len(rows_read)] = rows_read
        return 0

    return load


def _tile_store(e: E.Call, scope: Scope) -> Value:
    tiles, (tile,), rows = scope.tiles, _numbers(e, 0), _tile_rows(e, scope)

    def store(env: Env) -> int:
        for row, values in zip(rows(env), tiles[tile], strict=False):
            row[:] = values
        return 0

    return store


def _tile_dot(e: E.Call, scope: Scope) -> Value:
    tiles, (sums, left, right, *signs) = scope.tiles, _numbers(e, 0, 1, 2, 3, 4)
    kinds = [np.int8 if sign else np.uint8 for sign in signs]

    def dot(env: Env) -> int:
        a = tiles[left].view(kinds[0]).astype(np.int32)
        words = tiles[right].view(kinds[1]).reshape(16, 16, 4).transpose(0, 2, 1).reshape(64, 16).astype(np.int32)
        tiles[sums].view(np.int32)[:] += a @ words
        return 0

    return dot


def _tile_dot_bf16(e: E.Call, scope: Scope) -> Value:
    tiles, (sums, left, right) = scope.tiles, _numbers(e, 0, 1, 2)

    def dot(env: Env) -> int:
        a = tiles[left].view(BFLOAT16.numpy).astype(np.float32)
        words = tiles[right].view(BFLOAT16.numpy).reshape(16, 16, 2).transpose(0, 2, 1).reshape(32, 16)
        tiles[sums].view(np.float32)[:] += a @ words.astype(np.float32)
        return 0

    return dot


def _by_name(e: E.Call, scope: Scope) -> Value:
    """A function by name, registered in this process; tensors reach it as numpy arrays."""
    name, *operands = e.args
    if not isinstance(name, E.StringImm):
        raise ExecutionError(f"a call by name names no function: {e!r}")
    is_trace, kind = e.name == "tvm_call_trace_packed", e.dtype
    finish = _to_number(kind) if kind.code not in ("void", "handle") else lambda value: value
    arguments = [_typed(a, scope) for a in operands]

    def run(env: Env) -> Number:
        values = [a(env) for a in arguments]
        result = called(name.value)(*values)
        return finish(result if result is not None else values[-1] if is_trace else 0)

    return run


def _address(e: E.Call, scope: Scope) -> Value:
    """What lies at an address and behind it, as a flat array."""
    load = e.args[0]
    if not isinstance(load, E.BufferLoad):
        raise ExecutionError(f"the interpreter knows addresses of elements only, got {e!r}")
    slot, places = scope.slot(load.buffer), compile_indices(load.buffer, load.indices, scope, "address")

    def view(env: Env) -> Array:
        array = env[slot]
        at = np.ravel_multi_index([f(env, n) for f, n in zip(places, array.shape)], array.shape) if array.ndim else 0
        behind: Array = array.reshape(-1)[int(at) :]
        return behind

    return view


def _array_at(e: E.Call, scope: Scope) -> Value:
    """A tensor at an address; its rows have no gaps."""
    memory, sizes, *_ = e.args
    assert isinstance(sizes, E.Call), "a tensor's sizes are a call"
    view, shape = compile_expr(memory, scope), [compile_expr(size, scope) for size in sizes.args]

    def tensor(env: Env) -> Array:
        extents = [n(env) for n in shape]
        shaped: Array = view(env)[: math.prod(extents)].reshape(extents)
        return shaped

    return tensor


def _nothing(e: E.Call, scope: Scope) -> Value:
    return _constant(0)


def _sync(e: E.Call, scope: Scope) -> Value:
    raise UnsupportedError("the interpreter runs threads one after another and cannot synchronise them")


_CALLS: dict[str, Callable[[E.Call, Scope], Value]] = {
    "if_then_else": _if_then_else,
    "likely": _likely,
    "masked_load": _masked_load,
    "reinterpret": _reinterpret,
    "call_extern": _extern,
    "call_pure_extern": _extern,
    "vector_reduce_add": _reduce_add,
    "address_of": _address,
    "tvm_call_packed": _by_name,
    "tvm_call_trace_packed": _by_name,
    "tvm_stack_make_array": _array_at,
    "prefetch": _nothing,
    "thread_sync": _sync,
    "tile_zero": _tile_zero,
    "tile_load": _tile_load,
    "tile_dot": _tile_dot,
    "tile_dot_bf16": _tile_dot_bf16,
    "tile_store": _tile_store,
    "call_llvm_pure_intrin": _vendor,
    "call_llvm_intrin": _vendor,
}
EXPR_RULES: Rules[[Scope], Value] = {
    E.Var: _var,
    E.IterVar: lambda e, s: _var(e.var, s),
    E.IntImm: _int,
    E.FloatImm: lambda e, s: _constant(e.dtype.numpy.type(e.value)),
    E.StringImm: lambda e, s: _constant(e.value),
    E.Cast: _cast,
    E.Add: _arithmetic(operator.add),
    E.Sub: _arithmetic(operator.sub),
    E.Mul: _arithmetic(operator.mul),
    E.Div: lambda e, s: _compiled_pair(e, s, np.divide),
    E.FloorDiv: _division(operator.floordiv, np.floor_divide),
    E.FloorMod: _division(operator.mod, np.mod),
    E.TruncDiv: _division(_trunc_div, _vector_trunc_div),
    E.TruncMod: _division(lambda a, b: a - b * _trunc_div(a, b), np.fmod),
    E.Min: _pick(np.minimum, lambda x, y: bool(x < y)),
    E.Max: _pick(np.maximum, lambda x, y: bool(x > y)),
    E.EQ: _compare(operator.eq),
    E.NE: _compare(operator.ne),
    E.LT: _compare(operator.lt),
    E.LE: _compare(operator.le),
    E.GT: _compare(operator.gt),
    E.GE: _compare(operator.ge),
    E.And: _compare(operator.and_),
    E.Or: _compare(operator.or_),
    E.Not: _not,
    E.Select: _select,
    E.BufferLoad: _load,
    E.Ramp: _ramp,
    E.Broadcast: _broadcast,
    E.Let: _let,
    E.Call: _call,
}


def _compiled_pair(e: E.Binary, scope: Scope, function: Combine) -> Value:
    a, b = compile_expr(e.a, scope), compile_expr(e.b, scope)
    return lambda env: function(a(env), b(env))
