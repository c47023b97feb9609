"""Random loop programs over small buffers: every one is well formed and stays in bounds."""

from __future__ import annotations

import random

import numpy as np

from armillary.base.dtype import DType
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S

_KINDS = (S.LoopKind.SERIAL, S.LoopKind.SERIAL, S.LoopKind.UNROLLED, S.LoopKind.VECTORIZED, S.LoopKind.SERIAL)


class RandomProgram:
    """`func`: reads A (8 x 12 float32) and K (16 int32), writes B (8 x 12 float32) and D (16 int32)."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.a, self.b = _buffer("A", (8, 12), "float32"), _buffer("B", (8, 12), "float32")
        self.k, self.d = _buffer("K", (16,), "int32"), _buffer("D", (16,), "int32")
        self.vars: list[tuple[E.Var, int]] = []
        self.temporaries: list[S.Buffer] = []
        self.count = 0
        body = S.seq(*(self.stmt(3) for _ in range(3)))
        self.func = S.PrimFunc((self.a, self.k, self.b, self.d), body)

    def arguments(self) -> list[np.ndarray]:
        generator = np.random.default_rng(self.random.randint(0, 10**6))
        a = generator.standard_normal((8, 12)).astype("float32")
        k = generator.integers(-50, 50, 16).astype("int32")
        return [a, k, np.zeros((8, 12), "float32"), np.zeros(16, "int32")]

    def stmt(self, depth: int) -> S.Stmt:
        roll = self.random.random()
        if depth == 0 or roll < 0.15:
            return self.store()
        if roll < 0.6:
            return self.loop(depth)
        if roll < 0.72:
            other = self.stmt(depth - 1) if self.random.random() < 0.5 else None
            condition = self.condition()
            if self.random.random() < 0.5:
                condition = build.likely(condition)
            return S.IfThenElse(condition, self.stmt(depth - 1), other)
        if roll < 0.75:
            return self.turns(depth)
        if roll < 0.85:
            return S.seq(self.stmt(depth - 1), self.stmt(depth - 1))
        if roll < 0.92:
            var = E.Var(f"t{self.next()}", E.DType("float32"))
            return S.LetStmt(var, self.value(2), self.store_value(build.add(var, self.value(1))))
        return self.allocate(depth)

    def next(self) -> int:
        self.count += 1
        return self.count

    def loop(self, depth: int) -> S.Stmt:
        kind = self.random.choice(_KINDS)  # stores may meet in one element, so no loop may be called parallel
        var, extent = E.Var(f"i{self.next()}"), self.random.choice((1, 2, 3, 4, 8))
        low = self.random.choice((0, 0, 0, 1))
        self.vars.append((var, low + extent))
        # iterations of a vectorized loop must not depend on each other: they write elements of their own
        body = self.lane_store(var) if kind is S.LoopKind.VECTORIZED else self.stmt(depth - 1)
        self.vars.pop()
        return S.For(var, build.const(low), build.const(extent), kind, body)

    def turns(self, depth: int) -> S.Stmt:
        """A loop that counts its turns in memory, and stops early where the data says so."""
        counter = S.Buffer(
            f"N{self.next()}", (build.const(1),), DType("int32"), self.random.choice(("global", "local"))
        )
        count = E.BufferLoad(counter, (build.const(0),))
        test = build.less(count, self.random.randint(0, 4))
        if self.random.random() < 0.4:
            test = build.logical_and(test, build.less(E.BufferLoad(self.k, (self.index(16),)), 30))
        place = S.BufferStore(self.d, build.add(count, self.random.randint(0, 9)), (self.index(16),))
        following = S.BufferStore(counter, build.add(count, 1), (build.const(0),))
        start = S.BufferStore(counter, build.const(0), (build.const(0),))
        return S.Allocate(counter, S.seq(start, S.While(test, S.seq(self.stmt(depth - 1), place, following))))

    def lane_store(self, var: E.Var) -> S.Stmt:
        row = self.index(8)
        column = build.add(var, self.random.randint(0, 3))
        value = self.value(2, reads_output=False)
        store: S.Stmt = S.BufferStore(self.b, value, (row if self.random.random() < 0.8 else build.const(2), column))
        if self.random.random() < 0.3:
            store = S.IfThenElse(build.less(build.add(var, 1), self.random.randint(1, 9)), store)
        return store

    def allocate(self, depth: int) -> S.Stmt:
        scope = self.random.choice(("global", "local"))
        buffer = S.Buffer(f"T{self.next()}", (build.const(4), build.const(5)), DType("float32"), scope)
        i, j = E.Var("p"), E.Var("q")
        zero = build.const(0)
        fill: S.Stmt = S.BufferStore(buffer, self.value(1), (i, j))
        fill = S.For(j, zero, build.const(5), S.LoopKind.SERIAL, fill)
        fill = S.For(i, zero, build.const(4), S.LoopKind.SERIAL, fill)
        self.temporaries.append(buffer)
        body = self.stmt(depth - 1)
        self.temporaries.pop()
        return S.Allocate(buffer, S.seq(fill, body))

    def store(self) -> S.Stmt:
        if self.random.random() < 0.3:
            return S.BufferStore(self.d, self.integer(2), (self.index(16),))
        return self.store_value(self.value(2))

    def store_value(self, value: E.Expr) -> S.Stmt:
        return S.BufferStore(self.b, value, (self.index(8), self.index(12)))

    def index(self, extent: int) -> E.Expr:
        """An index in [0, extent)."""
        if not self.vars or self.random.random() < 0.2:
            return build.const(self.random.randrange(extent))
        var, _ = self.random.choice(self.vars)
        other, _ = self.random.choice(self.vars)
        scaled = build.mul(var, self.random.choice((1, 2, 3, 4)))
        form = build.add(scaled, build.floordiv(other, self.random.choice((1, 2))))
        return build.floormod(build.add(form, self.random.randrange(4)), build.const(extent))

    def condition(self) -> E.Expr:
        a, b = self.index(8), build.const(self.random.randrange(8))
        test = self.random.choice((build.less, build.less_equal, build.greater_equal, build.equal))(a, b)
        if self.random.random() < 0.3:
            return build.logical_and(test, build.less(self.index(8), 6))
        return test

    def integer(self, depth: int) -> E.Expr:
        roll = self.random.random()
        if depth == 0 or roll < 0.3:
            return E.BufferLoad(self.k, (self.index(16),)) if self.random.random() < 0.5 else self.index(9)
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        if roll < 0.5:
            divide = self.random.choice((build.floordiv, build.floormod, build.truncdiv, build.truncmod))
            return divide(a, build.const(3))
        return self.random.choice((build.add, build.sub, build.mul, build.minimum, build.maximum))(a, b)

    def value(self, depth: int, reads_output: bool = True) -> E.Expr:
        roll = self.random.random()
        if depth == 0 or roll < 0.2:
            return self.leaf(reads_output)
        a, b = self.value(depth - 1, reads_output), self.value(depth - 1, reads_output)
        if roll < 0.3:
            return build.if_then_else(self.condition(), a, b)
        if roll < 0.4:
            return build.select(self.condition(), a, b)
        if roll < 0.5:
            return build.call("tanh", a)
        if roll < 0.6:
            return build.cast(self.integer(1), "float32")
        return self.random.choice((build.add, build.sub, build.mul, build.minimum, build.maximum))(a, b)

    def leaf(self, reads_output: bool) -> E.Expr:
        if self.temporaries and self.random.random() < 0.5:
            return E.BufferLoad(self.temporaries[-1], (self.index(4), self.index(5)))
        if self.random.random() < 0.3:
            return build.const(self.random.choice((0.0, 1.0, -2.5)), "float32")
        buffer = self.b if reads_output and self.random.random() < 0.2 else self.a
        return E.BufferLoad(buffer, (self.index(8), self.index(12)))


def _buffer(name: str, shape: tuple[int, ...], dtype: str) -> S.Buffer:
    return S.Buffer(name, tuple(build.const(n) for n in shape), DType(dtype))
