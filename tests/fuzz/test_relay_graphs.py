"""Random Relay graphs, compiled at several levels, agree with the reference interpreter.

Graphs that once failed, shrunk, are text cases in tests/fuzz/cases. The 2,000 are `slow`; `python -m
tests.fuzz.relay_graphs` runs them with a progress bar, and shrinks what it finds.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import graph_campaign
import graph_check
import graph_draw
import graph_motifs
import graph_shrink
import graph_values
import numpy as np
import pytest
from case_runner import Case, case_ids, check_case, load_cases

from armillary.base.node import structural_equal
from armillary.driver.build import build
from armillary.ir import IRModule
from armillary.ops._types import elements
from armillary.ops.nn._windows import call
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Constant, Expr, Function, const, var
from armillary.relay.op import OPS, Op
from armillary.relay.transform.quantize.to_mixed_precision import to_mixed_precision
from armillary.relay.types import tensor_fields
from armillary.relay.walk import post_order
from armillary.tir import build as T
from armillary.transform import PassContext

CASES = load_cases(Path(__file__).parent / "cases", "relay-fuzz")
SEED, COUNT = 40_000, 60


@pytest.fixture(autouse=True)
def _fast_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that are compiled once and never again: no cache, no other process."""
    monkeypatch.setenv("ARMILLARY_CACHE", "0")
    monkeypatch.setenv("ARMILLARY_COMPILE_JOBS", "1")


@pytest.mark.parametrize("case", CASES, ids=case_ids(CASES))
def test_graph_that_once_failed(case: Case, update_cases: bool) -> None:
    target, *levels = case.subject.split()

    def run(text: str) -> str:
        function, inputs = graph_check.from_text(text)
        wanted = graph_check.leaves(graph_values.of_function(function, inputs))
        assert sum(map(graph_values.compared, wanted)), "this case compares nothing"
        lines = []
        for level in levels:
            outcome = graph_check.check_level(function, inputs, wanted, int(level), target)
            lines.append(f"{target} level {level}: {outcome.kind}" + (f" {outcome.detail}" if outcome.failed else ""))
        return "\n".join(lines)

    check_case(case, run, update_cases)


@pytest.mark.parametrize("part", range(4))
def test_random_graphs_agree_at_levels_0_and_3(part: int) -> None:
    seeds = range(SEED + part * COUNT // 4, SEED + (part + 1) * COUNT // 4)
    elements, failed = 0, []
    for seed in seeds:
        drawn = graph_motifs.generate(seed)
        outcome = graph_check.check(drawn.function, drawn.inputs, (0, 3), "llvm", seed)
        elements += outcome.elements
        if outcome.failed:
            failed.append(f"seed {seed}: {outcome.kind}: {outcome.detail}")
    print(f"seeds {seeds}: {elements} elements compared")
    assert not failed, "\n".join(failed)
    assert elements > 1000 * len(seeds) / 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "count", "levels", "target"),
    [(0, 2000, (0, 3), "llvm"), (10_000, 300, (1, 2), "llvm"), (20_000, 100, (0, 3), "c")],
)
def test_thousands_of_random_graphs_agree(first: int, count: int, levels: tuple[int, ...], target: str) -> None:
    records = graph_campaign.run(range(first, first + count), levels, target, jobs=2)
    kinds = Counter(r["kind"] for r in records)
    print(kinds, sum(r["elements"] for r in records), "elements compared")
    found = graph_campaign.failures(records)
    assert not found, "\n".join(f"seed {r['seed']}: {r['detail']}" for r in found)
    assert kinds["agrees"] > 0.97 * count


# --- the fuzzer itself ----------------------------------------------------------------------------------------------


def _operators(function: Expr) -> set[str]:
    return {e.op.name for e in post_order(function) if isinstance(e, Call) and isinstance(e.op, Op)}


def _of_quantised(first: int, count: int) -> list[graph_draw.Drawn]:
    """Graphs that hold a quantised operator."""
    drawn = (graph_motifs.generate(seed) for seed in range(first, first + 40 * count))
    return list(itertools.islice((d for d in drawn if "qnn." in str(d.function)), count))


@pytest.mark.parametrize("first", [447, 700357, 586, 1000])
@pytest.mark.parametrize("sums", ["", "float16", "float32"])
def test_graphs_with_quantised_operators_in_mixed_precision(first: int, sums: str) -> None:
    products = ("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.dense", "nn.matmul", "nn.batch_matmul")
    forms = dict.fromkeys(products, (0, sums, "float16")) if sums else {}
    for d in _of_quantised(first, 3):
        module = IRModule.from_expr(d.function)
        mixed = to_mixed_precision(module, mixed_precision_type="float16", missing_op_mode=2, conversions=forms)
        main = mixed["main"]
        inputs = [d.inputs[p.name_hint] for p in main.params]
        plain, wanted = (_flat(evaluate(f, inputs)) for f in (d.function, main))
        for level in (0, 3):
            with PassContext(opt_level=level):
                graph = build(mixed, "llvm")["default"]()
            for given, value in zip(main.params, inputs, strict=True):
                graph.set_input(given.name_hint, value)
            graph.run()
            for k, (full, half) in enumerate(zip(plain, wanted, strict=True)):
                got = graph.get_output(k).numpy()
                assert (got.shape, got.dtype) == (half.shape, half.dtype)
                assert not _is_told(full, half) or _is_near(got, half, full), (first, level, k)


def _flat(value: Any) -> list[Any]:
    return [part for field in value for part in _flat(field)] if isinstance(value, tuple | list) else [value]


def _is_told(full: Any, half: Any) -> bool:
    """Whether all numbers are ones that float16 holds."""
    return bool(np.all(np.isfinite(half.astype(np.float64))) and np.all(np.abs(full.astype(np.float64)) < 3e4))


def _is_near(got: Any, half: Any, full: Any) -> bool:
    """Within a step of integers, of floats within what float16 loses: a kernel rounds less often than the reference."""
    here, there, exact = (a.astype(np.float64) for a in (got, half, full))
    if got.dtype.kind != "f":
        return bool(np.all(np.abs(here - there) <= 1))
    limit = 0.03 * np.abs(exact).max(initial=1e-3) + 3 * np.abs(there - exact).max(initial=0)
    return bool(np.all(np.abs(here - there) <= limit))


def test_a_product_of_infinity_and_of_what_underflows_is_left_open() -> None:
    x = var("x", shape=(40,), dtype="float32")
    product = Function([x], call("prod", x))
    small, odd = np.full(40, 0.05, np.float32), np.full(40, 0.05, np.float32)
    odd[39] = np.inf  # 0 times it, or it times what is left: no number, or infinity
    assert graph_check.check(product, {"x": small}, (0,), "llvm").kind == "agrees"
    assert graph_check.check(product, {"x": odd}, (0,), "llvm").signature == "a product that underflows and overflows"


def test_a_sum_that_is_one_of_its_terms_by_chance_is_a_sum() -> None:
    x = var("x", shape=(70_000,), dtype="float16")
    data = np.random.default_rng(3).uniform(0.5, 3.5, 70_000).astype(np.float16)  # their variance is one of them
    values = graph_values.values_of(Function([x], call("variance", x, const(np.float16(2)))), {"x": data})
    (found,) = (v for v in values.values() if isinstance(v.expr, Call) and v.expr.op.name == "variance")
    assert np.isin(found.base, data)
    assert any(not np.array_equal(found.base, twin) for twin in found.twins)


def test_the_same_seed_gives_the_same_graph() -> None:
    for seed in range(20):
        first, second = graph_motifs.generate(seed), graph_motifs.generate(seed)
        assert structural_equal(first.function, second.function)
        assert all(a.tobytes() == second.inputs[n].tobytes() for n, a in first.inputs.items())


def test_graphs_use_most_of_the_operators_and_many_dtypes() -> None:
    used, dtypes = set[str](), set[str]()
    for seed in range(400):
        function = graph_motifs.generate(seed).function
        used |= _operators(function)
        dtypes |= {str(t.dtype) for p in function.params for t in tensor_fields(p.checked_type)}
    drawn = set(graph_draw.drawable())  # neither marks for a library nor what another test has registered
    assert len(used & drawn) > 0.75 * len(drawn), sorted(drawn - used)
    assert {"float32", "float16", "int8", "uint8", "int32", "int64", "bool", "float64"} <= dtypes


def test_text_of_a_graph_gives_the_graph_and_its_inputs() -> None:
    for seed in range(40):
        drawn = graph_motifs.generate(seed)
        text = graph_check.to_text(drawn.function, drawn.inputs)
        function, inputs = graph_check.from_text(text)
        assert [a.tobytes() for a in inputs.values()] == [
            drawn.inputs[p.name_hint].tobytes() for p in drawn.function.params
        ]
        assert graph_check.to_text(function, inputs) == text


def _apply(name: str, *args: graph_values.Value, **attrs: Any) -> graph_values.Value:
    return graph_values.apply(OPS[name], OPS[name].make_attrs((), attrs), args, np.random.default_rng(0))


def test_uses_that_rounding_decides_are_thrown_away() -> None:
    x = graph_values.leaf(var("x", shape=(3,)), np.array([1.0, 2.0, 3.0], np.float32))
    third = graph_values.leaf(const(np.float32(1 / 3)), np.asarray(np.float32(1 / 3)))
    parts = _apply("multiply", x, third)
    with pytest.raises(graph_values.Reject, match="decided by rounding"):
        _apply("equal", parts, third)
    with pytest.raises(graph_values.Reject, match="ill-conditioned"):
        _apply("subtract", parts, parts)
    with pytest.raises(graph_values.Reject, match="beyond the range"):
        _apply("cast", _apply("negative", x), dtype="uint8")
    assert _apply("floor", x).exact
    assert _apply("equal", x, x).exact


def test_an_interpolation_of_infinities_is_thrown_away() -> None:
    data = np.array([[[[1.0, -np.inf], [2.0, 3.0]]]], np.float32)
    x = graph_values.leaf(var("x", shape=(1, 1, 2, 2)), data)
    for method in ("bilinear", "nearest_neighbor"):
        with pytest.raises(graph_values.Reject, match="rewritten for finite numbers"):
            _apply("nn.upsampling", x, scale_w=2.0, method=method, align_corners=True)


def test_tolerance_of_the_tail_of_gelu_is_a_unit_of_what_cancels() -> None:
    data = np.append(np.linspace(-5, -4, 9), 1).astype(np.float32)
    value = _apply("nn.gelu", graph_values.leaf(var("x", shape=(10,)), data))
    assert graph_values.difference(value.base + np.float32(3e-7), value) is None
    assert graph_values.difference(value.base + np.float32(2e-5), value) is not None


def test_tolerance_lets_a_wrong_digit_show() -> None:
    x = var("x", shape=(2, 8, 9, 9))
    w = const(np.random.default_rng(1).uniform(-0.2, 0.2, (8, 8, 3, 3)).astype(np.float32))
    function = Function((x,), call("nn.softmax", call("nn.conv2d", x, w, padding=(1, 1)), axis=1))
    value = graph_values.of_function(function, {"x": np.random.default_rng(2).normal(size=(2, 8, 9, 9)).astype("f")})
    assert graph_values.difference(value.base, value) is None
    assert graph_values.difference(value.base * np.float32(1 + 1e-4), value) is not None
    one = value.base.copy()
    one[1, 2, 3, 4] += np.float32(1e-4)
    assert "1 of 1296 elements differ; at (1, 2, 3, 4)" in str(graph_values.difference(one, value))
    one[1, 2, 3, 4] = np.nan
    assert graph_values.difference(one, value) is not None


def test_a_wrong_operator_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """tanh is made wrong beyond 0.7 in its kernel; the graph around it is random."""
    right = OPS["tanh"].compute_rule

    def wrong(attrs: None, data: Any) -> Any:
        assert right is not None
        good = right(attrs, data)
        limit, other = (T.const(v, good.dtype) for v in (0.7, 0.5))
        return elements(good.shape, lambda *i: T.select(T.greater(good(*i), limit), other, good(*i)), name="tanh")

    monkeypatch.setattr(OPS["tanh"], "compute_rule", wrong)
    graph = _find(lambda o: o.signature.startswith("wrong"))

    def fails(candidate: graph_shrink.Graph) -> bool:
        return graph_check.check(*candidate, (0,), "llvm").kind == "wrong"

    function, inputs = graph_shrink.shrink(graph, fails, 20.0)
    assert fails((function, inputs))
    assert _operators(function) == {"tanh"}
    assert sum(a.size for a in inputs.values()) <= sum(a.size for a in graph[1].values())


def _find(wanted: Any) -> graph_shrink.Graph:
    for seed in range(SEED, SEED + 400):
        drawn = graph_motifs.generate(seed)
        if "tanh" not in _operators(drawn.function):
            continue
        if wanted(graph_check.check(drawn.function, drawn.inputs, (0,), "llvm")):
            return drawn.function, drawn.inputs
    raise AssertionError("no graph shows the wrong operator")


def test_a_process_that_dies_is_a_finding_with_its_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worker = tmp_path / "graph_worker.py"
    worker.write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    seed = json.loads(line)['seed']\n"
        "    if seed == 2: os.abort()\n"
        "    print(json.dumps({'kind': 'agrees', 'elements': 1}), flush=True)\n"
    )
    monkeypatch.setattr(graph_campaign, "HERE", tmp_path)
    state = tmp_path / "records.jsonl"
    records = graph_campaign.run(range(5), (0,), "llvm", 1, state)
    assert [(r["seed"], r["kind"]) for r in records if r["kind"] != "agrees"] == [(2, "crash")]
    assert "-6" in graph_campaign.failures(records)[0]["signature"]
    again = graph_campaign.run(range(6), (0,), "llvm", 1, state)
    assert len(again) == 6 and [r["seed"] for r in again].count(2) == 1


def test_a_case_is_written_as_text_that_runs(tmp_path: Path) -> None:
    x = var("x", shape=(2, 3))
    body = call("add", call("exp", x), Constant(np.ones((2, 3), np.float32)))
    text = graph_check.to_text(Function((x,), body), {"x": np.ones((2, 3), np.float32)})
    record = {"seed": 7, "kind": "wrong", "signature": "wrong at level 3", "text": text}
    graph_shrink.write_case(record, (0, 3), "llvm", tmp_path)
    (case,) = load_cases(tmp_path, "relay-fuzz")
    assert (case.subject, case.name) == ("llvm 0 3", "wrong-at-level-3-7")
    assert graph_check.check_text(case.input, (0, 3), "llvm") == dataclasses.replace(
        graph_check.Outcome("agrees"), elements=12
    )
