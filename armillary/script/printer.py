"""Functions of loops and blocks as scripts: what `.script()` gives and `script.from_source` reads back.

In: a `PrimFunc` or a module of them. Out: the text of a decorated function, or class. Invariant: every variable and
buffer has a name of its own; reading the text gives an equal function.
"""

from __future__ import annotations

import keyword
import math
from contextlib import AbstractContextManager

from armillary.base.boundary import boundary
from armillary.base.names import Identifiers
from armillary.base.node import Visits, post_order
from armillary.ir import IRModule
from armillary.text.writer import Writer
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import expressions_of
from armillary.tir.blocks.block import Block, BlockRealize, BufferRegion
from armillary.tir.printer import FUNCTIONS, INFIX, quote

_HEAD = "# from armillary.script import ir as I, tir as T\n\n"
_PYTHON: dict[type, tuple[str, int]] = {**INFIX, E.Or: ("or", 1), E.And: ("and", 2)}
_NOT, _UNARY, _PRIMARY = 3, 7, 8
_KINDS = {
    S.LoopKind.SERIAL: "T.serial",
    S.LoopKind.PARALLEL: "T.parallel",
    S.LoopKind.VECTORIZED: "T.vectorized",
    S.LoopKind.UNROLLED: "T.unroll",
    S.LoopKind.THREAD: "T.thread_binding",
}
_AXES = {"data": "spatial", "reduce": "reduce", "ordered": "scan"}
Rendered = tuple[str, int]  # text and how tightly it binds


@boundary("script")
def script(item: S.PrimFunc | IRModule, name: str = "") -> str:
    """The script of a function or of a module."""
    writer = Writer("    ")
    if isinstance(item, S.PrimFunc):
        _Printer(writer).function(item, name or str(item.get_attr("global_symbol", "main")))
        return _HEAD + writer.text()
    writer.line("@I.ir_module")
    with writer.block("class Module:", ""):
        for own, function in item.items():
            if isinstance(function, S.PrimFunc):
                _Printer(writer).function(function, own)
    return _HEAD + writer.text()


class _Printer:
    """Prints one function as a script."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.names = Identifiers(frozenset(keyword.kwlist) | {"T", "I", "range"})

    def inside(self, head: str) -> AbstractContextManager[None]:
        """Lines that stand below `head`."""
        return self.writer.block(head, "")

    def name(self, item: E.Var | S.Buffer) -> str:
        return self.names.of(item, item.name or "v")

    # --- expressions

    def expr(self, item: E.Expr, floor: int = 0) -> str:
        infix = _PYTHON.get(type(item))
        if infix is not None:
            text, level = self.infix(item, *infix), infix[1]
        else:
            text, level = _EXPRS[type(item)](self, item)
        return f"({text})" if level < floor else text

    def infix(self, item: E.Expr, symbol: str, level: int) -> str:
        assert isinstance(item, E.Binary), "infix operators have two sides"
        left = level + 1 if level == INFIX[E.EQ][1] else level
        a, b = self.expr(item.a, left), self.expr(item.b, level + 1)
        if all(isinstance(side, E.IntImm | E.FloatImm) for side in (item.a, item.b)):
            return f"T.{type(item).__name__}({self.typed(item.a)}, {self.typed(item.b)})"
        return f"{a} {symbol} {b}"

    def typed(self, item: E.Expr) -> str:
        """A constant whose type is written."""
        text = self.expr(item)
        return text if text.startswith("T.") else f"T.{item.dtype}({text})"

    def exprs(self, items: tuple[E.Expr, ...]) -> str:
        return ", ".join(self.expr(i) for i in items)

    def shape(self, items: tuple[E.Expr, ...]) -> str:
        return f"({self.exprs(items)}{',' if len(items) == 1 else ''})"

    def access(self, buffer: S.Buffer, indices: tuple[E.Expr, ...]) -> str:
        return f"{self.name(buffer)}[{self.exprs(indices) or '()'}]"

    def region(self, item: BufferRegion) -> str:
        parts = []
        for one in item.region:
            point = build.as_int(one.extent) == 1
            end = "" if point else f":{self.expr(build.add(one.min, one.extent))}"
            parts.append(f"{self.expr(one.min)}{end}")
        return f"{self.name(item.buffer)}[{', '.join(parts) or '()'}]"

    def value(self, item: object) -> str:
        """The value of an attribute."""
        if isinstance(item, E.IntImm | E.FloatImm):
            return self.typed(item)
        if isinstance(item, E.Expr):
            return self.expr(item)
        if isinstance(item, S.Buffer):
            return self.name(item)
        if isinstance(item, tuple | list):
            return f"[{', '.join(self.value(v) for v in item)}]"
        if isinstance(item, dict):
            return self.pairs(tuple(item.items()))
        if isinstance(item, float) and not math.isfinite(item):
            return f'float("{item!r}")'
        return repr(str(item)) if isinstance(item, str) else repr(item)

    def pairs(self, items: tuple[tuple[str, object], ...]) -> str:
        return "{" + ", ".join(f"{str(k)!r}: {self.value(v)}" for k, v in items) + "}"

    # --- functions

    def function(self, item: S.PrimFunc, name: str) -> None:
        symbol = item.get_attr("global_symbol")
        self.writer.line("@T.prim_func" if symbol is not None else "@T.prim_func(private=True)")
        params, matched = [], []
        for param in item.params:
            if isinstance(param, E.Var):
                params.append(f"{self.name(param)}: T.{param.dtype}")
            elif self.is_plain(param):
                params.append(f"{self.name(param)}: {self.buffer(param, 'T.Buffer')}")
            else:
                params.append(f"var_{self.name(param)}: T.handle")
                matched.append(param)
        attrs = [("tir.noalias" if k == "noalias" else k, v) for k, v in item.attrs]
        attrs = [(k, v) for k, v in attrs if (k, v) != ("global_symbol", name)]
        with self.inside(f"def {name}({', '.join(params)}):"):
            for var in _sizes(item):
                self.writer.line(f"{self.name(var)} = T.{var.dtype}()")
            if attrs:
                self.writer.line(f"T.func_attr({self.pairs(tuple(attrs))})")
            for buffer in matched:
                text = self.buffer(buffer, "T.match_buffer", f"var_{self.name(buffer)}")
                self.writer.line(f"{self.name(buffer)} = {text}")
            self.stmt(item.body)

    def is_plain(self, buffer: S.Buffer) -> bool:
        """Whether a parameter can be annotated: its sizes are numbers."""
        known = (*buffer.shape, *buffer.strides, *(() if buffer.elem_offset is None else (buffer.elem_offset,)))
        return all(isinstance(e, E.IntImm) for e in known)

    def buffer(self, item: S.Buffer, constructor: str, first: str = "") -> str:
        parts = [*([first] if first else []), self.shape(item.shape), quote(str(item.dtype))]
        if item.strides:
            parts.append(f"strides={self.shape(item.strides)}")
        if item.elem_offset is not None:
            parts.append(f"elem_offset={self.expr(item.elem_offset)}")
        if item.scope != "global":
            parts.append(f"scope={quote(item.scope)}")
        if item.align != 64:
            parts.append(f"align={item.align}")
        return f"{constructor}({', '.join(parts)})"

    # --- statements

    def stmt(self, item: S.Stmt, is_last: bool = True) -> None:
        for part in (p for e in expressions_of(item) for p in post_order(e) if isinstance(p, E.Let)):
            self.writer.line(f"{self.name(part.var)} = T.{part.var.dtype}()")
        _STMTS[type(item)](self, item, is_last)

    def governing(self, name: str, constructor: str, body: S.Stmt, is_last: bool) -> None:
        """What holds for the rest of the block, or, where more follows behind it, for a block of its own."""
        if is_last:
            self.writer.line(f"{name} = {constructor}" if name else constructor)
            self.stmt(body)
            return
        with self.inside(f"with {constructor}{f' as {name}' if name else ''}:"):
            self.stmt(body)


def _sizes(item: S.PrimFunc) -> list[E.Var]:
    """The variables of the parameters' shapes that are no parameters themselves."""
    sizes: dict[E.Var, None] = {}
    for param in item.params:
        if isinstance(param, S.Buffer):
            sizes.update({v: None for v in post_order(param) if isinstance(v, E.Var)})
    return [v for v in sizes if v not in item.params]


def _int(p: _Printer, e: E.IntImm) -> Rendered:
    if e.dtype.is_bool:
        return f"T.bool({bool(e.value)})", _PRIMARY
    if e.dtype == "int32":
        return str(e.value), _UNARY if e.value < 0 else _PRIMARY
    return f"T.{e.dtype}({e.value})", _PRIMARY


def _float(p: _Printer, e: E.FloatImm) -> Rendered:
    text = repr(e.value) if math.isfinite(e.value) else f'"{e.value!r}"'
    return f"T.{e.dtype}({text})", _PRIMARY


def _call(p: _Printer, e: E.Call) -> Rendered:
    if e.name == "if_then_else":
        return f"T.if_then_else({p.exprs(e.args)})", _PRIMARY
    return f"T.Call({quote(str(e.dtype))}, {quote(e.name)}, {p.shape(e.args)})", _PRIMARY


def _constructed(p: _Printer, e: E.Expr) -> Rendered:
    assert isinstance(e, E.Binary), "of two sides"
    return f"T.{type(e).__name__}({p.expr(e.a)}, {p.expr(e.b)})", _PRIMARY


_EXPRS: Visits[_Printer, [], Rendered] = {
    E.Var: lambda p, e: (p.name(e), _PRIMARY),
    E.IterVar: lambda p, e: (p.name(e.var), _PRIMARY),
    E.IntImm: _int,
    E.FloatImm: _float,
    E.StringImm: lambda p, e: (quote(e.value), _PRIMARY),
    E.Cast: lambda p, e: (f"T.Cast({quote(str(e.dtype))}, {p.expr(e.value)})", _PRIMARY),
    E.Not: lambda p, e: (f"not {p.expr(e.a, _NOT)}", _NOT),
    E.Select: lambda p, e: (f"T.Select({p.exprs((e.condition, e.true_value, e.false_value))})", _PRIMARY),
    E.BufferLoad: lambda p, e: (p.access(e.buffer, e.indices), _PRIMARY),
    E.Ramp: lambda p, e: (f"T.Ramp({p.expr(e.base)}, {p.expr(e.stride)}, {e.lanes})", _PRIMARY),
    E.Broadcast: lambda p, e: (f"T.Broadcast({p.expr(e.value)}, {e.lanes})", _PRIMARY),
    E.Let: lambda p, e: (f"T.Let({p.name(e.var)}, {p.expr(e.value)}, {p.expr(e.body)})", _PRIMARY),
    E.Call: _call,
    **dict.fromkeys(FUNCTIONS, _constructed),
}


def _for(p: _Printer, s: S.For, is_last: bool) -> None:
    nest = [s]
    while _is_grid(nest[-1]) and isinstance(nest[-1].body, S.For) and _is_grid(nest[-1].body):
        nest.append(nest[-1].body)
    names = ", ".join(p.name(f.var) for f in nest)
    if len(nest) > 1:
        head = f"T.grid({', '.join(p.expr(f.extent) for f in nest)})"
    else:
        bounds = [] if build.as_int(s.min) == 0 and s.min.dtype == s.extent.dtype else [p.expr(s.min)]
        bounds.append(p.expr(build.add(s.min, s.extent)) if bounds else p.expr(s.extent))
        more = [f"thread={quote(s.thread_tag)}"] if s.kind is S.LoopKind.THREAD else []
        more += [f"annotations={p.pairs(s.annotations)}"] if s.annotations else []
        plain = s.kind is S.LoopKind.SERIAL and not more
        head = f"{'range' if plain else _KINDS[s.kind]}({', '.join((*bounds, *more))})"
    with p.inside(f"for {names} in {head}:"):
        p.stmt(nest[-1].body)


def _is_grid(item: S.For) -> bool:
    return item.kind is S.LoopKind.SERIAL and not item.annotations and build.as_int(item.min) == 0


def _if(p: _Printer, s: S.IfThenElse, is_last: bool) -> None:
    with p.inside(f"if {p.expr(s.condition)}:"):
        p.stmt(s.then_body)
    if s.else_body is not None:
        with p.inside("else:"):
            p.stmt(s.else_body)


def _while(p: _Printer, s: S.While, is_last: bool) -> None:
    with p.inside(f"while {p.expr(s.condition)}:"):
        p.stmt(s.body)


def _store(p: _Printer, s: S.BufferStore, is_last: bool) -> None:
    p.writer.line(f"{p.access(s.buffer, s.indices)} = {p.expr(s.value)}")


def _let(p: _Printer, s: S.LetStmt, is_last: bool) -> None:
    if is_last:
        p.writer.line(f"{p.name(s.var)}: T.{s.var.dtype} = {p.expr(s.value)}")
        p.stmt(s.body)
        return
    p.governing(p.name(s.var), f"T.LetStmt({p.expr(s.value)})", s.body, is_last)


def _attr(p: _Printer, s: S.AttrStmt, is_last: bool) -> None:
    about = s.node.var if isinstance(s.node, E.IterVar) else s.node
    node = "None" if about is None else p.name(about)
    p.governing("", f"T.attr({node}, {quote(s.key)}, {p.expr(s.value)})", s.body, is_last)


def _assert(p: _Printer, s: S.AssertStmt, is_last: bool) -> None:
    if is_last:
        p.writer.line(f"assert {p.expr(s.condition)}, {quote(s.message)}")
        p.stmt(s.body)
        return
    p.governing("", f"T.Assert({p.expr(s.condition)}, {quote(s.message)})", s.body, is_last)


def _seq(p: _Printer, s: S.SeqStmt, is_last: bool) -> None:
    for number, item in enumerate(s.statements):
        p.stmt(item, is_last and number == len(s.statements) - 1)


def _evaluate(p: _Printer, s: S.Evaluate, is_last: bool) -> None:
    value = s.value
    if isinstance(value, E.Call) and value.name == "ret":
        p.writer.line(f"return {p.expr(value.args[0])}")
        return
    p.writer.line(f"T.evaluate({p.expr(value)})")


def _realize(p: _Printer, s: BlockRealize, is_last: bool) -> None:
    with p.inside(f"with T.block({quote(s.block.name_hint)}):"):
        for axis, value in zip(s.block.iter_vars, s.iter_values, strict=True):
            assert isinstance(axis.dom, E.Range), "an axis of a block has a range"
            whole = build.as_int(axis.dom.min) == 0
            ends = f"({p.expr(axis.dom.min)}, {p.expr(build.add(axis.dom.min, axis.dom.extent))})"
            dom = p.expr(axis.dom.extent) if whole else ends
            kind = _AXES.get(axis.kind, "opaque")
            p.writer.line(f"{p.name(axis.var)} = T.axis.{kind}({dom}, {p.expr(value)})")
        if build.as_int(s.predicate) != 1:
            p.writer.line(f"T.where({p.expr(s.predicate)})")
        _block(p, s.block)


def _block(p: _Printer, s: Block) -> None:
    for word, regions in (("reads", s.reads), ("writes", s.writes)):
        p.writer.line(f"T.{word}({', '.join(p.region(r) for r in regions)})")
    for buffer in s.alloc_buffers:
        p.writer.line(f"{p.name(buffer)} = {p.buffer(buffer, 'T.alloc_buffer')}")
    for match in s.match_buffers:
        text = p.buffer(match.buffer, "T.match_buffer", p.region(match.source))
        p.writer.line(f"{p.name(match.buffer)} = {text}")
    if s.annotations:
        p.writer.line(f"T.block_attr({p.pairs(s.annotations)})")
    if s.init is not None:
        with p.inside("with T.init():"):
            p.stmt(s.init)
    p.stmt(s.body)


_STMTS: Visits[_Printer, [bool], None] = {
    S.For: _for,
    S.IfThenElse: _if,
    S.While: _while,
    S.BufferStore: _store,
    S.Allocate: lambda p, s, last: p.governing(p.name(s.buffer), p.buffer(s.buffer, "T.decl_buffer"), s.body, last),
    S.AttrStmt: _attr,
    S.LetStmt: _let,
    S.AssertStmt: _assert,
    S.SeqStmt: _seq,
    S.Evaluate: _evaluate,
    BlockRealize: _realize,
}
