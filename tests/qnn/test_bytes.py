"""Quantised convolutions by dot products of bytes: the same integers, for all shapes, on every kind of target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary as tvm
from armillary import relay
from armillary.backends.cpu.conv2d.amx.cost import Shape, ranked_blocks, tiled_channels
from armillary.contrib.graph_executor import GraphModule
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Function, const
from armillary.relay.walk import substitute
from armillary.target.cpu import cpu_model
from armillary.transform import PassContext

SERVERS = ("llvm -mcpu=cascadelake", "llvm -mcpu=znver4", "llvm -mcpu=alderlake", "llvm -mcpu=sapphirerapids")
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
CASES = [
    # channels, outputs, image, kernel, strides, (top, left, bottom, right), dilation, groups
    (16, 32, (7, 9), (1, 1), (1, 1), (0, 0, 0, 0), 1, 1),
    (32, 48, (9, 14), (3, 3), (1, 1), (1, 1, 1, 1), 1, 1),
    (3, 32, (17, 15), (3, 3), (2, 2), (1, 1, 1, 1), 1, 1),
    (3, 16, (23, 21), (7, 7), (2, 2), (3, 3, 3, 3), 1, 1),
    (10, 7, (9, 8), (3, 3), (1, 1), (1, 0, 0, 2), 1, 1),  # odd channels, uneven padding
    (20, 24, (11, 9), (3, 2), (2, 1), (2, 2, 2, 2), 2, 1),
    (40, 1000, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 1, 1),
    (32, 32, (9, 9), (3, 3), (1, 1), (1, 1, 1, 1), 1, 4),
    (32, 64, (9, 9), (3, 3), (1, 1), (1, 1, 1, 1), 1, 8),
    (30, 12, (9, 9), (3, 3), (1, 1), (1, 1, 1, 1), 1, 3),  # groups that do not come in fours
    (64, 64, (14, 14), (3, 3), (2, 2), (0, 0, 1, 1), 1, 1),
    (512, 16, (7, 7), (3, 3), (1, 1), (1, 1, 1, 1), 1, 1),  # sums beyond 2**24
    (32, 32, (9, 28), (3, 3), (1, 1), (1, 1, 1, 1), 1, 32),
    (48, 48, (15, 13), (3, 3), (2, 2), (1, 1, 1, 1), 1, 48),
    (20, 20, (14, 11), (5, 5), (1, 2), (2, 2, 2, 2), 1, 20),
    (24, 24, (13, 15), (7, 7), (1, 1), (3, 1, 0, 2), 1, 24),
    (16, 16, (13, 12), (3, 3), (1, 1), (2, 2, 2, 2), 2, 16),
]


def convolution(case: Any, dtype: str, zero: int, *, is_finished: bool = True) -> Function:
    """A convolution, its bias and what brings it back to bytes."""
    channels, outputs, image, kernel, strides, padding, dilation, groups = case
    rng = np.random.default_rng(channels + outputs)
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    some = np.array([-128, -127, -3, -1, 0, 2, 50, 126, 127], "int8")
    weight = rng.choice(some, (outputs, channels // groups, *kernel))
    x = relay.var("x", shape=(1, channels, *image), dtype=dtype)
    one = const(np.float32(1))
    made = relay.qnn.conv2d(
        x,
        const(weight),
        const(np.int32(zero)),
        const(np.int32(0)),
        one,
        one,
        kernel_size=kernel,
        channels=outputs,
        strides=strides,
        padding=padding,
        dilation=(dilation,) * 2,
        groups=groups,
    )
    if not is_finished:
        return Function([x], made)
    bias = const(rng.integers(-9000, 9000, (outputs, 1, 1)).astype("int32"))
    scale = const((rng.uniform(0.2, 1, outputs) / np.sqrt(weight[0].size) / 100).astype("float32"))
    middle = const(np.int32((low + high) // 2))
    return Function(
        [x],
        relay.qnn.requantize(
            relay.add(made, bias),
            scale,
            const(np.int32(0)),
            one,
            middle,
            axis=1,
            rounding="TOEVEN",
            compute_dtype="float32",
            out_dtype=dtype,
        ),
    )


def value_for(function: Function) -> np.ndarray:
    ty = function.params[0].type_annotation
    low, high = (0, 255) if ty.dtype == "uint8" else (-128, 127)
    data = np.random.default_rng(3).choice(np.array([low, low + 1, low + 77, high - 1, high]), ty.static)
    return np.asarray(data.astype(str(ty.dtype)))


def built(function: Function, target: str, **config: Any) -> Any:
    with PassContext(opt_level=3, config=config):
        return relay.build(IRModule.from_expr(function), target)


def check(function: Function, target: str) -> str:
    """Compile and run; gives the compiled module's text."""
    library, value = built(function, target), value_for(function)
    graph = GraphModule(library["default"](tvm.cpu(0)))
    graph.run(x=value)
    np.testing.assert_array_equal(graph.get_output(0).numpy(), evaluate(function, [value]))
    return str(library.get_source("relay"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("uint8", 131), ("int8", -7)])
def test_the_integers_are_those_of_the_definition(case: Any, dtype: str, zero: int) -> None:
    check(convolution(case, dtype, zero), "llvm")


@pytest.mark.parametrize("case", [CASES[k] for k in (1, 4, 12, 14)])
def test_sums_that_leave_as_integers_are_exact_without_dot_products_too(case: Any) -> None:
    for target in ("llvm", "llvm -mcpu=x86-64-v3", "c"):
        check(convolution(case, "uint8", 9, is_finished=False), target)


@pytest.mark.parametrize("target", [*SERVERS, ARM])
@pytest.mark.parametrize("case", [CASES[k] for k in (0, 1, 2, 7, 11, 12, 14)])
def test_targets_with_dot_products_use_them(target: str, case: Any) -> None:
    dtype = "uint8" if target != ARM else "int8"
    library = built(convolution(case, dtype, 0), target)
    text = library.get_source("relay")
    assert "NCHWc_int8(" in text and "float32]) -> Tensor" not in text.split("NCHWc_int8(")[0], text
    code = library.get_lib().get_source("asm")
    assert ("sdot" if target == ARM else "vpdpbusd") in code or (has_tiles(target) and "tdpb" in code)


def has_tiles(target: str) -> bool:
    return cpu_model(target).has_tiles


@pytest.mark.parametrize("case", CASES)
def test_vectors_give_what_tiles_do(case: Any) -> None:
    """Every processor with tiles runs the code of older ones, which have vectors alone."""
    check(convolution(case, "uint8", 3), "llvm -mcpu=cascadelake" if has_tiles("llvm") else "llvm")


def test_tiles_are_chosen_for_many_channels_alone() -> None:
    server, small = cpu_model("llvm -mcpu=sapphirerapids"), cpu_model("llvm -mcpu=znver4")
    assert tiled_channels(64, 64, 9, 1, server) == 64 and tiled_channels(512, 512, 1, 1, server) == 64
    assert tiled_channels(4, 64, 49, 4, server) == 0 and tiled_channels(512, 512, 9, 1, small) == 0


@pytest.mark.parametrize("size", [(56, 56), (14, 14), (7, 7), (1, 49), (5, 33), (19, 19)])
def test_a_block_of_tiles_fits_the_image_and_the_eight_registers(size: tuple[int, int]) -> None:
    for block, cycles in ranked_blocks(Shape(*size, 12, 9), cpu_model("llvm -mcpu=sapphirerapids")):
        pixels = block.tall * block.beside
        assert pixels * block.columns + pixels + block.columns <= 8 and block.pixels <= 16 and cycles > 0
        assert block.along <= size[1] and block.tall <= size[0]


def test_without_dot_products_the_product_is_in_float() -> None:
    text = built(convolution(CASES[1], "uint8", 0), "llvm -mcpu=x86-64-v3").get_source("relay")
    assert "int8(" not in text and "nn.contrib_conv2d_NCHWc(" in text


@pytest.mark.parametrize("zero", [0, 3])
def test_bytes_stay_in_blocks_between_layers(zero: int) -> None:
    """Nothing is moved but on the way in and out; padding is a part of the second kernel."""
    first = convolution(CASES[1], "uint8", 0)
    second = convolution((48, 48, (9, 14), (3, 3), (1, 1), (1,) * 4, 1, 48), "uint8", zero)
    body = substitute(second.body, {id(second.params[0]): first.body})
    text = built(Function(first.params, body), "llvm -mcpu=znver4").get_source("relay")
    assert text.count("layout_transform(") == 2 and text.count("Primitive=1") == 4, text


def test_the_features_of_a_processor_decide() -> None:
    assert not cpu_model("llvm -mcpu=x86-64-v4").dot_signs
    assert cpu_model("llvm -mcpu=znver4").dot_signs == {("uint", "int")}
