"""Split functions to LLVM IR text.

In: a `PhasedFunction` and a CPU model. Out: the text of a module with one exported function per phase,
`<name>__p<k>`, and one per symbolic extent. Each phase is an exported wrapper that reads the argument array and an
internal body whose pointer arguments are `noalias`. Invariant: output is deterministic; loops marked UNROLLED are
expanded here; local buffers chosen by `registers` become SSA values with phi nodes. Expressions: `llvm/expr.py`;
machine code: `llvm/target.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from armillary.base.dtype import DType
from armillary.base.extent import Known
from armillary.base.imported import IMPORTS, SCALABLE
from armillary.base.names import symbol
from armillary.base.node import Visits, reachable
from armillary.codegen.base import Touched, constant_extent, extent_symbol, phase_symbol, refuse, state_notes
from armillary.codegen.llvm.amx import framed
from armillary.codegen.llvm.calls import call
from armillary.codegen.llvm.dots.byte_matrices import add_pair, paired, row_pairs
from armillary.codegen.llvm.dots.spread_sums import Order, add_words, joined_terms, spread_slots
from armillary.codegen.llvm.expr import cast
from armillary.codegen.llvm.index import linear, sum_of
from armillary.codegen.llvm.lane_loads import LOAD_AGAIN, shared_loads
from armillary.codegen.llvm.memory import store
from armillary.codegen.llvm.nontemporal import NOTES, choose, fence, streamed_outputs
from armillary.codegen.llvm.packed import CALLER, calls_by_name
from armillary.codegen.llvm.registers import Shape, elements, is_unrolled, register_plan
from armillary.codegen.llvm.state import BUFFER_ALIGNMENT, Emitter, RegisterFile
from armillary.codegen.llvm.subnormals import DECLARATIONS as MODES
from armillary.codegen.llvm.subnormals import around, flushes
from armillary.codegen.llvm.types import memory_element, register_type, vector
from armillary.target.cpu import CpuModel
from armillary.target.pstate import COMPUTE
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.extents import to_expr
from armillary.tir.phases import Phase, PhasedFunction
from armillary.tir.transform.inject_prefetch import LINE_BYTES

MAX_STACK = 1 << 20  # bytes of one local buffer
ALIGNED = 16  # bytes that loads and stores of a NEON register of 32-bit Arm may state as their alignment
NARROW_INDEX = ("arm", "i386", "riscv32")  # 64-bit counters take two registers there
STACK_BITS = 128  # alignment of the stack on entry, of every ABI we know
_LOOP_NOTES = "!0 = distinct !{!0, !1, !2}\n"
_LOOP_NOTES += '!1 = !{!"llvm.loop.unroll.disable"}\n!2 = !{!"llvm.loop.vectorize.enable", i1 false}\n'
_SCALABLE_NOTES = '!0 = distinct !{!0, !1, !2, !4}\n!1 = !{!"llvm.loop.unroll.disable"}\n'
_SCALABLE_NOTES += f'!2 = !{{!"{SCALABLE}", i1 true}}\n!4 = !{{!"llvm.loop.interleave.count", i32 2}}\n'
_UNPRICED = ("llvm.maximum.f", "llvm.minimum.f")  # LLVM has no price of these for vectors of SVE, and leaves them


class FunctionEmitter(Emitter):
    """An Emitter that also knows the function it is in."""

    def __init__(
        self,
        cpu: CpuModel,
        function: PhasedFunction,
        touched: Touched,
        fast_math: str = "",
        streams: frozenset[S.Buffer] = frozenset(),
        alignment: int = 0,
    ) -> None:
        super().__init__(cpu, fast_math, streams)
        self.alignment = alignment  # bytes that pointers are known to be multiples of; 0: elements'
        self.has_narrow_index = cpu.arch in NARROW_INDEX
        # SVE's registers have 128 to 2048 bits, which is 1 to 16 times vscale
        self.attributes = " vscale_range(1,16)" if cpu.features & {"sve", "sme"} else ""
        self.function, self.touched = function, touched
        self.plan: dict[S.Buffer, Shape] = {}

    def stmt(self, item: S.Stmt) -> None:
        """Emit a statement."""
        rule = _STMTS.get(type(item))
        if rule is None:
            raise refuse("llvm", f"a statement of type {type(item).__name__}")
        self.begin_statement()
        rule(self, item)


def emit_module(function: PhasedFunction, cpu: CpuModel, fast_math: str = "") -> str:
    """The LLVM IR text of one function; `fast_math` are LLVM's flags for its float arithmetic ("" is strict)."""
    parts: list[str] = []
    emitters: list[FunctionEmitter] = []
    touched = Touched()
    streams, is_flushing = streamed_outputs(function, touched, cpu), flushes(function, cpu)
    for index, phase in enumerate(function.phases):
        bodies = [FunctionEmitter(cpu, function, touched, fast_math)]
        if not streams.isdisjoint(touched.written(phase.body)):
            bodies.append(FunctionEmitter(cpu, function, touched, fast_math, streams))
        elif cpu.arch == "arm" and cpu.vector_bits == 8 * ALIGNED and not register_plan(phase.body):
            bodies.append(FunctionEmitter(cpu, function, touched, fast_math, alignment=ALIGNED))
        text, used = _phase(bodies, phase, index, is_flushing)
        parts.append(text)
        emitters += used
        if constant_extent(phase) is None:
            parts.append(_extent(function, phase, index, cpu))
    declared = {name: line for m in emitters for name, line in m.declared.items()} | (MODES if is_flushing else {})
    math = {name: text for m in emitters for name, text in m.math.items()}
    notes = _LOOP_NOTES
    if "sve" in cpu.features and _is_scalar(function):
        has_extremes = any(name.startswith(_UNPRICED) for name in declared)
        notes = _with_width(function) if has_extremes else _SCALABLE_NOTES
    notes += NOTES if any(m.has_streamed for m in emitters) else ""
    head = [f"; {symbol(function.name)}", *(declared[name] for name in sorted(declared))]
    text = "\n".join([*head, *(math[name] for name in sorted(math)), *parts, notes])
    return IMPORTS.join(filter(None, (text, function.imports)))


def _with_width(function: PhasedFunction) -> str:
    """The notes of loops that take vectors of SVE at LLVM's word: as many elements as 128 bits have of the widest."""
    lanes = STACK_BITS // max(buffer.dtype.bits for buffer in function.params)
    text = _SCALABLE_NOTES.replace("!4}", "!4, !5}", 1)
    return f'{text}!5 = !{{!"llvm.loop.vectorize.width", i32 {max(2, lanes)}}}\n'


def _is_scalar(function: PhasedFunction) -> bool:
    """Whether a function has loops and no vector: nobody scheduled it, so LLVM may find those of SVE."""
    nodes = [item for phase in function.phases for item in reachable(phase.body)]
    has_loops = any(isinstance(item, S.For) for item in nodes) or any(p.is_parallel for p in function.phases)
    return has_loops and not any(isinstance(item, E.Expr) and item.dtype.lanes > 1 for item in nodes)


@dataclass(slots=True)
class _Entry:
    """How a phase's body gets its pointers: its parameters, what loads them, what is passed."""

    parameters: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    bytes_: int = 8  # of a pointer

    def pointer(self, slot: int, name: str, notes: str) -> None:
        """One pointer of the argument array."""
        self.parameters.append(f"ptr {notes} %{name}")
        self.loads.append(f"  %{name}.at = getelementptr inbounds ptr, ptr %data, i64 {slot}")
        self.loads.append(f"  %{name} = load ptr, ptr %{name}.at, align {self.bytes_}")
        self.arguments.append(f"ptr %{name}")


def _phase(
    bodies: list[FunctionEmitter], phase: Phase, index: int, is_flushing: bool
) -> tuple[str, list[FunctionEmitter]]:
    """The body function and its exported wrapper, and who emitted them; a second body is kept if something streams."""
    m, *others = bodies
    name, entry = phase_symbol(m.function, index), _Entry(bytes_=4 if m.has_narrow_index else 8)
    scope, attributes = _scope(bodies, m.function.name, index, phase.body)
    text, used = _body(m, phase, f"{name}{scope}", entry), [m]
    arguments = ", ".join([*entry.arguments, "ptr %vars, i64 %begin, i64 %end"])
    called = f"  %code = call i32 @{name}{scope}({arguments})\n  ret i32 %code"
    for other in others:
        label = "aligned" if other.alignment else "streams"
        second = _body(other, phase, f"{name}.{label}", _Entry())
        if other.has_streamed or other.alignment:
            text += second
            used.append(other)
            wanted = other.streams or m.function.params
            places = [m.pointers[b] for b in m.function.params if b in wanted and b in m.pointers]
            called = choose(name, places, arguments, label, other.alignment or LINE_BYTES) if places else called
    wrapper = "".join(line + "\n" for line in entry.loads) + (around(called) if is_flushing else called)
    head = f"define i32 @{name}(ptr %data, ptr %vars, i64 %begin, i64 %end, i64 %thread) nounwind"
    return f"{text}{head} {{\n{wrapper}\n}}\n{attributes}", used


def _scope(bodies: list[FunctionEmitter], name: str, index: int, body: S.Stmt) -> tuple[str, str]:
    """How the name of a phase's body ends, and its attributes: what asks for a state is its function's compute."""
    notes = state_notes(body, name) if "sme" in bodies[0].cpu.features else ()
    if not notes:
        return ".body", ""
    for m in bodies:
        m.attributes += f" #{index}"
    quoted = " ".join(f'"{note}"' for note in notes)
    return COMPUTE, f"attributes #{index} = {{ {quoted} }}\n"


def _body(m: FunctionEmitter, phase: Phase, name: str, entry: _Entry) -> str:
    """The function with the phase's loop."""
    function = m.function
    written, read = m.touched.written(phase.body), m.touched.read(phase.body)
    alias = "noalias " if function.noalias else ""
    for slot, buffer in enumerate(function.params):
        if buffer in written or buffer in read:
            bytes_ = LINE_BYTES if buffer in m.streams else max(m.alignment, buffer.dtype.element.bytes)
            notes = f"{alias}align {bytes_}" + ("" if buffer in written else " readonly")
            entry.pointer(slot, f"a{slot}", notes)
            m.pointers[buffer] = f"%a{slot}"
    count = len(function.params)

    def pointer(slot: int, name: str) -> None:
        entry.pointer(slot, name, f"{alias}align 64")

    _bind_vars(m, function)  # offsets in workspaces may depend on them
    _workspace(m, function.shared_workspace, "ws", pointer, count, written | read)
    if _workspace(m, function.thread_workspace, "tws", pointer, count + 1, written | read):
        stride = str(function.thread_bytes)
        if not isinstance(function.thread_bytes, int):
            entry.loads.append(f"  %tws.stride.at = getelementptr inbounds i64, ptr %vars, i64 {len(function.vars)}")
            entry.loads.append("  %tws.bytes = load i64, ptr %tws.stride.at, align 8")
            stride = "%tws.bytes"
        entry.loads.append(f"  %tws.skip = mul i64 %thread, {stride}")
        entry.loads.append("  %tws.own = getelementptr inbounds i8, ptr %tws, i64 %tws.skip")
        entry.arguments[-1] = "ptr %tws.own"
    if calls_by_name(phase.body):
        entry.pointer(count + 2, CALLER, "")
    m.plan = register_plan(phase.body)
    _window(m, phase)
    if m.has_streamed:
        fence(m)
    m.do("ret i32 0")
    body = "\n".join([*m.allocas, *framed(m, m.regions[0].lines)])
    # LLVM aligns the stack for spilled vectors only if told so before it allocates registers. Else three stacks of four
    # have all of them across two cache lines: a Winograd product with 28 sums put aside then takes a quarter longer
    aligned = ' "stackrealign"' if m.cpu.arch in ("x86_64", "i386") and m.cpu.vector_bits > STACK_BITS else ""
    shared = "ptr noalias readonly %vars, i64 %begin, i64 %end"
    notes = f"noinline nounwind{aligned}{m.attributes}"
    head = f"define internal i32 @{name}({', '.join([*entry.parameters, shared])}) {notes}"
    return f"{head} {{\nentry:\n{body}\n}}\n"


def _workspace(
    m: FunctionEmitter,
    layout: dict[S.Buffer, Known],
    name: str,
    pointer: Callable[[int, str], None],
    slot: int,
    touched: frozenset[S.Buffer],
) -> bool:
    """Point the buffers of a workspace into it; whether any is used here."""
    used = [(buffer, offset) for buffer, offset in layout.items() if buffer in touched]
    if not used:
        return False
    pointer(slot, name)
    m.padded_buffers.update(buffer for buffer, _ in used)
    for buffer, offset in used:
        at = str(offset) if isinstance(offset, int) else sum_of(m, linear(m, to_expr(offset)))
        m.pointers[buffer] = m.pure(f"getelementptr inbounds i8, ptr %{name}, i64 {at}") if at != "0" else f"%{name}"
    return True


def _bind_vars(m: FunctionEmitter, function: PhasedFunction) -> None:
    """Scalar arguments and symbolic dimensions, from the array of int64."""
    for slot, var in enumerate(function.vars):
        at = m.pure(f"getelementptr inbounds i64, ptr %vars, i64 {slot}")
        word = m.pure(f"load i64, ptr {at}, align 8", at)
        if var.dtype.is_int:
            m.wide[var] = word
        elif var.dtype.is_bool:
            m.scalars[var] = m.pure(f"icmp ne i64 {word}, 0", word)
        else:
            real = m.pure(f"bitcast i64 {word} to double", word)
            m.scalars[var] = cast(m, real, _FLOAT64, var.dtype)


def _extent(function: PhasedFunction, phase: Phase, index: int, cpu: CpuModel) -> str:
    m = FunctionEmitter(cpu, function, Touched())
    _bind_vars(m, function)
    value = sum_of(m, linear(m, phase.extent))
    low = m.pure(f"icmp sgt i64 {value}, 0", value)
    result = m.pure(f"select i1 {low}, i64 {value}, i64 0", low, value)
    body = "\n".join(m.regions[0].lines)
    return (
        f"define i64 @{extent_symbol(function, index)}(ptr %vars) nounwind {{\nentry:\n{body}\n  ret i64 {result}\n}}\n"
    )


def _window(m: FunctionEmitter, phase: Phase) -> None:
    """The loop over [min + begin, min + end)."""
    low = linear(m, phase.min)
    first = sum_of(m, low)
    begin, end = "%begin", "%end"
    if first != "0":
        begin, end = (m.pure(f"add nsw i64 {first}, {x}", first) for x in (begin, end))
    extent, start = constant_extent(phase), m.static_int(phase.min)
    lowest = m.range(phase.min)[0]
    m.ranges[phase.var] = (lowest, start + extent - 1 if start is not None and extent else None)
    _loop(m, phase.var, begin, end, phase.body, is_never_empty=False)


def _for(m: FunctionEmitter, s: S.For) -> None:
    if s.kind is S.LoopKind.THREAD:
        raise refuse("llvm", f"loop {s.var.name} bound to {s.thread_tag}", "GPU axes need a GPU target")
    low, count = m.static_int(s.min), m.static_int(s.extent)
    if low is not None and count is not None and (count == 1 or is_unrolled(s)):
        for k in range(low, low + count):
            m.constants[s.var] = k
            m.stmt(s.body)
        m.constants.pop(s.var, None)
        return
    if count is not None and count <= 0:
        return
    first, total = linear(m, s.min), linear(m, s.extent)
    begin = sum_of(m, first)
    first.add(total, 1)
    end = sum_of(m, first)
    (lowest, highest), (_, most) = m.range(s.min), m.range(s.extent)
    m.ranges[s.var] = (lowest, highest + most - 1 if highest is not None and most is not None else None)
    _loop(m, s.var, begin, end, s.body, is_never_empty=count is not None)


def _loop(m: FunctionEmitter, var: E.Var, begin: str, end: str, body: S.Stmt, is_never_empty: bool) -> None:
    """A rotated loop; register files that the body stores to become phi nodes."""
    label, done = m.label("loop"), m.label("done")
    before = m.block
    files = [f for b in _ordered(m, body) if (f := m.files.get(b)) is not None]
    saved = [list(f.values) for f in files]
    bits = _counter_bits(m, var)
    if bits < 64:
        begin, end = (_narrowed(m, x, bits) for x in (begin, end))
    m.open(label)
    counter = m.fresh()
    names = [[m.fresh() for _ in f.values] for f in files]
    for file, fresh in zip(files, names, strict=True):
        file.values[:] = fresh
    m.wide[var] = counter if bits == 64 else m.pure(f"sext i{bits} {counter} to i64", counter)
    m.stmt(body)
    following = m.here(f"add nsw i{bits} {counter}, 1")
    test = m.here(f"icmp slt i{bits} {following}, {end}")
    latch = m.block
    m.do(f"br i1 {test}, label %{label}, label %{done}, !llvm.loop !0")
    lines = m.close()
    guard = "" if is_never_empty else m.pure(f"icmp slt i{bits} {begin}, {end}", begin, end)
    m.do(f"br i1 {guard}, label %{label}, label %{done}" if guard else f"br label %{label}")
    out = m.regions[-1].lines
    out.append(f"{label}:")
    out.append(f"  {counter} = phi i{bits} [ {begin}, %{before} ], [ {following}, %{latch} ]")
    for file, fresh, old in zip(files, names, saved, strict=True):
        kind = register_type(file.dtype)
        out.extend(
            f"  {name} = phi {kind} [ {start}, %{before} ], [ {new}, %{latch} ]"
            for name, start, new in zip(fresh, old, file.values, strict=True)
        )
    out.extend(lines)
    m.start(done)
    _merge(m, files, saved, before, [list(f.values) for f in files], latch, bool(guard))


def _counter_bits(m: FunctionEmitter, var: E.Var) -> int:
    """64, or 32 where that is the machine's word and the loop is known to stay within it."""
    low, high = m.ranges.get(var, (None, None))
    fits = low is not None and high is not None and low >= -(1 << 31) and high < (1 << 31) - 1
    return 32 if m.has_narrow_index and fits else 64


def _narrowed(m: FunctionEmitter, value: str, bits: int) -> str:
    return m.pure(f"trunc i64 {value} to i{bits}", value) if value.startswith("%") else value


def _ordered(m: FunctionEmitter, body: S.Stmt) -> list[S.Buffer]:
    """The register buffers that `body` stores to, in a fixed order."""
    written = m.touched.written(body)
    return [buffer for buffer in m.files if buffer in written]


def _merge(
    m: FunctionEmitter,
    files: list[RegisterFile],
    old: list[list[str]],
    old_block: str,
    new: list[list[str]],
    new_block: str,
    has_two_sources: bool,
) -> None:
    """Values of register files after a join (or, with one source, after leaving a loop)."""
    for file, left, right in zip(files, old, new, strict=True):
        kind = register_type(file.dtype)
        for k, (a, b) in enumerate(zip(left, right, strict=True)):
            if has_two_sources and a != b:
                file.values[k] = m.phi(kind, (a, old_block), (b, new_block))
            elif a != b:
                file.values[k] = m.phi(kind, (b, new_block))


def _if(m: FunctionEmitter, s: S.IfThenElse) -> None:
    static = m.static_int(s.condition)
    if static is not None:
        chosen = s.then_body if static else s.else_body
        if chosen is not None:
            m.stmt(chosen)
        return
    test = m.value(s.condition)
    then, other, done = m.label("then"), m.label("else"), m.label("done")
    files = [f for b in m.files if b in m.touched.written(s) and (f := m.files[b]) is not None]
    before, start = m.block, [list(f.values) for f in files]
    ends: list[tuple[list[list[str]], str]] = []
    bodies: list[tuple[str, list[str]]] = []
    for label, body in ((then, s.then_body), (other, s.else_body)):
        if body is None:
            ends.append((start, before))
            continue
        for file, values in zip(files, start, strict=True):
            file.values[:] = values
        m.open(label)
        m.stmt(body)
        ends.append(([list(f.values) for f in files], m.block))
        m.do(f"br label %{done}")
        bodies.append((label, m.close()))
    m.do(f"br i1 {test}, label %{then}, label %{other if s.else_body is not None else done}")
    for label, lines in bodies:
        m.regions[-1].lines.append(f"{label}:")
        m.regions[-1].lines.extend(lines)
    m.start(done)
    for file, values in zip(files, ends[1][0], strict=True):
        file.values[:] = values
    _merge(m, files, ends[0][0], ends[0][1], ends[1][0], ends[1][1], True)


def _while(m: FunctionEmitter, s: S.While) -> None:
    """The test in front of the body; register files that the body stores to become phi nodes in front of the test."""
    head, label, done = m.label("while"), m.label("turn"), m.label("done")
    before = m.block
    files = [f for b in _ordered(m, s.body) if (f := m.files.get(b)) is not None]
    saved = [list(f.values) for f in files]
    m.open(head)
    names = [[m.fresh() for _ in f.values] for f in files]
    for file, fresh in zip(files, names, strict=True):
        file.values[:] = fresh
    test = m.value(s.condition)
    tested = m.block
    m.open(label)
    m.stmt(s.body)
    m.do(f"br label %{head}, !llvm.loop !0")
    latch, turn = m.block, m.close()
    m.do(f"br i1 {test}, label %{label}, label %{done}")
    lines = m.close()
    m.do(f"br label %{head}")
    out = m.regions[-1].lines
    out.append(f"{head}:")
    for file, fresh, old in zip(files, names, saved, strict=True):
        out.extend(
            f"  {name} = phi {register_type(file.dtype)} [ {start}, %{before} ], [ {new}, %{latch} ]"
            for name, start, new in zip(fresh, old, file.values, strict=True)
        )
    out.extend([*lines, f"{label}:", *turn])
    m.start(done)
    _merge(m, files, saved, before, names, tested, False)


def _allocate(m: FunctionEmitter, s: S.Allocate) -> None:
    buffer = s.buffer
    if buffer in m.pointers:  # lives in a workspace
        m.stmt(s.body)
        return
    shape = m.plan.get(buffer)
    if shape is not None:
        count = shape.columns or -(-elements(buffer) // shape.lanes)
        dtype = buffer.dtype.with_lanes(shape.lanes)
        pairs = {} if shape.columns else row_pairs(m, s.body, buffer, shape.lanes, count)
        spread = {} if shape.columns or pairs else spread_slots(m, s.body, buffer, shape.lanes, count)
        values = ["poison"] * (1 + max((count - 1, *pairs, *spread.values())))
        m.files[buffer] = RegisterFile(shape.lanes, dtype, values, shape.columns, pairs, spread)
        m.stmt(s.body)
        del m.files[buffer]
        return
    if not all(isinstance(extent, E.IntImm) for extent in buffer.shape):
        raise refuse("llvm", f"local buffer {buffer.name}, whose size is not constant")
    count = max(1, elements(buffer)) * buffer.dtype.lanes
    if count * buffer.dtype.element.bytes > MAX_STACK:
        raise refuse(
            "llvm", f"local buffer {buffer.name} of {count * buffer.dtype.element.bytes} bytes", "use scope global"
        )
    name, line = f"%stack{len(m.allocas)}", max(1, BUFFER_ALIGNMENT // buffer.dtype.element.bytes)
    count = -(-count // line) * line
    m.padded_buffers.add(buffer)
    m.allocas.append(f"  {name} = alloca [{count} x {vector(memory_element(buffer.dtype.element), 1)}], align 64")
    m.pointers[buffer] = name
    m.stmt(s.body)


def _let(m: FunctionEmitter, s: S.LetStmt) -> None:
    dtype = s.var.dtype
    is_index = dtype.code == "int" and dtype.bits >= 32
    if is_index and dtype.lanes == 1:
        m.wide[s.var] = sum_of(m, linear(m, s.value))
    else:
        m.scalars[s.var] = m.value(s.value)
    if is_index:
        m.ranges[s.var] = m.range(s.value)
    m.stmt(s.body)


def _assert(m: FunctionEmitter, s: S.AssertStmt) -> None:
    test = m.value(s.condition)
    passed, failed = m.label("passed"), m.label("failed")
    m.do(f"br i1 {test}, label %{passed}, label %{failed}")
    m.start(failed)
    m.do(f"ret i32 {m.function.assert_codes.get(s, 1)}")
    m.start(passed)
    m.stmt(s.body)


def _attr(m: FunctionEmitter, s: S.AttrStmt) -> None:
    if s.key in ("thread_extent", "virtual_thread"):
        raise refuse("llvm", f"a {s.key} annotation", "GPU axes need a GPU target")
    if s.key == "volatile_scope" and s.node is not None:
        m.volatile.add(s.node)
    m.stmt(s.body)


def _seq(m: FunctionEmitter, s: S.SeqStmt) -> None:
    before = last = m.neighbours
    pairs, words, order = paired(m, s.statements), joined_terms(m, s.statements), Order()
    for at, (part, shared) in enumerate(zip(s.statements, shared_loads(m, s.statements), strict=True)):
        if shared is not last is not None:
            m.do(LOAD_AGAIN)
        m.neighbours = last = shared
        if at not in pairs and at not in words:
            m.stmt(part)
        elif terms := pairs.get(at):
            m.begin_statement()
            add_pair(m, terms)
        elif terms := words.get(at):
            m.begin_statement()
            add_words(m, terms, order)
    m.neighbours = before


def _evaluate(m: FunctionEmitter, s: S.Evaluate) -> None:
    if isinstance(s.value, E.Call):
        call(m, s.value)
    elif not isinstance(s.value, E.IntImm):
        m.value(s.value)


_FLOAT64 = DType("float64")
_STMTS: Visits[FunctionEmitter, [], None] = {
    S.For: _for,
    S.IfThenElse: _if,
    S.While: _while,
    S.BufferStore: store,
    S.Allocate: _allocate,
    S.LetStmt: _let,
    S.AssertStmt: _assert,
    S.AttrStmt: _attr,
    S.SeqStmt: _seq,
    S.Evaluate: _evaluate,
}
