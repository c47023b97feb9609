"""Networks in bfloat16: products of rounded operands, float32 sums, images of two bytes a value between kernels."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from runnable import targets

import armillary
from armillary import relay
from armillary.contrib.graph_executor import GraphModule
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, Function, const
from armillary.relay.transform.pipeline import optimize
from armillary.transform import PassContext

TILES, DOTS, NEITHER = "llvm -mcpu=sapphirerapids", "llvm -mcpu=znver4", "llvm -mcpu=haswell"
RNG = np.random.default_rng(5)
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order_of_tests() -> None:
    RNG.bit_generator.state = np.random.default_rng(5).bit_generator.state


def rounded(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def normal(*shape: int, of: float = 1.0) -> Array:
    return (RNG.standard_normal(shape) * of).astype(np.float32)


def mixed(body: Expr, *inputs: Any) -> IRModule:
    """A function as ToMixedPrecision makes it."""
    module = IRModule.from_expr(Function(list(inputs), body))
    made: IRModule = relay.transform.ToMixedPrecision("bfloat16", keep_orig_output_dtype=True)(module)
    return made


def run(module: IRModule, target: str, **inputs: Array) -> tuple[Array, Any]:
    with PassContext(opt_level=3):
        library = relay.build(module, target)
    graph = GraphModule(library["default"](armillary.cpu(0)))
    graph.run(**inputs)
    return graph.get_output(0).numpy(), library


def convolution(x: Expr, weight: Array, stride: int = 1, pad: int = 0, **more: Any) -> Expr:
    made: Expr = relay.nn.conv2d(x, const(weight), strides=(stride, stride), padding=(pad, pad), **more)
    return made


LAYERS = [
    # batch, channels, height, width, outputs, kernel, stride, padding
    (1, 32, 14, 14, 32, 1, 1, 0),  # tiles read the data where it lies
    (2, 96, 7, 7, 64, 1, 1, 0),  # 49 pixels fill no tiles
    (1, 64, 20, 20, 128, 3, 1, 1),
    (1, 64, 15, 15, 128, 1, 2, 0),
    (1, 48, 17, 19, 48, 3, 2, 1),  # blocks of 16 channels
    (1, 24, 9, 9, 16, 5, 2, 2),  # rows of tiles that are not full
    (1, 64, 5, 5, 250, 1, 1, 0),  # outputs that are rounded up
    (1, 512, 7, 7, 64, 3, 1, 1),  # weights that are asked for ahead
    (1, 3, 32, 40, 32, 7, 2, 3),  # four channels of a pixel together
    (2, 3, 33, 41, 32, 3, 2, 1),
    (1, 1, 28, 28, 32, 5, 1, 2),  # two
    (1, 3, 40, 40, 32, 11, 4, 0),
]


@pytest.mark.parametrize("target", targets(TILES, DOTS))
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: "-".join(map(str, layer)))
def test_convolutions_multiply_rounded_operands(layer: tuple[int, ...], target: str) -> None:
    batch, channels, height, width, outputs, kernel, stride, pad = layer
    data, bias = normal(batch, channels, height, width), normal(outputs, 1, 1)
    weight = normal(outputs, channels, kernel, kernel, of=(channels * kernel * kernel) ** -0.5)
    x = relay.var("x", shape=data.shape)
    module = mixed(relay.nn.relu(relay.add(convolution(x, weight, stride, pad), const(bias))), x)
    got, library = run(module, target, x=data)
    exact = relay.nn.relu(relay.add(convolution(x, rounded(weight), stride, pad), const(bias)))
    want = evaluate(Function([x], exact), {"x": rounded(data)})
    by_winograd = kernel == 3 and stride == 1 and channels < 512
    is_single = target == DOTS and (channels < 8 or by_winograd)  # computed in float32
    tolerance = 2e-2 if is_single else 2e-5
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    instruction = {TILES: "tdpbf16ps", DOTS: "vdpbf16ps"}[target]
    assert (instruction in library.get_source("asm")) == (not is_single)


def block_of(x: Expr, channels: int, bias: Array) -> Expr:
    """A residual block, with a depthwise convolution in it."""
    wide = relay.nn.relu(relay.add(convolution(x, normal(channels, channels, 1, 1, of=0.2)), const(bias)))
    deep = convolution(wide, normal(channels, 1, 3, 3, of=0.3), pad=1, groups=channels)
    last = convolution(relay.nn.relu(deep), normal(channels, channels, 3, 3, of=0.06), pad=1)
    return relay.nn.relu(relay.add(last, x))


def network() -> tuple[Function, Array]:
    """A small network with what networks of images have."""
    data, x = normal(1, 3, 32, 32), relay.var("x", shape=(1, 3, 32, 32))
    y = relay.nn.relu(convolution(x, normal(32, 3, 3, 3, of=0.3), 2, 1))
    gamma, beta, mean, variance = (const(RNG.uniform(0.5, 1.5, 32).astype(np.float32)) for _ in range(4))
    y = relay.nn.batch_norm(y, gamma, beta, mean, variance)[0]
    y = relay.nn.max_pool2d(y, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    y = block_of(y, 32, normal(32, 1, 1))
    y = relay.concatenate((y, relay.nn.relu(convolution(y, normal(32, 32, 1, 1, of=0.2)))), axis=1)
    y = relay.nn.avg_pool2d(block_of(y, 64, normal(64, 1, 1)), pool_size=(2, 2), strides=(2, 2))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y))
    y = relay.nn.softmax(relay.nn.dense(y, const(normal(10, 64, of=0.3))))
    return Function([x], y), data


@pytest.mark.parametrize("target", targets("llvm", TILES, DOTS, NEITHER, "c"))
def test_a_network_is_as_exact_as_its_type(target: str) -> None:
    function, data = network()
    got, _ = run(mixed(function.body, *function.params), target, x=data)
    want = evaluate(function, {"x": data})
    assert got.dtype == np.float32
    error = np.sqrt(((got - want) ** 2).mean() / (want**2).mean())
    assert error < 0.02
    assert got.argmax() == want.argmax()


def test_images_between_kernels_are_bfloat16_with_tiles() -> None:
    function, _ = network()
    with PassContext(opt_level=3):
        text = optimize(mixed(function.body, *function.params), TILES + " -mtriple=x86_64-linux-gnu").astext()
    heads = [line for line in text.splitlines() if "= fn (" in line]
    assert all("nn.batch_norm" not in line for line in text.splitlines())
    inputs = [line.partition("%p0: ")[2].partition("]")[0] for line in heads]  # what each kernel reads first
    images = [text for text in inputs if text.endswith(("16), bfloat16", "32), bfloat16"))]
    assert len(images) >= 8
    assert not [text for text in inputs if re.search(r"\(1, \d+, (8|16), (8|16), 32\), float32", text)]


def test_a_network_in_float32_is_left_as_it_is() -> None:
    function, _ = network()
    with PassContext(opt_level=3):
        text = optimize(IRModule.from_expr(function), TILES + " -mtriple=x86_64-linux-gnu").astext()
    assert "bfloat16" not in text


def test_winograds_algorithm_stays_where_vectors_are_slower() -> None:
    x = relay.var("x", shape=(1, 64, 56, 56))
    layers = convolution(relay.nn.relu(convolution(x, normal(64, 64, 3, 3), pad=1)), normal(64, 64, 1, 1))
    with PassContext(opt_level=3):
        texts = {t: optimize(mixed(layers, x), t + " -mtriple=x86_64-linux-gnu").astext() for t in (TILES, DOTS)}
    assert texts[TILES].count("cpu.conv2d_NCHWc_bf16") == 2
    assert texts[DOTS].count("cpu.conv2d_NCHWc_bf16") == 1 and "winograd" in texts[DOTS]
