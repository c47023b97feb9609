"""Reads the text form of the graph language.

Grammar (names: `%x`, `%"any text"`, `%0` for nodes; `@f` for functions):

    module   = { "def" global params ["->" type] "{" block "}" [metadata] }
    block    = { node "=" value ";" | "let" var [":" type] "=" value ";" | value ";" } value
    value    = sum [("==" | "!=" | "<" | "<=" | ">" | ">=") value], a sum being one of products by "+ - * /"
    operand  = "fn" params ["->" type] "{" block "}" | "if" "(" value ")" "{" block "}" "else" "{" block "}"
             | "{" block "}" | primary { "." index | "(" [args] ")" }
    primary  = var | node | global | operator | scalar | "meta" "[" kind "]" "[" index "]" | "(" [values] ")"
    type     = "Tensor" "[" "(" dims ")" "," dtype "]" | dtype | "(" [types] ")" | "fn" "(" [types] ")" "->" type

In: text. Out: an `IRModule` or an expression, types checked. Invariant: bad text is a ParseError with line and caret;
`parse(module.astext())` is structurally equal to the module. The other direction: `relay/printer.py`.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.extent import Extent
from armillary.base.float_range import largest
from armillary.base.lazy import deferred
from armillary.errors import ArmillaryError, ModelError, ParseError, TargetError, TypeMismatch, UnsupportedError
from armillary.ir import GlobalVar, IRModule
from armillary.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Let,
    Loop,
    Tuple,
    TupleGetItem,
    Var,
    has_untyped,
    on_virtual_device,
)
from armillary.relay.infer import check_module, infer_type
from armillary.relay.op import Op, get_op
from armillary.relay.stored.metadata import Metadata
from armillary.relay.types import ANY_DIM, Dim, FuncType, TensorType, TupleType, Type
from armillary.text.cursor import Cursor, Token
from armillary.text.extent import read_extent

if TYPE_CHECKING:
    from armillary.target.virtual_device import VirtualDevice
with deferred():
    from armillary.relay.adt.text import Names as _Names
    from armillary.relay.adt.text import definition as _definition
    from armillary.relay.adt.text import named_type as _named_type
    from armillary.relay.adt.text import operand as _operand
    from armillary.relay.adt.text import read_names as _read_names
    from armillary.relay.adt.text import type_parameters as _type_parameters
    from armillary.target.virtual_device import read_device as _read_device

_OF_TYPES = re.compile(r"\b(type|match|ref|ref_read|ref_write)\b|(@[\w.:]+|\bfn)\s*\[")  # what relay/adt/text.py reads
_MAX_DEPTH = 80  # nested values; each level costs a few Python frames
_SCALAR = re.compile(r"(0x[0-9a-fA-F]+|[0-9.]+(?:[eE][+-]?\d+)?)(f|i|u)?(\d*)\Z")
_Infix = Callable[[Expr, Expr], Expr]


def _named(name: str) -> _Infix:
    def infix(a: Expr, b: Expr) -> Expr:
        return get_op(name)(a, b)

    return infix


_INFIX: tuple[dict[str, _Infix], ...] = (  # from the loosest to the tightest
    {"==": _named("equal"), "!=": _named("not_equal")},
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": operator.truediv},
)
_TEXT_ROUNDS = 1 + 1e-6  # the largest number's own text may be that much larger
_WORDS = {"True": True, "False": False, "None": None, "inf": float("inf"), "nan": float("nan")}


@boundary("parse", arguments=True)
def parse(
    text: str,
    source: str = "<text>",
    init_module: IRModule | None = None,
    init_meta_table: Mapping[str, Sequence[object]] | None = None,
) -> IRModule:
    """A module from its text; an expression or a lone function becomes "main".

    The text may call functions of `init_module`, which the result holds too, and read constants ("relay.Constant") and
    values of attributes ("VirtualDevice", or any other name) of `init_meta_table`.
    """
    reader = _Reader(text, source)
    if init_meta_table:
        reader.metadata.give(init_meta_table)
    if reader.cursor.at("def", "type", "extern"):
        module = reader.module(init_module)
    else:
        module = IRModule.from_expr(reader.expression())
    return check_module(module)


def fromtext(text: str) -> IRModule:
    """A module from its text (the Relay-era name of `parse`)."""
    if not isinstance(text, str):
        raise ParseError(f"expected the text of a module, got {type(text).__name__}")
    return parse(text)


def _variable_key(name: str) -> str:
    """What a variable is bound under: `%0` is the first node, and `%"0"` a variable that is called so."""
    return f'"{name}' if name.isdigit() else name


@boundary("parse_expr", arguments=True)
def parse_expr(text: str, source: str = "<text>") -> Expr:
    """An expression from its text: `free_var %x: Tensor[(3,), float32]; …` lines, then a block."""
    expr = _Reader(text, source).expression()
    if isinstance(expr, Expr) and not isinstance(expr, Op) and not has_untyped(expr):
        with suppress(TypeMismatch):  # told when the type is asked for
            infer_type(expr)
    return expr


class _Reader:
    def __init__(self, text: str, source: str) -> None:
        self.metadata, plain = Metadata.split(text, source)
        self.cursor = Cursor(plain, source)
        self.env: list[dict[str, Expr]] = [{}]
        self.globals: dict[str, GlobalVar] = {}
        self.names = _Names() if _OF_TYPES.search(plain) else None
        self.called: dict[str, Token] = {}
        self.depth = 0

    # --- modules and functions --------------------------------------------------------------------------------------

    def module(self, start: IRModule | None = None) -> IRModule:
        module = IRModule() if start is None else start.copy()
        self.globals.update({var.name_hint: var for var in module.get_global_vars()})
        if module.type_definitions and self.names is None:
            self.names = _Names()
        if self.names is not None:
            _read_names(self, self.names, module)
        while not self.cursor.at_end():
            if self.names is not None and self.cursor.at("type", "extern"):
                _definition(self, self.names, module)
                continue
            self.cursor.expect("def")
            token = self.cursor.token
            name = self.global_name()
            if name in module:
                raise self.error_at(token, f"the function @{name} is defined twice")
            module[self.global_var(name)] = self.function()
        for name, token in self.called.items():
            if name not in module:
                raise self.error_at(token, f"the module has no function @{name}")
        return module

    def expression(self) -> Expr:
        """Free variables, a block, the end."""
        while self.cursor.accept("free_var"):
            self.bind(self.variable())
            self.cursor.expect(";")
        expr = self.block(closing="")
        if not self.cursor.at_end():
            raise self.cursor.error("expected the end of the text")
        return expr

    def global_name(self) -> str:
        if self.cursor.accept("@"):
            return self.cursor.string()
        if not self.cursor.token.text.startswith("@"):
            raise self.cursor.error("expected the name of a function, such as @main")
        return self.cursor.next().text[1:]

    def global_var(self, name: str) -> GlobalVar:
        return self.globals.setdefault(name, GlobalVar(name))

    def function(self) -> Function:
        """Parameters and attributes, result type, body."""
        span = self.cursor.span()
        type_params = _type_parameters(self, self.names) if self.names is not None else ()
        self.cursor.expect("(")
        self.env.append({})
        params: list[Var] = []
        attrs, device = [], None
        while not self.cursor.accept(")"):
            if self.cursor.token.text.startswith("%"):
                token = self.cursor.token
                params.append(self.variable())
                if _variable_key(params[-1].name_hint) in self.env[-1]:
                    raise self.error_at(token, f"two parameters are called %{params[-1].name_hint}", "rename one")
                self.bind(params[-1])
            else:
                key = self.cursor.string() if self.cursor.token.kind == "string" else self.cursor.name("a parameter")
                self.cursor.expect("=")
                if key == "virtual_device":
                    device = self.device()
                else:
                    attrs.append((key, self.literal()))
            if not self.cursor.at(")"):
                self.cursor.expect(",")
        result = self.type() if self.cursor.accept("->") else None
        self.cursor.expect("{")
        body = self.block()
        self.env.pop()
        if self.names is not None:
            self.names.types.pop()
        return on_virtual_device(Function(tuple(params), body, result, tuple(attrs), span, type_params), device)

    def variable(self) -> Var:
        name, device = self.variable_name(), None
        if self.cursor.accept("{"):
            self.cursor.expect("virtual_device")
            self.cursor.expect("=")
            device = self.device()
            self.cursor.expect("}")
        typed = self.cursor.accept(":") and not self.cursor.accept("_")
        return on_virtual_device(Var(name, self.type() if typed else None), device)

    def device(self) -> VirtualDevice:
        """[1, 0, "llvm", "", "global"]: device type, number, target, host, memory scope; or of a meta table."""
        start = self.cursor.token
        try:
            device: VirtualDevice = _read_device(self.literal())
        except TargetError as error:
            raise self.error_at(start, error.message, error.hint) from None
        return device

    def variable_name(self) -> str:
        if self.cursor.accept("%"):
            return self.cursor.string()
        if not self.cursor.token.text.startswith("%"):
            raise self.cursor.error("expected a variable, such as %x")
        return self.cursor.next().text[1:]

    def bind(self, var: Var) -> None:
        self.env[-1][_variable_key(var.name_hint)] = var

    # --- blocks and values ------------------------------------------------------------------------------------------

    def block(self, closing: str = "}") -> Expr:
        self.env.append({})
        lets: list[tuple[Var, Expr]] = []
        while True:
            if self.cursor.accept("let"):
                var = self.variable()
                self.bind(var)
                self.cursor.expect("=")
                lets.append((var, self.value()))
            elif self.cursor.token.text.startswith("%") and self.cursor.peek().text == "=":
                name = self.cursor.next().text[1:]
                self.cursor.expect("=")
                self.env[-1][name] = self.value()
            else:
                result = self.value()
                if not self.cursor.accept(";"):
                    break
                lets.append((Var("_"), result))  # for what computing it does
                continue
            self.cursor.expect(";")
        if closing:
            self.cursor.expect(closing)
        self.env.pop()
        for var, value in reversed(lets):
            result = Let(var, value, result)
        return result

    def value(self, level: int = 0) -> Expr:
        """Operands with infix operators, those of this level and tighter ones."""
        if level == len(_INFIX):
            return self.operand()
        result = self.value(level + 1)
        while self.cursor.token.kind == "symbol" and self.cursor.token.text in _INFIX[level]:
            function = _INFIX[level][self.cursor.next().text]
            result = function(result, self.value(level + 1))
        return result

    def operand(self) -> Expr:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.cursor.error(f"nested more than {_MAX_DEPTH} deep; name the parts with %0 = …;")
        if self.cursor.accept("fn"):
            result: Expr = self.function()
        elif self.cursor.accept("if"):
            result = self.branch()
        elif self.cursor.accept("loop"):
            result = self.loop()
        elif self.cursor.accept("{"):
            result = self.block()
        else:
            result = self.postfix()
        self.depth -= 1
        return result

    def branch(self) -> Expr:
        span = self.cursor.span()
        self.cursor.expect("(")
        cond = self.value()
        self.cursor.expect(")")
        self.cursor.expect("{")
        yes = self.block()
        self.cursor.expect("else")
        self.cursor.expect("{")
        return If(cond, yes, self.block(), span)

    def loop(self) -> Expr:
        """loop(body, limit, going, arguments…, states=1, trips=5)"""
        start, span = self.cursor.token, self.cursor.span()
        args, named = self.arguments()
        is_named = set(named) == {"states", "trips"} and type(named["states"]) is int
        if len(args) < 3 or not is_named or type(named["trips"]) not in (int, Extent):
            raise self.error_at(start, "a loop is written loop(body, limit, condition, values…, states=N, trips=N)")
        if not 0 <= named["states"] <= len(args) - 3:
            raise self.error_at(start, f"a loop of {named['states']} states has {len(args) - 3} values")
        return Loop(args[0], args[1], args[2], tuple(args[3:]), named["states"], named["trips"], span)

    def postfix(self) -> Expr:
        result = self.primary()
        while True:
            token = self.cursor.token
            if token.kind == "number" and re.fullmatch(r"\.\d+", token.text):
                result = TupleGetItem(result, int(self.cursor.next().text[1:]))
            elif self.cursor.at("("):
                result = self.call(result)
            else:
                return result

    def primary(self) -> Expr:
        token = self.cursor.token
        if token.text.startswith("%") and token.kind in ("name", "symbol"):
            return self.lookup()
        if token.text.startswith("@") and token.kind in ("name", "symbol"):
            name = self.global_name()
            self.called.setdefault(name, token)
            result: Any = self.global_var(name)  # Any: a name where an expression may stand
            return self.call(result) if self.cursor.at("(") else result
        if self.cursor.accept("("):
            return self.parenthesised()
        if token.kind == "number" or self.cursor.at("-", "True", "False"):
            return self.scalar()
        if token.text == "meta" and self.cursor.peek().text == "[":
            return self.constant()
        form = _operand(self, self.names) if self.names is not None else None
        if form is not None:
            return form
        if token.kind == "name":
            return self.operator()
        raise self.cursor.error("expected a value")

    def lookup(self) -> Expr:
        """A variable or node; `%t.0` is field 0 of `%t` where there is a `%t`, `%"t.0"` always the variable."""
        token = self.cursor.token
        quoted = token.kind == "symbol"
        whole = self.variable_name()
        name, indices = whole, list[int]()
        while not quoted and re.search(r"\.\d+\Z", name):
            name, _, index = name.rpartition(".")
            indices.insert(0, int(index))
        result = self.find(_variable_key(name) if quoted else name)
        if result is None:
            result, indices = self.find(_variable_key(whole)), []
        if result is None:
            raise self.error_at(token, f"%{whole} is not defined here")
        for k in indices:
            result = TupleGetItem(result, k)
        return result

    def find(self, name: str) -> Expr | None:
        """What a name stands for, innermost scope first."""
        return next((scope[name] for scope in reversed(self.env) if name in scope), None)

    def parenthesised(self) -> Expr:
        if self.cursor.at("let"):
            return self.block(closing=")")
        fields: list[Expr] = []
        comma = False
        while not self.cursor.accept(")"):
            fields.append(self.value())
            comma = self.cursor.accept(",")
            if not comma and not self.cursor.at(")"):
                raise self.cursor.error("expected ',' or ')'")
        return fields[0] if len(fields) == 1 and not comma else Tuple(tuple(fields))

    def operator(self) -> Expr:
        token = self.cursor.token
        name = self.cursor.name("an operator")
        try:
            op = get_op(name)
        except UnsupportedError as error:
            raise self.error_at(token, error.message, error.hint) from None
        if not self.cursor.at("(") and self.depth > 1:
            raise self.cursor.error(f"expected '(' after operator {name}")
        return self.call(op) if self.cursor.at("(") else op

    def call(self, callee: object) -> Expr:  # Op, GlobalVar or Expr
        start, span = self.cursor.token, self.cursor.span()
        args, named = self.arguments()
        if not isinstance(callee, Op):
            if named:
                raise self.error_at(start, f"only operators have attributes, got {', '.join(named)}")
            return Call(callee, tuple(args), None, span)
        try:
            result = callee.of_text(args, named)
            return Call(result.op, result.args, result.attrs, span)
        except ArmillaryError as error:
            raise self.error_at(start, error.message, error.hint) from None

    def arguments(self) -> tuple[list[Expr], dict[str, Any]]:  # Any: attribute values
        self.cursor.expect("(")
        args: list[Expr] = []
        named = {}
        while not self.cursor.accept(")"):
            if self.cursor.token.kind == "name" and self.cursor.peek().text == "=":
                key = self.cursor.name()
                self.cursor.expect("=")
                named[key] = self.literal()
            else:
                args.append(self.value())
            if not self.cursor.at(")"):
                self.cursor.expect(",")
        return args, named

    # --- constants and literals -------------------------------------------------------------------------------------

    def scalar(self) -> Constant:
        if self.cursor.at("True", "False"):
            return Constant(np.asarray(self.cursor.next().text == "True"))
        negative = False
        while self.cursor.accept("-"):
            negative = not negative
        token = self.cursor.token
        match = _SCALAR.match(token.text) if token.kind == "number" else None
        if match is None:
            raise self.cursor.error("expected a number")
        digits, code, bits = match.groups()
        name = {"f": "float", "i": "int", "u": "uint"}.get(code or "i", "int") + (bits or "32")
        try:
            dtype = DType(name)
            value = float(digits) if dtype.is_float else int(digits, 0)
            with np.errstate(over="ignore"):  # refused below
                array = np.asarray(-value if negative else value).astype(dtype.numpy)
        except (ValueError, TypeMismatch, OverflowError) as error:
            raise self.cursor.error(f"not a scalar ({error})") from None
        if dtype.is_float and _TEXT_ROUNDS * largest(dtype.numpy) < abs(value) < math.inf:
            raise self.cursor.error(f"the number does not fit {dtype}")
        if dtype.is_int and not dtype.min_value <= (-value if negative else value) <= dtype.max_value:
            raise self.cursor.error(f"the number does not fit {dtype}")
        self.cursor.next()
        return Constant(array)

    def constant(self) -> Constant:
        """meta[relay.Constant][3]"""
        start, result = self.cursor.token, self.meta()
        if not isinstance(result, Constant):
            raise self.error_at(start, f"expected a value, got a {type(result).__name__} of the meta table")
        return result

    def meta(self) -> object:
        """What stands in a table of meta data: a constant, or what the caller gave."""
        start = self.cursor.next()
        self.cursor.expect("[")
        kind = self.cursor.name("relay.Constant")
        self.cursor.expect("]")
        self.cursor.expect("[")
        index = self.cursor.integer()
        self.cursor.expect("]")
        try:
            if kind in self.metadata.rows_by_kind:
                return self.metadata.item(kind, index)
            return self.metadata.constant(start.line, kind, index)
        except ModelError as error:
            raise self.error_at(start, error.message, error.hint) from None

    def literal(self) -> Any:  # Any: an attribute value
        if self.cursor.token.kind == "string":
            return self.cursor.string()
        if self.cursor.at("meta"):
            return self.meta()
        if self.cursor.at("[", "("):
            return self.sequence("]" if self.cursor.next().text == "[" else ")")
        if self.at_extent():
            return read_extent(self.cursor)
        negative = self.cursor.accept("-")
        token = self.cursor.token
        if token.kind == "name" and token.text in _WORDS:
            value = _WORDS[self.cursor.next().text]
        elif token.kind == "number" and re.fullmatch(r"0x[0-9a-fA-F]+|[0-9.]+(?:[eE][+-]?\d+)?f?", token.text):
            value = ast.literal_eval(self.cursor.next().text.rstrip("f") if "x" not in token.text else token.text)
        else:
            raise self.cursor.error("expected an attribute value: a number, string, True, False, None or [values]")
        return -value if negative and isinstance(value, int | float) else value

    def at_extent(self) -> bool:
        """Whether an attribute value is an expression over sizes: `b`, `-b + 4`, `2*b`."""
        first = self.cursor.peek() if self.cursor.at("-") else self.cursor.token
        if first.kind == "number":
            return self.cursor.peek(2 if self.cursor.at("-") else 1).text == "*"
        return first.kind == "name" and first.text not in _WORDS and first.text[0] not in "%@"

    def sequence(self, closing: str) -> tuple[Any, ...]:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.cursor.error(f"nested more than {_MAX_DEPTH} deep")
        values = []
        while not self.cursor.accept(closing):
            values.append(self.literal())
            if not self.cursor.at(closing):
                self.cursor.expect(",")
        self.depth -= 1
        return tuple(values)

    # --- types ------------------------------------------------------------------------------------------------------

    def type(self) -> Type:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.cursor.error(f"nested more than {_MAX_DEPTH} deep")
        result = self._type()
        self.depth -= 1
        return result

    def _type(self) -> Type:
        if self.cursor.accept("("):
            return TupleType(self.types())
        if self.cursor.accept("fn"):
            variables = _type_parameters(self, self.names) if self.names is not None else ()
            self.cursor.expect("(")
            args = self.types()
            self.cursor.expect("->")
            result = self.type()
            if self.names is not None:
                self.names.types.pop()
            return FuncType(args, result, variables)
        named = _named_type(self, self.names) if self.names is not None else None
        if named is not None:
            return named
        if not self.cursor.accept("Tensor"):
            return TensorType((), self.dtype())
        self.cursor.expect("[")
        self.cursor.expect("(")
        dims: list[Dim] = []
        while not self.cursor.accept(")"):
            dims.append(ANY_DIM if self.cursor.accept("?") else self.dimension())
            if not self.cursor.at(")"):
                self.cursor.expect(",")
        self.cursor.expect(",")
        dtype = self.dtype()
        self.cursor.expect("]")
        return TensorType(tuple(dims), dtype)

    def dimension(self) -> Dim:
        if self.cursor.at("-"):
            raise self.cursor.error("a dimension is not negative; write ? for an unknown one")
        return read_extent(self.cursor)

    def types(self) -> tuple[Type, ...]:
        result: list[Type] = []
        while not self.cursor.accept(")"):
            result.append(self.type())
            if not self.cursor.at(")"):
                self.cursor.expect(",")
        return tuple(result)

    def dtype(self) -> DType:
        token = self.cursor.token
        try:
            return DType(self.cursor.dtype("a type, such as Tensor[(1, 3), float32]"))
        except TypeMismatch as error:
            raise self.error_at(token, error.message, error.hint) from None

    def error_at(self, token: Token, message: str, hint: str = "") -> ParseError:
        """The error of the cursor, at an earlier token."""
        self.cursor.index = self.cursor.tokens.index(token)
        error = self.cursor.error(message)
        return ParseError(error.message, span=error.span, hint=hint)
