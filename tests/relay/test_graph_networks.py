"""What the passes make of whole networks: normalisations in the weights, one bias each, few changes of layout."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from armillary import relay
from armillary.relay.analysis import op_frequency
from armillary.relay.expr import Call, Constant, Expr, Function, const, var
from armillary.relay.op import Op
from armillary.relay.transform.pipeline import optimize
from armillary.relay.walk import post_order
from armillary.transform import PassContext

AVX = "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
TRANSFORMS = {  # of 6, 2, 7, 2, 2, 57, 2, 2, 6 with one block per operator and no agreement
    "bvlc_alexnet": 6,
    "densenet121": 0,
    "inception_v1": 4,
    "inception_v2": 0,
    "resnet50": 0,
    "shufflenet": 32,
    "squeezenet": 0,
    "vgg19": 2,
    "zfnet512": 6,  # of these three one runs at load time: a weight too large to fold
    # shufflenet: groups of 34 and 68 channels stay plain, depthwise layers do not: 19 with blocks of 4, a third slower
}


def optimized(name: str) -> Function:
    module, params = relay.frontend.from_onnx(LIGHT / f"light_{name}.onnx")
    with PassContext(opt_level=3):
        return optimize(module, AVX, params)["main"]


def constant_steps(call: Call) -> list[str]:
    """The operators of a kernel in order, those with a constant operand marked."""
    values = {id(p): a for p, a in zip(call.op.params, call.args, strict=True)}
    calls = [e for e in post_order(call.op.body) if isinstance(e, Call) and isinstance(e.op, Op)]
    return [e.op.name + "!" * any(isinstance(values.get(id(a), a), Constant) for a in e.args) for e in calls]


@pytest.mark.parametrize("name", TRANSFORMS)
def test_light_network_has_folded_normalisations_and_few_layout_changes(name: str) -> None:
    main = optimized(name)
    assert op_frequency(main).get("layout_transform", 0) <= TRANSFORMS[name]
    for call in post_order(main):
        if not isinstance(call, Call) or not isinstance(call.op, Function):
            continue
        steps = constant_steps(call)
        assert steps.count("multiply!") <= 1 and steps.count("add!") <= 1, steps
        if any("conv" in step for step in steps):
            assert "multiply!" not in steps, steps


def test_fields_of_tuples_are_read_by_index_and_unpacked() -> None:
    parts = relay.split(var("x", shape=(2, 6)), 3, axis=1)
    first, _, last = parts
    assert (first.index, last.index, parts[-1].index) == (0, 2, 2)
    pair: Expr = relay.Tuple((first, last))
    assert pair[1] is last
    for bad, message in ((3, "field 3 of a tuple of 3 fields"), (-4, "field -4"), ("a", "named by an int, got str")):
        with pytest.raises(relay.TypeMismatch, match=message):
            parts[bad]
    with pytest.raises(relay.TypeMismatch, match="only tuples have fields"):
        first[0]


def test_user_functions_go_before_operators_of_the_same_name() -> None:
    x, places = var("x", shape=(2, 3)), const([[0, 1, 2]])
    call = relay.gather(x, 1, places)
    assert call.op.name == "gather"
    assert call.args == (x, places)
