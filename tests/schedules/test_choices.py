"""A choice is made once: pass, schedule, explanation, profile and records agree, and a script may overrule it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.backends.anchor import find_anchor
from armillary.backends.cpu.graph._collapse_rows import collapse_rows
from armillary.backends.cpu.select import candidates_of, decided
from armillary.backends.registry import choose
from armillary.backends.workload import Workload
from armillary.contrib import graph_executor
from armillary.driver.explain import explain_function, kernel_attrs, read_attrs
from armillary.driver.lower_fused import lower_fused, workload_of
from armillary.errors import ConfigError
from armillary.relay.expr import Call, Function
from armillary.relay.infer import infer_type
from armillary.relay.op import is_primitive
from armillary.relay.parser import parse_expr
from armillary.relay.printer import astext
from armillary.relay.walk import post_order
from armillary.runtime.device import cpu
from armillary.target import Target
from armillary.target.choice import Choice, Source, stored_choice
from armillary.tir.printer import print_function
from armillary.transform import PassContext

CPUS = ("znver4", "haswell", "sapphirerapids")
TOGETHER = 40  # layers of one module


def target(name: str) -> Target:
    return Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={name}")


def conv2d(number: int, draw: random.Random) -> Any:
    """A convolution that networks could have: dense, pointwise, depthwise, dilated, strided."""
    inputs, outputs = (draw.choice((3, 16, 24, 32, 40, 64, 96, 128, 192, 256, 320, 512, 1024)) for _ in range(2))
    size, kernel = draw.choice((1, 4, 7, 8, 13, 14, 20, 28, 56, 80, 112)), draw.choice((1, 3, 3, 3, 5))
    by_channel = draw.random() < 0.2
    weight = (inputs, 1, kernel, kernel) if by_channel else (outputs, inputs, kernel, kernel)
    dilation = 2 if kernel > 1 and draw.random() < 0.1 else 1
    x = relay.var(f"x{number}", shape=(draw.choice((1, 1, 1, 2, 8)), inputs, size, size))
    attrs = {"groups": inputs if by_channel else 1, "strides": (draw.choice((1, 1, 1, 2)),) * 2}
    padding = (dilation * (kernel // 2),) * 2
    return x, relay.nn.conv2d(x, zeros(*weight), padding=padding, dilation=(dilation,) * 2, **attrs)


def product(number: int, draw: random.Random) -> Any:
    """A fully connected layer, with a weight that is stored or given, or a batch of products."""
    rows, terms, units = (
        draw.choice((1, 2, 4, 8, 14, 49, 64, 128, 197, 384)),
        draw.choice((16, 64, 100, 256, 768, 1000)),
        draw.choice((4, 10, 64, 100, 128, 768, 1000)),
    )
    if draw.random() < 0.3:
        x, y = (relay.var(f"{n}{number}", shape=(4, size, terms)) for n, size in (("x", rows), ("y", units)))
        return x, relay.nn.batch_matmul(x, zeros(4, units, terms) if draw.random() < 0.5 else y)
    x = relay.var(f"x{number}", shape=(rows, terms))
    stored = draw.random() < 0.7
    return x, relay.nn.dense(x, zeros(units, terms) if stored else relay.var(f"y{number}", shape=(units, terms)))


def zeros(*shape: int) -> Any:
    return relay.const(np.broadcast_to(np.float32(0), shape))


@cache
def kernels(seed: int, count: int, name: str) -> list[Function]:
    """The kernels of random layers that have something to choose, as a build makes them."""
    draw = random.Random(seed)
    pairs = [(conv2d if draw.random() < 0.75 else product)(n, draw) for n in range(count)]
    body = relay.Tuple([y for _, y in pairs])
    with PassContext(opt_level=3, disabled_pass=["FoldConstant", "EliminateCommonSubexpr"]):
        main = relay.optimize(relay.Function(relay.analysis.free_vars(body), body), target(name))[0]["main"]
    found = [e.op for e in post_order(main) if isinstance(e, Call) and is_primitive(e.op)]
    return [f for f in found if stored_choice(find_anchor(f))]


def check(function: Function, where: Target) -> None:
    """Everybody who reads the choice of a kernel names the same algorithm and configuration."""
    anchor = find_anchor(function)
    written = stored_choice(anchor)
    assert written.estimate is not None and written.config, written
    seen = collapse_rows(function, where)
    seen_anchor = find_anchor(seen)
    assert anchor is not None and seen_anchor is not None
    workload = workload_of(seen, seen_anchor, where)
    assert decided(workload) == written, "what the schedule reads is what the pass wrote"
    row, _ = choose(workload)
    assert row.candidate in candidates_of(workload.op.name), "the schedule is that of the candidate"
    assert row.candidate.algorithm is not None and row.candidate.algorithm.name == written.algorithm
    message = explain_function(function, where)
    knobs = dict(written.config)
    tall = f"x{knobs['lines']}" if knobs["lines"] > 1 else ""
    assert message.tile.startswith(f"{knobs['rows']}x{knobs['vectors']}"), (message.tile, tall)
    assert ("Winograd F(" in message.algorithm) == (written.algorithm == "conv2d.winograd"), message
    assert read_attrs(kernel_attrs(function, where)).choice == message, "a profile shows it"
    assert Choice.parse(str(written)) == written
    stored = decided(
        carrying(workload, Choice(written.algorithm, written.config, written.layouts, source=Source.RECORD))
    )
    assert (stored.config, stored.layouts, stored.source) == (written.config, written.layouts, Source.RECORD)
    if written.algorithm != "conv2d.winograd":  # whose form was selected with the network in sight
        assert decided(carrying(workload, Choice())).config == written.config, "whoever asks, and when"
    assert all(r.cycles or r.reason for r in written.rejected), "what was not chosen has cycles or a reason"


def carrying(workload: Workload, choice: Choice) -> Workload:
    """The workload, had its call another choice."""
    return replace(workload, attrs=replace(workload.attrs, choice=str(choice)))


def agreeing(count: int) -> Iterator[str]:
    """Check layers on three CPUs; gives the algorithm of each kernel."""
    for name in CPUS:
        for seed in range(count // TOGETHER):
            for function in kernels(seed, TOGETHER, name):
                check(function, target(name))
                yield stored_choice(find_anchor(function)).algorithm


def test_all_readers_agree_about_a_sample() -> None:
    found = list(agreeing(2 * TOGETHER))
    names = {"conv2d.direct", "conv2d.winograd", "conv2d.fourier", "conv2d.depthwise", "gemm.register_tiles"}
    assert set(found) == names and len(found) > 150


@pytest.mark.slow
def test_all_readers_agree_about_two_thousand_workloads() -> None:
    assert len(list(agreeing(2000))) > 4500


def test_loops_have_the_tile_that_the_choice_names() -> None:
    """Of each algorithm some: the accumulators of the loops are as many as the register tile has."""
    rows = 0
    for function in kernels(3, TOGETHER, "znver4"):
        choice = stored_choice(find_anchor(function))
        if choice.algorithm != "conv2d.direct" or choice.knob("lines") > 1 or rows == 6:
            continue
        other = next((r.name for r in choice.rejected if r.name.startswith("tile ")), None)
        if other is None:
            continue
        where, rows = target("znver4"), rows + 1
        text = loops(function, choice, where)
        height, width = other.removeprefix("tile ").split("x")[:2]
        changed = Choice(choice.algorithm, (("rows", int(height)), ("vectors", int(width))), source=Source.OVERRIDE)
        assert text == loops(function, choice, where), "the loops follow from the choice"
        assert text != loops(function, changed, where), "another choice makes other loops"
    assert rows >= 3


def loops(function: Function, choice: Choice, where: Target) -> str:
    anchor = find_anchor(function)
    assert anchor is not None
    text = astext(function).replace(str(stored_choice(anchor)), str(choice))
    changed: Any = parse_expr(text)
    infer_type(changed)
    seen = collapse_rows(changed, where)
    return print_function(lower_fused(seen, where, "kernel"), "kernel")


RNG = np.random.default_rng(5)
WEIGHTS = {
    "w1": RNG.normal(size=(32, 16, 3, 3)).astype("float32") / 12,
    "w2": RNG.normal(size=(32, 1, 3, 3)).astype("float32") / 3,
    "w3": RNG.normal(size=(10, 32)).astype("float32") / 6,
}
FIRST, SECOND = "nn.conv2d(1x16x14x14, 32x16x3x3)", "nn.conv2d(1x32x14x14, 32x1x3x3)"


def network() -> Function:
    x, w = relay.var("x", shape=(1, 16, 14, 14)), {name: relay.const(a) for name, a in WEIGHTS.items()}
    y = relay.nn.relu(relay.nn.conv2d(x, w["w1"], padding=(1, 1)))
    y = relay.nn.relu(relay.nn.conv2d(y, w["w2"], padding=(1, 1), groups=32))
    return relay.Function([x], relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y)), w["w3"]))


def built(choices: dict[str, Any], level: int = 3) -> tuple[list[Choice], Any]:
    """The choices on the calls of a build, and what it computes."""
    with PassContext(opt_level=level, config={"schedule.choice": choices}):
        main = relay.optimize(network(), "llvm")[0]["main"]
        library = relay.build(network(), "llvm")
    module = graph_executor.GraphModule(library["default"](cpu()))
    module.set_input("x", np.random.default_rng(1).random((1, 16, 14, 14), dtype="float32"))
    module.run()
    found = [stored_choice(e) for e in post_order(main) if isinstance(e, Call)]
    return [choice for choice in found if choice], module.get_output(0).numpy()


def test_a_script_overrules_algorithm_configuration_and_layouts_of_one_call() -> None:
    _, wanted = built({})
    for first in (
        "conv2d.direct rows=3 vectors=1 lines=1",
        "conv2d.direct rows=2 | layouts NCHW4c OIHW4i8o NCHW8c",
        "conv2d.winograd tile=4 rows=2 vectors=2 | layouts NCHW8c OIHW8i8o NCHW8c",
        "conv2d.winograd tile=2 strip=0",
    ):
        asked = Choice.parse(first)
        taken, got = built({FIRST: first, SECOND: Choice("conv2d.depthwise", (("rows", 2),))})
        ours = [c for c in taken if c.source is Source.OVERRIDE]
        assert {c.algorithm for c in ours} == {asked.algorithm, "conv2d.depthwise"}, taken
        found = next(c for c in ours if c.algorithm == asked.algorithm)
        assert set(asked.config) <= set(found.config) and found.layouts[::2] == (asked.layouts or found.layouts)[::2]
        assert found.estimate is not None and found.rejected, "with what the model says of it"
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)


def test_an_operator_alone_names_all_its_calls() -> None:
    with pytest.raises(ConfigError, match=r"conv2d\.direct does not fit .*depthwise"):
        built({"nn.conv2d": "conv2d.direct rows=3"})
    taken, _ = built({"nn.conv2d": "conv2d.direct rows=3", SECOND: "conv2d.depthwise rows=2"})
    assert [c.algorithm for c in taken if c.source is Source.OVERRIDE] == ["conv2d.direct", "conv2d.depthwise"]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"nn.conv3d": "conv2d.direct"}, r"no such call(.|\n)*nn\.conv2d\(1x16x14x14, 32x16x3x3\)"),
        ({"nn.relu": "conv2d.direct"}, r"nothing to choose for this call(.|\n)*nn\.conv2d, nn\.dense"),
        ({FIRST: 4}, r"is int, wanted a choice"),
        ({FIRST: ""}, r"names no algorithm"),
        ({FIRST: "conv2d.direct rows=2 columns=3"}, r"conv2d\.direct has no knob 'columns'"),
        ({FIRST: "conv2d.direct rows=31 vectors=7"}, r"rows=31 vectors=7 does not fit(.|\n)*these do"),
        ({FIRST: "conv2d.winograd tile=3"}, r"its tile is one of"),
        ({FIRST: "conv2d.winograd tile=6"}, r"max_tile is 4"),
        ({FIRST: "conv2d.fourier"}, r"conv2d\.fourier does not fit"),
        ({FIRST: "conv2d.direct | layouts NCHW5c OIHW5i8o NCHW8c"}, r"16 input channels are no whole blocks of 5"),
        ({FIRST: "conv2d.direct | layouts NCHW8c OIHW8i5o NCHW5c"}, r"32 output channels are no whole blocks of 5"),
        ({FIRST: "conv2d.direct | layouts NCHW8c OIHW8i8o NCHW4c"}, r"weight's layout .* is OIHW8i4o"),
        ({FIRST: "conv2d.direct | layouts NHWC OIHW8i8o NHWC"}, r"NHWC is no layout of channels in blocks"),
        ({FIRST: "conv2d.direct | layouts NCHW8c"}, r"it has 1 layouts"),
        ({SECOND: "conv2d.depthwise | layouts NCHW4c OIHW1i8o NCHW8c"}, r"does not fit nn\.conv2d\(1x32x14x14"),
        ({"nn.dense": "gemm.register_tiles | layouts NC NC NC"}, "its layouts are such as NC NC16n NC"),
    ],
)
def test_a_choice_that_does_not_fit_is_an_error_that_says_why(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        built(choices)


def test_where_layouts_and_algorithms_are_not_chosen_a_choice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"alter-op-layout does not run"):
        built({FIRST: "conv2d.direct rows=3"}, level=2)
    context = PassContext(opt_level=3, config={"schedule.choice": {FIRST: "conv2d.direct"}})
    with context, pytest.raises(ConfigError, match=r"OpenCL devices have no such algorithm for it"):
        relay.optimize(network(), "opencl")


def test_a_product_whose_operator_stays_takes_a_choice() -> None:
    x, y = relay.var("x", shape=(64, 128)), relay.var("y", shape=(96, 128))
    function = relay.Function([x, y], relay.nn.dense(x, y))
    with PassContext(opt_level=3, config={"schedule.choice": {"nn.dense": "gemm.register_tiles rows=4 vectors=1"}}):
        main = relay.optimize(function, target("znver4"))[0]["main"]
    (found,) = [stored_choice(e.op.body) for e in post_order(main) if isinstance(e, Call) and is_primitive(e.op)]
    assert found.source is Source.OVERRIDE and (found.knob("rows"), found.knob("vectors")) == (4, 1)
