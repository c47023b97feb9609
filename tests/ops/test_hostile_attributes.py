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
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr
from armillary.relay.op import get_op
from armillary.transform import PassContext

FAR, HUGE = 2**31, 2**62


def _x(*shape: int) -> Expr:
    made: Expr = relay.var("x", shape=shape)
    return made


def _weight(*shape: int) -> Expr:
    made: Expr = relay.const(np.ones(shape, np.float32))
    return made


def _p(*shape: int) -> Expr:
    made: Expr = relay.var("p", shape=shape, dtype="int32")
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
    "a column before the first": lambda: relay.vision.non_max_suppression(
        *(_x(2, 12, 6), relay.var("n", shape=(2,), dtype="int32"), relay.var("k", shape=(2, 12), dtype="int32")),
        *(relay.const(5), relay.const(0.5)),
        score_index=-1,
    ),
    "a mask that the type has not": lambda: relay.sequence_mask(_p(1, 40), relay.var("n", shape=(1,)), 2.0**33, 1),
    "a layout of a result of no axes": lambda: get_op("nn.attention")(
        *(relay.var(name, shape=(2, 5, 3, 8)) for name in "qkv"), out_layout=""
    ),
    "a step of no inputs": lambda: get_op("nn.add_step")(
        _x(2, 12), relay.var("e", shape=(0, 2, 12)), relay.var("s", shape=(2,), dtype="int32")
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


_OF_NOTHING: dict[str, Callable[[], Expr]] = {
    "take": lambda: relay.take(_x(0, 7), _p(3), axis=0),
    "take of all": lambda: relay.take(_x(5, 0), _p(3)),
    "take, wrapping": lambda: relay.take(_x(0, 7), _p(3), axis=0, mode="wrap"),
    "gather": lambda: relay.gather(_x(0, 7), 0, _p(3, 7)),
    "gather_nd": lambda: relay.gather_nd(_x(5, 0), _p(2, 3)),
    "adv_index": lambda: relay.adv_index([_x(0, 7), _p(3)]),
    "scatter_elements": lambda: relay.scatter_elements(_x(0, 7), _p(3, 7), relay.var("u", shape=(3, 7))),
    "scatter_nd": lambda: relay.scatter_nd(_x(0, 7), _p(1, 3), relay.var("u", shape=(3, 7))),
    "sparse_to_dense": lambda: relay.sparse_to_dense(_p(3, 2), (5, 0), relay.var("v", shape=(3,)), relay.const(0.0)),
    "roi_align": lambda: relay.vision.roi_align(_x(1, 2, 0, 7), relay.var("r", shape=(3, 5)), (2, 2), 1.0, 2),
    "roi_align of no images": lambda: relay.vision.roi_align(
        _x(0, 2, 4, 7), relay.var("r", shape=(3, 5)), (2, 2), 1.0, 2
    ),
    "roi_pool": lambda: relay.vision.roi_pool(_x(0, 2, 5, 7), relay.var("r", shape=(3, 5)), (2, 2), 1.0),
    "crop_and_resize": lambda: relay.image.crop_and_resize(
        _x(1, 5, 0, 2), relay.var("b", shape=(4, 4)), _p(4), (3, 3), "NHWC"
    ),
}


@pytest.mark.parametrize("case", _OF_NOTHING)
def test_nothing_is_taken_from_a_tensor_without_elements(case: str) -> None:
    """Kernels read and wrote outside of it."""
    with pytest.raises(TypeMismatch, match="has no elements to take or set"):
        _built(_OF_NOTHING[case]())


def test_no_positions_of_a_tensor_without_elements_are_nothing() -> None:
    body = relay.concatenate([relay.take(_x(0, 7), relay.var("p", shape=(0,), dtype="int32"), axis=0)], 0)
    _built(body)


@pytest.mark.parametrize("size", [FAR, 14, 13, 12, 4, 1])
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_window_of_channels_is_no_longer_than_they(size: int, target: str) -> None:
    x = np.linspace(-3, 4, 2 * 7 * 5, dtype=np.float32).reshape(2, 7, 5)
    body = relay.nn.lrn(_x(2, 7, 5), size=size, axis=1, alpha=3.0)
    squares = [(x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1] ** 2).sum(1) for c in range(7)]
    wanted = x / (2 + np.float32(3.0 / size) * np.stack(squares, 1)) ** 0.75
    function = relay.Function(relay.analysis.free_vars(body), body)
    graph = relay.build(function, target)["default"]()
    graph.set_input("x", x)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(evaluate(function, [x]), wanted, rtol=1e-5)


def test_blocks_of_no_units_are_refused() -> None:
    with pytest.raises(TypeMismatch, match="blocks of no units"):
        _built(relay.nn.contrib_dense_pack(_x(5, 12), _weight(3, 12, 0)))


def test_no_score_reaches_a_threshold_that_is_no_number() -> None:
    inputs = [np.full((1, 3, 4), 0.4, np.float32), np.zeros((1, 16), np.float32), np.full((1, 4, 4), 0.5, np.float32)]
    given = [relay.var(f"v{k}", shape=value.shape) for k, value in enumerate(inputs)]
    body = relay.vision.multibox_transform_loc(*given, threshold=float("nan"))
    body = body.astuple() if hasattr(body, "astuple") else body
    function = relay.Function(given, body)
    wanted = evaluate(function, inputs)
    graph = relay.build(function, "llvm")["default"]()
    for name, value in zip(("v0", "v1", "v2"), inputs, strict=True):
        graph.set_input(name, value)
    graph.run()
    for k, part in enumerate(wanted if isinstance(wanted, tuple) else (wanted,)):
        np.testing.assert_array_equal(graph.get_output(k).numpy(), part)
