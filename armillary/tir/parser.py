"""Reads the loop language's text back into nodes.

In: text in the grammar of `tir/printer.py`. Out: `parse_function`, `parse_module`, `parse_expr`. Invariant:
`parse_function(print_function(f))` is structurally equal to `f`; every refusal is a ParseError with line and column.
Operators build nodes as written: nothing is folded or cast here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from armillary.base.dtype import DType
from armillary.base.node import Pairs
from armillary.errors import ArmillaryError, ParseError, TypeMismatch
from armillary.ir import IRModule
from armillary.text.cursor import Cursor
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.blocks.producers import Producer, ProducerRealize, ProducerStore
from armillary.tir.printer import FUNCTIONS, INFIX, default_call_dtype

_OPERATORS = {symbol: (node, level) for node, (symbol, level) in INFIX.items()}
_PAIRS = {name: node for node, name in FUNCTIONS.items()}
_NUMBER = re.compile(r"(?P<digits>0x[0-9a-fA-F]+|[0-9.]+(?:[eE][+-]?\d+)?)(?P<code>[fiu]?)(?P<bits>\d*)$")
_DTYPE = re.compile(r"(int|uint|float|bfloat|bool|handle)\d*(_[a-z0-9]+)?(x\d+)?$")
_CODES = {"i": "int", "u": "uint", "f": "float"}
_MAX_DEPTH = 200


class Parser:
    """A cursor and the names in scope."""

    def __init__(self, text: str, source: str, names: Mapping[str, object] | None = None, free: bool = False) -> None:
        self.cursor = Cursor(text, source, slash_comments=False)
        self.names: dict[str, Any] = dict(names or {})
        self.free = free  # unknown names become int32 variables
        self.depth = 0

    # expressions

    def expr(self, floor: int = 1) -> E.Expr:
        """An expression whose operators bind at least as tightly as `floor`."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.cursor.error("the expression is nested too deeply")
        left = self.prefix()
        while self.cursor.token.kind == "symbol" and (operator := _OPERATORS.get(self.cursor.token.text)) is not None:
            node, level = operator
            if level < floor:
                break
            self.cursor.next()
            left = self.binary(node, left, self.expr(level + 1))
        self.depth -= 1
        return left

    def binary(self, node: Any, left: E.Expr, right: E.Expr) -> E.Expr:
        if left.dtype is not right.dtype:
            raise self.cursor.error(f"{node.__name__}: operands have {left.dtype} and {right.dtype}")
        result: E.Expr = node(left, right)
        return result

    def prefix(self) -> E.Expr:
        cursor = self.cursor
        if cursor.accept("!"):
            return E.Not(self.prefix())
        if not cursor.accept("-"):
            return self.primary()
        if cursor.token.kind == "number":
            return self.number("-")
        value = self.prefix()
        return build.neg(value)

    def number(self, sign: str = "") -> E.Expr:
        token = self.cursor.next()
        match = _NUMBER.match(token.text)
        if match is None:
            raise self.cursor.error(f"bad number {token.text!r}")
        digits, code = match["digits"], match["code"]
        is_float = code == "f" or ("x" not in digits and any(c in digits for c in ".eE"))
        dtype = DType(f"{_CODES.get(code, 'float' if is_float else 'int')}{match['bits'] or '32'}")
        if is_float:
            return build.const(float(sign + digits), dtype)
        value = int(sign + digits, 0) if "x" in digits else int(sign + digits)
        if not dtype.min_value <= value <= dtype.max_value:
            raise self.cursor.error(f"{value} does not fit {dtype}")
        return E.IntImm(dtype, value)

    def primary(self) -> E.Expr:
        cursor = self.cursor
        if cursor.token.kind == "number":
            return self.number()
        if cursor.token.kind == "string":
            return E.StringImm(cursor.string())
        if cursor.accept("("):
            value = self.let() if cursor.accept("let") else self.expr()
            cursor.expect(")")
            return value
        if cursor.token.kind != "name":
            raise cursor.error("expected an expression")
        if cursor.peek().text == "(" and cursor.peek().kind == "symbol":
            producer = self.producer()
            return (
                self.application(cursor.next().text)
                if producer is None
                else E.ProducerLoad(producer, self.element(producer))
            )
        if cursor.at("custom") and cursor.peek().text == "[" and "custom" not in self.names:
            dtype = self.dtype()
            cursor.expect("(")
            return self.cast(dtype)
        if cursor.token.text in ("true", "false"):
            return E.IntImm(E.BOOL, int(cursor.next().text == "true"))
        return self.reference()

    def reference(self) -> E.Expr:
        """A variable, or an element of a buffer."""
        cursor = self.cursor
        item = self.lookup("a variable or buffer")
        if isinstance(item, S.Buffer):
            return E.BufferLoad(item, self.indices(item))
        assert isinstance(item, E.Expr), "scopes hold variables and buffers"
        if cursor.at("["):
            raise cursor.error("a variable has no elements")
        return item

    def lookup(self, what: str) -> Any:
        """The variable or buffer that the current name stands for."""
        token = self.cursor.token
        if token.kind == "name" and token.text not in self.names and self.free:
            self.names[token.text] = E.Var(token.text)
        if token.kind != "name" or token.text not in self.names:
            raise self.cursor.error(f"expected {what}")
        return self.names[self.cursor.next().text]

    def indices(self, buffer: S.Buffer) -> tuple[E.Expr, ...]:
        self.cursor.expect("[")
        items = self.items("]")
        if len(items) != len(buffer.shape):
            rank = len(buffer.shape)
            raise self.cursor.error(f"buffer {buffer.name} has {rank} dimensions, got {len(items)} indices")
        return items

    def producer(self) -> Producer | None:
        """The tensor that the current name stands for, if it does."""
        item = self.names.get(self.cursor.token.text)
        return None if isinstance(item, E.Expr | S.Buffer) else item

    def element(self, producer: Producer) -> tuple[E.Expr, ...]:
        """The indices of an element of a tensor: `A(i, j)`."""
        self.cursor.next()
        self.cursor.expect("(")
        items = self.items(")")
        if len(items) != producer.ndim:
            raise self.cursor.error(f"tensor {producer.name} has {producer.ndim} dimensions, got {len(items)} indices")
        return items

    def items(self, closing: str) -> tuple[E.Expr, ...]:
        """Expressions separated by commas, through `closing`."""
        items: list[E.Expr] = []
        while not self.cursor.accept(closing):
            items.append(self.expr())
            if not self.cursor.at(closing):
                self.cursor.expect(",")
        return tuple(items)

    def let(self) -> E.Expr:
        var = self.new_var()
        self.cursor.expect("=")
        value = self.expr()
        self.cursor.expect("in")
        self.names[var.name] = var
        return E.Let(var, value, self.expr())

    def application(self, head: str) -> E.Expr:
        """`name(…)`: a cast, a function form of a node, or an intrinsic."""
        cursor = self.cursor
        cursor.expect("(")
        if _DTYPE.match(head):
            return self.cast(DType(head))
        if head in ("ramp", "broadcast"):
            return self.vector(head)
        items = self.items(")")
        name, _, dtype = head.partition(":")
        if not dtype and name in _PAIRS and len(items) == 2:
            return self.binary(_PAIRS[name], items[0], items[1])
        if not dtype and name == "select" and len(items) == 3:
            if items[1].dtype is not items[2].dtype:
                raise cursor.error(f"select: branches have {items[1].dtype} and {items[2].dtype}")
            return E.Select(*items)
        if not dtype and (not items or name in _PAIRS or name == "select"):
            raise cursor.error(
                f"{name} with {len(items)} arguments needs a dtype: {name}:float32(…)"
                if not items
                else f"{name}: wrong number of arguments ({len(items)})"
            )
        return E.Call(DType(dtype) if dtype else default_call_dtype(name, items), name, items)

    def cast(self, dtype: DType) -> E.Expr:
        if self.cursor.token.kind == "string" and dtype.is_float:
            value: E.Expr = E.FloatImm(dtype, build.round_float(self.float_text(), dtype))
        else:
            value = E.Cast(dtype, self.expr())
        self.cursor.expect(")")
        return value

    def float_text(self) -> float:
        text = self.cursor.string()
        try:
            return float(text)
        except ValueError:
            raise self.cursor.error(f"{text!r} is not a number") from None

    def vector(self, head: str) -> E.Expr:
        first = self.expr()
        self.cursor.expect(",")
        stride = None
        if head == "ramp":
            stride = self.expr()
            self.cursor.expect(",")
        lanes = self.cursor.integer()
        self.cursor.expect(")")
        if not 1 <= lanes <= 65536:
            raise self.cursor.error(f"{lanes} lanes")
        return E.Broadcast(first, lanes) if stride is None else E.Ramp(first, stride, lanes)

    # declarations

    def dtype(self) -> DType:
        name = self.cursor.dtype("a dtype")
        try:
            return DType(name)
        except TypeMismatch as error:
            raise self.cursor.error(error.message) from None

    def new_var(self) -> E.Var:
        name = self.cursor.name("a variable name")
        self.cursor.expect(":")
        return E.Var(name, self.dtype())

    def param(self) -> S.Buffer | E.Var:
        """`A: Buffer[…]` or `n: int32`; the name is in scope afterwards."""
        name = self.cursor.name("a name")
        self.cursor.expect(":")
        item = self.buffer(name) if self.cursor.at("Buffer") else E.Var(name, self.dtype())
        self.names[name] = item
        return item

    def buffer(self, name: str) -> S.Buffer:
        cursor = self.cursor
        cursor.expect("Buffer")
        cursor.expect("[")
        shape = self.shape()
        cursor.expect(",")
        dtype = self.dtype()
        options = {}
        while cursor.accept(","):
            key = cursor.name("an option")
            cursor.expect("=")
            options[key] = self.buffer_option(key)
        cursor.expect("]")
        return S.Buffer(name, shape, dtype, **options)

    def buffer_option(self, key: str) -> Any:
        if key == "scope":
            return self.cursor.string()
        if key == "strides":
            return self.shape()
        if key == "elem_offset":
            return self.expr()
        if key == "align":
            return self.cursor.integer()
        raise self.cursor.error(f"buffers have no {key!r}")

    def shape(self) -> tuple[E.Expr, ...]:
        self.cursor.expect("(")
        return self.items(")")

    # attribute values

    def value(self) -> Any:  # Any: attribute values are Python data or expressions
        cursor = self.cursor
        if cursor.token.kind == "string":
            return cursor.string()
        for symbol, closing in (("(", ")"), ("[", "]")):
            if cursor.accept(symbol):
                items = self.values(closing)
                return tuple(items) if symbol == "(" else items
        if cursor.accept("{"):
            return self.mapping()
        if cursor.token.kind == "name":
            return self.named_value()
        sign = -1 if cursor.accept("-") else 1
        text = cursor.next().text
        if re.fullmatch(r"\d+", text):
            return sign * int(text)
        try:
            return sign * float(text)
        except ValueError:
            raise cursor.error("expected an attribute value") from None

    def values(self, closing: str) -> list[Any]:
        items = []
        while not self.cursor.accept(closing):
            items.append(self.value())
            if not self.cursor.at(closing):
                self.cursor.expect(",")
        return items

    def mapping(self) -> dict[Any, Any]:
        items = {}
        while not self.cursor.accept("}"):
            key = self.value()
            self.cursor.expect(":")
            items[key] = self.value()
            if not self.cursor.at("}"):
                self.cursor.expect(",")
        return items

    def named_value(self) -> Any:
        cursor = self.cursor
        name = cursor.name()
        if name in ("true", "false", "none"):
            return {"true": True, "false": False, "none": None}[name]
        cursor.expect("(")
        if name == "expr":
            value: Any = self.expr()
        elif name == "dtype":
            value = DType(cursor.string())
        elif name == "float":
            value = self.float_text()
        else:
            raise cursor.error(f"no attribute value {name}(…)")
        cursor.expect(")")
        return value

    def pairs(self, closing: str) -> Pairs:
        """`key = value, …` through `closing`."""
        items = []
        while not self.cursor.accept(closing):
            key = self.key()
            self.cursor.expect("=")
            items.append((key, self.value()))
            if not self.cursor.at(closing):
                self.cursor.expect(",")
        return tuple(items)

    def key(self) -> str:
        return self.cursor.string() if self.cursor.token.kind == "string" else self.cursor.name("a key")


class StatementParser(Parser):
    """The part of the grammar about statements and functions."""

    def block(self) -> S.Stmt:
        self.cursor.expect("{")
        body = self.rest()
        self.cursor.expect("}")
        return body

    def rest(self) -> S.Stmt:
        """Statements up to the end of the block."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.cursor.error("the statements are nested too deeply")
        items: list[S.Stmt] = []
        while not self.cursor.at("}") and not self.cursor.at_end():
            items.append(self.stmt())
        self.depth -= 1
        if not items:
            raise self.cursor.error("expected a statement (write pass for none)")
        return S.seq(*items)

    def stmt(self) -> S.Stmt:
        cursor = self.cursor
        while cursor.at("where") and cursor.peek().kind == "name":
            cursor.next()
            name = cursor.name("the name of an expression")
            cursor.expect("=")
            self.names[name] = self.expr()
        rule = {
            "for": self.loop,
            "if": self.branch,
            "while": self.repeat,
            "alloc": self.alloc,
            "let": self.let_stmt,
            "assert": self.check,
            "attr": self.attr,
        }.get(cursor.token.text)
        if rule is not None and cursor.token.kind == "name":
            cursor.next()
            return rule()
        if cursor.accept("pass"):
            return S.Evaluate(E.IntImm(E.INT32, 0))
        if cursor.accept("eval"):
            return S.Evaluate(self.expr())
        if cursor.at("realize") and cursor.peek().kind == "name":
            return self.realize()
        producer = self.producer()
        if producer is not None:
            indices = self.element(producer)
            cursor.expect("=")
            return ProducerStore(producer, self.expr(), indices)
        return self.store()

    def realize(self) -> S.Stmt:
        """`realize A([0, 4], [i, 1]) scope="local" if true { … }`"""
        cursor = self.cursor
        cursor.next()
        producer, bounds = self.producer(), []
        if producer is None:
            raise cursor.error("expected a tensor")
        cursor.next()
        cursor.expect("(")
        while not cursor.accept(")"):
            cursor.expect("[")
            low, extent = self.items("]")
            bounds.append(E.Range.from_min_extent(low, extent))
            if not cursor.at(")"):
                cursor.expect(",")
        scope = ""
        if cursor.accept("scope"):
            cursor.expect("=")
            scope = cursor.string()
        cursor.expect("if")
        condition = self.expr()
        return ProducerRealize(producer, tuple(bounds), condition, self.block(), scope)

    def store(self) -> S.Stmt:
        item = self.lookup("a statement")
        if not isinstance(item, S.Buffer):
            raise self.cursor.error(f"cannot assign to {item!r}")
        indices = self.indices(item)
        self.cursor.expect("=")
        return S.BufferStore(item, self.expr(), indices)

    def scoped(self) -> S.Stmt:
        return self.block() if self.cursor.at("{") else self.rest()

    def loop(self) -> S.Stmt:
        cursor = self.cursor
        name = cursor.name("a loop variable")
        var = E.Var(name, self.dtype() if cursor.accept(":") else E.INT32)
        cursor.expect("in")
        cursor.expect("range")
        cursor.expect("(")
        low, extent = self.expr(), None
        if cursor.accept(","):
            cursor.expect("extent")
            cursor.expect("=")
            extent = self.expr()
        cursor.expect(")")
        if extent is None:
            low, extent = E.IntImm(var.dtype, 0), low
        kind = S.LoopKind(cursor.next().text) if cursor.at(*(k.value for k in S.LoopKind)) else S.LoopKind.SERIAL
        tag = ""
        if kind is S.LoopKind.THREAD:
            cursor.expect("(")
            tag = cursor.string()
            cursor.expect(")")
        notes: Pairs = ()
        if cursor.accept("with"):
            cursor.expect("(")
            notes = self.pairs(")")
        self.names[name] = var
        return S.For(var, low, extent, kind, self.block(), tag, notes)

    def branch(self) -> S.Stmt:
        condition = self.expr()
        then = self.block()
        return S.IfThenElse(condition, then, self.block() if self.cursor.accept("else") else None)

    def repeat(self) -> S.Stmt:
        return S.While(self.expr(), self.block())

    def alloc(self) -> S.Stmt:
        name = self.cursor.name("a buffer name")
        self.cursor.expect(":")
        buffer = self.buffer(name)
        self.names[name] = buffer
        return S.Allocate(buffer, self.scoped())

    def let_stmt(self) -> S.Stmt:
        var = self.new_var()
        self.cursor.expect("=")
        value = self.expr()
        self.names[var.name] = var
        return S.LetStmt(var, value, self.scoped())

    def check(self) -> S.Stmt:
        condition = self.expr()
        self.cursor.expect(",")
        message = self.cursor.string()
        return S.AssertStmt(condition, message, self.scoped())

    def attr(self) -> S.Stmt:
        key = self.key()
        node = self.attr_node() if self.cursor.accept("on") else None
        self.cursor.expect("=")
        value = self.expr()
        return S.AttrStmt(key, value, self.scoped(), node)

    def attr_node(self) -> Any:
        cursor = self.cursor
        if not (cursor.at("axis") and cursor.peek().text == "("):
            return self.lookup("a buffer, variable or axis")
        cursor.next()
        cursor.expect("(")
        var = self.new_var()
        var = self.names.setdefault(var.name, var)
        cursor.expect(",")
        kind = cursor.string()
        cursor.expect(",")
        tag = cursor.string()
        dom = self.items(")") if cursor.accept(",") else (cursor.expect(")"), ())[1]
        if len(dom) not in (0, 2):
            raise cursor.error("an axis has a minimum and an extent")
        return E.IterVar(E.Range.from_min_extent(*dom) if dom else None, var, kind, tag)

    def function(self) -> tuple[str, S.PrimFunc]:
        """`func @name[…](…) attrs {…} {…}`"""
        cursor = self.cursor
        self.names = {}
        cursor.expect("func")
        name = cursor.string() if cursor.token.kind == "string" else cursor.name("a function name").removeprefix("@")
        params: list[S.Buffer | E.Var] = []
        for opening, closing, into in (("[", "]", []), ("(", ")", params)):
            if opening == "[" and not cursor.at("["):
                continue
            cursor.expect(opening)
            while not cursor.accept(closing):
                into.append(self.param())
                if not cursor.at(closing):
                    cursor.expect(",")
        attrs: Pairs = ()
        if cursor.accept("attrs"):
            cursor.expect("{")
            attrs = self.pairs("}")
        return name, S.PrimFunc(tuple(params), self.block(), attrs)


def parse_function(text: str, source: str = "<text>") -> S.PrimFunc:
    """The one function in `text`."""
    functions = list(_functions(text, source))
    if len(functions) != 1:
        raise ParseError(f"expected one function, found {len(functions)}")
    return functions[0][1]


def parse_module(text: str, source: str = "<text>") -> IRModule:
    """All functions of `text` by name."""
    return IRModule(dict(_functions(text, source)))


def parse_stmt(text: str, names: Mapping[str, object], source: str = "<text>") -> S.Stmt:
    """Statements over the buffers and variables of `names`."""
    parser = StatementParser(text, source, names)
    value: S.Stmt = _guarded(parser, parser.rest)
    if not parser.cursor.at_end():
        raise parser.cursor.error("expected the end of the text")
    return value


def _functions(text: str, source: str) -> list[tuple[str, S.PrimFunc]]:
    parser = StatementParser(text, source)
    result = []
    while not parser.cursor.at_end():
        result.append(_guarded(parser, parser.function))
    return result


def parse_expr(text: str, names: Mapping[str, object] | None = None, source: str = "<text>") -> E.Expr:
    """An expression over `names`; other names become int32 variables (added to `names` when it is a dict)."""
    parser = Parser(text, source, names, free=True)
    value: E.Expr = _guarded(parser, parser.expr)
    if not parser.cursor.at_end():
        raise parser.cursor.error("expected the end of the expression")
    if isinstance(names, dict):
        names.update(parser.names)
    return value


def _guarded(parser: Parser, rule: Any) -> Any:
    """Run a parser rule; refusals of node constructors become ParseErrors at the current place."""
    try:
        return rule()
    except ParseError:
        raise
    except ArmillaryError as error:
        raise parser.cursor.error(error.message) from None
