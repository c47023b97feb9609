"""The meaning of every loop program: run it on numpy arrays.

In: a PrimFunc (before or after any pass), or a PhasedFunction, and arguments: arrays for buffers (changed in place),
numbers for variables. Out: nothing; results are in the arrays. Invariant: integers wrap exactly as their dtype does,
every float operation rounds to its dtype, and a store or load outside a buffer is an ExecutionError that names it.
Freshly allocated buffers hold NaN or the largest integer, so that a read before the first write shows.
The program is turned into closures once: expressions become functions of an environment (a list of variable values).
Expressions: `tir/interpret_expr.py`. Node meanings in words: the docstrings in `tir/expr.py`, `tir/stmt.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.extent import Known
from armillary.base.node import Rules
from armillary.errors import ExecutionError, UnsupportedError
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import free_vars
from armillary.tir.extents import to_expr
from armillary.tir.interpret_expr import Env, Extern, Scope, compile_expr, compile_indices, compile_masked
from armillary.tir.phases import PhasedFunction

Run = Callable[[Env], None]


@boundary("interpret", arguments=True)
def interpret(func: S.PrimFunc, *arguments: Any, externs: Mapping[str, Extern] | None = None) -> None:
    """Run `func`: one array per Buffer and one number per Var, in the order of its params.

    Raises ExecutionError for arguments that do not fit, indices out of bounds and failed assertions.
    """
    if len(arguments) != len(func.params):
        raise ExecutionError(f"interpret: got {len(arguments)} arguments, the function has {len(func.params)} params")
    scope = Scope(dict(externs or {}))
    env: Env = []
    shapes = func.get_attr("tensor_shapes")
    buffers = [p for p in func.params if isinstance(p, S.Buffer)]
    by_buffer = dict(zip(buffers, shapes or [b.shape for b in buffers], strict=True))
    dims: dict[E.Var, int] = {}
    for param, value in zip(func.params, arguments, strict=True):
        if isinstance(param, S.Buffer):
            _bind_dims(param, by_buffer[param], np.asarray(value), dims)
        else:
            dims[param] = value
    for var in free_vars(func):
        if var not in dims:
            raise ExecutionError(f"interpret: variable {var.name} is neither a param nor a dimension of one")
    for var, number in dims.items():
        scope.slot(var)
        env.append(_scalar(number, var.dtype))
    pairs = zip(func.params, arguments, strict=True)
    arrays = [(p, _as_array(p, v, env, scope)) for p, v in pairs if isinstance(p, S.Buffer)]
    for buffer, array in arrays:
        scope.slot(buffer)
        env.append(array)
    run = compile_stmt(func.body, scope)
    env.extend([None] * (scope.size - len(env)))
    with np.errstate(all="ignore"):
        run(env)


def interpret_phases(func: PhasedFunction, *arguments: object, threads: int = 2) -> None:
    """Run a split function: arrays for `params`, then numbers for `vars`; each phase in `threads` windows."""
    wanted = len(func.params) + len(func.vars)
    if len(arguments) != wanted:
        raise ExecutionError(f"interpret_phases: got {len(arguments)} arguments, wanted {wanted}")
    scope = Scope({})
    env: Env = []
    for var, number in zip(func.vars, arguments[len(func.params) :], strict=True):
        scope.slot(var)
        env.append(_scalar(number, var.dtype))
    for buffer, value in zip(func.params, arguments, strict=False):
        array = _as_array(buffer, value, env, scope)
        scope.slot(buffer)
        env.append(array)
    _bind_workspace(func.shared_workspace, func.shared_bytes, scope, env)
    _bind_workspace(func.thread_workspace, func.thread_bytes, scope, env)
    with np.errstate(all="ignore"):
        for phase in func.phases:
            _run_phase(phase.var, phase.min, phase.extent, phase.body, scope, env, threads)


def _run_phase(var: E.Var, low: E.Expr, extent: E.Expr, body: S.Stmt, scope: Scope, env: Env, threads: int) -> None:
    first, count = compile_expr(low, scope), compile_expr(extent, scope)
    slot = scope.slot(var)
    run = compile_stmt(body, scope)
    env.extend([None] * (scope.size - len(env)))
    start, total = first(env), max(0, count(env))
    step = -(-total // threads) or 1
    for begin in reversed(range(0, total, step)):  # windows may run in any order
        for i in range(begin, min(begin + step, total)):
            env[slot] = start + i
            run(env)


def _bind_workspace(layout: Mapping[S.Buffer, Known], bytes_: Known, scope: Scope, env: Env) -> None:
    size = compile_expr(to_expr(bytes_), scope)(env)
    memory = np.full(size, 0xAB, np.uint8)
    for buffer, place in layout.items():
        offset = compile_expr(to_expr(place), scope)(env)
        count = 1
        for extent in buffer.shape:
            count *= compile_expr(extent, scope)(env)
        end = offset + count * buffer.dtype.bytes
        if end > size:
            raise ExecutionError(f"buffer {buffer.name} ends at byte {end} of a workspace of {size}")
        scope.slot(buffer)
        env.append(memory[offset:end].view(buffer.dtype.numpy))


def _bind_dims(buffer: S.Buffer, shape: tuple[E.Expr, ...], array: Array, dims: dict[E.Var, int]) -> None:
    """Learn symbolic dimensions from the array's shape."""
    if len(shape) != array.ndim:
        return
    for want, have in zip(shape, array.shape, strict=True):
        if isinstance(want, E.Var) and dims.setdefault(want, have) != have:
            known = dims[want]
            raise ExecutionError(f"argument {buffer.name}: dimension {want.name} is {known} elsewhere, here {have}")


def _scalar(value: Any, dtype: DType) -> Any:
    if dtype.is_float:
        return dtype.numpy.type(value)
    return bool(value) if dtype.is_bool else int(value)


def _as_array(buffer: S.Buffer, value: object, env: Env, scope: Scope) -> Array:
    """The argument as the buffer sees it: same rank, or flat when the buffer is one-dimensional."""
    if not isinstance(value, np.ndarray) or value.dtype != buffer.dtype.numpy:
        got = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
        raise ExecutionError(f"argument {buffer.name}: got {got}, wanted a numpy array of {buffer.dtype}")
    shape = tuple(compile_expr(extent, scope)(env) for extent in buffer.shape)
    if value.shape == shape:
        return value
    if len(shape) == 1 and value.size == shape[0] and value.flags.c_contiguous:
        return value.reshape(-1)
    raise ExecutionError(f"argument {buffer.name}: got shape {value.shape}, wanted {shape}")


def compile_stmt(item: S.Stmt, scope: Scope) -> Run:
    """The statement as a function of the environment."""
    rule = _STMTS.get(type(item))
    if rule is None:
        raise UnsupportedError(f"the interpreter has no rule for {type(item).__name__}")
    return rule(item, scope)


def _for(s: S.For, scope: Scope) -> Run:
    low, count = compile_expr(s.min, scope), compile_expr(s.extent, scope)
    slot = scope.slot(s.var)
    body = compile_stmt(s.body, scope)

    def run(env: Env) -> None:
        first = low(env)
        for value in range(first, first + count(env)):
            env[slot] = value
            body(env)

    return run


def _if(s: S.IfThenElse, scope: Scope) -> Run:
    test, yes = compile_expr(s.condition, scope), compile_stmt(s.then_body, scope)
    no = compile_stmt(s.else_body, scope) if s.else_body is not None else None

    def run(env: Env) -> None:
        if test(env):
            yes(env)
        elif no is not None:
            no(env)

    return run


def _while(s: S.While, scope: Scope) -> Run:
    test, body = compile_expr(s.condition, scope), compile_stmt(s.body, scope)

    def run(env: Env) -> None:
        while test(env):
            body(env)

    return run


def _masked_store(s: S.BufferStore, value: E.Call, scope: Scope) -> Run:
    slot, places = scope.slot(s.buffer), compile_masked(value.args[0], s.buffer, s.indices, scope, "store")
    stored = compile_expr(value.args[1], scope)

    def run(env: Env) -> None:
        keep, at = places(env)
        env[slot][at] = np.broadcast_to(stored(env), keep.shape)[keep]

    return run


def _store(s: S.BufferStore, scope: Scope) -> Run:
    slot = scope.slot(s.buffer)
    if isinstance(s.value, E.Call) and s.value.name == "masked_value":
        return _masked_store(s, s.value, scope)
    value, place = compile_expr(s.value, scope), compile_indices(s.buffer, s.indices, scope, "store")
    if len(s.indices) == 1:
        only = place[0]

        def run_flat(env: Env) -> None:
            array = env[slot]
            array[only(env, array.shape[0])] = value(env)

        return run_flat

    def run(env: Env) -> None:
        array = env[slot]
        array[tuple([f(env, n) for f, n in zip(place, array.shape)])] = value(env)

    return run


def _allocate(s: S.Allocate, scope: Scope) -> Run:
    buffer = s.buffer
    extents = [compile_expr(e, scope) for e in buffer.shape]
    slot = scope.slot(buffer)
    body = compile_stmt(s.body, scope)
    kind = buffer.dtype.numpy
    fill = np.nan if buffer.dtype.is_float else buffer.dtype.max_value

    def run(env: Env) -> None:
        env[slot] = np.full([e(env) for e in extents], fill, kind)
        body(env)

    return run


def _let(s: S.LetStmt, scope: Scope) -> Run:
    value, slot = compile_expr(s.value, scope), scope.slot(s.var)
    body = compile_stmt(s.body, scope)

    def run(env: Env) -> None:
        env[slot] = value(env)
        body(env)

    return run


def _assert(s: S.AssertStmt, scope: Scope) -> Run:
    test, body = compile_expr(s.condition, scope), compile_stmt(s.body, scope)

    def run(env: Env) -> None:
        if not test(env):
            raise ExecutionError(f"assertion failed: {s.message}")
        body(env)

    return run


def _attr(s: S.AttrStmt, scope: Scope) -> Run:
    """Notes mean nothing, but a launch or virtual thread runs its body once per value of the axis."""
    if s.key in ("thread_extent", "virtual_thread") and isinstance(s.node, E.IterVar):
        zero = E.IntImm(s.node.var.dtype, 0)
        return _for(S.For(s.node.var, zero, s.value, S.LoopKind.SERIAL, s.body), scope)
    return compile_stmt(s.body, scope)


def _seq(s: S.SeqStmt, scope: Scope) -> Run:
    parts = [compile_stmt(x, scope) for x in s.statements]

    def run(env: Env) -> None:
        for part in parts:
            part(env)

    return run


def _evaluate(s: S.Evaluate, scope: Scope) -> Run:
    value = compile_expr(s.value, scope)

    def run(env: Env) -> None:
        value(env)

    return run


_STMTS: Rules[[Scope], Run] = {
    S.For: _for,
    S.IfThenElse: _if,
    S.While: _while,
    S.BufferStore: _store,
    S.Allocate: _allocate,
    S.AttrStmt: _attr,
    S.LetStmt: _let,
    S.AssertStmt: _assert,
    S.SeqStmt: _seq,
    S.Evaluate: _evaluate,
}
