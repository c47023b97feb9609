"""What scripts that rewrite programs ask of calls, statements and types."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import TypeMismatch


def test_a_pass_finds_calls_by_their_operator_and_statements_in_order() -> None:
    builder = tir.ir_builder.create()
    with builder.for_range(0, te.var("n"), name="i") as i:
        builder.emit(tir.call_extern("int32", "first", i))
        builder.emit(tir.call_extern("int32", "second", i))
    extern = armillary.ir.Op.get("tir.call_extern")

    def after(call: tir.Call) -> tir.Call:
        if call.op.same_as(extern) and call.args[0].value == "first":
            return tir.call_extern("int32", "third", call.args[1] + 1)
        return call

    body = tir.stmt_functor.ir_transform(builder.get(), None, after, ["tir.Call"])
    names = [statement.value.args[0].value for statement in tir.stmt_list(body.body)]
    assert names == ["third", "second"]
    assert not tir.exp(te.var("x", "float32")).op.same_as(extern)
    assert tir.stmt_list(body) == [body]
    with pytest.raises(TypeMismatch, match=r"tir\.stmt_list: stmt=3: wanted a statement"):
        tir.stmt_list(3)  # type: ignore[arg-type]


def test_a_pass_is_asked_about_calls_inside_calls() -> None:
    def extern(name: str, value: te.ExprLike) -> tir.Call:
        return tir.call_extern("int32", name, value)

    inner = extern("inner", te.var("i"))
    stmt = tir.Evaluate(extern("outer", inner + inner))
    seen: list[str] = []

    def after(call: tir.Call) -> tir.Call | None:
        seen.append(call.args[0].value)
        return extern("changed", call.args[1]) if call.args[0].value == "inner" else None

    made = tir.stmt_functor.ir_transform(stmt, None, after, ["tir.Call"])
    assert str(made).count('"changed"') == 2 and "inner" not in str(made)
    assert seen == ["inner", "outer"]  # each node once, parts first
    before = tir.stmt_functor.ir_transform(
        stmt, lambda call: tir.const(7) if call.args[0].value == "outer" else None, after, ["tir.Call"]
    )
    assert str(before.value) == "7" and seen == ["inner", "outer"]


def test_types_have_the_numbers_of_dlpack() -> None:
    code = armillary.DataTypeCode
    kinds = {"int8": code.INT, "uint16": code.UINT, "bool": code.UINT, "float32x4": code.FLOAT, "handle": code.HANDLE}
    assert all(armillary.DataType(name).type_code == number for name, number in kinds.items())
    assert armillary.nd.array(np.zeros(1, "float32")).__dlpack_device__()[0] == 1 and code.BFLOAT == 4
    with pytest.raises(TypeMismatch, match="the dtype void has no type code"):
        _ = armillary.DataType("void").type_code
