"""Build loop programs by hand, statement by statement: `ib = tir.ir_builder.create()`.

In: calls and `with` blocks (`for_range`, `while_loop`, `if_scope`, `else_scope`), reads and writes of `BufferVar`s.
Out: `ib.get()`, one statement. Invariant: blocks close in the order they opened; an allocation lives to the end of the
block it stands in.
Used by `te.extern` bodies and by user scripts. Nodes: `tir/stmt.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.node import replace
from armillary.errors import ScheduleError, TypeMismatch
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S

Value = Any  # what user code may pass for an expression
_KINDS = {
    "serial": S.LoopKind.SERIAL,
    "parallel": S.LoopKind.PARALLEL,
    "vectorize": S.LoopKind.VECTORIZED,
    "unroll": S.LoopKind.UNROLLED,
    "vectorized": S.LoopKind.VECTORIZED,
    "unrolled": S.LoopKind.UNROLLED,
}


@boundary("decl_buffer", arguments=True)
def decl_buffer(
    shape: Sequence[Value] | Value,
    dtype: str = "float32",
    name: str = "buffer",
    data: object = None,
    strides: Sequence[Value] | None = None,
    elem_offset: Value = None,
    scope: str = "global",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
) -> S.Buffer:
    """A buffer; `data` is accepted for old scripts and has no effect.

    With an `offset_factor` and no `elem_offset` it begins at a variable of its own, `<name>_elem_offset`: of an
    intrinsic's buffer where the region begins, of an argument 0. Of the type "auto_broadcast", without `strides`, an
    axis of length 1 stands for one of any length: its stride is 0.
    """
    if buffer_type not in ("", "default", "auto_broadcast"):
        raise TypeMismatch(f"decl_buffer: no buffer type {buffer_type!r}", hint='there are "" and "auto_broadcast"')
    dims = build.as_shape(shape, f"buffer {name}")
    offset = build.convert(elem_offset) if elem_offset is not None else None
    if offset_factor and offset is None:
        offset = E.Var(f"{name}_elem_offset", E.INT32)
    steps = tuple(build.convert(x) for x in strides or ())
    if buffer_type == "auto_broadcast" and not steps:
        steps = broadcast_strides(dims)
    align = data_alignment if data_alignment > 0 else 64
    return S.Buffer(name, dims, DType(dtype), scope or "global", steps, offset, align)


def broadcast_strides(shape: Sequence[E.Expr], places: Container[int] | None = None) -> tuple[E.Expr, ...]:
    """Strides of a dense tensor, but 0 along the axes (those at `places`, or all) that turn out to have length 1."""
    result: list[E.Expr] = []
    step: E.Expr = build.const(1)
    for place in reversed(range(len(shape))):
        size = shape[place]
        is_asked = places is None or place in places
        one, zero = build.equal(size, build.const(1, size.dtype)), build.const(0, step.dtype)
        result.insert(0, build.select(one, zero, step) if is_asked else step)
        step = build.mul(step, size)
    return tuple(result)


class BufferVar:
    """A buffer that reads and writes through indexing while building."""

    def __init__(self, builder: IRBuilder, buffer: S.Buffer) -> None:
        self.builder, self.buffer = builder, buffer

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    def asobject(self) -> S.Buffer:
        """The buffer that this stands for."""
        return self.buffer

    def _indices(self, index: Value) -> tuple[E.Expr, ...]:
        """A single index into a buffer of several dimensions counts elements in row-major order."""
        items = tuple(build.convert(i) for i in (index if isinstance(index, tuple | list) else (index,)))
        shape = self.buffer.shape
        for item in items:
            if not item.dtype.is_int:
                raise TypeMismatch(f"buffer {self.buffer.name} is indexed with a {item.dtype}, wanted an integer")
        if len(items) == 1 and len(shape) > 1:
            places: list[E.Expr] = []
            rest = items[0]
            for extent in reversed(shape[1:]):
                places.append(build.floormod(rest, extent))
                rest = build.floordiv(rest, extent)
            items = (rest, *reversed(places))
        if len(items) != len(shape):
            raise TypeMismatch(
                f"buffer {self.buffer.name} has {len(shape)} dimensions, got {len(items)} indices",
                hint="give one index per dimension, or one flat position",
            )
        return items

    def __getitem__(self, index: Value) -> E.Expr:
        return E.BufferLoad(self.buffer, self._indices(index))

    def __setitem__(self, index: Value, value: Value) -> None:
        stored = build.cast(value, self.buffer.dtype)
        self.builder.emit(S.BufferStore(self.buffer, stored, self._indices(index)))


class IRBuilder:
    """Collects statements; see the module docstring."""

    def __init__(self) -> None:
        self._blocks: list[list[S.Stmt | Callable[[S.Stmt], S.Stmt]]] = [[]]

    def emit(self, stmt: S.Stmt | E.Expr) -> None:
        """Append a statement; an expression is evaluated."""
        self._blocks[-1].append(stmt if isinstance(stmt, S.Stmt) else S.Evaluate(stmt))

    def _close(self) -> S.Stmt:
        """The current block as one statement: scopes opened in it govern what follows."""
        parts: list[S.Stmt] = []
        for item in reversed(self._blocks.pop()):
            if isinstance(item, S.Stmt):
                parts.insert(0, item)
            else:
                parts = [item(S.seq(*parts) if parts else S.Evaluate(build.const(0)))]
        return S.seq(*parts) if parts else S.Evaluate(build.const(0))

    @contextmanager
    def for_range(
        self, begin: Value, end: Value, name: str = "i", dtype: str | None = None, kind: str = "serial"
    ) -> Iterator[E.Var]:
        """`with ib.for_range(0, n) as i:` loops over [begin, end); the variable has the bounds' type, or `dtype`."""
        if kind not in _KINDS:
            raise ScheduleError(f"for_range: unknown loop kind {kind!r}", hint=f"use one of {', '.join(_KINDS)}")
        low, high = build.match_types(begin, end)
        if dtype is not None:
            low, high = build.cast(low, dtype), build.cast(high, dtype)
        var, extent = E.Var(name, low.dtype), build.sub(high, low)
        self._blocks.append([])
        yield var
        self.emit(S.For(var, low, extent, _KINDS[kind], self._close()))

    @contextmanager
    def if_scope(self, condition: Value) -> Iterator[None]:
        """`with ib.if_scope(c):` runs the block where c holds."""
        self._blocks.append([])
        yield
        self.emit(S.IfThenElse(build.cast(condition, "bool"), self._close()))

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """The other branch of the if_scope just closed."""
        last = self._blocks[-1][-1] if self._blocks[-1] else None
        if not isinstance(last, S.IfThenElse) or last.else_body is not None:
            raise ScheduleError("else_scope must directly follow an if_scope")
        self._blocks[-1].pop()
        self._blocks.append([])
        yield
        self.emit(replace(last, else_body=self._close()))

    @contextmanager
    def while_loop(self, condition: Value) -> Iterator[None]:
        """`with ib.while_loop(c):` runs the block as long as c, evaluated anew before each turn, holds."""
        test = build.cast(condition, "bool")
        if isinstance(test, E.IntImm) and test.value:
            raise ScheduleError("while_loop: its condition always holds", hint="compare what the loop changes")
        self._blocks.append([])
        yield
        self.emit(S.While(test, self._close()))

    def scope_attr(self, node: object, attr_key: str, value: Value) -> None:
        """A note on everything that follows in this block."""
        noted = build.convert(value)
        about = node if isinstance(node, E.IterVar | E.Var | S.Buffer) else None
        self._blocks[-1].append(lambda body: S.AttrStmt(attr_key, noted, body, about))

    def let(self, var_name: str, value: Value) -> E.Var:
        """A variable with this value for the rest of the block."""
        bound = build.convert(value)
        var = E.Var(var_name, bound.dtype)
        self._blocks[-1].append(lambda body: S.LetStmt(var, bound, body))
        return var

    def allocate(self, dtype: str, shape: Value, name: str = "buf", scope: str = "global") -> BufferVar:
        """A buffer for the rest of the block."""
        buffer = decl_buffer(shape, dtype, name, scope=scope)
        self._blocks[-1].append(lambda body: S.Allocate(buffer, body))
        return BufferVar(self, buffer)

    def pointer(self, content_type: str, name: str = "ptr", scope: str = "global") -> BufferVar:
        """A buffer of any length, to be an argument of the function."""
        length = E.Var(f"{name}_length")
        return BufferVar(self, S.Buffer(name, (length,), DType(content_type), scope))

    def buffer_ptr(self, buf: S.Buffer, shape: Value = None) -> BufferVar:
        """Access to an existing buffer, by its own shape; `shape` is accepted for old scripts."""
        return BufferVar(self, buf)

    def likely(self, expr: Value) -> E.Expr:
        """A condition that mostly holds."""
        return build.likely(expr)

    def get(self) -> S.Stmt:
        """The program built so far; the builder starts anew."""
        if len(self._blocks) != 1:
            raise ScheduleError("ir_builder: a block is still open")
        body = self._close()
        self._blocks = [[]]
        return body


def create() -> IRBuilder:
    """A new builder."""
    return IRBuilder()
