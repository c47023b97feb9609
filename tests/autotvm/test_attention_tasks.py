"""Attention is a task: the rows of a block and the tiles of its two products are chosen, by records and by scripts."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from armillary import autotvm, relay
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult, create_measure_batch
from armillary.autotvm.record import Pair
from armillary.contrib import graph_executor
from armillary.driver.build import optimized
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.op import get_op
from armillary.runtime.device import cpu
from armillary.target import Target
from armillary.transform import PassContext

RNG = np.random.default_rng(6)
SHAPE = (1, 37, 2, 24)  # batch, positions, heads, features: no multiple of a vector
TARGET = "llvm"


def network(rows: int = SHAPE[1], *, is_masked: bool = False) -> IRModule:
    """Attention of the first `rows` positions to all."""
    q, k = relay.var("q", shape=(1, rows, *SHAPE[2:])), relay.var("k", shape=SHAPE)
    attrs = {"scale": 0.25}
    if is_masked:
        mask = relay.var("mask", shape=(1, 1, rows, SHAPE[1]))
        return IRModule.from_expr(relay.Function([q, k, mask], get_op("nn.masked_attention")(q, k, k, mask, **attrs)))
    return IRModule.from_expr(relay.Function([q, k], relay.nn.relu(get_op("nn.attention")(q, k, k, **attrs))))


def inputs(rows: int = SHAPE[1]) -> dict[str, np.ndarray]:
    return {
        "q": RNG.normal(size=(1, rows, *SHAPE[2:])).astype("float32"),
        "k": RNG.normal(size=SHAPE).astype("float32"),
        "mask": RNG.normal(size=(1, 1, rows, SHAPE[1])).astype("float32"),
    }


def expected(given: dict[str, np.ndarray], *, is_masked: bool) -> np.ndarray:
    q, k = (given[name].astype("float64").transpose(0, 2, 1, 3) for name in "qk")
    scores = 0.25 * q @ k.swapaxes(-1, -2) + (given["mask"] if is_masked else 0)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    result = (powers / powers.sum(-1, keepdims=True) @ k).transpose(0, 2, 1, 3)
    return np.asarray(result if is_masked else np.maximum(result, 0))


def run(module: IRModule, given: dict[str, np.ndarray], **names: Any) -> tuple[np.ndarray, list[str]]:
    """The result, and the choices that calls carry. Any: options of the pass context."""
    with PassContext(opt_level=3, **names):
        texts = re.findall(r'choice="([^"]*)"', str(optimized(module, Target(TARGET), {})))
        library = relay.build(module, TARGET)
    executor = graph_executor.GraphModule(library["default"](cpu()))
    for name in (p.name_hint for p in module["main"].params):
        executor.set_input(name, given[name])
    executor.run()
    return executor.get_output(0).numpy(), texts


def the_task(module: IRModule) -> autotvm.Task:
    (task,) = autotvm.task.extract_from_program(module, target=TARGET)
    return task


def record_of(task: autotvm.Task, place: int) -> Pair:
    index = task.template.estimates(task)[place][0]
    return MeasureInput(task.target, task, task.config_space.get(index)), MeasureResult((1e-5,), 0, 1.0, 1.0)


@pytest.mark.parametrize("is_masked", [False, True], ids=["plain", "masked"])
def test_a_record_chooses_the_blocks_of_attention(is_masked: bool) -> None:
    module, given = network(is_masked=is_masked), inputs()
    task = the_task(module)
    assert task.name == f"{'masked_' * is_masked}attention.cpu" and len(task.config_space) > 20
    wanted = expected(given, is_masked=is_masked)
    for place in (0, len(task.config_space) // 2, -1):
        pair = record_of(task, place)
        config = {name: pair[0].config[name].val for name in ("rows", "keys", "features")}
        with autotvm.apply_history_best([pair]):
            result, (text,) = run(module, given)
        knobs = " ".join(f"{name}={value}" for name, value in config.items())
        assert text.startswith(f"attention.rows {knobs} | ") and " | by record | " in text
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_the_first_of_the_space_is_what_a_build_takes() -> None:
    module, given = network(), inputs()
    result, (text,) = run(module, given)
    config = record_of(the_task(module), 0)[0].config
    assert text.startswith(f"attention.rows rows={config['rows'].val} keys={config['keys'].val} features=")
    np.testing.assert_allclose(result, expected(given, is_masked=False), rtol=1e-4, atol=1e-5)


def test_trials_of_attention_run_and_are_compared() -> None:
    task = the_task(network())
    assert "nn.relu(" in str(task.around), "with what is fused to it"
    measure = create_measure_batch(task, autotvm.measure_option())
    try:
        results = measure([record_of(task, place)[0] for place in (0, -1)])
    finally:
        measure.close()
    assert [r.error for r in results] == ["", ""]


def test_a_few_rows_have_nothing_to_choose() -> None:
    assert not autotvm.task.extract_from_program(network(2), target=TARGET)
    given = inputs(2)
    result, texts = run(network(2), given)
    assert not texts
    np.testing.assert_allclose(result, expected(given, is_masked=False), rtol=1e-4, atol=1e-5)


def test_a_script_names_a_part_of_the_choice() -> None:
    module, given = network(), inputs()
    result, (text,) = run(module, given, config={"schedule.choice": {"nn.attention": "attention.rows rows=3"}})
    assert re.match(r"attention\.rows rows=3 keys=\d+ features=\d+ \| .* \| by override", text), text
    np.testing.assert_allclose(result, expected(given, is_masked=False), rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigError, match=r"attention.rows rows=99 does not fit"):
        run(module, given, config={"schedule.choice": {"nn.attention": "attention.rows rows=99"}})
