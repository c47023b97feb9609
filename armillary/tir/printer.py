"""The loop language as text: what people read and `tir/parser.py` reads back.

In: a function or a part of one. Out: text, by this grammar:

    function  = "func" @name ["[" var ": " dtype, … "]"] "(" params ")" ["attrs" "{" key " = " value, … "}"] block
    param     = name ": Buffer[(" shape "), " dtype [", scope=" | ", strides=" | ", elem_offset=" | ", align="] "]"
              | name ": " dtype                         (the bracket list holds free variables: symbolic dimensions)
    statement = "for" var [": " dtype] "in range(" [min ", extent="] extent ")" [kind] ["with (" key=value… ")"] block
              | "if" expr block ["else" block] | buffer "[" indices "] = " expr | "eval" expr | "pass"
              | "alloc" name ": Buffer[…]" | "let" var ": " dtype " = " expr | "assert" expr ", " string
              | "attr" key ["on" node] " = " expr
              | "where" name " = " expr statement       (the name stands for this very expression in the statement)
    kind      = parallel | vectorized | unrolled | thread("tag")

`alloc`, `let`, `assert` and `attr` govern a block in braces, or, without one, the rest of the block they stand in.
Constants: 3 is int32, 3i64, 3u8, true, 1.5 is float32, 1.5f64, bfloat16("nan"). `dtype(x)` casts; a call whose dtype is
not that of its first argument shows it: `isnan:bool(x)`. `//` and `%` round toward minus infinity. Names are unique in
a function. Invariant: `parse(print_function(f))` is structurally equal to `f`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import numpy as np

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.names import Identifiers
from armillary.base.node import Node, Pairs, Visits, children, post_order
from armillary.text.writer import Writer
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import expressions_of, free_vars

_SHAPES = "tensor_shapes"
_WORDS = """func attrs for in range if else while alloc let assert attr on eval pass with true false parallel vectorized
unrolled thread select min max ramp broadcast truncdiv truncmod expr Buffer axis where"""
KEYWORDS = frozenset(_WORDS.split())
INFIX: dict[type, tuple[str, int]] = {
    E.Or: ("||", 1),
    E.And: ("&&", 2),
    E.EQ: ("==", 4),
    E.NE: ("!=", 4),
    E.LT: ("<", 4),
    E.LE: ("<=", 4),
    E.GT: (">", 4),
    E.GE: (">=", 4),
    E.Add: ("+", 5),
    E.Sub: ("-", 5),
    E.Mul: ("*", 6),
    E.Div: ("/", 6),
    E.FloorDiv: ("//", 6),
    E.FloorMod: ("%", 6),
}
FUNCTIONS: dict[type, str] = {E.TruncDiv: "truncdiv", E.TruncMod: "truncmod", E.Min: "min", E.Max: "max"}
_PREFIX, _PRIMARY = 7, 8
LONG = 200  # characters from which on an expression that a statement reads in several places is written once
_LEAVES = (E.Var, E.IterVar, E.IntImm, E.FloatImm, E.StringImm)
Rendered = tuple[str, int]  # text and how tightly it binds


class Printer:
    """One printing: holds the names given so far."""

    def __init__(self) -> None:
        self.names = Identifiers(KEYWORDS)
        self.writer = Writer()
        self.written: dict[int, str] = {}  # names of expressions of this statement, by id

    def expr(self, item: E.Expr, floor: int = 0) -> str:
        """Text of an expression, in parentheses if it binds more loosely than `floor`."""
        if id(item) in self.written:
            return self.written[id(item)]
        infix = INFIX.get(type(item))
        if infix is not None:
            text, level = self._infix(item, *infix), infix[1]
        else:
            rule = _EXPRS.get(type(item))
            text, level = rule(self, item) if rule is not None else (f"<{type(item).__name__}>", _PRIMARY)
        return f"({text})" if level < floor else text

    def _infix(self, item: Any, symbol: str, level: int) -> str:
        """Left-associative; a comparison needs tighter operands on both sides. Long left spines stay iterative."""
        if level == INFIX[E.EQ][1]:
            return f"{self.expr(item.a, level + 1)} {symbol} {self.expr(item.b, level + 1)}"
        parts: list[str] = []
        left = item
        while (infix := INFIX.get(type(left))) is not None and infix[1] == level:
            parts.append(f" {infix[0]} {self.expr(left.b, level + 1)}")
            left = left.a
            if id(left) in self.written:
                break
        return self.expr(left, level) + "".join(reversed(parts))

    def exprs(self, items: tuple[E.Expr, ...]) -> str:
        return ", ".join(self.expr(i) for i in items)

    def shape(self, items: tuple[E.Expr, ...]) -> str:
        return f"({self.expr(items[0])},)" if len(items) == 1 else f"({self.exprs(items)})"

    def var(self, item: E.Var) -> str:
        return self.names.of(item, item.name)

    def declare(self, item: E.Var) -> str:
        return f"{self.var(item)}: {item.dtype}"

    def buffer(self, item: S.Buffer) -> str:
        """A buffer's declaration: name and type."""
        parts = [self.shape(item.shape), str(item.dtype)]
        if item.scope != "global":
            parts.append(f"scope={quote(item.scope)}")
        if item.strides:
            parts.append(f"strides={self.shape(item.strides)}")
        if item.elem_offset is not None:
            parts.append(f"elem_offset={self.expr(item.elem_offset)}")
        if item.align != 64:
            parts.append(f"align={item.align}")
        return f"{self.names.of(item, item.name)}: Buffer[{', '.join(parts)}]"

    def access(self, buffer: S.Buffer, indices: tuple[E.Expr, ...]) -> str:
        return f"{self.names.of(buffer, buffer.name)}[{self.exprs(indices)}]"

    def value(self, item: object) -> str:
        """An attribute value: Python data, or an expression in expr(…)."""
        if isinstance(item, E.Expr):
            return f"expr({self.expr(item)})"
        if isinstance(item, DType):
            return f"dtype({quote(str(item))})"
        if isinstance(item, str):
            return quote(item)
        if isinstance(item, bool) or item is None:
            return {True: "true", False: "false", None: "none"}[item]
        if isinstance(item, tuple):
            return "(" + "".join(f"{self.value(v)}, " for v in item).rstrip(" ") + ")"
        if isinstance(item, list):
            return "[" + ", ".join(self.value(v) for v in item) + "]"
        if isinstance(item, dict):
            return "{" + ", ".join(f"{self.value(k)}: {self.value(v)}" for k, v in item.items()) + "}"
        if isinstance(item, int | float):
            return repr(item) if math.isfinite(item) else f"float({quote(repr(item))})"
        return f"opaque({quote(repr(item))})"

    def pairs(self, items: Pairs) -> str:
        return ", ".join(f"{word(key)} = {self.value(value)}" for key, value in items)

    def stmt(self, item: S.Stmt, is_last: bool = True) -> None:
        """Write a statement; `is_last`: nothing follows it in its block."""
        self.written = {}
        self._name_shared(expressions_of(item))
        rule = STATEMENTS.get(type(item))
        if rule is None:
            self.writer.line(f"<{type(item).__name__}>")
        else:
            rule(self, item, is_last)

    def _name_shared(self, roots: list[E.Expr]) -> None:
        """Write what is long and read in several places as a name and its meaning: else the text would be a tree."""
        order = {id(part): part for root in roots for part in post_order(root) if isinstance(part, E.Expr)}
        readers = Counter(id(part) for item in order.values() for part in children(item))
        if any(isinstance(part, E.Let | E.Reduce) for part in order.values()):
            return  # what they bind has no meaning in front of the statement
        for part in order.values():
            if readers[id(part)] > 1 and not isinstance(part, _LEAVES):
                text = self.expr(part)
                if len(text) > LONG:
                    self.written[id(part)] = self.names.fresh("shared")
                    self.writer.line(f"where {self.written[id(part)]} = {text}")

    def scoped(self, head: str, body: S.Stmt, is_last: bool) -> None:
        if is_last:
            self.writer.line(head)
            self.stmt(body)
            return
        with self.writer.block(f"{head} {{"):
            self.stmt(body)

    def node(self, item: Node) -> str:
        """What an AttrStmt is about: a buffer, a variable or an axis."""
        if isinstance(item, S.Buffer):
            return self.names.of(item, item.name)
        if isinstance(item, E.Var):
            return self.var(item)
        assert isinstance(item, E.IterVar), f"an attr on {type(item).__name__}"
        dom = f", {self.expr(item.dom.min)}, {self.expr(item.dom.extent)}" if item.dom is not None else ""
        return f"axis({self.declare(item.var)}, {quote(item.kind)}, {quote(item.thread_tag)}{dom})"


def quote(text: str) -> str:
    """`text` as a string literal of the language."""
    escaped = text.encode("unicode_escape").decode("ascii").replace('"', '\\"')
    return f'"{escaped}"'


def word(text: str) -> str:
    """A key as it is, or quoted when it is not an identifier."""
    return text if re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", text) else quote(text)


def _int(p: Printer, e: E.IntImm) -> Rendered:
    if e.dtype.is_bool:
        return ("true" if e.value else "false"), _PRIMARY
    suffix = "" if e.dtype == "int32" else f"{e.dtype.code[0]}{e.dtype.bits}"
    return f"{e.value}{suffix}", _PREFIX if e.value < 0 else _PRIMARY


def _float(p: Printer, e: E.FloatImm) -> Rendered:
    if not math.isfinite(e.value):
        return f'{e.dtype}("{e.value!r}")', _PRIMARY
    if e.dtype == "float64":
        text = f"{e.value!r}f64"
    elif e.dtype == "float32":
        text = _shortest(np.float32(e.value))
    elif e.dtype == "float16":
        text = _shortest(np.float16(e.value)) + "f16"
    else:
        return f'{e.dtype}("{e.value!r}")', _PRIMARY
    return text, _PREFIX if text.startswith("-") else _PRIMARY


def _shortest(value: object) -> str:
    text = str(value)
    return text if any(c in text for c in ".e") else text + ".0"


def _call(p: Printer, e: E.Call) -> Rendered:
    plain = e.name not in KEYWORDS and bool(e.args) and default_call_dtype(e.name, e.args) == e.dtype
    return f"{e.name}{'' if plain else f':{e.dtype}'}({p.exprs(e.args)})", _PRIMARY


def default_call_dtype(name: str, args: tuple[E.Expr, ...]) -> DType:
    """The dtype a call has when its text does not say: that of its first argument."""
    return args[1].dtype if name == "if_then_else" and len(args) > 1 else args[0].dtype


def _let(p: Printer, e: E.Let) -> Rendered:
    value = p.expr(e.value)
    return f"(let {p.declare(e.var)} = {value} in {p.expr(e.body)})", _PRIMARY


def _reduce(p: Printer, e: E.Reduce) -> Rendered:
    c = e.combiner
    names = ", ".join(p.var(v) for v in (*c.lhs, *c.rhs))
    axes = ", ".join(p.var(a.var) for a in e.axis)
    body = f"({names}) => {p.shape(c.result)}, identity={p.shape(c.identity)}"
    return f"reduce[{axes}; {body}]({p.exprs(e.source)}, where={p.expr(e.condition)})[{e.value_index}]", _PRIMARY


def _function_form(p: Printer, e: E.Binary) -> Rendered:
    return f"{FUNCTIONS[type(e)]}({p.expr(e.a)}, {p.expr(e.b)})", _PRIMARY


_EXPRS: Visits[Printer, [], Rendered] = {
    E.Var: lambda p, e: (p.var(e), _PRIMARY),
    E.IterVar: lambda p, e: (p.var(e.var), _PRIMARY),
    E.IntImm: _int,
    E.FloatImm: _float,
    E.StringImm: lambda p, e: (quote(e.value), _PRIMARY),
    E.Cast: lambda p, e: (f"{e.dtype}({p.expr(e.value)})", _PRIMARY),
    E.Not: lambda p, e: (f"!{p.expr(e.a, _PREFIX)}", _PREFIX),
    E.Select: lambda p, e: (f"select({p.exprs((e.condition, e.true_value, e.false_value))})", _PRIMARY),
    E.BufferLoad: lambda p, e: (p.access(e.buffer, e.indices), _PRIMARY),
    E.ProducerLoad: lambda p, e: (f"{p.names.of(e.producer, e.producer.name)}({p.exprs(e.indices)})", _PRIMARY),
    E.Ramp: lambda p, e: (f"ramp({p.expr(e.base)}, {p.expr(e.stride)}, {e.lanes})", _PRIMARY),
    E.Broadcast: lambda p, e: (f"broadcast({p.expr(e.value)}, {e.lanes})", _PRIMARY),
    E.Let: _let,
    E.Call: _call,
    E.Reduce: _reduce,
    **dict.fromkeys(FUNCTIONS, _function_form),
}


def _for(p: Printer, s: S.For, is_last: bool) -> None:
    var = p.var(s.var) if s.var.dtype == "int32" else p.declare(s.var)
    starts_at_zero = isinstance(s.min, E.IntImm) and s.min.value == 0 and s.min.dtype == s.var.dtype
    bounds = p.expr(s.extent) if starts_at_zero else f"{p.expr(s.min)}, extent={p.expr(s.extent)}"
    kind = "" if s.kind is S.LoopKind.SERIAL else f" {s.kind.value}"
    tag = f"({quote(s.thread_tag)})" if s.kind is S.LoopKind.THREAD else ""
    notes = f" with ({p.pairs(s.annotations)})" if s.annotations else ""
    with p.writer.block(f"for {var} in range({bounds}){kind}{tag}{notes} {{"):
        p.stmt(s.body)


def _if(p: Printer, s: S.IfThenElse, is_last: bool) -> None:
    with p.writer.block(f"if {p.expr(s.condition)} {{"):
        p.stmt(s.then_body)
    if s.else_body is not None:
        with p.writer.block("else {"):
            p.stmt(s.else_body)


def _while(p: Printer, s: S.While, is_last: bool) -> None:
    with p.writer.block(f"while {p.expr(s.condition)} {{"):
        p.stmt(s.body)


def _seq(p: Printer, s: S.SeqStmt, is_last: bool) -> None:
    for index, item in enumerate(s.statements):
        p.stmt(item, is_last and index == len(s.statements) - 1)


def _evaluate(p: Printer, s: S.Evaluate, is_last: bool) -> None:
    is_nothing = isinstance(s.value, E.IntImm) and s.value.value == 0 and s.value.dtype == "int32"
    p.writer.line("pass" if is_nothing else f"eval {p.expr(s.value)}")


def _let_stmt(p: Printer, s: S.LetStmt, is_last: bool) -> None:
    value = p.expr(s.value)
    p.scoped(f"let {p.declare(s.var)} = {value}", s.body, is_last)


def _attr(p: Printer, s: S.AttrStmt, is_last: bool) -> None:
    about = "" if s.node is None else f" on {p.node(s.node)}"
    p.scoped(f"attr {word(s.key)}{about} = {p.expr(s.value)}", s.body, is_last)


STATEMENTS: Visits[Printer, [bool], None] = {
    S.For: _for,
    S.IfThenElse: _if,
    S.While: _while,
    S.BufferStore: lambda p, s, _: p.writer.line(f"{p.access(s.buffer, s.indices)} = {p.expr(s.value)}"),
    S.Allocate: lambda p, s, last: p.scoped(f"alloc {p.buffer(s.buffer)}", s.body, last),
    S.AttrStmt: _attr,
    S.LetStmt: _let_stmt,
    S.AssertStmt: lambda p, s, last: p.scoped(f"assert {p.expr(s.condition)}, {quote(s.message)}", s.body, last),
    S.SeqStmt: _seq,
    S.Evaluate: _evaluate,
}


@boundary("printing")
def print_expr(item: E.Expr) -> str:
    """An expression as text."""
    return Printer().expr(item)


@boundary("printing")
def print_stmt(item: S.Stmt) -> str:
    """A statement as text (variables and buffers from outside appear by name only)."""
    printer = Printer()
    printer.stmt(item)
    return printer.writer.text()


@boundary("printing")
def print_function(func: S.PrimFunc, name: str = "", whole: bool = True) -> str:
    """A function as text; not `whole`: without the shapes that the caller sees."""
    p = Printer()
    label = name or func.get_attr("global_symbol", "main")
    free = free_vars(func)
    dims = f"[{', '.join(p.declare(v) for v in free)}]" if free else ""
    params = ", ".join(p.buffer(x) if isinstance(x, S.Buffer) else p.declare(x) for x in func.params)
    pairs = tuple(pair for pair in func.attrs if whole or pair[0] != _SHAPES)
    attrs = f" attrs {{{p.pairs(pairs)}}}" if pairs else ""
    symbol = f"@{label}" if re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", label) else quote(label)
    with p.writer.block(f"func {symbol}{dims}({params}){attrs} {{"):
        p.stmt(func.body)
    return p.writer.text()


def print_global(name: str, func: S.PrimFunc, show_meta_data: bool) -> str:
    """A function of a module as text; the shapes that the caller sees are its meta data."""
    return print_function(func, name, show_meta_data)
