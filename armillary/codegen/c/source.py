"""Split functions to C11 source.

In: a `PhasedFunction`. Out: the text of one translation unit that needs only <stdint.h>, <math.h> and <string.h>,
with one function per phase and per symbolic extent (the kernel ABI of `docs/architecture.md`). Invariant: vector
statements become short loops over lanes that compilers vectorise; output is deterministic. Expressions: `c/expr.py`;
compiling: `toolchain.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from armillary.base.names import Identifiers
from armillary.base.node import Visits, post_order
from armillary.codegen.base import Touched, constant_extent, extent_symbol, flat_index, phase_symbol, refuse
from armillary.codegen.c.expr import CALLS, c_type, is_short, memory_type
from armillary.codegen.c.helpers import HELPERS
from armillary.codegen.c.statements import (
    RESERVED,
    StatementEmitter,
    write_evaluate,
    write_if,
    write_let_vector,
    write_seq,
    write_while,
)
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.extents import to_expr
from armillary.tir.phases import Phase, PhasedFunction

_NAMES = """
    vars begin end thread y0 y1 yn j0 j1 jn div rint memcpy memset signgam NAN INFINITY HUGE_VAL NULL
"""
_RESERVED = RESERVED | frozenset(_NAMES.split()) | CALLS.keys() | {f"{name}f" for name in CALLS}
# gcc 12 makes whole vectors of conditional loads with a stride where it has masked loads, and reads neighbours instead.
# It also takes an index clamped to 0 and 1 for a truth value (value ranges), which is -1 in its vectors.
_UNSAFE_PASSES = '"no-tree-loop-if-convert", "no-tree-vrp"'
_GUARD = f"#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC optimize({_UNSAFE_PASSES})\n#endif\n"
HEAD = f"{_GUARD}#include <math.h>\n#include <stdint.h>\n#include <string.h>\n\n"


class CEmitter(StatementEmitter):
    """One function being written."""

    def __init__(self, function: PhasedFunction) -> None:
        super().__init__()
        self.function = function
        self.labels = Identifiers(_RESERVED)
        self.buffers: dict[S.Buffer, str] = {}
        self.index_of = self._element

    def _element(self, load: E.BufferLoad | S.BufferStore, lane: str | None) -> str:
        name = self.buffers.get(load.buffer)
        if name is None:
            raise refuse(
                "c", f"an access to buffer {load.buffer.name}, which is no argument, workspace or allocation here"
            )
        if load.buffer.dtype.lanes > 1:
            raise refuse("c", f"buffer {load.buffer.name} of vector dtype {load.buffer.dtype}")
        index = flat_index(load.buffer, load.indices)
        text = self.index(index, lane if index.dtype.lanes > 1 else None)
        if load.buffer.elem_offset is not None:
            text = f"{text} + {self.index(load.buffer.elem_offset)}"
        return f"{name}[{text}]"

    def bind(self, var: E.Var) -> str:
        """A fresh int64_t name for a loop variable."""
        name = self.names[var] = self.labels.fresh(var.name)
        self.is_wide.add(var)
        return name

    @property
    def statements(self) -> Mapping[type[S.Stmt], Callable[..., None]]:
        return STATEMENTS

    def fresh_label(self, name: str) -> str:
        return self.labels.fresh(name)

    def for_lanes(self, lanes: int, lines: list[str], last: str) -> None:
        """A loop over the lanes of a vector: `lines`, then `last`."""
        if lines:
            super().for_lanes(lanes, lines, last)
        else:
            self.writer.line(f"for (int lane = 0; lane < {lanes}; ++lane) {last}")


def emit_source(function: PhasedFunction) -> str:
    """The C source of one function."""
    helpers: set[str] = set()
    externs: dict[str, str] = {}
    parts: list[str] = []
    touched = Touched()
    for index, phase in enumerate(function.phases):
        m = CEmitter(function)
        _phase(m, phase, index, touched)
        if constant_extent(phase) is None:
            _extent(m, phase, index)
        parts.append(m.writer.text())
        helpers |= m.helpers
        externs.update(m.externs)
    declarations = "".join(HELPERS[name] for name in HELPERS if name in helpers)
    declarations += "".join(externs[name] + "\n" for name in sorted(externs))
    return HEAD + declarations + "\n" + "\n".join(parts)


def _phase(m: CEmitter, phase: Phase, index: int, touched: Touched) -> None:
    name = phase_symbol(m.function, index)
    head = f"int32_t {name}(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {{"
    with m.writer.block(head):
        _bind_vars(m, m.function)
        _bind_arguments(m, touched.written(phase.body), touched.read(phase.body))
        low = m.index(phase.min)
        m.ranges[phase.var] = (0, None) if m.is_non_negative(phase.min) else (None, None)
        var = m.bind(phase.var)
        start, stop = ("begin", "end") if low == "0" else (f"{low} + begin", f"{low} + end")
        with m.writer.block(f"for (int64_t {var} = {start}; {var} < {stop}; ++{var}) {{"):
            m.stmt(phase.body)
        m.writer.line("(void)data, (void)vars, (void)thread;")
        m.writer.line("return 0;")


def _bind_arguments(m: CEmitter, written: frozenset[S.Buffer], read: frozenset[S.Buffer]) -> None:
    function = m.function
    restrict = "restrict " if function.noalias else ""
    for slot, buffer in enumerate(function.params):
        if buffer in written or buffer in read:
            name = m.buffers[buffer] = m.labels.fresh(buffer.name)
            const = "" if buffer in written else "const "
            m.writer.line(f"{const}{memory_type(buffer.dtype)} *{restrict}{name} = data[{slot}];")
    count = len(function.params)
    stride = function.thread_bytes if isinstance(function.thread_bytes, int) else f"vars[{len(function.vars)}]"
    bases = (
        (function.shared_workspace, f"(char *)data[{count}]"),
        (function.thread_workspace, f"(char *)data[{count + 1}] + thread * {stride}"),
    )
    for layout, base in bases:
        for buffer, offset in layout.items():
            if buffer in written or buffer in read:
                name = m.buffers[buffer] = m.labels.fresh(buffer.name)
                at = offset if isinstance(offset, int) else m.index(to_expr(offset))
                m.writer.line(f"{memory_type(buffer.dtype)} *{name} = (void *)({base} + {at});")


def _bind_vars(m: CEmitter, function: PhasedFunction) -> None:
    for slot, var in enumerate(function.vars):
        if var.dtype.is_int or var.dtype.is_bool:
            m.writer.line(f"const int64_t {m.bind(var)} = vars[{slot}];")
            continue
        name, word = m.labels.fresh(var.name), m.labels.fresh(f"{var.name}_word")
        m.writer.line(f"double {word};")
        m.writer.line(f"memcpy(&{word}, &vars[{slot}], 8);")
        m.writer.line(f"const {c_type(var.dtype)} {name} = ({c_type(var.dtype)}){word};")
        m.names[var] = name


def _extent(m: CEmitter, phase: Phase, index: int) -> None:
    other = CEmitter(m.function)
    with other.writer.block(f"int64_t {extent_symbol(m.function, index)}(const int64_t *vars) {{"):
        _bind_vars(other, m.function)
        other.writer.line(f"const int64_t extent = {other.index(phase.extent)};")
        other.writer.line("return extent > 0 ? extent : 0;")
    m.helpers |= other.helpers
    m.writer.lines.extend(other.writer.lines)


def _for(m: CEmitter, s: S.For) -> None:
    if s.kind is S.LoopKind.THREAD:
        raise refuse("c", f"loop {s.var.name} bound to {s.thread_tag}", "GPU axes need a GPU target")
    low, count = m.index(s.min), m.index(s.extent)
    m.flush()
    m.ranges[s.var] = (0, None) if m.is_non_negative(s.min) else (None, None)
    var = m.bind(s.var)
    end = count if low == "0" else f"{low} + {count}"
    if s.kind is S.LoopKind.VECTORIZED:
        m.writer.line("#pragma GCC ivdep")
    elif s.kind is S.LoopKind.UNROLLED and isinstance(s.extent, E.IntImm) and s.extent.value <= 64:
        m.writer.line(f"#pragma GCC unroll {max(1, s.extent.value)}")
    with m.writer.block(f"for (int64_t {var} = {low}; {var} < {end}; ++{var}) {{"):
        m.stmt(s.body)


def _store(m: CEmitter, s: S.BufferStore) -> None:
    lanes = flat_index(s.buffer, s.indices).dtype.lanes
    if lanes == 1:
        text = f"{m._element(s, None)} = {stored(m, s, None)};"
        m.flush()
        m.writer.line(text)
    elif _may_overlap(s):
        _staged_store(m, s, lanes)
    else:
        with m.scope() as lines:
            text = f"{m._element(s, 'lane')} = {stored(m, s, 'lane')};"
        m.flush()
        m.writer.line("#pragma GCC ivdep")
        m.for_lanes(lanes, lines, text)


def stored(m: CEmitter, s: S.BufferStore, lane: str | None) -> str:
    """The value of a store as memory holds it."""
    text = m.value(s.value, lane if s.value.dtype.lanes > 1 else None)
    if is_short(s.buffer.dtype):
        return f"{m.helper(f'to_{s.buffer.dtype.element}')}({text})"
    return text


def _may_overlap(s: S.BufferStore) -> bool:
    """Whether the value reads the stored buffer elsewhere, so that lanes must be computed before any is stored."""
    index = s.indices[-1]
    return any(
        isinstance(part, E.BufferLoad) and part.buffer is s.buffer and part.indices[-1] is not index
        for part in post_order(s.value)
    )


def _staged_store(m: CEmitter, s: S.BufferStore, lanes: int) -> None:
    with m.scope() as lines:
        value = stored(m, s, "lane")
    with m.scope() as more:
        place = m._element(s, "lane")
    name = m.labels.fresh("staged")
    with m.writer.block("{"):
        m.flush()
        m.writer.line(f"{memory_type(s.buffer.dtype)} {name}[{lanes}];")
        m.for_lanes(lanes, lines, f"{name}[lane] = {value};")
        m.for_lanes(lanes, more, f"{place} = {name}[lane];")


def _allocate(m: CEmitter, s: S.Allocate) -> None:
    if s.buffer in m.buffers:  # lives in a workspace
        m.stmt(s.body)
        return
    count = 1
    for extent in s.buffer.shape:
        if not isinstance(extent, E.IntImm):
            raise refuse("c", f"local buffer {s.buffer.name}, whose size is not constant")
        count *= extent.value
    name = m.buffers[s.buffer] = m.labels.fresh(s.buffer.name)
    with m.writer.block("{"):
        m.writer.line(f"_Alignas(64) {memory_type(s.buffer.dtype)} {name}[{max(1, count)}];")
        m.stmt(s.body)
    del m.buffers[s.buffer]


def _let(m: CEmitter, s: S.LetStmt) -> None:
    if s.var.dtype.lanes > 1:
        write_let_vector(m, s)
        return
    value = m.value(s.value)
    m.flush()
    m.ranges[s.var] = (0, None) if s.var.dtype.is_int and m.is_non_negative(s.value) else (None, None)
    name = m.labels.fresh(s.var.name)
    with m.writer.block("{"):
        m.writer.line(f"{c_type(s.var.dtype)} {name} = {value};")
        m.names[s.var] = name
        m.stmt(s.body)


def _assert(m: CEmitter, s: S.AssertStmt) -> None:
    test = m.value(s.condition)
    m.flush()
    m.writer.line(f"if (!{test}) return {m.function.assert_codes.get(s, 1)};")
    m.stmt(s.body)


def _attr(m: CEmitter, s: S.AttrStmt) -> None:
    if s.key in ("thread_extent", "virtual_thread"):
        raise refuse("c", f"a {s.key} annotation", "GPU axes need a GPU target")
    m.stmt(s.body)


STATEMENTS: Visits[CEmitter, [], None] = {
    S.For: _for,
    S.IfThenElse: write_if,
    S.While: write_while,
    S.BufferStore: _store,
    S.Allocate: _allocate,
    S.LetStmt: _let,
    S.AssertStmt: _assert,
    S.AttrStmt: _attr,
    S.SeqStmt: write_seq,
    S.Evaluate: write_evaluate,
}
