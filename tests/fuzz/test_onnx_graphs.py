"""Random ONNX graphs agree with ONNX Runtime and the ONNX reference; and the fuzzer itself finds what is wrong.

Graphs that once failed, shrunk, are text cases in tests/fuzz/cases (onnx-fuzz). `make fuzz MINUTES=…` runs many more,
of every kind, with a fresh seed; here a few of each kind show that they run.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import fuzz
import fuzz_worker
import nudge
import numpy as np
import onnx_check
import onnx_draw
import onnx_not_true
import onnx_shrink
import onnx_truth
import pytest
from case_runner import Case, case_ids, check_case, load_cases
from onnx import AttributeProto, helper
from onnx_kit import HOSTILE, Draw, Drawn, Unfit, make_model, value_info

CASES = load_cases(Path(__file__).parent / "cases", "onnx-fuzz")


@pytest.fixture(autouse=True)
def _fast_compilation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The levels of a graph have most kernels in common."""
    monkeypatch.setenv("ARMILLARY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ARMILLARY_COMPILE_JOBS", "1")


@pytest.mark.parametrize("case", CASES, ids=case_ids(CASES))
def test_onnx_graph_that_once_failed(case: Case, update_cases: bool) -> None:
    words = case.subject.split()
    levels = [int(word) for word in words if word.isdigit()]
    target = " ".join(words[len(levels) :])

    def run(text: str) -> str:
        drawn, lines = onnx_shrink.from_text(text), []
        for level in levels:
            outcome = onnx_check.check(drawn, [level], target)
            lines.append(f"{target} level {level}: {outcome.kind}" + (f" {outcome.detail}" if outcome.failed else ""))
        return "\n".join(lines)

    check_case(case, run, update_cases)


def test_a_run_counts_cases_of_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    fuzz.main(["--seed", "1000", "--count", "29", "--minutes", "3", "--jobs", "1", "--levels", "3", "--target", "llvm"])
    message = capsys.readouterr().out
    assert message.startswith("seed 1000,") and "0 findings" in message, message
    counted = {m[1]: int(m[2]) for m in re.finditer(r"^(\w+) +(\d+) cases", message, re.M)}
    assert counted == fuzz.KINDS, message


def test_every_operator_that_is_imported_is_drawn() -> None:
    never = []
    for key in onnx_draw.operators():
        for seed in range(40):
            try:
                onnx_draw.add_operator(Draw(seed), key)
                break
            except Unfit:
                continue
        else:
            never.append(".".join(key))
    assert not never


def test_an_operator_that_nobody_listed_is_drawn_from_its_schema() -> None:
    onnx_draw.RECIPES.pop(("", "Softplus"), None)
    d = Draw(3, 22)
    onnx_draw.generic(d, "Softplus")
    assert [n.op_type for n in d.nodes] == ["Softplus"] and len(d.pool) == 1


def test_the_same_seed_gives_the_same_model() -> None:
    for seed in range(12):
        for draw in (onnx_draw.generate, onnx_draw.generate_window):
            first, second = draw(seed), draw(seed)
            assert first.model.SerializeToString(deterministic=True) == second.model.SerializeToString(
                deterministic=True
            )
            assert all(a.tobytes() == second.inputs[n].tobytes() for n, a in first.inputs.items())


def test_windows_stride_over_padding_as_large_as_their_kernel() -> None:
    seen: Counter[str] = Counter()
    for seed in range(150):
        for node in onnx_draw.generate_window(seed).model.graph.node:
            given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            strided, pads = max(given.get("strides", [1])) > 1, given.get("pads", [])
            seen[node.op_type] += 1
            seen["padding beyond the kernel"] += strided and max(pads, default=0) >= max(given.get("kernel_shape", [5]))
            seen["same"] += strided and str(given.get("auto_pad", "")).startswith("b'SAME")
            seen["groups"] += given.get("group", 1) > 1
            seen["dilations"] += max(given.get("dilations", [1])) > 1
    few = {k: seen[k] for k in ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "same", "groups", "dilations")}
    assert min(few.values()) >= 8 and seen["padding beyond the kernel"] >= 5, seen


def test_names_of_values_are_different() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) and {"\u00e9", "e\u0301"} <= set(HOSTILE)
    drawn = nudge.generate(477)  # an input and a weight had one name, so that the input was none
    names = [thing.name for part in (drawn.model.graph.input, drawn.model.graph.initializer) for thing in part]
    assert len(set(names)) == len(names)


def test_numbers_are_moved_by_a_hair_and_to_the_ends_of_their_type() -> None:
    moved: Counter[str] = Counter()
    for seed in range(60):
        drawn, again = nudge.generate(seed), nudge.generate(seed)
        assert drawn.model.SerializeToString(deterministic=True) == again.model.SerializeToString(deterministic=True)
        for change in dict.fromkeys(nudge.CHANGES):
            model = type(drawn.model).FromString(drawn.model.SerializeToString())
            change(model, random.Random(seed))
            moved[change.__name__] += model.SerializeToString() != drawn.model.SerializeToString()
    assert min(moved.values()) >= 10 and len(moved) == 4, moved


# --- what it finds ----------------------------------------------------------------------------------------------------


def _model(op: str, x: Any, **attributes: Any) -> Drawn:
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    return Drawn(make_model([node], {"x": x}, [value_info("y", x)], {}, 17), {"x": x})


def test_a_wrong_answer_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled Tanh is made wrong beyond 0.7; the graph has five nodes and two outputs."""
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Add", ["b", "w"], ["c"]),
        helper.make_node("Abs", ["c"], ["y"]),
        helper.make_node("Relu", ["a"], ["z"]),
    ]
    infos = [value_info("y", x), value_info("z", x)]
    drawn = Drawn(make_model(nodes, {"x": x}, infos, {"w": x[:1]}, 17), {"x": x})
    right = onnx_check.compiled_outputs

    def wrong(drawn: Drawn, *more: Any) -> list[Any]:
        model = type(drawn.model).FromString(drawn.model.SerializeToString())
        for node in model.graph.node:
            if node.op_type == "Tanh":
                node.op_type = "Softsign"
        return right(Drawn(model, drawn.inputs), *more)

    monkeypatch.setattr(onnx_check, "compiled_outputs", wrong)
    assert onnx_check.check(drawn, [0], "llvm").kind == "wrong"
    small = onnx_shrink.shrink(drawn, lambda d: onnx_check.check(d, [0], "llvm").kind == "wrong", 20)
    assert [n.op_type for n in small.model.graph.node] == ["Tanh"]
    assert [a.size for a in small.inputs.values()] == [1]


def test_text_of_a_graph_gives_the_graph_and_its_inputs(tmp_path: Path) -> None:
    for seed in range(8):
        drawn = onnx_draw.generate(seed)
        again = onnx_shrink.from_text(onnx_shrink.to_text(drawn))
        assert all(a.tobytes() == drawn.inputs[n].tobytes() for n, a in again.inputs.items())
        assert again.model.graph.node == drawn.model.graph.node
        assert onnx_shrink.to_text(again) == onnx_shrink.to_text(drawn)
    onnx_shrink.write_case(_model("Relu", np.ones(2, "f")), "plain", [0, 3], "llvm -mcpu=native", tmp_path)
    (case,) = load_cases(tmp_path, "onnx-fuzz")
    assert case.subject == "0 3 llvm -mcpu=native"


def test_rounding_is_measured_and_a_wrong_digit_is_not_rounding() -> None:
    x = np.random.default_rng(0).uniform(0.5, 1, (8, 32)).astype(np.float32)
    sums = _model("Exp", x)
    want = onnx_truth.by_onnxruntime(*sums.parts())
    room = onnx_truth.spread(*sums.parts())
    assert not onnx_truth.differences([want[0] * np.float32(1 + 2e-7)], want, room)
    assert "256 of 256" in onnx_truth.differences([want[0] * np.float32(1 + 1e-5)], want, room)
    assert "float64" in onnx_truth.differences([want[0].astype("f8")], want, room)


def test_a_long_sum_is_asked_in_float64() -> None:
    numbers = np.full((1, 1 << 19), 0.3, np.float32)
    numbers[0, 0] = 1
    softmax = _model("Softmax", numbers)
    ours = onnx_check.compiled_outputs(softmax, 3, "llvm")
    assert onnx_truth.differences(ours, onnx_truth.by_onnxruntime(*softmax.parts())), "it adds up one by one"
    exact, room = onnx_truth.in_float64(*softmax.parts()), onnx_truth.spread(*softmax.parts())
    assert not onnx_truth.differences(ours, exact, room)
    assert onnx_truth.differences([ours[0] * np.float32(1 + 1e-3)], exact, room), "a wrong digit is one there, too"
    assert onnx_check.check(softmax, (3,), "llvm").kind == "agrees"


def test_a_decision_over_exact_numbers_has_no_room() -> None:
    floors = _model("Floor", np.array([1.0, 2.0, -3.0], np.float32))
    assert [r.max() for r in onnx_truth.spread(*floors.parts())] == [0.0]


def test_each_row_of_what_is_not_asked_has_a_reason_and_an_operator() -> None:
    names = {op for _, op in onnx_draw.operators()}
    assert [row for row in onnx_not_true.NOT_TRUE if row.op not in names or len(row.why) < 10] == []
    x = np.ones((1, 4, 2), np.float32)
    weight, bias = np.ones((4, 1, 1), np.float32), np.ones(4, np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], group=4)
    model = make_model([node], {"x": x}, [value_info("y", x)], {"w": weight, "b": bias}, 17)
    assert set(onnx_truth.truths(model, {"x": x})[0]) == {onnx_truth.ORT}


@pytest.mark.parametrize("given", [{"dilations": []}, {"strides": []}, {"strides": [0, 1]}, {"pads": [1]}])
def test_lists_that_are_empty_or_odd_end_no_question(given: dict[str, list[int]]) -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    for op in ("MaxPool", "AveragePool", "LpPool", "ConvTranspose", "Col2Im"):
        node = helper.make_node(op, ["x"], ["y"], kernel_shape=[2, 2])
        node.attribute.extend(AttributeProto(name=n, type=AttributeProto.INTS, ints=v) for n, v in given.items())
        made = make_model([node], {"x": x}, [value_info("y", x)], {}, 17)
        skipped = onnx_not_true.not_asked(made, {"x": x})
        assert "dilations" not in given or not any("dilation" in why for why in skipped.values())


def test_no_node_is_drawn_of_types_that_the_standard_has_not() -> None:
    d = Draw(1, 17)
    for dtype in ("uint8", "bool"):
        with pytest.raises(Unfit, match="unsupported type"):
            d.emit("LpPool", [d.give(np.ones((1, 1, 4, 4), dtype))], kernel_shape=[2, 2])
    assert d.emit("LpPool", [d.give(np.ones((1, 1, 4, 4), np.float32))], kernel_shape=[2, 2])


def test_a_process_that_dies_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "fuzz_worker.py"
    script.write_text("import os, sys\nfor line in sys.stdin: os.abort()\n")
    monkeypatch.setattr(fuzz.graph_campaign, "HERE", tmp_path)
    options = fuzz.arguments(["--seed", "1", "--count", "1", "--kinds", "damaged", "--jobs", "1"])
    campaign = fuzz.Campaign(options, 1)
    campaign.run()
    assert [f["signature"] for f in campaign.findings] == ["crash -6", "crash -6"]
    assert "again: python -m tests.fuzz.fuzz --kinds damaged --count 1 --seed 1" in campaign.summary()


def test_the_levels_and_targets_of_seeds_are_all_drawn() -> None:
    drawn = [fuzz_worker.plan(seed, {}) for seed in range(200)]
    assert all(levels == [0, 1, 2, 3] for levels, _, _ in drawn)
    assert {target for _, target, _ in drawn} == {"llvm", "llvm -mcpu=native", "c"}
    assert {how for _, _, how in drawn} == {"", "params", "tar", "so"}
