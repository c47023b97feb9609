"""Images of open sizes that are enlarged to the size of another one and joined with it, as decoders of U-Nets do."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay, te
from armillary.contrib.graph_executor import GraphModule
from armillary.transform import PassContext

AVX = "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu"
RNG = np.random.default_rng(11)
SMALL, JOINED = (RNG.standard_normal(shape).astype("float32") / 8 for shape in ((32, 16, 3, 3), (16, 48, 3, 3)))


def built(target: str, sizes: Any, method: str) -> Any:
    """A convolution of the halved image, enlarged and joined with the image, and a convolution of both."""
    batch, height, width = sizes
    x = relay.var("x", shape=(batch, 16, height, width))
    small = relay.nn.conv2d(relay.nn.max_pool2d(x, (2, 2), (2, 2)), relay.const(SMALL), padding=(1, 1))
    large = relay.image.resize2d(small, (height, width), method=method)
    y = relay.nn.conv2d(relay.concatenate([large, x], axis=1), relay.const(JOINED), padding=(1, 1))
    with PassContext(opt_level=3):
        return relay.build(armillary.IRModule.from_expr(relay.Function([x], y)), target)


def names() -> tuple[te.Var, te.Var, te.Var]:
    return te.var("n"), te.var("h"), te.var("w")


def transforms(library: Any) -> int:
    return str(library.get_source("relay")).count("layout_transform(")


def result(library: Any, image: Any) -> Any:
    network = GraphModule(library["default"](armillary.cpu()))
    network.run(x=image)
    return network.get_output(0).numpy()


@pytest.mark.parametrize("method", ["linear", "cubic", "nearest_neighbor"])
def test_every_size_is_that_of_a_fixed_compile(method: str) -> None:
    once = built("llvm", names(), method)
    for sizes in ((1, 16, 16), (2, 24, 38), (1, 7, 33)):
        image = RNG.standard_normal((sizes[0], 16, *sizes[1:])).astype("float32")
        wanted = result(built("llvm", sizes, method), image)
        np.testing.assert_allclose(result(once, image), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["linear", "nearest_neighbor"])
def test_places_are_computed_once_and_channels_stay_in_blocks(method: str) -> None:
    """In the kernel that reads places and weights nothing computes them, and nothing goes through plain channels."""
    library = built(AVX, names(), method)
    assert transforms(library) == transforms(built(AVX, (1, 224, 224), method))
    kernels = str(library.get_source("tir")).split("\nfunc ")
    (joining,) = (k for k in kernels if "concatenate: Buffer" in k)
    assert "float64" not in joining
    assert not re.search(r"range\([^)]*w[^)]*\) parallel", joining)  # a row is a loop, which divides by nothing
