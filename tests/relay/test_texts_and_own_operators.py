"""Forms that scripts of the Relay era use: texts, operators of their own, truths of expressions."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import relay, tir
from armillary.errors import ConfigError, ParseError, TypeMismatch
from armillary.relay.op import OPS

TY = relay.TensorType((10, 4), "float32")


def test_comments_nest_and_one_without_an_end_is_refused():
    assert relay.parse_expr("/* a /* b\n */ c */ 3").data == 3
    with pytest.raises(ParseError, match=r"the comment has no end"):
        relay.parse_expr("3 /* a /* b */")
    with pytest.raises(ParseError, match="expected"):
        relay.parse_expr("\n/* a\nb */ 3 )")


def test_numbers_that_a_float_type_lacks_are_refused():
    assert relay.parse_expr("65504f16").data == 65504
    for text in ("65520f16", "3.5e+38f32"):
        with pytest.raises(ParseError, match="the number does not fit float"):
            relay.parse_expr(text)


def test_an_ill_typed_expression_parses_and_tells_when_asked_for_its_type():
    expr = relay.parse_expr("let %x: Tensor[(), float32] = (); %x")
    with pytest.raises(TypeMismatch, match=r"let %x: got \(\), wanted Tensor\[\(\), float32\]"):
        relay.Function([], expr).checked_type  # noqa: B018


def test_a_text_may_call_functions_and_read_constants_that_are_given():
    given = relay.fromtext("def @f(%y: Tensor[(2,), float32]) -> Tensor[(2,), float32] { negative(%y) }")
    numbers = np.array([1, 2], "float32")
    text = "def @main(%x: Tensor[(2,), float32]) { add(@f(%x), meta[relay.Constant][0]) }"
    module = relay.parse(text, "script", given, {"relay.Constant": [relay.const(numbers)]})
    assert sorted(module) == ["f", "main"]
    result = relay.create_executor("debug", module).evaluate()(numbers * 3)
    np.testing.assert_array_equal(result.numpy(), -2 * numbers)
    assert module.get_global_var("f").astext() == "@f"


def test_an_operator_of_a_scripts_own_has_the_type_rule_it_was_given():
    op = relay.op.op.register("scripts_log")
    op.set_num_inputs(1)
    op.add_argument("data_0", "Tensor", "The data.")
    op.add_type_rel("Identity")
    op.set_support_level(1)
    assert relay.Call(relay.op.get("scripts_log"), [relay.var("x", TY)]).checked_type == TY
    both = relay.op.op.register("scripts_add")
    both.set_num_inputs(2)
    both.add_type_rel("Broadcast")
    wide = relay.var("y", relay.TensorType((5, 10, 1), "float32"))
    assert relay.Call(both, [relay.var("x", TY), wide]).checked_type == relay.TensorType((5, 10, 4), "float32")
    with pytest.raises(TypeMismatch, match="do not broadcast"):
        relay.Call(both, [relay.var("x", TY), relay.var("z", relay.TensorType((3, 4), "float32"))]).checked_type  # noqa: B018
    with pytest.raises(ConfigError, match="there is no type relation 'Magic'"):
        both.add_type_rel("Magic")


def test_a_custom_rule_is_called_with_the_types_and_none_is_an_error():
    op = relay.op.op.register("scripts_rule")
    op.set_num_inputs(1)
    op.add_type_rel("mine", lambda types, attrs: relay.TensorType(types[0].shape[:1], "int8"))
    call = relay.Call(op, [relay.var("x", TY)])
    assert call.checked_type == relay.TensorType((10,), "int8")
    op.add_type_rel("none", lambda types, attrs: None)
    with pytest.raises(TypeMismatch, match="the type relation none gave no type"):
        relay.Call(op, [relay.var("x", TY)]).checked_type  # noqa: B018


def test_python_asks_no_expression_for_its_truth():
    x = tir.Var("x", "bool")
    with pytest.raises(ValueError, match="the truth of a symbolic Var is not known"):
        x and x  # noqa: B018
    with pytest.raises(armillary.TVMError, match=r"use te\.if_then_else"):
        x or x  # noqa: B018


def test_reverse_reshape_keeps_and_multiplies_axes_from_the_end():
    x = relay.var("x", relay.TensorType((2, 3, 4, 5), "float32"))
    shapes = {(-3, -3): (6, 20), (-2, 0): (2, 3, 4, 5), (-1, 0, 5): (6, 4, 5)}
    for new, want in shapes.items():
        assert relay.reverse_reshape(x, newshape=new).checked_type.shape == want
    with pytest.raises(TypeMismatch, match="-3 of"):
        relay.reverse_reshape(relay.var("y", relay.TensorType((2,), "float32")), newshape=(-3,))


def test_a_pass_prints_the_module_between_others(capfd):
    x = relay.var("x", TY)
    module = armillary.IRModule.from_expr(relay.Function([x], relay.log(x)))
    printing = armillary.transform.PrintIR("after", show_meta_data=True)
    armillary.transform.Sequential([relay.transform.InferType(), printing])(module)
    assert module.same_as(module) and not module.same_as(module.copy())
    message = capfd.readouterr().err
    assert message.startswith("PrintIR(after):\n") and "log(%x)" in message
    assert isinstance(printing, armillary.transform.ModulePass)
    assert isinstance(relay.transform.FoldConstant(), relay.transform.FunctionPass)
    assert armillary.transform.PassInfo(opt_level=1, name="mine").opt_level == 1


def test_old_names_stand_for_operators_unless_a_script_has_one_of_that_name():
    assert relay.op.get("compiler_begin") is relay.op.get("annotation.compiler_begin")
    assert relay.op.get("vm.shape_of") is relay.op.get("shape_of")
    own = relay.op.register("compiler_begin")
    try:
        assert relay.op.get("compiler_begin") is own
    finally:
        del OPS["compiler_begin"]
