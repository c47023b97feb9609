"""A tokenizer and a cursor for recursive-descent parsers.

In: text. Out: tokens with line and column, and a `Cursor` that peeks, accepts and expects. Invariant: every failure is
a ParseError that names the source, line, column, what was found and what was expected, and shows the line.
"""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass

from armillary.errors import ParseError, Span

_TOKEN = r"""(?P<space>[ \t\r]+) | (?P<newline>\n) | (?P<comment>(?://|\#)[^\n]*)
      | (?P<block>/\*)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<number>(?:0x[0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)(?:f\d*|i\d+|u\d+)?)
      | (?P<name>[%@]?[A-Za-z_][A-Za-z0-9_]*(?:[.:][A-Za-z0-9_]+)*|[%@]\d+)
      | (?P<symbol>->|=>|==|!=|<=|>=|&&|\|\||<<|>>|//|[-+*/%<>=!&|^~?:;,.(){}\[\]@\#])"""


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is name, number, string, symbol or end; names keep their % or @ prefix."""

    kind: str
    text: str
    line: int
    column: int


_MOST_DIGITS = 400  # the longest float has 309 digits before its point
_BOUND = re.compile(r"/\*|\*/")


@functools.cache
def _pattern(slash_comments: bool) -> re.Pattern[str]:
    text = _TOKEN
    if not slash_comments:
        text = text.replace(r"(?://|\#)[^\n]*", r"\#[^\n]*").replace("[%@]?", "@?").replace(r"|[%@]\d+", "")
    return re.compile(text, re.VERBOSE | re.DOTALL)


def tokenize(text: str, source: str = "<text>", slash_comments: bool = True) -> list[Token]:
    """All tokens of `text`, ending with one of kind "end". Comments are `//`, `#` to the end of line and /* */.

    Without `slash_comments`, `//` and `%` are always symbols (divisions, in the loop language).
    """
    pattern = _pattern(slash_comments)
    tokens: list[Token] = []
    position, line, start = 0, 1, 0
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            span = Span(source, "", line, position - start + 1)
            raise ParseError(f"unexpected character {text[position]!r}", span=span)
        kind = match.lastgroup or ""
        end = _end_of_comment(text, match.end()) if kind == "block" else match.end()
        if end < 0:
            raise ParseError("the comment has no end", span=Span(source, "", line, position - start + 1))
        if kind == "number" and end - position > _MOST_DIGITS:
            message = f"a number of {end - position} characters, at most {_MOST_DIGITS} are read"
            raise ParseError(message, span=Span(source, "", line, position - start + 1))
        if kind in ("name", "number", "string", "symbol"):
            tokens.append(Token(kind, match[0], line, position - start + 1))
        lines = text.count("\n", position, end)
        if lines:
            line, start = line + lines, text.rindex("\n", position, end) + 1
        position = end
    tokens.append(Token("end", "", line, position - start + 1))
    return tokens


def _end_of_comment(text: str, position: int) -> int:
    """Where a comment ends that began before `position`; comments nest; -1 where it has no end."""
    depth = 1
    while depth:
        mark = _BOUND.search(text, position)
        if mark is None:
            return -1
        depth += 1 if mark[0] == "/*" else -1
        position = mark.end()
    return position


class Cursor:
    """A place in a token list."""

    def __init__(self, text: str, source: str = "<text>", slash_comments: bool = True) -> None:
        self.text, self.source = text, source
        self.tokens = tokenize(text, source, slash_comments)
        self.index = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    def peek(self, ahead: int = 1) -> Token:
        """A later token, without moving."""
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def at(self, *texts: str) -> bool:
        """Whether the current token is one of these symbols or names."""
        return self.token.text in texts and self.token.kind in ("symbol", "name")

    def at_end(self) -> bool:
        return self.token.kind == "end"

    def next(self) -> Token:
        token = self.token
        self.index = min(self.index + 1, len(self.tokens) - 1)
        return token

    def accept(self, *texts: str) -> bool:
        """Move past one of these symbols or names if it is here."""
        if self.at(*texts):
            self.next()
            return True
        return False

    def expect(self, text: str) -> Token:
        """Move past this symbol or name, or fail."""
        if not self.at(text):
            raise self.error(f"expected {text!r}")
        return self.next()

    def name(self, what: str = "a name") -> str:
        if self.token.kind != "name":
            raise self.error(f"expected {what}")
        return self.next().text

    def dtype(self, what: str) -> str:
        """The name of a data type; of a script's own, with what stands in brackets: custom[posites2]32."""
        name = self.name(what)
        if name != "custom" or not self.accept("["):
            return name
        own = self.name("the name of a data type")
        self.expect("]")
        return f"custom[{own}]{self.next().text}"

    def string(self) -> str:
        if self.token.kind != "string":
            raise self.error("expected a string in double quotes")
        try:
            value: str = ast.literal_eval(self.token.text)
        except (SyntaxError, ValueError) as error:  # "\x1"
            raise self.error(f"a string that cannot be read: {error}") from None
        self.next()
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # JSON's pairs become one

    def integer(self) -> int:
        """An integer, possibly negative."""
        sign = -1 if self.accept("-") else 1
        if self.token.kind != "number" or not re.fullmatch(r"\d+|0x[0-9a-fA-F]+", self.token.text):
            raise self.error("expected an integer")
        return sign * int(self.next().text, 0)

    def span(self) -> Span:
        return Span(self.source, "", self.token.line, self.token.column)

    def error(self, message: str) -> ParseError:
        """A ParseError at the current token, with the line and a caret; what is there, if it `expected` others."""
        if message.startswith("expected"):
            message += f", found {self.token.text or 'the end of the text'!r}"
        lines = self.text.split("\n")
        line = lines[self.token.line - 1] if self.token.line <= len(lines) else ""
        caret = " " * (self.token.column - 1) + "^"
        return ParseError(f"{message}\n    {line}\n    {caret}", span=self.span())
