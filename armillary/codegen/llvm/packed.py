"""Calls of functions by name, which the process that runs a kernel supplies, and addresses of elements.

In: calls `tvm_call_packed`, `tvm_call_trace_packed` and `address_of`. Out: IR that writes the arguments to slots of the
stack and calls what stands behind the workspaces in the kernel's data. Invariant: letters and slots are those of
`arm_packed_fn` in armillary_runtime.h; a call that fails ends the phase with its code.
"""

from __future__ import annotations

from armillary.base.digest import blake2b
from armillary.base.dtype import DType
from armillary.base.node import reachable
from armillary.codegen.base import flat_index, refuse
from armillary.codegen.llvm.expr import cast
from armillary.codegen.llvm.index import address, linear
from armillary.codegen.llvm.state import Emitter
from armillary.tir import expr as E
from armillary.tir import stmt as S

CALLER = "caller"  # the pointer in a phase's body
_NAMES = ("tvm_call_packed", "tvm_call_trace_packed")
_INT64, _FLOAT64, _HANDLE = DType("int64"), DType("float64"), DType("handle")
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}  # DLPack's


def calls_by_name(body: S.Stmt) -> bool:
    """Whether a body calls a function by name."""
    return any(isinstance(item, E.Call) and item.name in _NAMES for item in reachable(body))


def address_of(m: Emitter, e: E.Call) -> str:
    """The address of an element."""
    load = e.args[0]
    if not isinstance(load, E.BufferLoad) or load.dtype.lanes > load.buffer.dtype.lanes:
        raise refuse("llvm", "the address of what is no element of a buffer")
    return address(m, load.buffer, linear(m, flat_index(load.buffer, load.indices)))


def packed(m: Emitter, e: E.Call) -> str:
    """A call whose result, where it has one, is a number."""
    return _call(m, e, e.dtype, "0")


def traced(m: Emitter, e: E.Call) -> str:
    """A call that gives its last argument, unless the function gives a number."""
    return _call(m, e, e.dtype, _bits(m, e.args[-1]))


def _call(m: Emitter, e: E.Call, dtype: DType, default: str) -> str:
    name, *arguments = e.args
    if not isinstance(name, E.StringImm) or dtype.lanes > 1:
        raise refuse("llvm", "a call by name without a name, or of vectors")
    m.effects += 1
    letters, slots = "", list[str]()
    for item in arguments:
        letter, values = _argument(m, item)
        letters += letter
        slots += values
    letters += "v" if dtype.code in ("void", "handle") else _letter(dtype)
    place = f"%slots{len(m.allocas)}"
    m.allocas.append(f"  {place} = alloca [{len(slots) + 1} x i64], align 8")
    for at, value in enumerate([*slots, default]):
        m.do(f"store i64 {value}, ptr {_slot(m, place, at)}, align 8")
    result = _slot(m, place, len(slots))
    texts = ", ".join(f"ptr {_global(m, text)}" for text in (name.value, letters))
    code = m.here(f"call i32 %{CALLER}({texts}, ptr {place}, ptr {result})")
    test = m.here(f"icmp eq i32 {code}, 0")
    passed, failed = m.label("passed"), m.label("failed")
    m.do(f"br i1 {test}, label %{passed}, label %{failed}")
    m.start(failed)
    m.do(f"ret i32 {code}")
    m.start(passed)
    if letters[-1] == "v":
        return "0"
    word = m.here(f"load i64, ptr {result}, align 8")
    if letters[-1] == "i":
        return cast(m, word, _INT64, dtype)
    return cast(m, m.here(f"bitcast i64 {word} to double"), _FLOAT64, dtype)


def _slot(m: Emitter, place: str, at: int) -> str:
    return m.here(f"getelementptr inbounds i64, ptr {place}, i64 {at}") if at else place


def _letter(dtype: DType) -> str:
    return "f" if dtype.is_float else "i"


def _argument(m: Emitter, item: E.Expr) -> tuple[str, list[str]]:
    """The letter and the slots of one argument."""
    if isinstance(item, E.StringImm):
        return "s", [_number_of(m, _global(m, item.value))]
    if isinstance(item, E.Call) and item.name == "tvm_stack_make_array":
        return "t", _tensor(m, item)
    if item.dtype.lanes > 1:
        raise refuse("llvm", "a vector as an argument of a call by name")
    if item.dtype.code == "handle":
        return "h", [_number_of(m, m.value(item))]
    return _letter(item.dtype), [_bits(m, item)]


def _bits(m: Emitter, item: E.Expr) -> str:
    """A number as a slot holds it."""
    if not item.dtype.is_float:
        return cast(m, m.value(item), item.dtype, _INT64)
    return m.here(f"bitcast double {cast(m, m.value(item), item.dtype, _FLOAT64)} to i64")


def _number_of(m: Emitter, pointer: str) -> str:
    return m.here(f"ptrtoint ptr {pointer} to i64")


def _tensor(m: Emitter, item: E.Call) -> list[str]:
    memory, sizes, strides, _, zero, _ = item.args
    if memory.dtype.code != "handle" or not isinstance(sizes, E.Call):
        raise refuse("llvm", "a tensor of a call by name that is no buffer")
    shape = [_bits(m, size) for size in sizes.args]
    if isinstance(strides, E.Call):
        steps = [_bits(m, step) for step in strides.args]
    else:
        steps = ["1"] * len(shape)
        for axis in range(len(shape) - 2, -1, -1):
            steps[axis] = m.here(f"mul i64 {steps[axis + 1]}, {shape[axis + 1]}")
    bits = 8 if zero.dtype.is_bool else zero.dtype.bits
    kind = _CODES[zero.dtype.code] + 256 * bits
    return [_number_of(m, m.value(memory)), str(len(shape)), str(kind), *shape, *steps]


def _global(m: Emitter, text: str) -> str:
    """The address of a text in the module."""
    data = text.encode() + b"\0"
    name = f"@text.{blake2b(data, digest_size=8).hexdigest()}"
    letters = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in data)
    m.declared.setdefault(name, f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{letters}"')
    return name
