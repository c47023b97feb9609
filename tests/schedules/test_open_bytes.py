"""Products and convolutions of bytes over open sizes: the sums of fixed sizes, by the instructions of fixed ones."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import IRModule, relay
from armillary.base.extent import Extent, size
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.library import GraphLibrary
from armillary.relay.analysis.bind_sizes import bind_sizes

B, H, W, S = size("b", 1, 64), size("h", 3, 512), size("w", 3, 512), size("s", 1, 256)
RNG = np.random.default_rng(12)
Dims = tuple[int | Extent, ...]


def number(value: float, dtype: str = "int32") -> relay.Expr:
    return relay.const(np.asarray(value, dtype))


SCALES = number(0.1, "float32"), number(0.1, "float32")


def convolution(dims: Dims, dtype: str, groups: int = 1, stride: int = 1) -> relay.Function:
    x = relay.var("x", relay.TensorType(dims, dtype))
    weight = relay.const(RNG.integers(-128, 128, (32, 32 // groups, 3, 3)).astype("int8"))
    named = {"kernel_size": (3, 3), "channels": 32, "padding": (1, 1), "strides": (stride, stride), "groups": groups}
    return relay.Function([x], relay.qnn.op.conv2d(x, weight, number(3), number(0), *SCALES, **named))


def dense(dtype: str) -> relay.Function:
    x = relay.var("x", relay.TensorType((B, 40), dtype))
    weight = relay.const(RNG.integers(-128, 128, (48, 40)).astype("int8"))
    return relay.Function([x], relay.qnn.op.dense(x, weight, number(5), number(-2), *SCALES, units=48))


def batches(transpose_b: bool) -> relay.Function:
    """Scores of queries and keys, and sums over as many values as there are: the terms are open there."""
    x = relay.var("x", relay.TensorType((B, S, 16 if transpose_b else S), "uint8"))
    y = relay.var("y", relay.TensorType((B, S, 16), "int8"))
    return relay.Function(
        [x, y], relay.qnn.op.batch_matmul(x, y, number(3), number(7), *SCALES, transpose_b=transpose_b)
    )


def built(function: relay.Function, target: str) -> GraphLibrary:
    with armillary.transform.PassContext(opt_level=3):
        library: GraphLibrary = relay.build(IRModule.from_expr(function), target)
    return library


def agrees(function: relay.Function, *values: dict[str, int]) -> None:
    """At each of the sizes, on this processor, with the operators' references."""
    network = GraphModule(built(function, "llvm -mcpu=native")["default"](armillary.cpu()))
    for sizes in values:
        fixed = bind_sizes(function, sizes)
        types = [p.checked_type for p in fixed.params]
        feed = {
            p.name_hint: RNG.integers(*((0, 256) if str(t.dtype) == "uint8" else (-128, 128)), t.static).astype(
                str(t.dtype)
            )
            for p, t in zip(function.params, types, strict=True)
        }
        network.run(**feed)
        expected = relay.create_executor("debug", target="llvm").evaluate(fixed)(*feed.values()).numpy()
        np.testing.assert_array_equal(network.get_output(0).numpy(), expected)


@pytest.mark.parametrize(
    ("dtype", "stride", "groups"), [("uint8", 1, 1), ("int8", 2, 1), ("uint8", 1, 2), ("int8", 1, 32)]
)
def test_convolutions_over_open_images_have_the_exact_sums(dtype: str, stride: int, groups: int) -> None:
    function = convolution((B, 32, H, W), dtype, groups, stride)
    agrees(function, {"b": 1, "h": 14, "w": 14}, {"b": 3, "h": 5, "w": 21}, {"b": 1, "h": 3, "w": 3})


def test_products_over_open_rows_and_terms_have_the_exact_sums() -> None:
    for dtype in ("uint8", "int8"):
        agrees(dense(dtype), {"b": 1}, {"b": 17}, {"b": 64})
    for transpose_b in (True, False):
        agrees(batches(transpose_b), {"b": 1, "s": 5}, {"b": 2, "s": 33})


@pytest.mark.parametrize("mcpu", ["cascadelake", "sapphirerapids"])
@pytest.mark.parametrize("dims", [(B, 32, 14, 14), (B, 32, H, W)], ids=["batch", "images"])
def test_convolutions_over_open_sizes_use_dot_products(mcpu: str, dims: Dims) -> None:
    text = built(convolution(dims, "uint8"), f"llvm -mcpu={mcpu}").get_lib().get_source("asm")
    assert text.count("vpdpbusd") >= 8, "register tiles, not generic loops"
