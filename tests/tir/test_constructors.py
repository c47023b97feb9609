"""Constructors of nodes take what scripts pass: numbers, texts, names of dtypes, lists; anything else is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ArmillaryError, TypeMismatch
from armillary.tir import expr as E
from armillary.tir import stmt as S

V, N = tir.Var("v", "float32"), tir.Var("n", "int32")
BUFFER = tir.decl_buffer((4,), "float32")

MADE: tuple[tuple[Callable[[], object], str], ...] = (
    (lambda: tir.Add(1, V), "1.0 + v"),
    (lambda: tir.Sub(V, 2), "v - 2.0"),
    (lambda: tir.Mul(True, N), "1 * n"),
    (lambda: tir.Add(N, np.int64(3)), "n + 3"),
    (lambda: tir.Max(1, N), "max(1, n)"),
    (lambda: tir.FloorMod(N, 3), "n % 3"),
    (lambda: tir.EQ(N, 0), "n == 0"),
    (lambda: tir.And(1, N > 2), "true && n > 2"),
    (lambda: tir.Not(0), "!false"),
    (lambda: tir.Select(N > 1, 1, V), "select(n > 1, 1.0, v)"),
    (lambda: tir.Select(1, V, 0.5), "select(true, v, 0.5)"),
    (lambda: tir.Cast("float32", 1), "float32(1)"),
    (lambda: tir.Ramp(0, 1, 4), "ramp(0, 1, 4)"),
    (lambda: tir.Broadcast(1.5, 4), "broadcast(1.5, 4)"),
    (lambda: tir.Call("float32", "exp", [1.0]), "exp(1.0)"),
    (lambda: tir.Call("int32", "call_extern", ["f", 1]), 'call_extern:int32("f", 1)'),
    (lambda: tir.Let(N, 3, N + 1), "(let n: int32 = 3 in n + 1)"),
    (lambda: tir.FloatImm("float32", 1), "1.0"),
    (lambda: tir.IntImm("bool", True), "true"),
    (lambda: tir.IntImm("int32", np.int8(5)), "5"),
    (lambda: tir.BufferLoad(BUFFER, [0]), "buffer[0]"),
    (lambda: tir.BufferStore(BUFFER, 1, [N]), "buffer[n] = 1.0"),
    (lambda: tir.Evaluate(0), "pass"),
    (lambda: tir.For(N, 0, 10, "serial", tir.Evaluate(N)), "for n in range(10) {\n  eval n\n}"),
    (lambda: tir.For(N, 0, 10, 1, tir.Evaluate(N)), "for n in range(10) parallel {\n  eval n\n}"),
    (lambda: tir.IfThenElse(N > 1, tir.Evaluate(0)), "if n > 1 {\n  pass\n}"),
)


@pytest.mark.parametrize(("make", "text"), MADE, ids=[text.split("\n")[0] for _, text in MADE])
def test_plain_values_become_nodes(make: Callable[[], object], text: str) -> None:
    assert str(make()).strip() == text


REFUSED: tuple[tuple[Callable[[], object], str], ...] = (
    (lambda: tir.const("3"), "tir.const: got str '3', wanted a number"),
    (lambda: tir.const(None), "tir.const: got NoneType"),
    (lambda: tir.const(object()), "tir.const: got object"),
    (lambda: tir.const(2**70), "does not fit"),
    (lambda: tir.const(float("nan"), "int32"), "nan has no value of dtype int32"),
    (lambda: tir.const(10**400, "float32"), "wanted a number for float32"),
    (lambda: tir.Add("a", V), "tir.Add.a: got str 'a', wanted an expression or a number"),
    (lambda: tir.Add(V, None), "tir.Add.b: got NoneType"),
    (lambda: tir.Add(N, V), "tir.Add: the sides have int32 and float32, wanted one dtype"),
    (lambda: tir.Var(3, "int32"), "tir.Var.name: got int 3, wanted a text"),
    (lambda: tir.Var("n", 3), "a dtype is named by a text"),
    (lambda: tir.Cast("foo", 1), "unknown dtype 'foo'"),
    (lambda: tir.IntImm("int8", 1.5), "tir.IntImm.value: got float 1.5, wanted an integer"),
    (lambda: tir.FloatImm("int32", 1.0), "tir.FloatImm: the dtype is int32"),
    (lambda: tir.FloatImm("float32", 10**400), "tir.FloatImm.value"),
    (lambda: tir.StringImm(3), "tir.StringImm.value: got int 3"),
    (lambda: tir.BufferLoad(3, [0]), "tir.BufferLoad.buffer: got int 3, wanted a Buffer"),
    (lambda: tir.BufferLoad(BUFFER, 0), "tir.BufferLoad.indices"),
    (lambda: tir.For(N, 0, 10, 9, tir.Evaluate(0)), "tir.For.kind: got int 9, wanted a LoopKind"),
    (lambda: tir.For(N, 0, 10, "serial", 3), "tir.For.body: got int 3, wanted a statement"),
    (lambda: tir.SeqStmt([1]), "tir.SeqStmt.statements: got int 1, wanted a statement"),
    (lambda: tir.PrimFunc([3], tir.Evaluate(0)), "tir.PrimFunc.params: got int 3"),
)


@pytest.mark.parametrize(("make", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_what_is_no_node_is_refused_by_field(make: Callable[[], object], text: str) -> None:
    with pytest.raises(TypeMismatch) as caught:
        make()
    assert text in str(caught.value)


HOSTILE = (None, "x", b"x", object(), [], {}, float("nan"), float("inf"), 2**63, -(2**70), 10**400, (), 1.5, lambda: 0)


@pytest.mark.parametrize("cls", [c for m in (E, S) for c in vars(m).values() if getattr(c, "_coerce", "")])
def test_every_constructor_takes_or_refuses(cls: type) -> None:
    fields = cls._fields  # type: ignore[attr-defined]
    for value in HOSTILE:
        for at in range(len(fields)):
            for other in (V, N, BUFFER, 1, "float32", tir.Evaluate(0)):
                given = [other] * len(fields)
                given[at] = value  # type: ignore[call-overload]
                with contextlib.suppress(ArmillaryError):
                    cls(*given)


def test_a_function_made_of_plain_values_runs() -> None:
    x = te.placeholder((8,), "float32", name="x")
    y = te.compute((8,), lambda i: tir.Select(tir.EQ(tir.FloorMod(i, 2), 0), tir.Max(0, x[i]), tir.Add(1, x[i])))
    f = armillary.build(te.create_schedule(y.op), [x, y], "llvm")
    data = np.linspace(-1, 1, 8).astype("float32")
    out = armillary.nd.array(np.zeros(8, "float32"))
    f(armillary.nd.array(data), out)
    want = np.where(np.arange(8) % 2 == 0, np.maximum(data, 0), data + 1)
    assert out.numpy().tolist() == want.tolist()


def test_notes_are_made_in_the_old_order_too() -> None:
    x, buffer, nothing = tir.Var("x", "int32"), tir.decl_buffer((4,)), tir.Evaluate(0)
    thread = tir.IterVar((0, 4), "x", tir.IterVar.ThreadIndex)
    assert (thread.kind, thread.var.name, thread.dom.extent.value) == ("thread", "x", 4)
    with pytest.raises(TypeMismatch, match=r"IterVar\.kind: got int 9"):
        tir.IterVar((0, 4), "x", 9)
    for about in (x, buffer, thread, None):
        made = tir.AttrStmt(about, "pragma_unroll", 10, nothing)
        assert (made.attr_key, made.key, made.value.value, made.body, made.node) == (
            "pragma_unroll",
            "pragma_unroll",
            10,
            nothing,
            about,
        )
    assert tir.AttrStmt("default", "device_scope", 1, nothing).node is None
    with pytest.raises(TypeMismatch, match=r"tir\.AttrStmt\.node: got EQ"):
        tir.AttrStmt(x == 1, "key", 1, nothing)


@pytest.mark.parametrize("made", [lambda v, x: tir.Let(v, x, v), lambda v, x: tir.LetStmt(v, x, tir.Evaluate(v))])
def test_a_variable_has_the_dtype_of_its_value(made: Callable[[object, object], object]) -> None:
    v, w = tir.Var("v", "float32"), tir.Var("w", "int32")
    assert str(made(v, 1).value.dtype) == "float32"  # type: ignore[attr-defined]
    with pytest.raises(TypeMismatch, match="the variable v is float32, its value int32"):
        made(v, w)
    with pytest.raises(TypeMismatch, match=r"\.var: got int 3"):
        made(3, w)


def test_texts_are_not_cast() -> None:
    with pytest.raises(TypeMismatch, match='the text "s" is no int32'):
        tir.StringImm("s").astype("int")
