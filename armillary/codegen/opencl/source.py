"""Device functions to OpenCL C source.

In: a `DeviceFunction` (`tir/phases.py`). Out: blocks of text: helpers, then one kernel for each launch, with an empty
line between (`program.py` joins those of many functions). Invariant: output is deterministic and needs OpenCL C 1.2
and no extension but cl_khr_fp64, where there are doubles; every kernel checks its own bounds. Expressions: `expr.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from armillary.base.extent import Known, as_size, bounds
from armillary.base.names import Names, identifier, symbol
from armillary.base.node import Visits, post_order
from armillary.codegen.base import flat_index, fused_product, refuse
from armillary.codegen.c.expr import Scope, is_short
from armillary.codegen.c.statements import (
    RESERVED,
    StatementEmitter,
    write_evaluate,
    write_if,
    write_let_vector,
    write_seq,
    write_while,
)
from armillary.codegen.opencl import half
from armillary.codegen.opencl.checks import asserts_in, write_assert, write_note
from armillary.codegen.opencl.expr import CALLS, HELPERS, ExprEmitter, is_half, memory_type, spelled
from armillary.codegen.opencl.places import Place, is_long_sum, is_open_sum, place_of
from armillary.codegen.opencl.texel import SAMPLER, access_of, is_of_vectors, is_pixel_loop, read_number, vector_part
from armillary.codegen.opencl.vector import ALIGNED, stored_vector, vector_store
from armillary.target.texture import PIXEL, is_texture
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, expressions_of
from armillary.tir.extents import from_expr
from armillary.tir.phases import DeviceFunction, DeviceKernel
from armillary.tir.transform.unroll_loop import UNROLL_COUNT

_NAMES = """
    half bool uchar ushort uint ulong size_t ptrdiff_t kernel global local constant private image2d_t image3d_t
    sampler_t event_t read_only write_only read_write pipe select min max clamp mix step sign degrees radians dot
    cross length distance normalize any all barrier fma mad exp log sqrt rsqrt pow sin cos tan tanh floor ceil round
    trunc rint abs fabs fmin fmax fmod ldexp erf erfc rotate popcount clz vload4 vstore4 isnan isinf
    image_sampler isfinite modf frexp remainder hypot cbrt printf prefetch shuffle convert NAN INFINITY M_PI
"""
_RESERVED = (
    RESERVED | frozenset((*_NAMES.split(), *half.NAMES)) | CALLS.keys()
)  # a buffer would hide the function of its name
_NAMED = (E.FloorDiv, E.FloorMod, E.Min, E.Max)  # integers that are computed once
_AXES = {"x": 0, "y": 1, "z": 2}
_DOUBLES = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable"
_AS_WRITTEN = "#pragma OPENCL FP_CONTRACT OFF"


class KernelEmitter(ExprEmitter, StatementEmitter):
    """One kernel being written."""

    def __init__(self, function: DeviceFunction, kernel: DeviceKernel) -> None:
        super().__init__()
        self.function, self.kernel = function, kernel
        self.labels = Names(_RESERVED)
        self.buffers: dict[S.Buffer, str] = {}
        self.index_of = self.element
        self.grid: set[E.Var] = set()  # what tells work-items apart
        self.is_part_of_sum = False  # what is being written: the sum has the name
        self.places = [Place(self.grid, "item", 0, "")]  # the kernel's top, and those of loops around
        self.uses_sampler = False
        self.codes = {s: code for code, s in enumerate((s for k in function.kernels for s in asserts_in(k)), 1)}
        self.status = self.call = ""  # of a kernel with asserts: where it says what it refuses, and whose call it is
        self.refused: E.Expr | None = None  # what the next assert shows

    def element(self, load: E.BufferLoad | S.BufferStore, lane: str | None) -> str:
        """An element of a buffer in memory, or a number that is read from an image."""
        if is_texture(load.buffer.scope):
            if not isinstance(load, E.BufferLoad):
                raise refuse("opencl", f"a store of single numbers to image {load.buffer.name}", "vectorize by 4")
            return read_number(self, load, lane)
        if load.buffer in self.of_vectors:
            part = vector_part(flat_index(load.buffer, load.indices))
            assert part is not None, "asked by is_of_vectors"
            vector, known = part
            of = f"{self.name_of(load.buffer)}[{self.index(vector)}]"
            return (
                f"{of}.s{known}" if known is not None else f"{self.helper(self.lane_helper(load.buffer))}({of}, {lane})"
            )
        index = flat_index(load.buffer, load.indices)
        return f"{self.name_of(load.buffer)}[{self.place(load, lane if index.dtype.lanes > 1 else None)}]"

    def name_of(self, buffer: S.Buffer) -> str:
        name = self.buffers.get(buffer)
        if name is None:
            raise refuse("opencl", f"an access to buffer {buffer.name}, which is no argument or allocation here")
        return name

    def place(self, load: E.BufferLoad | S.BufferStore, lane: str | None) -> str:
        """The index of an element, or of a lane's."""
        text = self.index(flat_index(load.buffer, load.indices), lane)
        return text if load.buffer.elem_offset is None else f"{text} + {self.index(load.buffer.elem_offset)}"

    def lane_helper(self, buffer: S.Buffer) -> str:
        """The function that takes a lane out of a pixel or vector of a buffer."""
        return "lane4h" if self.kind(buffer.dtype) == half.TYPE else "lane4"

    def own_type(self, buffer: S.Buffer) -> str:
        """The type of an element of a buffer that the kernel declares."""
        return self.kind(buffer.dtype) if is_half(buffer.dtype) else memory_type(buffer.dtype)

    def declare(self, var: E.Var) -> str:
        return self.bind(var, self.fresh_label(var.name))

    def fresh_label(self, name: str) -> str:
        """A name of the program as an identifier that nothing else has."""
        return self.labels.fresh(identifier(name))

    def constant(self, text: str, place: Place | None = None) -> str:
        """The name of an integer at a place, the top of the kernel if none is said."""
        place = place or self.places[0]
        name = place.names.get(text)
        if name is None:
            name = place.names[text] = self.fresh_label(f"{place.name}_{len(place.names)}")
            place.lines.append(f"const int {name} = {text};")
        return name

    def _index(self, item: E.Expr, lane: str | None) -> str:
        is_part, self.is_part_of_sum = self.is_part_of_sum, is_open_sum(item)
        is_named = isinstance(item, _NAMED) or (is_long_sum(item) and not is_part)
        place = place_of(item, self.places) if is_named else None
        if place is None:
            text = super()._index(item, lane)
        else:
            with self.at_top(place):
                named = self._named(item, lane)
            text = self.constant(named, place)  # behind the lines that it reads
        self.is_part_of_sum = is_part
        return text

    def _named(self, item: E.Expr, lane: str | None) -> str:
        if not isinstance(item, E.Min | E.Max):
            return super()._index(item, lane)
        a, b = self.index(item.a, lane), self.index(item.b, lane)
        return f"({a} {'<' if isinstance(item, E.Min) else '>'} {b} ? {a} : {b})"

    @contextmanager
    def at_top(self, place: Place | None = None) -> Iterator[None]:
        """Texts that are made inside stand at a place, with what they share: they name nothing of the statements
        around."""
        around, self.scopes = self.scopes, [Scope()]
        try:
            yield
        finally:
            (place or self.places[0]).lines.extend(self.scopes[0].lines)
            self.scopes = around

    @property
    def statements(self) -> Mapping[type[S.Stmt], Callable[..., None]]:
        return _STMTS


def emit_source(function: DeviceFunction) -> str:
    """The OpenCL C source of one function: helpers, then kernels, with an empty line between blocks."""
    helpers: set[str] = set()
    kernels = []
    for kernel in function.kernels:
        m = KernelEmitter(function, kernel)
        _kernel(m)
        helpers |= m.helpers
        kernels.append(m.writer.text())
    texts = [HELPERS[name] for name in HELPERS if name in helpers and HELPERS[name]]
    blocks = [spelled(text).strip("\n") for text in (*texts, *kernels)]
    if any("double" in block for block in blocks):
        blocks.insert(0, _DOUBLES)
    if any(half.are_named_in(block) for block in blocks):
        blocks.insert(0, half.TYPES)
    return "\n\n".join(blocks) + "\n"


def kernel_symbol(kernel: DeviceKernel) -> str:
    """The name of a kernel in the program."""
    return symbol(kernel.name)


def _kernel(m: KernelEmitter) -> None:
    kernel = m.kernel
    restrict = "restrict " if m.function.noalias else ""
    arguments = []
    for buffer in kernel.buffers:
        name = m.buffers[buffer] = m.fresh_label(buffer.name)
        if is_texture(buffer.scope):
            arguments.append(f"{access_of(buffer, kernel.body)} image2d_t {name}")
            continue
        m.in_memory.add(buffer)
        arguments.append(f"__global {memory_type(buffer.dtype)}* {restrict}{name}")
    casts = []
    for var in kernel.vars:
        word = m.fresh_label(f"{var.name}_word")
        arguments.append(f"int64_t {word}")
        name = m.declare(var)
        value = f"as_double({word})" if var.dtype.is_float else word
        named = as_size(from_expr(var))
        if named is not None and named.origin is None:
            m.ranges[var] = named.bounds
        casts.append(f"const {m.kind(var.dtype)} {name} = ({m.kind(var.dtype)}){value};")
    if asserts_in(kernel):
        m.status, m.call = m.fresh_label("status"), m.fresh_label("call")
        arguments += [f"volatile __global int* {m.status}", f"int64_t {m.call}"]
    items = ", ".join(str(n) for n in kernel.items)
    head = f"__kernel __attribute__((reqd_work_group_size({items})))"
    with m.writer.block(f"{head} void {kernel_symbol(kernel)}({', '.join(arguments)}) {{"):
        if _rounds_products(kernel.body):
            m.writer.line(_AS_WRITTEN)
        m.write(casts)
        for tag, var in kernel.axes.items():
            place = "get_group_id" if tag.startswith("block") else "get_local_id"
            extent = _extent(kernel, tag)
            m.ranges[var] = (0, bounds(extent)[1] - 1)
            m.writer.line(f"const int {m.declare(var)} = {place}({_AXES[tag[-1]]});")
            m.grid.add(var)
        for item in all_statements(kernel.body):
            if isinstance(item, S.Allocate) and item.buffer.scope == "shared" and item.buffer not in m.buffers:
                name = m.buffers[item.buffer] = m.fresh_label(item.buffer.name)
                aligned = f" __attribute__((aligned({ALIGNED})))" if _count(item.buffer) % PIXEL == 0 else ""
                m.writer.line(f"__local {m.own_type(item.buffer)} {name}[{_count(item.buffer)}]{aligned};")
        (top,) = m.places
        top.line, top.indent = len(m.writer.lines), m.writer.step
        m.stmt(kernel.body)
        if m.uses_sampler:
            top.lines.insert(0, SAMPLER)
        top.write(m.writer.lines)


def _rounds_products(body: S.Stmt) -> bool:
    """Whether products are to be rounded before they are added: in a sum that takes none in, and where floats become
    integers, as a position on a border must not lie beside it."""
    return any(_needs_rounding(item) for item in post_order(body))


def _needs_rounding(item: object) -> bool:
    match item:
        case E.Cast(dtype=to, value=value):
            return to.is_int and not to.is_bool and value.dtype.is_float
        case E.Add(a=a, b=b) | E.Sub(a=a, b=b):
            has_product = (isinstance(a, E.Mul) or isinstance(b, E.Mul)) and item.dtype.is_float
            return has_product and (isinstance(item, E.Sub) or fused_product(item) is None)
    return False


def _extent(kernel: DeviceKernel, tag: str) -> Known:
    sizes = kernel.groups if tag.startswith("block") else kernel.items
    return sizes[_AXES[tag[-1]]]


def _count(buffer: S.Buffer) -> int:
    count = 1
    for extent in buffer.shape:
        size = build.as_int(extent)
        if size is None:
            raise refuse("opencl", f"buffer {buffer.name}, whose size is not constant")
        count *= size
    return max(1, count)


def _for(m: KernelEmitter, s: S.For) -> None:
    if s.kind is S.LoopKind.THREAD:
        raise refuse("opencl", f"loop {s.var.name} bound to {s.thread_tag}", "run split-host-device")
    if isinstance(s.body, S.BufferStore) and is_pixel_loop(s, s.body):
        _store_pixel(m, s, s.body)
        return
    low, count = m.index(s.min), m.index(s.extent)
    m.flush()
    first, extent = build.as_int(s.min), build.as_int(s.extent)
    is_known = first is not None and extent is not None
    m.ranges[s.var] = (
        (first, first + extent - 1)
        if is_known and first is not None and extent is not None
        else (0, None)
        if m.is_non_negative(s.min)
        else (None, None)
    )
    var = m.declare(s.var)
    end = count if low == "0" else f"{low} + {count}"
    if s.kind is S.LoopKind.UNROLLED:
        m.writer.line(f"#pragma unroll {dict(s.annotations).get(UNROLL_COUNT, '')}".rstrip())
    with m.writer.block(f"for ({m.kind(s.var.dtype)} {var} = {low}; {var} < {end}; ++{var}) {{"):
        place = Place({s.var}, var, len(m.writer.lines), m.writer.step * m.writer.depth)
        m.places.append(place)
        m.stmt(s.body)
        m.places.pop().write(m.writer.lines)


def _store(m: KernelEmitter, s: S.BufferStore) -> None:
    lanes = s.indices[-1].dtype.lanes if s.indices else 1
    if lanes == 1:
        text = _to_memory(m, s) or f"{m.element(s, None)} = {_stored(m, s, None)};"
        m.flush()
        m.writer.line(text)
        return
    whole = vector_store(m, s)
    if whole is not None:
        m.flush()
        m.writer.line(whole)
        return
    if s.buffer in m.of_vectors or is_texture(s.buffer.scope):
        _store_lanes(m, s, lanes)
        return
    with m.scope() as lines:  # all lanes are computed before any is stored: the value may read the buffer
        value = _stored(m, s, "lane")
    with m.scope() as more:
        place = m.element(s, "lane")
    name = m.labels.fresh("staged")
    with m.writer.block("{"):
        m.flush()
        m.writer.line(f"{m.own_type(s.buffer)} {name}[{lanes}];")
        m.for_lanes(lanes, lines, f"{name}[lane] = {value};")
        in_memory = is_half(s.buffer.dtype) and s.buffer in m.in_memory
        m.for_lanes(lanes, more, half.store(f"{name}[lane]", f"&{place}") if in_memory else f"{place} = {name}[lane];")


def _store_pixel(m: KernelEmitter, loop: S.For, s: S.BufferStore) -> None:
    """The four numbers of a pixel that no vector expression gives, stored as a whole."""
    name, kind = m.labels.fresh("staged"), m.own_type(s.buffer)
    m.flush()
    with m.writer.block("{"):
        m.writer.line(f"{kind} {name}[{PIXEL}];")
        m.ranges[loop.var] = (0, PIXEL - 1)
        var = m.declare(loop.var)
        with m.writer.block(f"for (int {var} = 0; {var} < {PIXEL}; ++{var}) {{"):
            m.begin_statement(*expressions_of(s))
            value = _stored(m, s, None)
            m.flush()
            m.writer.line(f"{name}[{var}] = {value};")
        m.begin_statement(*expressions_of(s))
        whole = f"({kind}{PIXEL})({', '.join(f'{name}[{n}]' for n in range(PIXEL))})"
        text = stored_vector(m, s, whole, s.buffer.dtype)
        m.flush()
        m.writer.line(text)


def _store_lanes(m: KernelEmitter, s: S.BufferStore, lanes: int) -> None:
    """A vector whose lanes are computed one by one, stored as a whole."""
    if lanes != PIXEL:
        raise refuse("opencl", f"a store of {lanes} numbers to {s.buffer.name}", "vectorize by 4")
    with m.scope() as lines:
        value = _stored(m, s, "lane")
    name, kind = m.labels.fresh("staged"), m.own_type(s.buffer)
    with m.writer.block("{"):
        m.flush()
        m.writer.line(f"{kind} {name}[{lanes}];")
        m.for_lanes(lanes, lines, f"{name}[lane] = {value};")
        whole = f"({kind}{lanes})({', '.join(f'{name}[{n}]' for n in range(lanes))})"
        with m.scope() as lines:
            text = stored_vector(m, s, whole, s.buffer.dtype)
        m.write([*lines, text])


def _to_memory(m: KernelEmitter, s: S.BufferStore) -> str | None:
    """A store of a half to memory, of a float as it is; None for all else."""
    value = s.value
    if not is_half(s.buffer.dtype) or s.buffer not in m.in_memory:
        return None
    if isinstance(value, E.Cast) and value.value.dtype == "float32":
        return f"vstore_half_rte({m.value(value.value)}, {m.place(s, None)}, {m.name_of(s.buffer)});"
    return half.store(m.value(value), f"&{m.element(s, None)}")


def _stored(m: KernelEmitter, s: S.BufferStore, lane: str | None) -> str:
    text = m.value(s.value, lane if s.value.dtype.lanes > 1 else None)
    if is_short(s.buffer.dtype) and not is_half(s.buffer.dtype):
        return f"{m.helper(f'to_{s.buffer.dtype.element}')}({text})"
    return text


def _allocate(m: KernelEmitter, s: S.Allocate) -> None:
    if s.buffer.scope == "shared":  # declared at the top of the kernel
        m.stmt(s.body)
        return
    name = m.buffers[s.buffer] = m.fresh_label(s.buffer.name)
    if is_of_vectors(s.buffer, s.body):
        m.of_vectors.add(s.buffer)
        m.writer.line(f"{spelled(m.own_type(s.buffer))}{PIXEL} {name}[{_count(s.buffer) // PIXEL}];")
    else:
        m.writer.line(f"{m.own_type(s.buffer)} {name}[{_count(s.buffer)}];")
    m.stmt(s.body)


def _let(m: KernelEmitter, s: S.LetStmt) -> None:
    if s.var.dtype.lanes > 1:
        write_let_vector(m, s)
        return
    value = m.value(s.value)
    m.flush()
    m.ranges[s.var] = m.range(s.value) if s.var.dtype.is_int else (None, None)
    with m.writer.block("{"):
        m.writer.line(f"{m.kind(s.var.dtype)} {m.declare(s.var)} = {value};")
        m.stmt(s.body)


def _evaluate(m: KernelEmitter, s: S.Evaluate) -> None:
    if not (isinstance(s.value, E.Call) and s.value.name == "prefetch"):
        write_evaluate(m, s)


_STMTS: Visits[KernelEmitter, [], None] = {
    S.For: _for,
    S.IfThenElse: write_if,
    S.While: write_while,
    S.BufferStore: _store,
    S.Allocate: _allocate,
    S.LetStmt: _let,
    S.AssertStmt: write_assert,
    S.AttrStmt: write_note,
    S.SeqStmt: write_seq,
    S.Evaluate: _evaluate,
}
