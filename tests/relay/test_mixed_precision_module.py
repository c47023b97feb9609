"""`relay.transform.mixed_precision`, as scripts use it: lists of operators, rules, and rules of one's own over them."""

from __future__ import annotations

import pytest

from armillary import relay
from armillary.ir import IRModule
from armillary.relay.transform import mixed_precision
from armillary.relay.transform.quantize import to_mixed_precision


def test_lists_say_what_the_pass_does() -> None:
    assert "nn.conv2d" in mixed_precision.DEFAULT_ALWAYS_LIST
    assert "nn.max_pool2d" in mixed_precision.DEFAULT_FOLLOW_LIST
    assert "exp" in mixed_precision.DEFAULT_NEVER_LIST
    with pytest.raises(AttributeError, match="DEFAULT_OTHER_LIST"):
        mixed_precision.DEFAULT_OTHER_LIST  # noqa: B018


def test_a_users_rule_goes_before_the_lists() -> None:
    x, w = relay.var("x", shape=(1, 4)), relay.var("w", shape=(3, 4))
    module = IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    to_half = relay.transform.ToMixedPrecision("float16")
    assert "float16" in str(to_half(module)["main"])
    from armillary.relay.op import get_op

    held = get_op("nn.dense").get_attr("FTVMMixedPrecisionConversionType")
    try:
        mixed_precision.register_func_to_op_list(["nn.dense"])(mixed_precision.generic_never_op)
        assert "float16" not in str(to_half(module)["main"])
        relay.op.register_mixed_precision_conversion("nn.dense", mixed_precision.generic_always_op, level=11)
        assert "float16" in str(to_half(module)["main"])
    finally:
        get_op("nn.dense").reset_attr("FTVMMixedPrecisionConversionType")
    assert held is None
    assert [mixed_precision.MIXED_PRECISION_ALWAYS, to_mixed_precision.MIXED_PRECISION_NEVER] == [0, 2]
