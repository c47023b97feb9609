"""What C and its dialects write alike of statements.

In: an emitter with rules for statements, and a statement. Out: lines of its `writer`. Invariant: what an expression
asked for (`flush`) stands before the statement that reads it. The rules of one dialect: `c/source.py`,
`opencl/source.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping

from armillary.codegen.base import refuse
from armillary.codegen.c.expr import ExprEmitter
from armillary.text.writer import Writer
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import expressions_of

_WORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    data gamma lane main
"""
RESERVED = frozenset(_WORDS.split())  # in every dialect: words of C, names of the emitters and of its libraries


class StatementEmitter(ExprEmitter, ABC):
    """State of the statements of one function."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = Writer()

    @property
    @abstractmethod
    def statements(self) -> Mapping[type[S.Stmt], Callable[..., None]]:
        """The rules of the dialect by class: of the emitter and a statement."""

    @abstractmethod
    def fresh_label(self, name: str) -> str:
        """A name of the program as an identifier that nothing else has."""

    def flush(self) -> None:
        """Write the statements that expressions asked for."""
        self.write(self.scopes[0].lines)
        self.scopes[0].lines.clear()

    def write(self, lines: Iterable[str]) -> None:
        for text in lines:
            self.writer.line(text)

    def for_lanes(self, lanes: int, lines: list[str], last: str) -> None:
        """A loop over the lanes of a vector: `lines`, then `last`."""
        with self.writer.block(f"for (int lane = 0; lane < {lanes}; ++lane) {{"):
            self.write([*lines, last])

    def stmt(self, item: S.Stmt) -> None:
        """Emit a statement."""
        rule = self.statements.get(type(item))
        if rule is None:
            raise refuse(self.dialect, f"a statement of type {type(item).__name__}")
        self.begin_statement(*expressions_of(item))
        rule(self, item)


def write_if(m: StatementEmitter, s: S.IfThenElse) -> None:
    """Both branches, the second if there is one."""
    test = m.value(s.condition)
    m.flush()
    with m.writer.block(f"if ({test}) {{", "}"):
        m.stmt(s.then_body)
    if s.else_body is not None:
        with m.writer.block("else {", "}"):
            m.stmt(s.else_body)


def write_while(m: StatementEmitter, s: S.While) -> None:
    """The condition stands inside, as what it asks for is asked anew before each turn."""
    with m.writer.block("for (;;) {", "}"):
        test = m.value(s.condition)
        m.flush()
        m.writer.line(f"if (!({test})) break;")
        m.stmt(s.body)


def write_let_vector(m: StatementEmitter, s: S.LetStmt) -> None:
    """A named vector: an array of its lanes."""
    dtype = s.var.dtype
    with m.scope() as lines:
        value = m.value(s.value, "lane")
    m.flush()
    name = m.arrays[s.var] = m.fresh_label(s.var.name)
    with m.writer.block("{"):
        m.writer.line(f"{m.kind(dtype)} {name}[{dtype.lanes}];")
        m.for_lanes(dtype.lanes, lines, f"{name}[lane] = {value};")
        m.stmt(s.body)


def write_seq(m: StatementEmitter, s: S.SeqStmt) -> None:
    """One after another."""
    for part in s.statements:
        m.stmt(part)


def write_evaluate(m: StatementEmitter, s: S.Evaluate) -> None:
    """A call for its effect; a number has none."""
    if isinstance(s.value, E.IntImm):
        return
    text = m.value(s.value)
    m.flush()
    m.writer.line(f"{text};")
