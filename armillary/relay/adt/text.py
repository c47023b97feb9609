"""The text form of data types, matches and references.

Grammar, beside that of relay/parser.py:

    module  = { ["extern"] "type" name ["[" names "]"] "{" { form [","] } "}" | "def" … ["[" names "]"] … }
    form    = name ["(" types ")"]
    primary = "match" ["?"] "(" value ")" "{" { pattern "=>" ("{" block "}" | value) [","] } "}"
            | constructor | ("ref" | "ref_read" | "ref_write") "(" values ")"
    pattern = "_" | var [":" type] | constructor ["(" patterns ")"] | "(" patterns ")"
    type    = name ["[" types "]"] | "ref" "(" type ")"

In: a reader of text, or a node and its printer. Out: nodes; lines. Invariant: what is printed is read back as equal
nodes. A constructor without fields is written without parentheses where it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from armillary.base.node import Visits
from armillary.errors import ParseError
from armillary.ir import GlobalVar, IRModule
from armillary.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    RefCreate,
    RefRead,
    RefWrite,
)
from armillary.relay.adt.types import GlobalTypeVar, RefType, TypeCall, TypeData, TypeVar
from armillary.relay.expr import Expr
from armillary.relay.printer import Lines
from armillary.relay.types import Type
from armillary.relay.walk import children

if TYPE_CHECKING:
    from armillary.relay.parser import _Reader as Reader
    from armillary.relay.printer import _Printer as Printer

_CELLS: dict[str, tuple[Callable[..., Expr], int]] = {
    "ref": (RefCreate, 1),
    "ref_read": (RefRead, 1),
    "ref_write": (RefWrite, 2),
}


class Names:
    """What a text may call: type variables by scope, types, constructors."""

    def __init__(self) -> None:
        self.types: list[dict[str, Type]] = [{}]
        self.forms: dict[str, Constructor] = {}

    def define(self, data: TypeData) -> None:
        """A type of the module that the text is read into."""
        self.types[0][data.header.name_hint] = data.header
        self.forms.update({form.label: form for form in data.constructors})

    def find(self, name: str) -> Type | None:
        """The type of that name, innermost scope first."""
        return next((scope[name] for scope in reversed(self.types) if name in scope), None)


def read_names(reader: Reader, names: Names, module: IRModule) -> None:
    """Know the types of a module, and those that the text defines anywhere: they may hold one another."""
    for data in module.type_definitions.values():
        assert isinstance(data, TypeData), "types are defined by TypeData"
        names.define(data)
    tokens = reader.cursor.tokens
    for token, following in pairwise(tokens):
        if token.text == "type" and token.kind == following.kind == "name":
            names.types[0].setdefault(following.text, GlobalTypeVar(following.text))


def type_parameters(reader: Reader, names: Names) -> tuple[TypeVar, ...]:
    """`[A, B]`, if it is here; they are known until the scope is left."""
    result = []
    scope: dict[str, Type] = {}
    if reader.cursor.accept("["):
        while not reader.cursor.accept("]"):
            result.append(TypeVar(reader.cursor.name("a type variable")))
            if not reader.cursor.at("]"):
                reader.cursor.expect(",")
    scope.update({v.name_hint: v for v in result})
    names.types.append(scope)
    return tuple(result)


def definition(reader: Reader, names: Names, module: IRModule) -> None:
    """A type and its constructors, put into the module."""
    is_extern = reader.cursor.accept("extern")
    reader.cursor.expect("type")
    start = reader.cursor.token
    header = GlobalTypeVar(reader.cursor.name("the name of a type"))
    if header in module.type_definitions:
        raise reader.error_at(start, f"the type {header} is defined twice")
    variables = type_parameters(reader, names)
    forms: list[Constructor] = []
    if not is_extern:
        reader.cursor.expect("{")
        while not reader.cursor.accept("}"):
            forms.append(_form(reader, names, header))
            if not reader.cursor.at("}"):
                reader.cursor.expect(",")
    names.types.pop()
    data = TypeData(header, variables, tuple(forms))
    module.type_definitions[header] = data
    names.define(data)


def _form(reader: Reader, names: Names, header: GlobalTypeVar) -> Constructor:
    token = reader.cursor.token
    label = reader.cursor.name("a constructor")
    if label in names.forms or isinstance(names.types[0].get(label), GlobalTypeVar):
        raise reader.error_at(token, f"{label} is defined twice")
    inputs = reader.types() if reader.cursor.accept("(") else ()
    form = Constructor(label, inputs, header)
    names.forms[label] = form
    return form


def named_type(reader: Reader, names: Names) -> Type | None:
    """A type by its name, if one is here."""
    cursor = reader.cursor
    if cursor.token.kind != "name":
        return None
    if cursor.token.text == "ref" and cursor.peek().text == "(":
        cursor.next()
        cursor.expect("(")
        inside = reader.type()
        cursor.expect(")")
        return RefType(inside)
    result = names.find(cursor.token.text)
    if result is None:
        return None
    cursor.next()
    if not isinstance(result, GlobalTypeVar):
        return result
    args: list[Type] = []
    if cursor.accept("["):
        while not cursor.accept("]"):
            args.append(reader.type())
            if not cursor.at("]"):
                cursor.expect(",")
    return TypeCall(result, tuple(args))


def operand(reader: Reader, names: Names) -> Expr | None:
    """A match, a cell or a constructor, if one is here."""
    cursor, start = reader.cursor, reader.cursor.token
    if start.kind != "name":
        return None
    if start.text == "match" and cursor.peek().text in ("(", "?"):
        return _match(reader, names)
    if start.text in _CELLS and cursor.peek().text == "(":
        cursor.next()
        kind, count = _CELLS[start.text]
        args, named = reader.arguments()
        if len(args) != count or named:
            raise reader.error_at(start, f"{start.text} takes {count} value{'s' * (count > 1)}")
        return kind(*args)
    form = names.forms.get(start.text)
    if form is None:
        return None
    cursor.next()
    if cursor.at("("):
        args, named = reader.arguments()
        if named:
            raise reader.error_at(start, f"a constructor has no attributes, got {', '.join(named)}")
        return form(*args)
    return form if form.inputs else form()


def _match(reader: Reader, names: Names) -> Match:
    cursor, span = reader.cursor, reader.cursor.span()
    cursor.next()
    complete = not cursor.accept("?")
    cursor.expect("(")
    data = reader.value()
    cursor.expect(")")
    cursor.expect("{")
    clauses: list[Clause] = []
    while not cursor.accept("}"):
        reader.env.append({})
        lhs = _pattern(reader, names)
        cursor.expect("=>")
        rhs = reader.block() if cursor.accept("{") else reader.value()
        reader.env.pop()
        clauses.append(Clause(lhs, rhs))
        if not cursor.at("}"):
            cursor.expect(",")
    return Match(data, tuple(clauses), complete, span)


def _pattern(reader: Reader, names: Names) -> Pattern:
    cursor, start = reader.cursor, reader.cursor.token
    if cursor.accept("_"):
        return PatternWildcard()
    if start.text.startswith("%"):
        var = reader.variable()
        reader.bind(var)
        return PatternVar(var)
    if cursor.accept("("):
        return PatternTuple(_patterns(reader, names))
    form = names.forms.get(start.text)
    if form is None:
        raise cursor.error("expected a pattern: _, a variable, a constructor or (patterns)")
    cursor.next()
    inner = _patterns(reader, names) if cursor.accept("(") else ()
    if len(inner) != len(form.inputs):
        raise reader.error_at(start, f"{form.label} has {len(form.inputs)} fields, the pattern {len(inner)}")
    return PatternConstructor(form, inner)


def _patterns(reader: Reader, names: Names) -> tuple[Pattern, ...]:
    result: list[Pattern] = []
    while not reader.cursor.accept(")"):
        result.append(_pattern(reader, names))
        if not reader.cursor.at(")"):
            reader.cursor.expect(",")
    return tuple(result)


# --- printing -------------------------------------------------------------------------------------------------------


def lines_of(printer: Printer, expr: Expr) -> Lines:
    """The lines of a node where it is computed."""
    visit = _VALUES.get(type(expr))
    if visit is None:
        raise ParseError(f"a {type(expr).__name__} has no text")
    return visit(printer, expr)


def _print_match(printer: Printer, expr: Match) -> Lines:
    lines: Lines = [f"match{'' if expr.complete else '?'} ({printer.operand(expr.data)}) {{"]
    rows: Lines = []
    for clause in expr.clauses:
        body = printer.text[id(printer.inner[id(clause), len(children(clause)) - 1])]
        rows += [f"{_shown(printer, clause.lhs)} => {{", body, "},"]
    return [*lines, rows, "}"]


def _shown(printer: Printer, pattern: Pattern) -> str:
    if isinstance(pattern, PatternVar):
        return printer.declared(pattern.var)
    if isinstance(pattern, PatternTuple):
        return f"({', '.join(_shown(printer, p) for p in pattern.patterns)})"
    if isinstance(pattern, PatternConstructor):
        inside = ", ".join(_shown(printer, p) for p in pattern.patterns)
        return f"{pattern.constructor.label}({inside})" if pattern.patterns else pattern.constructor.label
    return "_"


def _print_cell(name: str, *parts: str) -> list[str]:
    return [f"{name}({', '.join(parts)})"]


_VALUES: Visits[Printer, [], Lines] = {
    GlobalVar: lambda printer, e: [printer.operand(e)],
    Match: _print_match,
    Constructor: lambda printer, e: [e.label],
    RefCreate: lambda printer, e: _print_cell("ref", printer.operand(e.value)),
    RefRead: lambda printer, e: _print_cell("ref_read", printer.operand(e.ref)),
    RefWrite: lambda printer, e: _print_cell("ref_write", printer.operand(e.ref), printer.operand(e.value)),
}
