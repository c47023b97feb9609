"""Attributes and sizes that no network has: an error of ours before anything of their size is made, or an answer."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from armillary import relay
from armillary.errors import ArmillaryError, BudgetError, ExecutionError, TypeMismatch
from armillary.ir import IRModule
from armillary.ops.ml.tree_ensemble import TreeEnsembleAttrs, tree_ensemble
from armillary.relay.expr import Expr
from armillary.transform import PassContext

FAR, HUGE = 2**31, 2**62


def _x(*shape: int) -> Expr:
    made: Expr = relay.var("x", shape=shape)
    return made


def _weight(*shape: int) -> Expr:
    made: Expr = relay.const(np.ones(shape, np.float32))
    return made


_ODD: dict[str, Callable[[], Expr]] = {
    "a real axis": lambda: relay.repeat(_x(2, 3), 2, axis=0.5),
    "an infinite axis": lambda: relay.mean(_x(2, 3), axis=float("-inf")),
    "axes that are a number": lambda: relay.transpose(_x(2, 3), axes=1e300),
    "an end that is infinite": lambda: relay.reshape_like(_x(2, 3), relay.var("y", shape=(6,)), lhs_end=float("inf")),
    "text for a number": lambda: relay.nn.pad(_x(2, 3), (("a", 0), (0, 0))),
    "an axis beyond 64 bits": lambda: relay.sum(_x(2, 3), axis=2**70),
    "a size beyond 64 bits": lambda: relay.zeros((10**400,), "float32"),
    "a limit beyond 64 bits": lambda: relay.clip(_x(2, 3), -(10**400), 1.0),
    "axes beyond 64 bits": lambda: relay.expand_dims(_x(2, 3), 0, num_newaxis=2**64),
    "axes beyond memory": lambda: relay.expand_dims(_x(2, 3), 0, num_newaxis=FAR - 1),
    "a scale that is no number": lambda: relay.nn.upsampling(_x(1, 2, 3, 3), float("nan"), 1.0),
    "a scale that is infinite": lambda: relay.nn.upsampling(_x(1, 2, 3, 3), float("inf"), 1.0),
    "a layout of no axes": lambda: relay.nn.contrib_depthwise_conv2d_nchwc(
        _x(1, 2, 6, 6, 8), _weight(2, 1, 3, 3, 1, 8), kernel_size=(3, 3), channels=16, kernel_layout=""
    ),
    "parts of one element": lambda: relay.split(_x(FAR), FAR, 0).astuple(),
    "many parts of one element": lambda: relay.split(_x(2**24), 2**24, 0).astuple(),
    "a result of 2^62": lambda: relay.tile(_x(2, 3), (FAR, FAR)),
    "a result of 2^124": lambda: relay.add(_x(HUGE, 1), relay.var("y", shape=(1, HUGE))),
    "steps without end": lambda: relay.arange(relay.const(0.0), relay.const(1.0), relay.const(1e-40), "float32"),
}


def _built(body: Expr, level: int = 3) -> None:
    function = relay.Function(relay.analysis.free_vars(body), body)
    with PassContext(opt_level=level):
        relay.build(relay.transform.InferType()(IRModule.from_expr(function)), "llvm")


@pytest.mark.parametrize("case", _ODD)
def test_is_refused_at_once(case: str) -> None:
    start = time.monotonic()
    with pytest.raises(ArmillaryError):
        _built(_ODD[case]())
    assert time.monotonic() - start < 10


def test_of_parts_without_end_the_budget_is_told() -> None:
    with pytest.raises(BudgetError, match=r"split into 2147483648 parts.*budget\.kernel_size"):
        _built(_ODD["parts of one element"]())


def test_whole_numbers_may_be_written_as_floats() -> None:
    assert relay.repeat(_x(2, 3), 2, axis=1.0).attrs.axis == 1
    assert relay.nn.max_pool2d(_x(1, 2, 4, 4), pool_size=(np.float64(2), 2.0)).attrs.pool_size == (2, 2)


@pytest.mark.parametrize(
    "body",
    [
        lambda: relay.strided_slice(_x(10, 4), [9], [-(2**63)], [-HUGE]),
        lambda: relay.nn.conv2d(_x(1, 3, 8, 8), _weight(4, 3, 1, 1), dilation=(HUGE, HUGE)),
        lambda: relay.nn.max_pool2d(_x(1, 3, 8, 8), pool_size=(2, 2), strides=(HUGE, HUGE)),
    ],
)
@pytest.mark.parametrize("level", [0, 3])
def test_far_steps_that_take_none_work(body: Callable[[], Expr], level: int) -> None:
    _built(body(), level)


def test_what_a_reference_has_no_memory_for_is_an_error_of_ours() -> None:
    learnt = (
        *(np.zeros(1, np.int32), np.zeros(1, np.float32), np.zeros((1, 2), np.int32)),
        *(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)),
    )
    with pytest.raises(ExecutionError, match=r"ml\.tree_ensemble"):
        tree_ensemble.evaluate(TreeEnsembleAttrs(2**45), (np.zeros((2, 3), np.float32), *learnt))


def test_the_attribute_is_named() -> None:
    with pytest.raises(TypeMismatch, match=r"repeat: axis holds 0\.5, wanted whole numbers"):
        relay.repeat(_x(2, 3), 2, axis=0.5)
