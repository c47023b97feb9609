"""Convolutions and poolings along a length that is open, as speech networks begin with."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay, te
from armillary.contrib.graph_executor import GraphModule
from armillary.transform import PassContext

RNG = np.random.default_rng(3)
FIRST, SECOND = (RNG.standard_normal(shape).astype("float32") / 8 for shape in ((32, 16, 3), (32, 32, 3)))


def built(batch: Any, length: Any, pool: str) -> Any:
    x = relay.var("x", shape=(batch, 16, length))
    y = relay.tanh(relay.nn.conv1d(x, relay.const(FIRST), padding=(1, 1)))
    y = relay.nn.conv1d(y, relay.const(SECOND), strides=(2,), padding=(1, 1)) if not pool else y
    y = getattr(relay.nn, pool)(y, pool_size=(2,), strides=(2,)) if pool else y
    with PassContext(opt_level=3):
        return relay.build(armillary.IRModule.from_expr(relay.Function([x], y)), "llvm")


def result(library: Any, sound: Any) -> Any:
    network = GraphModule(library["default"](armillary.cpu()))
    network.run(x=sound)
    return network.get_output(0).numpy()


@pytest.mark.parametrize("pool", ["", "max_pool1d", "avg_pool1d"])
def test_every_length_is_that_of_a_fixed_compile_by_its_kernels(pool: str) -> None:
    once = built(te.var("n"), te.var("length"), pool)
    operators = str(once.get_source("relay"))
    assert not re.search(r"conv1d(_\w+)?\(|pool1d\(", operators)
    for sizes in ((1, 40), (2, 131), (1, 17)):
        sound = RNG.standard_normal((sizes[0], 16, sizes[1])).astype("float32")
        np.testing.assert_allclose(result(once, sound), result(built(*sizes, pool), sound), rtol=1e-4, atol=1e-5)
