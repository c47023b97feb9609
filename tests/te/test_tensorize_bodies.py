"""Tensorize takes a stage whose inner loops compute the intrinsic's expression of the same elements, and no other."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ScheduleError
from armillary.te import IterVar, Tensor, TensorIntrin
from armillary.tir import PrimExpr

Array: TypeAlias = np.ndarray[Any, Any]
Read: TypeAlias = Callable[[Any, Any, Any, Any, Any], Any]  # two tensors or buffers, i, j and k to a product
N = 4
RNG = np.random.default_rng(0)


def product(rows: int, columns: int, terms: int, is_turned: bool) -> TensorIntrin:
    """Sums of products; `is_turned`: the right-hand side is (columns, terms)."""
    a = te.placeholder((rows, terms), name="a")
    b = te.placeholder((columns, terms) if is_turned else (terms, columns), name="b")
    k = te.reduce_axis((0, terms), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * (b[j, k] if is_turned else b[k, j]), axis=k))
    binds = {
        t: tir.decl_buffer(t.shape, t.dtype, offset_factor=1, strides=[te.var(f"step{n}"), 1])
        for n, t in enumerate((a, b, c))
    }

    def statements(ins: Any, outs: Any) -> Any:
        (x, y), z = ins, outs[0]

        def loops(begins: bool, adds: bool) -> Any:
            ib = tir.ir_builder.create()
            with ib.for_range(0, rows) as i, ib.for_range(0, columns) as j:
                if begins:
                    ib.emit(z.vstore([i, j], tir.const(0, "float32")))
                if adds:
                    with ib.for_range(0, terms) as q:
                        right = y.vload([j, q]) if is_turned else y.vload([q, j])
                        ib.emit(z.vstore([i, j], z.vload([i, j]) + x.vload([i, q]) * right))
            return ib.get()

        return loops(True, True), loops(True, False), loops(False, True)

    return te.decl_tensor_intrin(c.op, statements, binds=binds)


def scheduled(read: Read, sizes: tuple[int, int, int], tile: tuple[int, int, int], is_turned: bool = False) -> Any:
    """A product whose inner loops of the tile's extents are an intrinsic."""
    rows, columns, terms = sizes
    a, b = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
    k = te.reduce_axis((0, terms), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(read(a, b, i, j, k), axis=k), name="C")
    s = te.create_schedule(c.op)
    io, ii = s[c].split(c.op.axis[0], tile[0])
    jo, ji = s[c].split(c.op.axis[1], tile[1])
    ko, ki = s[c].split(k, tile[2])
    s[c].reorder(io, jo, ko, ii, ji, ki)
    s[c].tensorize(ii, product(*tile, is_turned))
    return s, [a, b, c]


def multiplied(read: Read, x: Array, y: Array, sizes: tuple[int, int, int]) -> Array:
    """The same by numpy."""
    i, j, k = np.ogrid[: sizes[0], : sizes[1], : sizes[2]]
    total: Array = read(x, y, i, j, k).sum(2)
    return total


RIGHT: dict[str, tuple[Read, bool]] = {
    "plain": (lambda a, b, i, j, k: a[i, k] * b[k, j], False),
    "turned": (lambda a, b, i, j, k: a[i, k] * b[j, k], True),
    "moved": (lambda a, b, i, j, k: a[i + 3, k + 1] * b[k, j + 2], False),
}
WRONG: dict[str, tuple[Read, bool]] = {
    "the right side turned": (lambda a, b, i, j, k: a[i, k] * b[j, k], False),
    "the right side not turned": (lambda a, b, i, j, k: a[i, k] * b[k, j], True),
    "the left side turned": (lambda a, b, i, j, k: a[k, i] * b[k, j], False),
    "operands in another order": (lambda a, b, i, j, k: b[k, j] * a[i, k], False),
    "backwards": (lambda a, b, i, j, k: a[i, 7 - k] * b[k, j], False),
    "other sums": (lambda a, b, i, j, k: a[i, k] * b[k, j] * 2.0, False),
}


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("case", RIGHT)
def test_tiles_of_a_product(case: str, seed: int, target: str) -> None:
    rng = random.Random(seed)
    tile = (rng.choice((1, 2, 4)), rng.choice((2, 4)), rng.choice((1, 2, 4)))
    rows, columns, terms = (t * rng.choice((1, 2, 3)) for t in tile)
    (read, is_turned), sizes = RIGHT[case], (rows, columns, terms)
    x, y = (RNG.standard_normal((16, 16)).astype("float32") for _ in range(2))
    got = np.full((rows, columns), 9, np.float32)
    armillary.build(*scheduled(read, sizes, tile, is_turned), target)(x, y, got)
    np.testing.assert_allclose(got, multiplied(read, x, y, sizes), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", WRONG)
def test_another_expression_or_other_elements_are_refused(case: str) -> None:
    """All of them were taken, and gave the intrinsic's numbers."""
    read, is_turned = WRONG[case]
    with pytest.raises(ScheduleError, match="another expression than the intrinsic"):
        armillary.build(*scheduled(read, (8, 8, 8), (N, N, N), is_turned), "llvm")


@pytest.mark.parametrize("sizes", [(10, 8, 8), (8, 10, 8), (8, 8, 10)])
def test_tails_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ScheduleError, match="remainder"):
        armillary.build(*scheduled(RIGHT["plain"][0], sizes, (N, N, N)), "llvm")


Row: TypeAlias = Callable[[Tensor, IterVar], PrimExpr]
ROWS: dict[str, tuple[Any, Any]] = {  # the stage's, the intrinsic's
    "another number": (lambda a, i: a[i] * 3.0, lambda a, i: a[i] * 2.0),
    "backwards": (lambda a, i: a[15 - i] * 2.0, lambda a, i: a[i] * 2.0),
    "the axis itself": (lambda a, i: a[i] * i.astype("float32"), lambda a, i: a[i] * i.astype("float32")),
    "another limit": (lambda a, i: te.if_then_else(i < 2, a[i], 0.0), lambda a, i: te.if_then_else(i < 3, a[i], 0.0)),
    "a limit of the whole": (
        lambda a, i: te.if_then_else(i < 6, a[i], 0.0),
        lambda a, i: te.if_then_else(i < 6, a[i], 0.0),
    ),
}


def row(stage: Any, own: Any) -> Any:
    a = te.placeholder((16,), name="A")
    c = te.compute((16,), lambda i: stage(a, i), name="C")
    x = te.placeholder((N,), name="x")
    y = te.compute((N,), lambda i: own(x, i), name="y")

    def statement(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        with ib.for_range(0, N) as i:
            ib.emit(outs[0].vstore([i], ins[0].vload([i]) * 2.0))
        return ib.get()

    s = te.create_schedule(c.op)
    _, inner = s[c].split(c.op.axis[0], N)
    s[c].tensorize(inner, te.decl_tensor_intrin(y.op, statement))
    return s, [a, c]


@pytest.mark.parametrize("case", ROWS)
def test_rows_of_another_expression_are_refused(case: str) -> None:
    with pytest.raises(ScheduleError, match="another expression than the intrinsic"):
        armillary.build(*row(*ROWS[case]), "llvm")


def test_rows_that_go_round_are_taken() -> None:
    got, given = np.zeros(16, np.float32), RNG.standard_normal(16).astype("float32")
    armillary.build(*row(lambda a, i: a[i % 4] * 2.0, lambda a, i: a[i] * 2.0), "llvm")(given, got)
    np.testing.assert_allclose(got, np.tile(given[:4], 4) * 2)
