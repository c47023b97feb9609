"""Large weights are scaled when they are packed: in between the scaled form takes no memory, and no bit differs."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.base.aligned import Deferred
from armillary.base.node import structural_equal
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Function, const, var
from armillary.relay.op import get_op
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.relay.transform.simplify.fold_constant import fold_constant
from armillary.relay.transform.simplify.fold_scale_axis import fold_scale_axis

RNG = np.random.default_rng(7)


def _network(channels: int) -> tuple[IRModule, np.ndarray, np.ndarray]:
    weight = RNG.standard_normal((channels, channels + 1, 3, 3)).astype(np.float32)
    factor = RNG.uniform(0.5, 2, (channels, 1, 1)).astype(np.float32)
    x = var("x", shape=(1, channels + 1, 5, 7), dtype="float32")
    product = get_op("nn.conv2d")(x, const(weight), channels=channels, kernel_size=(3, 3))
    return infer_type(IRModule({"main": Function((x,), product * const(factor))})), weight, factor


def _weight(module: IRModule) -> Constant:
    body = module["main"].body
    assert isinstance(body, Call) and body.op is get_op("nn.conv2d"), "the factor was folded"
    return body.args[1]


@pytest.mark.parametrize(("channels", "waits"), [(5, False), (61, True)])
def test_a_scaled_weight_waits_if_it_is_large(channels: int, waits: bool) -> None:
    module, weight, factor = _network(channels)
    scaled = _weight(fold_scale_axis(module))
    assert isinstance(scaled.held, Deferred) is waits
    assert scaled.data.tobytes() == (weight * factor.reshape(-1, 1, 1, 1)).tobytes()
    assert scaled.nbytes == weight.nbytes
    assert str(scaled.checked_type) == str(const(weight).checked_type)


def test_after_constants_are_folded_nothing_waits() -> None:
    module = fold_scale_axis(_network(61)[0])
    folded = fold_constant(module)
    assert isinstance(_weight(folded).held, np.ndarray)
    assert _weight(folded).data.ctypes.data % 64 == 0
    assert structural_equal(module["main"], folded["main"])  # the same program


def test_a_weight_is_scaled_while_it_is_packed() -> None:
    module, weight, factor = _network(61)
    body = fold_scale_axis(module)["main"].body
    packed = get_op("transpose")(body.args[1], axes=(1, 0, 2, 3))
    result = fold_constant(IRModule({"main": Function((), packed)}))["main"].body
    assert isinstance(result, Constant)
    assert result.data.tobytes() == np.ascontiguousarray((weight * factor[:, None]).transpose(1, 0, 2, 3)).tobytes()
