"""Every node type has text, meaning and a well-formedness rule; the examples here are the witnesses."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.base.node import post_order, structural_equal
from armillary.errors import InternalError, TypeMismatch
from armillary.tir import expr as E
from armillary.tir import interpret_expr, interpreter, printer, substitute, verifier
from armillary.tir import stmt as S
from armillary.tir.interpreter import interpret
from armillary.tir.parser import parse_function

ONLY_TE = {E.ProducerLoad, E.Reduce, E.IterVar}
EXPRS = {getattr(E, c.__name__) for c in E.Expr.__subclasses__()}
STMTS = {getattr(S, c.__name__) for c in S.Stmt.__subclasses__() if c.__module__ == S.__name__}
EVERYTHING = """
func @every(A: Buffer[(16,), float32], K: Buffer[(16,), int32], B: Buffer[(16,), float32], m: int64) attrs {x = 1} {
  attr pragma_note on B = "text"
  assert m >= 0i64 && true, "m is \\"negative\\""
  let t: float32 = A[0] / 3.0 - 1.5
  alloc T: Buffer[(16,), float32, scope="local"]
  for i in range(4) parallel {
    T[i] = select(i != 1 || !(i == 2), t, max(A[i], min(A[i + 1], 2.0)))
    if i <= 1 && i > -1 && i < 5 {
      T[i] = exp(T[i]) + float32(K[i] // 3 + K[i] % 3 + truncdiv(K[i], 3) * truncmod(K[i], 3))
    }
    else {
      T[i] = (let z: float32 = A[i] in z * z)
    }
  }
  T[ramp(4, 1, 12)] = A[ramp(4, 1, 12)] + broadcast(1.0, 12)
  for j in range(2, extent=14) {
    B[j] = T[j]
  }
  while K[0] < -1000000 {
    K[0] = K[0] + 1
  }
  eval call_extern:int32("note", 1)
  pass
}
"""


def test_every_expression_has_every_rule() -> None:
    for table in (interpret_expr.EXPR_RULES, verifier.EXPR_RULES):
        assert set(table) >= EXPRS - ONLY_TE
    assert set(substitute.REBUILD) >= EXPRS
    assert set(printer._EXPRS) | set(printer.INFIX) >= EXPRS - ONLY_TE


def test_every_statement_has_every_rule() -> None:
    for table in (interpreter._STMTS, verifier.STMT_RULES, printer.STATEMENTS):
        assert set(table) >= STMTS


def test_one_program_uses_every_node_and_reads_back() -> None:
    func = parse_function(EVERYTHING)
    verifier.verify(func)
    used = {type(n) for n in post_order(func)}
    assert used >= EXPRS - ONLY_TE, EXPRS - ONLY_TE - used
    assert used >= STMTS, STMTS - used
    text = printer.print_function(func, "every")
    assert structural_equal(parse_function(text), func)
    assert parse_function(text).get_attr("x") == 1


def test_one_program_with_every_node_runs() -> None:
    func = parse_function(EVERYTHING)
    a, k, b = np.arange(16, dtype="float32") / 8, np.arange(-8, 8, dtype="int32"), np.zeros(16, "float32")
    notes: list[int] = []
    interpret(func, a, k, b, 3, externs={"note": lambda v: notes.append(int(v)) or 0})
    assert notes == [1]
    assert np.allclose(b[4:], a[4:] + 1)
    assert np.isclose(b[2], a[2] ** 2)


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("B[0] = A[i]", InternalError, "variable i is used outside its scope"),
        ("B[0] = K", TypeMismatch, "store of int32"),
        ("for j in range(4) { if j { B[j] = 0.0 } }", TypeMismatch, "condition j is int32"),
        ("eval frobnicate(A[0])", InternalError, "no intrinsic 'frobnicate'"),
        ("eval pow(A[0])", TypeMismatch, "pow takes 2 arguments"),
    ],
)
def test_verifier_names_the_statement(statement: str, error: type[Exception], message: str) -> None:
    func = parse_function(
        "func @f[i: int32](A: Buffer[(4,), float32], K: int32, B: Buffer[(4,), float32]) {" + statement + "}"
    )
    with pytest.raises(error, match=message) as caught:
        verifier.verify(func)
    assert ", in: " in str(caught.value)


def test_verifier_refuses_a_buffer_outside_its_allocation() -> None:
    outside = S.Buffer("X", (E.IntImm(E.INT32, 4),), E.DType("float32"))
    store = S.BufferStore(outside, E.FloatImm(E.DType("float32"), 0.0), (E.IntImm(E.INT32, 0),))
    with pytest.raises(InternalError, match="buffer X is used outside its allocation"):
        verifier.verify(S.PrimFunc((), store))
