"""A loop program as the text of a hybrid script, which `parser.py` reads back.

In: a `PrimFunc` whose last parameters are its outputs. Out: Python text: a function of the other parameters that makes
its outputs and returns them. Invariant: the text means the same to the parser and to Python over arrays; what the
language lacks (vectors, calls of C functions) is an UnsupportedError that names it. Names that are not Python's, as
`i.outer`, are spelled with underscores.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable

from armillary.errors import UnsupportedError
from armillary.te.hybrid.runtime import HYBRID_GLOBALS, INTRINSICS
from armillary.tir import expr as E
from armillary.tir import stmt as S

_INFIX: dict[type[E.Expr], str] = {
    E.Add: "+",
    E.Sub: "-",
    E.Mul: "*",
    E.Div: "/",
    E.FloorDiv: "//",
    E.FloorMod: "%",
    E.EQ: "==",
    E.NE: "!=",
    E.LT: "<",
    E.LE: "<=",
    E.GT: ">",
    E.GE: ">=",
    E.And: "and",
    E.Or: "or",
}
_FUNCTIONS: dict[type[E.Expr], str] = {E.Min: "min", E.Max: "max"}
_LOOPS = {
    S.LoopKind.SERIAL: "range",
    S.LoopKind.PARALLEL: "parallel",
    S.LoopKind.VECTORIZED: "vectorize",
    S.LoopKind.UNROLLED: "unroll",
}


def script_text(function: S.PrimFunc, name: str, outputs: int) -> str:
    """The script of a function whose last `outputs` parameters are made inside."""
    return _Writer().function(function, name, outputs)


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[object, str] = {}

    def function(self, function: S.PrimFunc, name: str, outputs: int) -> str:
        count = len(function.params) - outputs
        outer, results = function.params[:count], function.params[count:]
        self.lines.append(f"def {name}({', '.join(self.name(p) for p in outer)}):")
        for buffer in function.params:
            if isinstance(buffer, S.Buffer):
                self._sizes(buffer)
        for buffer in results:
            assert isinstance(buffer, S.Buffer), "outputs are tensors"
            self._line(1, f'{self.name(buffer)} = output_tensor({self._shape(buffer)}, "{buffer.dtype}")')
        self.stmt(function.body, 1)
        self._line(1, f"return {', '.join(self.name(b) for b in results)}")
        return "\n".join(self.lines) + "\n"

    def _sizes(self, buffer: S.Buffer) -> None:
        """Symbolic sizes that are no parameters, read from a tensor's shape."""
        for position, extent in enumerate(buffer.shape):
            if isinstance(extent, E.Var) and extent not in self.names:
                self._line(1, f"{self.name(extent)} = {self.name(buffer)}.shape[{position}]")

    def name(self, item: E.Var | S.Buffer) -> str:
        """One Python name for each variable and buffer."""
        if item not in self.names:
            base = re.sub(r"\W", "_", item.name) or "v"
            base = f"{base}_" if base[0].isdigit() or keyword.iskeyword(base) or base in HYBRID_GLOBALS else base
            candidate, number, taken = base, 1, set(self.names.values())
            while candidate in taken:
                candidate, number = f"{base}_{number}", number + 1
            self.names[item] = candidate
        return self.names[item]

    def _shape(self, buffer: S.Buffer) -> str:
        return f"({', '.join(self.expr(n) for n in buffer.shape)},)"

    def _line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def stmt(self, item: S.Stmt, depth: int) -> None:
        """The lines of a statement."""
        match item:
            case S.SeqStmt(parts):
                for part in parts:
                    self.stmt(part, depth)
            case S.For():
                self._for(item, depth)
            case S.IfThenElse(condition, then_body, else_body):
                self._line(depth, f"if {self.expr(condition)}:")
                self.stmt(then_body, depth + 1)
                if else_body is not None:
                    self._line(depth, "else:")
                    self.stmt(else_body, depth + 1)
            case S.BufferStore(buffer, value, indices):
                self._line(depth, f"{self._access(buffer, indices)} = {self.expr(value)}")
            case S.Allocate(buffer, body):
                text = f'allocate({self._shape(buffer)}, "{buffer.dtype}", "{buffer.scope}")'
                self._line(depth, f"{self.name(buffer)} = {text}")
                self.stmt(body, depth)
            case S.AssertStmt(condition, message, body):
                self._line(depth, f"assert {self.expr(condition)}, {message!r}")
                self.stmt(body, depth)
            case S.AttrStmt(_, _, body):
                self.stmt(body, depth)
            case S.LetStmt(var, value, body):
                self._line(depth, f"{self.name(var)} = {self.expr(value)}")
                self.stmt(body, depth)
            case S.Evaluate(E.IntImm()):
                self._line(depth, "pass")
            case _:
                raise UnsupportedError(f"te.hybrid.build: {type(item).__name__} has no form in a hybrid script")

    def _for(self, item: S.For, depth: int) -> None:
        if item.kind is S.LoopKind.THREAD:
            head = f'bind("{item.thread_tag}", {self.expr(item.extent)})'
        else:
            end = self.expr(item.min + item.extent)
            head = f"{_LOOPS[item.kind]}({self.expr(item.min)}, {end})"
        self._line(depth, f"for {self.name(item.var)} in {head}:")
        self.stmt(item.body, depth + 1)

    def _access(self, buffer: S.Buffer, indices: tuple[E.Expr, ...]) -> str:
        return f"{self.name(buffer)}[{', '.join(self.expr(i) for i in indices) or '()'}]"

    def expr(self, item: E.Expr) -> str:
        """The text of an expression, in parentheses where it has parts."""
        match item:
            case E.IntImm(_, value):
                return f"{item.dtype}({value})" if str(item.dtype) not in ("int32", "bool") else str(int(value))
            case E.FloatImm(_, value):
                return repr(float(value)) if str(item.dtype) == "float32" else f"{item.dtype}({float(value)!r})"
            case E.Var():
                return self.name(item)
            case E.BufferLoad(buffer, indices):
                return self._access(buffer, indices)
            case E.Not(operand):
                return f"(not {self.expr(operand)})"
            case E.Cast():
                return f"{item.dtype}({self.expr(item.value)})"
            case E.Select(condition, first, second):
                return f"({self.expr(first)} if {self.expr(condition)} else {self.expr(second)})"
            case E.Call(_, "if_then_else", (condition, first, second)):
                return f"({self.expr(first)} if {self.expr(condition)} else {self.expr(second)})"
            case E.Call(_, "likely", (condition,)):
                return self.expr(condition)
            case E.Call(_, called, args) if called in INTRINSICS or called in ("popcount", "pow"):
                return f"{'power' if called == 'pow' else called}({', '.join(map(self.expr, args))})"
        return self._combined(item)

    def _combined(self, item: E.Expr) -> str:
        symbol, called = _INFIX.get(type(item)), _FUNCTIONS.get(type(item))
        sides: Callable[[E.Expr], tuple[E.Expr, E.Expr]] = lambda e: (e.a, e.b)  # type: ignore[attr-defined] # noqa: E731
        if symbol is None and called is None:
            what = item.name if isinstance(item, E.Call) else type(item).__name__
            raise UnsupportedError(f"te.hybrid.build: {what} has no form in a hybrid script")
        a, b = map(self.expr, sides(item))
        return f"({a} {symbol} {b})" if symbol is not None else f"{called}({a}, {b})"
