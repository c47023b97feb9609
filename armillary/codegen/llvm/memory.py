"""Loads and stores: registers, contiguous vectors, strided vectors, gathers and scatters.

In: BufferLoad and BufferStore. Out: IR. Invariant: nothing outside the accessed elements is touched; under a mask (a
vector if_then_else) only the chosen lanes are. A buffer in a register file never reaches memory.
"""

from __future__ import annotations

from armillary.base.dtype import DType
from armillary.codegen.base import flat_index, refuse
from armillary.codegen.llvm.dots.byte_matrices import read_row, write_row
from armillary.codegen.llvm.dots.spread_sums import read_spread, write_spread
from armillary.codegen.llvm.index import Linear, address, linear
from armillary.codegen.llvm.lane_loads import broadcast_load
from armillary.codegen.llvm.lanes import lane_pattern
from armillary.codegen.llvm.nontemporal import NOTE as STREAMED
from armillary.codegen.llvm.nontemporal import is_lines
from armillary.codegen.llvm.register_transpose import row_part
from armillary.codegen.llvm.registers import elements
from armillary.codegen.llvm.state import BUFFER_ALIGNMENT, EXPR_RULES, Emitter, RegisterFile
from armillary.codegen.llvm.types import memory_element, register_element, register_type, suffix, vector
from armillary.errors import UnsupportedError
from armillary.tir import expr as E
from armillary.tir import stmt as S

MIN_GATHERED = 8  # lanes from which one instruction for all of them is better
MAX_STRETCH = 4  # vectors that are loaded for one whose lanes are taken from them
_ANYTHING = -1  # of `shuffle`


def load(m: Emitter, e: E.BufferLoad) -> str:
    """The element, or vector of elements, that a load reads: from memory or from a register file."""
    index = flat_index(e.buffer, e.indices)
    file = m.files.get(e.buffer)
    if file is not None:
        return _register_load(m, e.buffer, file, index)
    element = e.buffer.dtype
    if element.lanes > 1:
        return _from_memory(m, _wide_element(m, e.buffer, index), element, 0)
    if index.dtype.lanes == 1:
        return _scalar(m, address(m, e.buffer, linear(m, index)), element)
    return _vector_load(m, e.buffer, index)


def _wide_element(m: Emitter, buffer: S.Buffer, index: E.Expr) -> str:
    """The address of element `index` of a buffer whose elements are vectors."""
    if index.dtype.lanes > 1:
        raise refuse("llvm", f"a vector access to buffer {buffer.name} of {buffer.dtype}")
    total = Linear()
    total.add(linear(m, index), buffer.dtype.lanes)
    return address(m, buffer, total)


def _scalar(m: Emitter, pointer: str, dtype: DType) -> str:
    return _from_memory(m, pointer, dtype, 0)


def _from_memory(m: Emitter, pointer: str, dtype: DType, align: int) -> str:
    """Load a scalar or contiguous vector at element alignment, and bring it to its register type."""
    if _is_odd(m, dtype):
        return _odd_load(m, pointer, dtype)
    element = memory_element(dtype.element)
    raw = m.here(f"load {vector(element, dtype.lanes)}, ptr {pointer}, align {align or dtype.element.bytes}")
    return to_register(m, raw, dtype)


def _is_odd(m: Emitter, dtype: DType) -> bool:
    """Whether a vector would be put together from three pieces or more, and one load with a mask can do."""
    has_masks = {"avx512f", "avx512vl"} <= m.cpu.features
    return has_masks and dtype.bits == 32 and dtype.lanes < 16 and dtype.lanes.bit_count() > 2


def _odd_load(m: Emitter, pointer: str, dtype: DType) -> str:
    """The lanes of a vector whose length is no power of two, by a load of the next longer one that skips the rest."""
    width = 1 << dtype.lanes.bit_length()
    wide = dtype.with_lanes(width)
    kind, name = register_type(wide), f"llvm.masked.load.v{width}{suffix(dtype.element)}.p0"
    m.declare(kind, name, f"ptr, i32, <{width} x i1>, {kind}")
    mask = ", ".join("i1 true" if k < dtype.lanes else "i1 false" for k in range(width))
    flags = f"<{width} x i1> <{mask}>"
    raw = m.here(f"call {kind} @{name}(ptr {pointer}, i32 {dtype.element.bytes}, {flags}, {kind} zeroinitializer)")
    return shuffle(m, raw, raw, wide, list(range(dtype.lanes)))


def to_register(m: Emitter, raw: str, dtype: DType) -> str:
    """From the memory type to the register type."""
    if dtype.is_bool:
        zero = "zeroinitializer" if dtype.lanes > 1 else "0"
        return m.pure(f"icmp ne {vector('i8', dtype.lanes)} {raw}, {zero}", raw)
    if dtype.bits < 8:
        return m.pure(f"trunc {vector('i8', dtype.lanes)} {raw} to {register_type(dtype)}", raw)
    return raw


def to_memory(m: Emitter, value: str, dtype: DType) -> str:
    """From the register type to the memory type."""
    if dtype.bits >= 8:
        return value
    extend = "sext" if dtype.code == "int" else "zext"
    return m.pure(f"{extend} {register_type(dtype)} {value} to {vector('i8', dtype.lanes)}", value)


def _vector_load(m: Emitter, buffer: S.Buffer, index: E.Expr) -> str:
    dtype = buffer.dtype.with_lanes(index.dtype.lanes)
    if m.mask is not None:
        return _masked_load(m, buffer, index, dtype)
    if isinstance(index, E.Broadcast) and index.value.dtype.lanes == 1:
        lane = broadcast_load(m, buffer, index.value, dtype)
        return lane or splat(m, _scalar(m, address(m, buffer, linear(m, index.value)), buffer.dtype), dtype)
    if isinstance(index, E.Ramp) and index.base.dtype.lanes == 1:
        stride = m.static_int(index.stride)
        base = linear(m, index.base)
        if stride == 1 and (width := _width_at_end(m, buffer, index)) > dtype.lanes:
            wide = dtype.with_lanes(width)
            whole = _from_memory(m, address(m, buffer, base), wide, 0)
            return shuffle(m, whole, whole, wide, list(range(dtype.lanes)))
        if stride == 1:
            align = _stated_alignment(m, buffer, base, dtype)
            return _from_memory(m, address(m, buffer, base), dtype, align)
        if stride == -1:
            base.constant -= index.lanes - 1
            whole = _from_memory(m, address(m, buffer, base), dtype, 0)
            return shuffle(m, whole, whole, dtype, list(range(index.lanes - 1, -1, -1)))
        if stride == 2:
            return _every_second(m, buffer, base, dtype)
    stretch = _from_stretch(m, buffer, index, dtype)
    if stretch is not None:
        return stretch
    if dtype.lanes >= MIN_GATHERED and dtype.bits == 32 and m.cpu.memory.gathers and "avx512vl" in m.cpu.features:
        return _gather(m, buffer, index, dtype, f"<{', '.join(['i1 true'] * dtype.lanes)}>")
    return _collect_lanes(m, buffer, index, dtype)


def _from_stretch(m: Emitter, buffer: S.Buffer, index: E.Expr, dtype: DType) -> str | None:
    """One load of the stretch that all lanes lie in, and a shuffle; None where that is not known or too long."""
    pattern = lane_pattern(m, index)
    if pattern is None:
        return None
    base, offsets = pattern
    low, length = min(offsets), max(offsets) - min(offsets) + 1
    if length > MAX_STRETCH * dtype.lanes or length < 2:
        return None
    base.constant += low
    wide = dtype.with_lanes(length)
    whole = _from_memory(m, address(m, buffer, base), wide, 0)
    return shuffle(m, whole, whole, wide, [offset - low for offset in offsets])


def _every_second(m: Emitter, buffer: S.Buffer, base: Linear, dtype: DType) -> str:
    """Two loads that overlap in one element cover exactly the 2*lanes-1 elements, then a shuffle."""
    lanes = dtype.lanes
    first = _from_memory(m, address(m, buffer, Linear(dict(base.terms), base.constant)), dtype, 0)
    base.constant += lanes - 1
    second = _from_memory(m, address(m, buffer, base), dtype, 0)
    half = (lanes + 1) // 2
    return shuffle(m, first, second, dtype, [2 * k if k < half else 2 * k + 1 for k in range(lanes)])


def shuffle(m: Emitter, a: str, b: str, dtype: DType, lanes: list[int]) -> str:
    """Lanes of the concatenation of two vectors of `dtype`; `_ANYTHING` for a lane whose value does not matter."""
    kind = register_type(dtype)
    mask = ", ".join("i32 poison" if lane == _ANYTHING else f"i32 {lane}" for lane in lanes)
    return m.pure(f"shufflevector {kind} {a}, {kind} {b}, <{len(lanes)} x i32> <{mask}>", a, b)


def splat(m: Emitter, value: str, dtype: DType) -> str:
    """A scalar register value in every lane of `dtype`."""
    kind = register_type(dtype)
    one = m.pure(f"insertelement {kind} poison, {register_element(dtype.element)} {value}, i64 0", value)
    return m.pure(f"shufflevector {kind} {one}, {kind} poison, <{dtype.lanes} x i32> zeroinitializer", one)


def lane_addresses(m: Emitter, buffer: S.Buffer, index: E.Expr) -> list[str]:
    """A pointer per lane of a vector index."""
    if isinstance(index, E.Ramp) and index.base.dtype.lanes == 1:
        stride = m.static_int(index.stride)
        if stride is not None:
            base = linear(m, index.base)
            return [
                address(m, buffer, Linear(dict(base.terms), base.constant + k * stride)) for k in range(index.lanes)
            ]
    kind, value = register_type(index.dtype), m.value(index)
    element = memory_element(buffer.dtype)
    extend = "sext" if index.dtype.code == "int" else "zext"
    start = address(m, buffer, Linear())
    pointers = []
    for k in range(index.dtype.lanes):
        one = m.pure(f"extractelement {kind} {value}, i64 {k}", value)
        wide = one if index.dtype.bits == 64 else m.pure(f"{extend} i{index.dtype.bits} {one} to i64", one)
        pointers.append(m.pure(f"getelementptr inbounds {element}, ptr {start}, i64 {wide}", start, wide))
    return pointers


def _collect_lanes(m: Emitter, buffer: S.Buffer, index: E.Expr, dtype: DType) -> str:
    kind, element = register_type(dtype), register_element(buffer.dtype)
    result = "poison"
    for k, pointer in enumerate(lane_addresses(m, buffer, index)):
        one = _scalar(m, pointer, buffer.dtype)
        result = m.pure(f"insertelement {kind} {result}, {element} {one}, i64 {k}", result, one)
    return result


def _masked_load(m: Emitter, buffer: S.Buffer, index: E.Expr, dtype: DType) -> str:
    memory = vector(memory_element(buffer.dtype), dtype.lanes)
    short = f"v{dtype.lanes}{'i8' if buffer.dtype.bits < 8 else suffix(buffer.dtype)}"
    align, mask = buffer.dtype.bytes, m.mask
    flags = f"<{dtype.lanes} x i1> {mask}"
    contiguous = isinstance(index, E.Ramp) and index.base.dtype.lanes == 1 and m.static_int(index.stride) == 1
    if contiguous and isinstance(index, E.Ramp):
        pointer, name = address(m, buffer, linear(m, index.base)), f"llvm.masked.load.{short}.p0"
        m.declare(memory, name, f"ptr, i32, <{dtype.lanes} x i1>, {memory}")
        raw = m.here(f"call {memory} @{name}(ptr {pointer}, i32 {align}, {flags}, {memory} zeroinitializer)")
        return to_register(m, raw, dtype)
    return _gather(m, buffer, index, dtype, str(mask))


def _gather(m: Emitter, buffer: S.Buffer, index: E.Expr, dtype: DType, mask: str) -> str:
    """One load for all lanes, each from a place of its own, of those that a mask chooses; the others are 0."""
    memory = vector(memory_element(buffer.dtype), dtype.lanes)
    short = f"v{dtype.lanes}{'i8' if buffer.dtype.bits < 8 else suffix(buffer.dtype)}"
    kind, places = f"<{dtype.lanes} x ptr>", m.value(index)
    start, element = address(m, buffer, Linear()), memory_element(buffer.dtype)
    pointers = m.pure(f"getelementptr {element}, ptr {start}, {register_type(index.dtype)} {places}", start, places)
    name = f"llvm.masked.gather.{short}.v{dtype.lanes}p0"
    m.declare(memory, name, f"{kind}, i32, <{dtype.lanes} x i1>, {memory}")
    flags = f"<{dtype.lanes} x i1> {mask}"
    raw = m.here(
        f"call {memory} @{name}({kind} {pointers}, i32 {buffer.dtype.bytes}, {flags}, {memory} zeroinitializer)"
    )
    return to_register(m, raw, dtype)


def store(m: Emitter, s: S.BufferStore) -> None:
    """Emit a store."""
    index = flat_index(s.buffer, s.indices)
    if isinstance(s.value, E.Call) and s.value.name == "masked_value":
        _masked_store(m, s, s.value, index)
        return
    value = m.value(s.value)
    lanes = s.buffer.dtype.lanes * index.dtype.lanes
    dtype = s.buffer.dtype.element.with_lanes(lanes)
    if s.value.dtype.lanes == 1 and lanes > 1:
        value = splat(m, value, dtype)
    file = m.files.get(s.buffer)
    if file is not None:
        _register_store(m, file, index, value, dtype)
        return
    if s.buffer.dtype.lanes > 1:
        _to_memory_at(m, value, dtype, _wide_element(m, s.buffer, index))
    elif index.dtype.lanes == 1:
        _to_memory_at(m, value, dtype, address(m, s.buffer, linear(m, index)))
    elif isinstance(index, E.Ramp) and index.base.dtype.lanes == 1 and m.static_int(index.stride) == 1:
        width = _width_at_end(m, s.buffer, index)
        if width > lanes:
            # bytes: of a number of them that is no power of two LLVM 20 combines such copies for ever (AVX-512)
            rest = lanes - 1 if dtype.bits >= 32 else _ANYTHING
            value = shuffle(m, value, value, dtype, [k if k < lanes else rest for k in range(width)])
            dtype = dtype.with_lanes(width)
        start = linear(m, index.base)
        is_streamed = s.buffer in m.streams and is_lines(start, dtype)
        m.has_streamed |= is_streamed
        align = _stated_alignment(m, s.buffer, start, dtype)
        _to_memory_at(m, value, dtype, address(m, s.buffer, start), is_streamed=is_streamed, align=align)
    else:
        kind = register_type(dtype)
        for k, pointer in enumerate(lane_addresses(m, s.buffer, index)):
            one = m.pure(f"extractelement {kind} {value}, i64 {k}", value)
            _to_memory_at(m, one, s.buffer.dtype, pointer)


def _masked_store(m: Emitter, s: S.BufferStore, value: E.Call, index: E.Expr) -> None:
    """A store of the lanes that a mask has."""
    if m.is_volatile(s.buffer):
        message = "The masked store intrinsic does not support declaring store as volatile."
        raise UnsupportedError(f"llvm: {message}", hint="leave out the note volatile_scope, or the predicate")
    lanes, buffer = index.dtype.lanes, s.buffer
    dtype = buffer.dtype.element.with_lanes(lanes)
    flags = f"<{lanes} x i1> {m.value(value.args[0])}"
    memory = vector(memory_element(buffer.dtype), lanes)
    short = f"v{lanes}{'i8' if buffer.dtype.bits < 8 else suffix(buffer.dtype)}"
    stored = f"{memory} {to_memory(m, m.value(value.args[1]), dtype)}"
    if isinstance(index, E.Ramp) and index.base.dtype.lanes == 1 and m.static_int(index.stride) == 1:
        name, kind, places = f"llvm.masked.store.{short}.p0", "ptr", address(m, buffer, linear(m, index.base))
    else:
        name, kind = f"llvm.masked.scatter.{short}.v{lanes}p0", f"<{lanes} x ptr>"
        start, element, at = address(m, buffer, Linear()), memory_element(buffer.dtype), m.value(index)
        places = m.pure(f"getelementptr {element}, ptr {start}, {register_type(index.dtype)} {at}", start, at)
    m.declare("void", name, f"{memory}, {kind}, i32, <{lanes} x i1>")
    m.do(f"call void @{name}({stored}, {kind} {places}, i32 {buffer.dtype.bytes}, {flags})")


def _width_at_end(m: Emitter, buffer: S.Buffer, index: E.Ramp) -> int:
    """How many lanes an access to the end of a buffer may have: whole vectors, where there is room behind it.

    What is stored in two pieces and loaded as one waits for the cache.
    """
    lanes, bytes_ = index.lanes, buffer.dtype.bytes
    width, first = 1 << (lanes - 1).bit_length(), m.static_int(index.base)
    if buffer not in m.padded_buffers or width == lanes or first is None or buffer.dtype.bits < 8:
        return lanes
    size = elements(buffer)
    padded = -(-size * bytes_ // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT
    return width if first + lanes == size and (first + width) * bytes_ <= padded else lanes


def _stated_alignment(m: Emitter, buffer: S.Buffer, start: Linear, dtype: DType) -> int:
    """The bytes that an access begins at a multiple of, where its instruction can say so; 0: those of an element."""
    if not m.alignment or buffer.elem_offset is not None or dtype.bits < 8:
        return 0
    places = (*start.terms.values(), start.constant, dtype.lanes)
    return m.alignment if all(n * dtype.element.bytes % m.alignment == 0 for n in places) else 0


def _to_memory_at(
    m: Emitter, value: str, dtype: DType, pointer: str, *, is_streamed: bool = False, align: int = 0
) -> None:
    kind = vector(memory_element(dtype.element), dtype.lanes)
    notes = STREAMED if is_streamed else f"align {align or dtype.element.bytes}"
    m.do(f"store {kind} {to_memory(m, value, dtype)}, ptr {pointer}, {notes}")


def _place(m: Emitter, index: E.Expr, file: RegisterFile) -> tuple[int, int, int]:
    """Slot, lane inside the slot and number of lanes of an access to a register file."""
    base = index.base if isinstance(index, E.Ramp) else index
    at = m.static_int(base)
    if at is None:
        raise refuse("llvm", "a register buffer at an index that is not constant")
    return at // file.lanes, at % file.lanes, index.dtype.lanes


def _register_load(m: Emitter, buffer: S.Buffer, file: RegisterFile, index: E.Expr) -> str:
    if isinstance(index, E.Broadcast):
        one = _register_load(m, buffer, file, index.value)
        return splat(m, one, buffer.dtype.with_lanes(index.lanes))
    if file.columns:
        start = m.static_int(index.base) if isinstance(index, E.Ramp) else None
        assert start is not None, "register_plan has looked at every access of a tile"
        return row_part(m, file.values, file.dtype, start, index.dtype.lanes)
    slot, lane, lanes = _place(m, index, file)
    if not 0 <= slot < len(file.values):
        raise refuse("llvm", f"an access to buffer {buffer.name} outside its bounds")
    value = _register(m, file, slot)
    if lanes == file.lanes:
        return value
    if lanes == 1:
        return m.pure(f"extractelement {register_type(file.dtype)} {value}, i64 {lane}", value)
    return shuffle(m, value, value, file.dtype, list(range(lane, lane + lanes)))


def _register(m: Emitter, file: RegisterFile, slot: int) -> str:
    """What a slot holds, in order."""
    if slot in file.pairs:
        return read_row(m, file, slot)
    return read_spread(m, file, slot) if slot in file.spread else file.values[slot]


def _register_store(m: Emitter, file: RegisterFile, index: E.Expr, value: str, dtype: DType) -> None:
    if file.columns:
        start = m.static_int(index.base) if isinstance(index, E.Ramp) else None
        assert start is not None, "register_plan has looked at every access of a tile"
        file.values[start] = value
        return
    slot, lane, lanes = _place(m, index, file)
    if not 0 <= slot < len(file.values):
        raise refuse("llvm", "a store to a register buffer outside its bounds")
    if lanes != file.lanes:
        old = _register(m, file, slot)
        value = _blend(m, old, value, file.dtype, dtype, lane)
    if slot in file.pairs:
        write_row(m, file, slot, value)
    elif slot in file.spread:
        write_spread(m, file, slot, value)
    else:
        file.values[slot] = value


def _blend(m: Emitter, old: str, part: str, whole: DType, dtype: DType, first: int) -> str:
    """A register with some of its lanes, from `first` on, replaced by a shorter vector or a scalar."""
    kind = register_type(whole)
    if dtype.lanes == 1:
        return m.pure(f"insertelement {kind} {old}, {register_element(dtype.element)} {part}, i64 {first}", old, part)
    inside = range(first, first + dtype.lanes)
    wide = shuffle(m, part, part, dtype, [k - first if k in inside else 0 for k in range(whole.lanes)])
    return shuffle(m, old, wide, whole, [whole.lanes + k if k in inside else k for k in range(whole.lanes)])


EXPR_RULES[E.BufferLoad] = load
