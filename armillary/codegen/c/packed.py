"""Loops to C as the Relay era's `codegen_c` wrote them: packed arguments, untyped pointers, and a trace of its visits.

    log = []
    text = codegen_c(armillary.lower(s, [A, B, C], name="hello"), trace=log.append)
    # for (int32_t x = 0; x < 10; ++x) {
    #   ((float*)C)[(((x * 10) + y))] = (((float*)A)[(((x * 10) + y))] + ((float*)B)[(((x * 10) + y))]);
    # log: ">>VisitStmt_:ForNode", "VisitExpr_: IntImmNode: 10", "extent: 10", "vid: x name_hint: x", …

In: a lowered function or module. Out: one C11 translation unit that needs no header of ours: its functions take what
packed functions of that era take, `DLTensor`s in `TVMValue`s, and return 0, or the number of the assert that failed,
negative; `kernel_c` gives the same loops as a kernel. Invariant: what a function computes is what the kernels of target
"c" compute (`source.py` has the rules); an expression that is read again is visited again, but for long ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from armillary.base.boundary import boundary
from armillary.base.names import symbol
from armillary.base.node import post_order
from armillary.codegen.base import refuse
from armillary.codegen.c import source
from armillary.codegen.c.expr import SHORT, c_type, memory_type
from armillary.codegen.c.helpers import HELPERS
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.phases import PhasedFunction
from armillary.tir.transform.storage_flatten import storage_flatten

_TYPES = """typedef struct { int32_t device_type, device_id; } DLDevice;
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct {
  void* data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t* shape; int64_t* strides; uint64_t byte_offset;
} DLTensor;
typedef union { int64_t v_int64; double v_float64; void* v_handle; const char* v_str; } TVMValue;
"""
_FREE = "#include <stdlib.h>\n\n"
_ARGUMENTS = "void* args, void* arg_type_ids, int32_t num_args, void* out_ret_value, void* out_ret_tcode, void* own"
_STATEMENTS = {"BufferStore": "StoreNode", "SeqStmt": "SeqStmtNode"}
_SHOUTED = frozenset(["Add", "Sub", "Mul", "Div", "Min", "Max", "And", "Or", "Not", "EQ", "NE", "LT", "LE", "GT", "GE"])
_ON_STACK = 4096  # bytes of a tensor that are no longer put there
_NO_MEMORY = -32768  # returned where malloc gives none
_LEAVES = (E.Var, E.IterVar, E.BufferLoad)  # of which the log says nothing, or says it at the access


class CodeGenC(source.CEmitter):
    """One function being written; `trace` is called with a line for each step."""

    def __init__(self, name: str, function: S.PrimFunc, trace: Callable[[str], object] | None) -> None:
        buffers = tuple(p for p in function.params if isinstance(p, S.Buffer))
        sizes = tuple(p for p in function.params if isinstance(p, E.Var))
        asserts = [item for item in post_order(function.body) if isinstance(item, S.AssertStmt)]
        codes: dict[S.Stmt, int] = {item: -k for k, item in enumerate(asserts, 1)}
        shapes = function.get_attr("tensor_shapes") or tuple(b.shape for b in buffers)
        super().__init__(PhasedFunction(name, buffers, shapes, sizes, (), assert_codes=codes))
        self.trace = trace or (lambda line: None)
        self.long: dict[tuple[int, str | None, bool], str] = {}
        self.leaving = ""  # what frees the memory that is held here

    @property
    def statements(self) -> Mapping[type[S.Stmt], Callable[..., None]]:
        return _STMTS

    def stmt(self, item: S.Stmt) -> None:
        self.long.clear()
        name = _STATEMENTS.get(type(item).__name__, f"{type(item).__name__}Node")
        if isinstance(item, S.BufferStore | S.SeqStmt):  # a store says when its value is written
            super().stmt(item)
            return
        self.trace(f">>VisitStmt_:{name}")
        super().stmt(item)
        self.trace(f"<<VisitStmt_:{name}")

    def _shared(self, item: E.Expr, lane: str | None, is_index: bool) -> str:
        key = (id(item), lane, is_index)
        text = self.long.get(key)
        if text is None:
            text = self._visited(item, lane, is_index)
            if len(text) > SHORT and self.readers[id(item)] > 1:
                text = self.long[key] = super()._shared(item, lane, is_index)
        return text

    def _visited(self, item: E.Expr, lane: str | None, is_index: bool) -> str:
        write = self._index if is_index else self._value
        if isinstance(item, E.IntImm | E.FloatImm):
            self.trace(f"VisitExpr_: {type(item).__name__}Node: {item.value}")
            return write(item, lane)
        if isinstance(item, _LEAVES):
            return write(item, lane)
        name = type(item).__name__
        name = name.upper() if name in _SHOUTED else f"{name}Node"
        self.trace(f">>VisitExpr_:{name}")
        text = write(item, lane)
        self.trace(f"<<VisitExpr_:{name}")
        return text

    def _element(self, load: E.BufferLoad | S.BufferStore, lane: str | None) -> str:
        self.trace(">>GetBufferRef")
        name, bracket, place = super()._element(load, lane).partition("[")
        text = f"(({memory_type(load.buffer.dtype)}*){name}){bracket}({place[:-1]})]"
        self.trace(f"<<GetBufferRef:{text}")
        return text


def _for(m: CodeGenC, s: S.For) -> None:
    if s.kind is S.LoopKind.THREAD:
        raise refuse("c", f"loop {s.var.name} bound to {s.thread_tag}", "GPU axes need a GPU target")
    low = "0" if isinstance(s.min, E.IntImm) and s.min.value == 0 else m.index(s.min)
    count = m.index(s.extent)
    m.trace(f"extent: {count}")
    m.flush()
    m.ranges[s.var] = (0, None) if m.is_non_negative(s.min) else (None, None)
    name = m.bind(s.var)
    m.trace(f"vid: {name} name_hint: {s.var.name}")
    end = count if low == "0" else f"({low} + {count})"
    with m.writer.block(f"for ({c_type(s.var.dtype)} {name} = {low}; {name} < {end}; ++{name}) {{"):
        m.stmt(s.body)


def _store(m: CodeGenC, s: S.BufferStore) -> None:
    """The value first, then where it goes; vectors as source.py writes them."""
    m.trace(">>VisitStmt_:StoreNode")
    if s.value.dtype.lanes > 1:
        source.STATEMENTS[S.BufferStore](m, s)
        m.trace("<<VisitStmt_:StoreNode")
        return
    value = source.stored(m, s, None)
    m.trace(f"<<VisitStmt_:StoreNode: {value}")
    place = m._element(s, None)
    m.flush()
    m.writer.line(f"{place} = {value};")


def _allocate(m: CodeGenC, s: S.Allocate) -> None:
    """Registers and small tensors on the stack, others from malloc."""
    count = math.prod(extent.value if isinstance(extent, E.IntImm) else _ON_STACK for extent in s.buffer.shape)
    if s.buffer.scope == "local" or count * s.buffer.dtype.bytes < _ON_STACK:
        source.STATEMENTS[S.Allocate](m, s)
        return
    size = "1"
    for extent in s.buffer.shape:
        size = m.index(extent) if size == "1" else f"{size} * {m.index(extent)}"
    m.flush()
    name = m.buffers[s.buffer] = m.labels.fresh(s.buffer.name)
    with m.writer.block("{"):
        m.writer.line(f"void* {name} = malloc({size} * sizeof({memory_type(s.buffer.dtype)}));")
        m.writer.line(f"if (!{name}) {{ {m.leaving}return {_NO_MEMORY}; }}")
        before, m.leaving = m.leaving, f"free({name}); {m.leaving}"
        m.stmt(s.body)
        m.leaving = before
        m.writer.line(f"free({name});")
    del m.buffers[s.buffer]


def _assert(m: CodeGenC, s: S.AssertStmt) -> None:
    test = m.value(s.condition)
    m.flush()
    m.writer.line(f"if (!{test}) {{ {m.leaving}return {m.function.assert_codes[s]}; }}")
    m.stmt(s.body)


_STMTS: dict[type[S.Stmt], Callable[..., None]] = {
    **source.STATEMENTS,
    S.For: _for,
    S.BufferStore: _store,
    S.Allocate: _allocate,
    S.AssertStmt: _assert,
}


@boundary("codegen.c.codegen_c", arguments=True)
def codegen_c(lowered: S.PrimFunc | IRModule, trace: Callable[[str], object] | None = None) -> str:
    """The C text of a lowered function, or of all of a module; `trace` is called with a line for each visit.

    Raises UnsupportedError for what C has no words for: loops over the threads of a GPU, buffers of unknown size.
    """
    if isinstance(lowered, S.PrimFunc):
        lowered = IRModule({str(lowered.get_attr("global_symbol") or "main"): lowered})
    if not isinstance(lowered, IRModule):
        raise TypeMismatch(f"codegen_c: got {type(lowered).__name__}, wanted what armillary.lower gives")
    parts: list[str] = []
    helpers: set[str] = set()
    externs: dict[str, str] = {}
    for function_name, function in lowered.functions.items():
        name = function_name.name_hint
        if not isinstance(function, S.PrimFunc):
            raise TypeMismatch(f"codegen_c: {name} is a {type(function).__name__}", hint="relay.build lowers networks")
        m = CodeGenC(name, storage_flatten(function), trace)
        _function(m, storage_flatten(function))
        parts.append(m.writer.text())
        helpers |= m.helpers
        externs.update(m.externs)
    return f"// target: c\n{source.HEAD}{_FREE}{_TYPES}{_declared(helpers, externs)}\n" + "\n".join(parts)


def kernel_c(symbol_name: str, function: S.PrimFunc) -> str:
    """The C text of a lowered function of known sizes as a kernel of one iteration (docs/architecture.md)."""
    function = storage_flatten(function)
    m = CodeGenC(symbol_name, function, None)
    head = "void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread"
    with m.writer.block(f"int32_t {symbol_name}({head}) {{"):
        for slot, param in enumerate(m.function.params):
            name = m.buffers[param] = m.labels.fresh(param.name)
            m.writer.line(f"void* {name} = data[{slot}];")
        m.writer.line("(void)vars, (void)begin, (void)end, (void)thread;")
        m.stmt(function.body)
        m.writer.line("return 0;")
    return f"{source.HEAD}{_FREE}{_declared(m.helpers, m.externs)}\n{m.writer.text()}"


def _declared(helpers: set[str], externs: dict[str, str]) -> str:
    text = "".join(HELPERS[name] for name in HELPERS if name in helpers)
    return text + "".join(externs[name] + "\n" for name in sorted(externs))


def _function(m: CodeGenC, function: S.PrimFunc) -> None:
    shapes = dict(zip(m.function.params, m.function.shapes, strict=True))
    with m.writer.block(f"int32_t {symbol(m.function.name)}({_ARGUMENTS}) {{"):
        for slot, param in enumerate(function.params):
            value = f"((TVMValue*)args)[{slot}]"
            if isinstance(param, S.Buffer):
                tensor = m.labels.fresh(f"arg{slot}")
                m.writer.line(f"DLTensor* {tensor} = {value}.v_handle;")
                name = m.buffers[param] = m.labels.fresh(param.name)
                m.writer.line(f"void* {name} = (char*){tensor}->data + {tensor}->byte_offset;")
                _bind_sizes(m, tensor, shapes[param])
            else:
                m.names[param] = m.labels.fresh(param.name)
                field = "v_float64" if param.dtype.is_float else "v_int64"
                m.writer.line(f"{c_type(param.dtype)} {m.names[param]} = ({c_type(param.dtype)}){value}.{field};")
        m.writer.line("(void)arg_type_ids, (void)num_args, (void)out_ret_value, (void)out_ret_tcode;")
        m.writer.line("(void)own;")
        m.stmt(function.body)
        m.writer.line("return 0;")


def _bind_sizes(m: CodeGenC, tensor: str, shape: tuple[E.Expr, ...]) -> None:
    """Sizes that a script named are those of the first argument that has them."""
    for axis, extent in enumerate(shape):
        if isinstance(extent, E.Var) and extent not in m.names:
            m.writer.line(f"const int64_t {m.bind(extent)} = {tensor}->shape[{axis}];")
