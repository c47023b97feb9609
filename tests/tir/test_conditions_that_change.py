"""A condition holds inside its statement only as long as nothing there changes what it reads."""

from __future__ import annotations

import numpy as np

from armillary import tir
from armillary.tir.interpreter import interpret
from armillary.tir.parser import parse_function
from armillary.tir.transform.scripts.return_values import return_values
from armillary.tir.transform.simplify import simplify_function


def test_a_condition_is_tested_again_after_a_store() -> None:
    function = parse_function(
        "func @f(A: Buffer[(4,), int32]) {\n"
        "  if A[0] == 0 {\n    A[0] = 1\n    if A[0] == 0 {\n      A[1] = 7\n    }\n    A[2] = 5\n  }\n}\n"
    )
    expected, found = np.zeros(4, np.int32), np.zeros(4, np.int32)
    interpret(function, expected)
    interpret(simplify_function(function), found)
    assert expected.tolist() == found.tolist() == [1, 0, 5, 0]


def test_what_a_body_does_not_change_holds_inside_it() -> None:
    function = parse_function(
        "func @f(A: Buffer[(4,), int32], B: Buffer[(1,), int32]) {\n"
        "  if B[0] == 0 {\n    A[0] = 1\n    if B[0] == 0 {\n      A[1] = 7\n    }\n  }\n}\n"
    )
    assert str(simplify_function(function)).count("if B[0] == 0") == 1


def test_nothing_is_done_behind_a_returned_value() -> None:
    builder = tir.ir_builder.create()
    data = builder.pointer("int32", "data")
    with builder.for_range(0, 4) as i:
        with builder.if_scope(i.equal(2)):
            builder.emit(tir.ret(i))
        data[i] = 1
    data[7] = 1
    function = return_values(tir.PrimFunc([data], builder.get()))
    values, result = np.zeros(8, np.int32), np.zeros(1, np.int32)
    interpret(function, values, result)
    assert values.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert result[0] == 2
