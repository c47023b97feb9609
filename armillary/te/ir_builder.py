"""Loops by hand, for te.extern: `ib = te.ir_builder.create()`, `with ib.for_range(0, n) as i:`, `return ib.get()`.

In: calls in program order. Out: one statement. Invariant: scopes close in the order they opened; an allocation lives to
the end of the scope it was made in. Elements: `p = ib.buffer_ptr(buffer)`, then `p[i, j]`, or `p[k]` with the flat
row-major position. Users: operators such as sort, topk, cumsum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from armillary.dtype import DType
from armillary.errors import TypeMismatch
from armillary.te.api import as_shape
from armillary.tir import build as T
from armillary.tir.expr import BufferLoad, Expr, IterVar, Var
from armillary.tir.stmt import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    Stmt,
    seq,
)

NOTHING = Evaluate(T.const(0))


class BufferPointer:
    """Elements of a buffer: `p[i, j]` reads, `p[i, j] = v` writes; one index is the flat position."""

    def __init__(self, builder: IRBuilder, buffer: Buffer) -> None:
        self._builder = builder
        self.buffer = buffer

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    def _indices(self, given: Any) -> tuple[Expr, ...]:
        indices = tuple(T.convert(i) for i in (given if isinstance(given, tuple | list) else (given,)))
        for item in indices:
            if not item.dtype.is_int:
                raise TypeMismatch(f"buffer {self.buffer.name} is indexed with a {item.dtype}, wanted an integer")
        shape = self.buffer.shape
        if len(indices) == len(shape):
            return indices
        if len(indices) != 1:
            raise TypeMismatch(
                f"buffer {self.buffer.name} has {len(shape)} dimensions, got {len(indices)} indices",
                hint="give one index per dimension, or one flat position",
            )
        return _unflatten(indices[0], shape)

    def __getitem__(self, indices: Any) -> Expr:
        return BufferLoad(self.buffer, self._indices(indices))

    def __setitem__(self, indices: Any, value: Any) -> None:
        self._builder.emit(BufferStore(self.buffer, T.cast(value, self.buffer.dtype), self._indices(indices)))


def _unflatten(position: Expr, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    found: list[Expr] = []
    for extent in reversed(shape[1:]):
        found.append(T.floormod(position, extent))
        position = T.floordiv(position, extent)
    return (position, *reversed(found)) if shape else ()


class IRBuilder:
    """Collects statements; `with` scopes nest them."""

    def __init__(self) -> None:
        self._scopes: list[list[Stmt | Callable[[Stmt], Stmt]]] = [[]]

    def emit(self, item: Any) -> None:
        """Append a statement, an expression evaluated for its effect, or a wrapper of everything that follows."""
        self._scopes[-1].append(Evaluate(item) if isinstance(item, Expr) else item)

    @contextmanager
    def _scope(self, close: Callable[[Stmt], Stmt]) -> Iterator[None]:
        self._scopes.append([])
        yield
        self.emit(close(self._pop()))

    def _pop(self) -> Stmt:
        body: Stmt | None = None
        for item in reversed(self._scopes.pop()):
            if isinstance(item, Stmt):
                body = item if body is None else seq(item, body)
            else:
                body = item(NOTHING if body is None else body)
        return NOTHING if body is None else body

    @contextmanager
    def for_range(
        self, begin: Any, end: Any, name: str = "i", dtype: str | None = None, kind: str = "serial", **ignored: Any
    ) -> Iterator[Var]:
        """A loop over [begin, end); kind is serial, parallel, vectorized or unrolled."""
        low, high = T.match_types(begin, end)
        if dtype is not None:
            low, high = T.cast(low, dtype), T.cast(high, dtype)
        try:
            loop_kind = LoopKind({"vectorize": "vectorized", "unroll": "unrolled"}.get(kind, kind))
        except ValueError as error:
            raise TypeMismatch(f"for_range: unknown kind of loop {kind!r}") from error
        var = Var(name, low.dtype)
        with self._scope(lambda body: For(var, low, T.sub(high, low), loop_kind, body)):
            yield var

    @contextmanager
    def if_scope(self, condition: Any) -> Iterator[None]:
        """Run the body where the condition holds."""
        test = T.cast(condition, "bool")
        with self._scope(lambda body: IfThenElse(test, body)):
            yield

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """The other case of the if_scope just before."""
        last = self._scopes[-1].pop() if self._scopes[-1] else None
        if not isinstance(last, IfThenElse) or last.else_body is not None:
            raise TypeMismatch("else_scope must come right after an if_scope")
        test, then_body = last.condition, last.then_body
        with self._scope(lambda body: IfThenElse(test, then_body, body)):
            yield

    def allocate(self, dtype: str, shape: Any, name: str = "buf", scope: str = "global") -> BufferPointer:
        """Memory that lives to the end of this scope."""
        buffer = Buffer(name, as_shape(shape, f"allocate {name}"), DType(dtype), scope or "global")
        self.emit(lambda body: Allocate(buffer, body))
        return BufferPointer(self, buffer)

    def buffer_ptr(self, buffer: Buffer, shape: Any = None) -> BufferPointer:
        """Elements of a buffer that te.extern gave."""
        return BufferPointer(self, buffer)

    def let(self, name: str, value: Any) -> Var:
        """A variable with this value, to the end of this scope."""
        made = T.convert(value)
        var = Var(name, made.dtype)
        self.emit(lambda body: LetStmt(var, made, body))
        return var

    def scope_attr(self, node: Any, key: str, value: Any) -> None:
        """A note on everything that follows in this scope; a thread axis with "thread_extent" becomes a launch."""
        made = T.convert(value)
        at = node if isinstance(node, IterVar | Var | Buffer) else None
        self.emit(lambda body: AttrStmt(key, made, body, at))

    def likely(self, condition: Any) -> Expr:
        """A condition that mostly holds."""
        return T.likely(condition)

    def get(self) -> Stmt:
        """The whole statement."""
        if len(self._scopes) != 1:
            raise TypeMismatch("ir_builder.get() was called inside an open scope")
        made = self._pop()
        self._scopes.append([])
        return made


def create() -> IRBuilder:
    """A new builder."""
    return IRBuilder()
