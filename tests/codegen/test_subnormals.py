"""Sums of products take subnormal numbers for 0 on x86, where nothing tells them apart; a caller keeps its mode."""

from __future__ import annotations

import platform
from collections.abc import Callable

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.driver.build import optimized
from armillary.driver.kernel_code import kernel_sources
from armillary.driver.program_codegen import plan_network
from armillary.ir import IRModule
from armillary.relay.expr import Expr
from armillary.target import as_target
from armillary.transform import PassContext

TINY = np.float32(1e-40)
X86 = "llvm -mcpu=x86-64-v3"
Body = Callable[[Expr, Expr], Expr]


def matrix(name: str) -> Expr:
    return relay.var(name, shape=(16, 16), dtype="float32")


def module(body: Body) -> IRModule:
    x, y = matrix("x"), matrix("y")
    return IRModule.from_expr(relay.Function([x, y], body(x, y)))


def product(x: Expr, y: Expr) -> Expr:
    return relay.nn.dense(x, y)


FLUSHING: dict[str, Body] = {
    "product": product,
    "activation": lambda x, y: relay.tanh(product(x, y)),
    "quotient of a constant": lambda x, y: product(x, y) / relay.const(3.0),
    "leaky relu": lambda x, y: relay.nn.leaky_relu(product(x, y), 0.1),
    "softmax": lambda x, _: relay.nn.softmax(x),
    "norm": lambda x, y: relay.nn.layer_norm(x, relay.ones((16,), "float32"), relay.zeros((16,), "float32")),
}
EXACT: dict[str, Body] = {
    "logarithm": lambda x, y: relay.log(product(x, y)),
    "root": lambda x, y: relay.sqrt(product(x, y)),
    "quotient": lambda x, y: x / product(x, y),
    "equality": lambda x, y: relay.equal(product(x, y), y),
    "sign": lambda x, y: relay.sign(product(x, y)),
    "ceiling": lambda x, y: relay.ceil(product(x, y)),
    "order": lambda x, y: relay.greater(product(x, y), relay.const(0.0)),
    "choice": lambda x, y: relay.where(relay.greater(product(x, y), relay.const(0.0)), x, y),
    "truth": lambda x, y: relay.cast(product(x, y), "bool"),
    "elementwise": lambda x, y: x * y,
}


@pytest.mark.parametrize("name", [*FLUSHING, *EXACT])
def test_what_cannot_tell_a_subnormal_number_from_zero_flushes(name: str) -> None:
    target = as_target(X86)
    with PassContext(opt_level=3):
        plan = plan_network(optimized(module({**FLUSHING, **EXACT}[name]), target, {})["main"])
        text = kernel_sources(list(plan.kernels.values()), target, "ll")
    assert ("ldmxcsr" in text) == (name in FLUSHING)


def run(body: Body, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with PassContext(opt_level=3):
        library = relay.build(module(body), target="llvm -mcpu=native")
    run = graph_executor.GraphModule(library["default"](armillary.cpu(0)))
    run.run(x=x, y=y)
    return np.asarray(run.get_output(0).numpy())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the mode is that of x86")
def test_products_of_subnormal_numbers_are_zero_and_the_caller_keeps_its_mode() -> None:
    x, y = np.full((16, 16), TINY), np.eye(16, dtype=np.float32)
    assert (run(product, x, y) == 0).all()
    assert np.float32(TINY) * np.float32(0.5) != 0
    assert (run(product, x * np.float32(1e10), y) == x * np.float32(1e10)).all()


def test_logarithms_and_elementwise_products_of_subnormal_numbers_are_exact() -> None:
    x, one = np.full((16, 16), TINY), np.ones((16, 16), np.float32)
    assert np.allclose(run(lambda x, _: relay.log(x), x, one), np.log(TINY), rtol=1e-6)
    assert (run(lambda x, y: x * y, x, one) == TINY).all()
