"""What a build tells about its kernels: the choice that lowering makes, its work, and why others were passed over."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.artifact import GraphSpec
from armillary.backends.registry import choose, explain
from armillary.backends.workload import Workload
from armillary.driver.build import build
from armillary.driver.explain import KernelNotes, explain_function, read_attrs
from armillary.errors import ArtifactError
from armillary.relay.expr import Call, Function
from armillary.relay.op import is_primitive
from armillary.relay.walk import post_order
from armillary.relay.work import function_work
from armillary.target import Target
from armillary.transform import PassContext

ZEN4 = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")


def const(*shape: int) -> Any:
    return relay.const(np.random.default_rng(1).standard_normal(shape).astype("float32"))


def conv(channels: int, outputs: int, size: int, kernel: int, **attrs: Any) -> Any:
    x = relay.var("x", shape=(1, channels, size, size))
    weight = const(outputs, channels // attrs.get("groups", 1), kernel, kernel)
    return relay.Function([x], relay.nn.relu(relay.nn.conv2d(x, weight, **attrs)))


def kernels(function: Any, target: Target = ZEN4, **config: Any) -> list[Function]:
    """The fused functions that a build compiles, in order."""
    with PassContext(opt_level=3, config=config):
        main = relay.optimize(function, target)[0]["main"]
    return [e.op for e in post_order(main) if isinstance(e, Call) and is_primitive(e.op)]


def explained_as(function: Any, word: str) -> Any:
    message = [explain_function(f, ZEN4) for f in kernels(function)]
    return next(e for e in message if word in e.algorithm)


def test_convolutions_products_and_plain_loops_name_their_algorithm() -> None:
    direct = explained_as(conv(64, 128, 28, 1), "direct convolution")
    assert direct.milliseconds > 0 and direct.bound and "x" in direct.tile and len(direct.alternatives) >= 2
    assert direct.objections == ("Winograd: the kernel is 1x1, not 3x3",)
    strided = explained_as(conv(64, 64, 28, 3, strides=(2, 2)), "direct convolution")
    assert "not Winograd: the strides are 2x2, not 1x1" in strided.sentences()
    dilated = explained_as(conv(512, 512, 12, 3, padding=(6, 6), dilation=(6, 6)), "direct convolution")
    assert not dilated.objections and any("F(2,3)" in name for name, _ in dilated.alternatives)
    assert explained_as(conv(64, 64, 28, 3, groups=64, padding=(1, 1)), "depthwise").tile
    winograd = explained_as(conv(64, 64, 56, 3, padding=(1, 1)), "Winograd F(4,3)")
    names = " ".join(name for name, _ in winograd.alternatives)
    assert "F(" in names and all(ms >= winograd.milliseconds for _, ms in winograd.alternatives)
    x = relay.var("x", shape=(8, 64))
    assert explained_as(relay.Function([x], relay.nn.dense(x, const(32, 64))), "product by register tiles").tile
    assert explained_as(relay.Function([x], relay.nn.softmax(x)), "").algorithm


def test_a_direct_convolution_that_could_be_winograd_says_what_that_would_take() -> None:
    (function,) = [f for f in kernels(conv(64, 64, 28, 3), **{"relay.WinogradConv2D.tile": 0}) if "conv2d" in str(f)]
    message = explain_function(function, ZEN4)
    assert message.algorithm == "direct convolution" and not message.objections
    assert any(name.startswith("F(4,3)") and ms < message.milliseconds for name, ms in message.alternatives)


def test_an_objection_is_part_of_the_explanation() -> None:
    x, y = relay.var("x", shape=(2, 64)), relay.var("y", shape=(16, 64))
    message = explained_as(relay.Function([x, y], relay.nn.dense(x, y)), "")
    assert "packing_dense: 2 rows are too few to pay for packing" in message.objections
    assert any(text.startswith("not packing_dense") for text in message.sentences())


def test_the_explanation_follows_the_pass_context_as_lowering_does() -> None:
    (asked,) = [f for f in kernels(conv(64, 128, 28, 1), **{"cpu.tile": "4x2"}) if "conv2d" in str(f)]
    assert explain_function(asked, ZEN4).tile == "4x2", "the choice is on the call"
    (function,) = [f for f in kernels(conv(64, 128, 28, 1)) if "conv2d" in str(f)]
    with PassContext(config={"cpu.tile": "4x2"}):
        assert explain_function(function, ZEN4).tile != "4x2", "what was chosen stays"
    call = next(e for e in post_order(function.body) if isinstance(e, Call) and "conv2d" in e.op.name)
    workload = Workload(call.op, call.attrs, tuple(a.checked_type for a in call.args), ZEN4)
    assert choose(workload)[0].name == "direct_blocked" and explain(workload) == explain_function(function, ZEN4)


def test_work_counts_what_the_operators_do() -> None:
    (direct,) = [f for f in kernels(conv(16, 32, 10, 5)) if "conv2d" in str(f)]
    work = function_work(direct)
    assert work.flops == work.direct == 2 * 6 * 6 * 32 * 16 * 25 + 6 * 6 * 32
    x = relay.var("x", shape=(4, 6))
    (total,) = kernels(relay.Function([x], relay.sum(x, axis=1)))
    assert function_work(total).flops == 24 and function_work(total).nbytes == 4 * (24 + 4)
    (moved,) = kernels(relay.Function([x], relay.transpose(x)))
    assert function_work(moved).flops == 0


def test_winograd_states_the_operations_it_does() -> None:
    (function,) = [f for f in kernels(conv(64, 64, 56, 3, padding=(1, 1))) if "winograd_NCHWc" in str(f)]
    work = function_work(function)
    assert work.direct == 2 * 9 * 64 * 64 * 56 * 56 + 56 * 56 * 64
    products = 2 * 36 * 14 * 14 * 64 * 64
    assert products < work.flops < 1.4 * products < work.direct


def test_a_package_carries_the_notes_of_its_kernels() -> None:
    with PassContext(opt_level=3):
        library = build(conv(16, 32, 9, 1), "llvm")
    spec = GraphSpec.from_json(library.get_graph_json())
    (notes,) = (read_attrs(n.attrs) for n in spec.nodes if n.op != "null" and "conv2d" in n.func_name)
    assert notes.flops == 2 * 81 * 32 * 16 + 81 * 32 and notes.choice is not None
    assert notes.choice.algorithm == "direct convolution" and notes.choice.milliseconds > 0


def test_notes_may_lack_but_not_be_damaged() -> None:
    assert read_attrs({}) == KernelNotes()
    good = {"flops": "5", "choice": json.dumps({"algorithm": "copy"})}
    assert read_attrs(good).flops == read_attrs(good).direct == 5
    for bad in ({"flops": "many"}, {"flops": "1", "choice": "{"}, {"flops": "1", "choice": "{}"}):
        with pytest.raises(ArtifactError, match="notes of a kernel are damaged"):
            read_attrs(bad)
