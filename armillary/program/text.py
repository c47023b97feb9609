"""The text of a run program, and its parser.

In: a program, or a text. Out: the text, or the program. Invariant: what was printed parses back to an equal program; a
text that is no program is a ParseError with line and column, and is not verified here (verify.py).

    program (b in 1..64) { %x: float32[b, 8] input slot 0  %y: float32[b, 8] output slot 1
      call relu(%x) -> %y  return %y }

A size that no input gives gets its value on the way: `bind n = %count`. `equal n = 2*b of "axis 0 of x" "axis 0 of y"
"add"` stops a run in which these differ.

Behind a value stand its lifetime, its slot, and what differs from the usual: `at 64`, its place in the arena (`at ?`:
where sizes decide), `device 4`, `scope "global.texture"`, `width 8` of an image, `as "x:0"`, what callers set it by.
`as` behind a statement is the layer it computes. `variant (%x) { … }` runs for the shapes of these inputs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from armillary.base.extent import Known, Size
from armillary.errors import ParseError, TypeMismatch
from armillary.program.nodes import (
    Bind,
    Call,
    Equal,
    If,
    Lifetime,
    Loop,
    Move,
    Program,
    Return,
    Statement,
    Storage,
    Value,
    Variant,
    Yield,
)
from armillary.text.cursor import Cursor
from armillary.text.extent import read_extent

_MOVES = ("view", "join", "copy", "write")
_DEEPEST = 64  # branches and loops inside one another
_LIFETIMES = {lifetime.value: lifetime for lifetime in Lifetime}


def print_program(program: Program) -> str:
    """The text of a program."""
    sizes = ", ".join(f"{s.name} in {s.low}..{s.high}{f' step {s.step}' if s.step > 1 else ''}" for s in program.sizes)
    lines = [f"program ({sizes}) {{", *(f"  {_value(v)}" for v in program.values)]
    return "\n".join([*lines, *_lines(program.body, "  "), "}"]) + "\n"


def _value(value: Value) -> str:
    storage = value.storage
    text = (
        f"%{value.name}: {value.dtype}[{', '.join(map(str, value.shape))}] {storage.lifetime.value} slot {storage.slot}"
    )
    if storage.place is None or storage.place >= 0:
        text += f" at {'?' if storage.place is None else storage.place}"
    text += f" device {storage.device}" if storage.device else ""
    text += f" scope {json.dumps(storage.scope)}" if storage.scope != "global" else ""
    return text + (f" width {storage.width}" if storage.width else "") + _as(value.label)


def _as(name: str | None) -> str:
    return "" if name is None else f" as {json.dumps(name)}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"%{name}" for name in names)


def _lines(body: Sequence[Statement], indent: str) -> list[str]:
    result: list[str] = []
    for statement in body:
        name = "" if isinstance(statement, Return | Variant | Equal) else _as(statement.name or None)
        match statement:
            case Call(function, inputs, outputs):
                result.append(f"{indent}call {function}({_list(inputs)}) -> {_list(outputs)}".rstrip() + name)
            case Move(kind, inputs, output):
                result.append(f"{indent}{kind} {_list(inputs)} -> %{output}{name}")
            case If(condition, then, otherwise, outputs):
                result += [f"{indent}if %{condition} {{", *_lines(then, indent + "  "), f"{indent}}} else {{"]
                result += [*_lines(otherwise, indent + "  "), f"{indent}}} -> {_list(outputs)}".rstrip() + name]
            case Loop(limit, going, states, inside, outputs, trips):
                most = f" trips {trips}" if trips >= 0 else ""
                result.append(f"{indent}loop %{limit} while %{going} from ({_list(states)}){most} {{")
                result += [*_lines(inside, indent + "  "), f"{indent}}} -> {_list(outputs)}{name}"]
            case Variant(inputs, inside):
                result += [f"{indent}variant ({_list(inputs)}) {{", *_lines(inside, indent + "  "), f"{indent}}}"]
            case Bind(size, value):
                result.append(f"{indent}bind {size} = %{value}{name}")
            case Equal((a, b), owners, layer):
                result.append(f"{indent}equal {a} = {b} of {' '.join(map(json.dumps, (*owners, layer)))}")
            case Yield(values) | Return(values):
                word = "yield" if isinstance(statement, Yield) else "return"
                result.append(f"{indent}{word} {_list(values)}".rstrip() + name)
    return result


def parse_program(text: str, source: str = "<program>") -> Program:
    """The program of a text."""
    return _Parser(Cursor(text, source)).program()


class _Parser:
    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.sizes: dict[str, Size] = {}

    def program(self) -> Program:
        cursor = self.cursor
        cursor.expect("program")
        cursor.expect("(")
        while not cursor.accept(")"):
            self.size()
            if not cursor.at(")"):
                cursor.expect(",")
        cursor.expect("{")
        values: list[Value] = []
        while cursor.token.text.startswith("%"):
            values.append(self.value())
        body = self.statements(0)
        if not cursor.at_end():
            raise cursor.error("expected the end of the program")
        return Program(tuple(self.sizes.values()), tuple(values), body)

    def size(self) -> None:
        cursor = self.cursor
        name = cursor.name("a size, as in b in 1..64")
        cursor.expect("in")
        low, high = self.range()
        step = cursor.integer() if cursor.accept("step") else 1
        try:
            self.sizes[name] = Size(name, low, high, step)
        except TypeMismatch as error:
            raise cursor.error(error.message) from None

    def range(self) -> tuple[int, int]:
        """`1..64`, which the tokens of a cursor have as `1.` and `.64`."""
        begin = self.cursor.next().text
        if begin.endswith(".") and begin[:-1].isdigit() and self.cursor.token.text[:1] == ".":
            end = self.cursor.next().text[1:]
            if end.isdigit():
                return int(begin[:-1]), int(end)
        raise self.cursor.error("expected a range, as 1..64")

    def value(self) -> Value:
        cursor = self.cursor
        name = self.name()
        cursor.expect(":")
        dtype = cursor.name("a type, as float32")
        cursor.expect("[")
        shape: list[Known] = []
        while not cursor.accept("]"):
            shape.append(read_extent(cursor, sizes=self.sizes))
            if not cursor.at("]"):
                cursor.expect(",")
        word = cursor.name("a lifetime")
        if word not in _LIFETIMES:
            raise cursor.error(f"{word} is no lifetime: {', '.join(_LIFETIMES)}")
        cursor.expect("slot")
        slot, place, device, scope = cursor.integer(), -1, 0, "global"
        number: int | None = place
        if cursor.accept("at"):
            number = None if cursor.accept("?") else cursor.integer()
        if cursor.accept("device"):
            device = cursor.integer()
        if cursor.accept("scope"):
            scope = cursor.string()
        width = cursor.integer() if cursor.accept("width") else 0
        return Value(
            name, dtype, tuple(shape), Storage(_LIFETIMES[word], slot, number, device, scope, width), self.label()
        )

    def layer(self) -> str:
        return self.label() or ""

    def label(self) -> str | None:
        return self.cursor.string() if self.cursor.accept("as") else None

    def name(self) -> str:
        text = self.cursor.name("a value, as %x")
        if not text.startswith("%") or len(text) < 2:
            raise self.cursor.error(f"expected a value, as %x; {text} is none")
        return text[1:]

    def names(self) -> tuple[str, ...]:
        if not self.cursor.token.text.startswith("%"):
            return ()
        result = [self.name()]
        while self.cursor.accept(","):
            result.append(self.name())
        return tuple(result)

    def results(self) -> tuple[str, ...]:
        self.cursor.expect("->")
        return self.names()

    def statements(self, depth: int) -> tuple[Statement, ...]:
        if depth > _DEEPEST:
            raise self.cursor.error(f"branches and loops are nested more than {_DEEPEST} deep")
        result: list[Statement] = []
        while not self.cursor.accept("}"):
            result.append(self.statement(depth))
        return tuple(result)

    def statement(self, depth: int) -> Statement:
        cursor = self.cursor
        word = cursor.name("a statement")
        if word == "call":
            function = cursor.name("a function")
            cursor.expect("(")
            inputs = self.names()
            cursor.expect(")")
            return Call(function, inputs, self.results(), self.layer())
        if word in _MOVES:
            inputs = self.names()
            cursor.expect("->")
            return Move(word, inputs, self.name(), self.layer())
        if word == "variant":
            return self.variant(depth)
        if word == "if":
            return self.branch(depth)
        if word == "loop":
            return self.loop(depth)
        if word == "bind":
            return self.bind()
        if word == "equal":
            return self.equal()
        if word in ("yield", "return"):
            return Yield(self.names(), self.layer()) if word == "yield" else Return(self.names())
        raise ParseError(f"{word} is no statement", span=cursor.span())

    def bind(self) -> Bind:
        size = self.cursor.name("a size")
        if size not in self.sizes:
            raise self.cursor.error(f"{size} is no size of the program: {', '.join(self.sizes) or 'it has none'}")
        self.cursor.expect("=")
        return Bind(size, self.name(), self.layer())

    def equal(self) -> Equal:
        cursor = self.cursor
        a = read_extent(cursor, sizes=self.sizes)
        cursor.expect("=")
        b = read_extent(cursor, sizes=self.sizes)
        cursor.expect("of")
        return Equal((a, b), (cursor.string(), cursor.string()), cursor.string())

    def branch(self, depth: int) -> If:
        condition = self.name()
        self.cursor.expect("{")
        then = self.statements(depth + 1)
        self.cursor.expect("else")
        self.cursor.expect("{")
        otherwise = self.statements(depth + 1)
        return If(condition, then, otherwise, self.results(), self.layer())

    def variant(self, depth: int) -> Variant:
        self.cursor.expect("(")
        inputs = self.names()
        self.cursor.expect(")")
        self.cursor.expect("{")
        return Variant(inputs, self.statements(depth + 1))

    def loop(self, depth: int) -> Loop:
        cursor = self.cursor
        limit = self.name()
        cursor.expect("while")
        going = self.name()
        cursor.expect("from")
        cursor.expect("(")
        states = self.names()
        cursor.expect(")")
        trips = cursor.integer() if cursor.accept("trips") else -1
        cursor.expect("{")
        return Loop(limit, going, states, self.statements(depth + 1), self.results(), trips, self.layer())
