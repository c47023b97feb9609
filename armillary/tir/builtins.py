"""Old builtin functions of the loop language, by name: what scripts write to look at, or to hand to other tools.

In: a name such as `tvm_tuple` or `ptx_mma`, and arguments. Out: a `tir.Call` of that name: it prints, compares and is
walked like any other. Invariant: those that no back end here implements are refused when a function that holds them is
verified, by name (`intrinsics.py` has what is implemented).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.functions import TRACE_ACTION
from armillary.errors import TypeMismatch
from armillary.tir import build
from armillary.tir.expr import Call, Expr, ExprLike, IntImm, StringImm
from armillary.tir.stmt import Buffer

# Names by the type of what they give: a fixed type, "first" for a type given first, "like" for the first argument's.
_BY_RESULT = {
    "handle": (
        "TVMBackendAllocWorkspace address_of lookup_param ptx_commit_group ptx_cp_async_barrier "
        "ptx_init_barrier_thread_count ptx_arrive_barrier ptx_arrive_barrier_expect_tx ptx_wait_barrier "
        "ptx_wait_group create_barriers tvm_bmma_sync tvm_fill_fragment tvm_load_matrix_sync tvm_mma_sync "
        "tvm_stack_alloca tvm_stack_make_array tvm_stack_make_shape tvm_store_matrix_sync "
        "tvm_thread_allreduce tvm_tuple tvm_thread_context end_profile_intrinsic start_profile_intrinsic"
    ),
    "int32": "clz TVMBackendFreeWorkspace call_cpacked call_packed tvm_struct_set tvm_throw_last_error undef dp4a",
    "bool": "assume isnullptr",
    "first": (
        "mma_fill mma_store ptx_cp_async ptx_cp_async_bulk ptx_ldmatrix ptx_mma ptx_mma_sp reinterpret vectorcombine "
        "vectorhigh vectorlow"
    ),
    "like": "bitwise_not popcount",
}
TYPED = frozenset(_BY_RESULT["first"].split())  # those whose type is given
RESULTS = {name: result for result, names in _BY_RESULT.items() for name in names.split()}
_OLD_NAMES = {"call_packed": "tvm_call_packed", "call_cpacked": "tvm_call_cpacked"}


def builtin(name: str) -> Callable[..., Expr]:
    """The constructor of a builtin function."""
    result = RESULTS[name]

    @boundary(name, arguments=True)
    def construct(*args: Any, **named: Any) -> Expr:  # Any: numbers, expressions, buffers' names
        first = [named.pop("dtype")] if result == "first" and "dtype" in named else []
        arguments = [*first, *args, *named.values()]
        if result == "first" and not (arguments and isinstance(arguments[0], str)):
            raise TypeMismatch(f"{name}: the type of the result comes first, got {arguments[:1]}")
        values = tuple(map(_value, arguments[1:] if result == "first" else arguments))
        dtype = arguments[0] if result == "first" else str(values[0].dtype) if result == "like" else result
        return Call(DType(dtype), _OLD_NAMES.get(name, name), values)

    construct.__name__ = name
    return construct


def foreign_call(dtype: str, name: str, args: Sequence[object]) -> Expr:
    """A call of a builtin function with the type that a script gives it."""
    return Call(DType(dtype), _OLD_NAMES.get(name, name), tuple(map(_value, args)))


def _value(value: Any) -> Expr:
    if isinstance(value, Buffer):
        return _array_of(value)
    return StringImm(value) if isinstance(value, str) else build.convert(value)


def _array_of(buffer: Buffer) -> Expr:
    """A buffer as a function of the runtime takes it: memory, shape, strides, rank, a 0 of its dtype, offset."""
    handle, zero = DType("handle"), build.const(0)
    shape = Call(handle, "tvm_stack_make_shape", buffer.shape)
    strides = Call(handle, "tvm_stack_make_shape", buffer.strides) if buffer.strides else zero
    offset = zero if buffer.elem_offset is None else buffer.elem_offset
    rest = (build.const(len(buffer.shape)), build.const(0, buffer.dtype), offset)
    return Call(handle, "tvm_stack_make_array", (buffer.data, shape, strides, *rest))


def tvm_struct_get(arr: object, index: int, field: int, dtype: str) -> Expr:
    """A field of a structure that a handle points to."""
    return Call(DType(dtype), "tvm_struct_get", tuple(map(_value, (arr, index, field))))


def tvm_access_ptr(ptype: Any, data: Any, offset: Any, extent: Any, rw_mask: Any) -> Expr:
    """The address of elements of a buffer, and how they are used: 1 read, 2 written."""
    kind = type_annotation(ptype) if isinstance(ptype, str) else ptype
    return Call(DType("handle"), "tvm_access_ptr", (kind, *map(_value, (data, offset, extent, rw_mask))))


def type_annotation(dtype: str) -> Expr:
    """A type as an argument."""
    return Call(DType(dtype), "type_annotation", ())


@boundary("Shuffle", arguments=True)
def Shuffle(vectors: Sequence[ExprLike], indices: Sequence[ExprLike]) -> Expr:  # noqa: N802  (the name scripts use)
    """The lanes of these numbers in a vector: lanes of `vectors`, counted through all of them."""
    parts, chosen = tuple(map(build.convert, vectors)), tuple(map(build.convert, indices))
    if len({part.dtype.element for part in parts}) != 1 or not chosen:
        got = ", ".join(str(part.dtype) for part in parts) or "none"
        raise TypeMismatch(f"Shuffle: got vectors of {got}, wanted some of one type, and some indices")
    count = sum(part.dtype.lanes for part in parts)
    for index in chosen:
        if not isinstance(index, IntImm) or not 0 <= index.value < count:
            raise TypeMismatch(f"Shuffle: the index {index!r} is no constant from 0 to {count - 1}")
    return Call(parts[0].dtype.with_lanes(len(chosen)), "shuffle", (build.const(len(parts)), *parts, *chosen))


def shift_left(x: object, y: object) -> Expr:
    """x << y"""
    return _binary("shift_left", x, y)


def shift_right(x: object, y: object) -> Expr:
    """x >> y"""
    return _binary("shift_right", x, y)


def bitwise_and(x: object, y: object) -> Expr:
    """x & y"""
    return _binary("bitwise_and", x, y)


def bitwise_or(x: object, y: object) -> Expr:
    """x | y"""
    return _binary("bitwise_or", x, y)


def bitwise_xor(x: object, y: object) -> Expr:
    """x ^ y"""
    return _binary("bitwise_xor", x, y)


def _binary(name: str, x: Any, y: Any) -> Expr:
    a, b = build.match_types(x, y)
    return Call(a.dtype, name, (a, b))


def ldexp(x: Any, exponent: Any) -> Expr:
    """x * 2^exponent"""
    value = build.convert(x)
    return Call(value.dtype, "ldexp", (value, build.convert(exponent)))


def ret(value: object) -> Expr:
    """A result of a function, which only returns 0 or an error here."""
    return Call(DType("int32"), "ret", (_value(value),))


@boundary("trace", arguments=True)
def trace(args: Sequence[ExprLike], trace_action: str = TRACE_ACTION) -> Expr:
    """The last of some values, which a registered function sees each time it is computed.

    The function gets all of them; a number that it gives takes the place of the last one.
    """
    if not isinstance(args, list | tuple) or not args:
        raise TypeMismatch(f"trace: got {args!r:.60}, wanted a list of values", hint="such as tir.trace([i, A[i]])")
    values = tuple(map(_value, args))
    return Call(values[-1].dtype, "tvm_call_trace_packed", (StringImm(trace_action), *values))


def infinity(dtype: str) -> Expr:
    """The largest float of a type."""
    return build.const(float("inf"), dtype)


def __getattr__(name: str) -> Callable[..., Expr]:
    if name not in RESULTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return builtin(name)
