"""What depends on sizes and parameters alone runs when these have other values, not in every run."""

from __future__ import annotations

import json

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.artifact import GraphSpec
from armillary.driver.library import GraphLibrary
from armillary.errors import ArtifactError, ExecutionError
from armillary.relay.parser import parse
from armillary.runtime import GraphExecutor

TABLE = np.random.default_rng(3).standard_normal((40, 4)).astype(np.float32)
BIASES = """def @main(%x: Tensor[(b, s, 4), float32], %table: Tensor[(40, 4), float32]) {
    %0 = arange(start=0, stop=s, dtype="int64");
    %1 = check_values(%0, bounds=[[-40, 39]], what="positions");
    %2 = take(%table, %1, axis=0);
    %3 = sin(%2);
    add(%x, %3)
}"""


def built(text: str = BIASES) -> GraphLibrary:
    with armillary.transform.PassContext(opt_level=3):
        library: GraphLibrary = relay.build(parse(text), "llvm", params={"table": TABLE} if "%table" in text else None)
    return library


def marked(library: GraphLibrary) -> list[str]:
    nodes = json.loads(library.graph_json)["nodes"]
    return [n["attrs"]["func_name"] for n in nodes if n.get("attrs", {}).get("size_time") == "1"]


def executor_of(library: GraphLibrary) -> GraphExecutor:
    made = library["default"]()
    assert isinstance(made, GraphExecutor)
    return made


def ran(graph: GraphExecutor) -> list[str]:
    """The functions that a run of the whole graph took time in."""
    seconds = graph.run_nodes(0, graph.num_nodes())
    return [row.function for row in seconds if row.seconds > 0 and row.function.startswith("fused")]


def test_biases_of_positions_are_computed_once_for_a_size() -> None:
    library = built()
    assert any("sin" in name for name in marked(library)) and len(marked(library)) < len(ran_all(library))
    graph, rng = executor_of(library), np.random.default_rng(4)
    for b, s in ((1, 7), (2, 7), (3, 7), (1, 33), (1, 7), (2, 40), (1, 1), (1, 40)):
        for _ in range(2):
            x = rng.standard_normal((b, s, 4)).astype(np.float32)
            graph.set_input("x", x)
            names = ran(graph)
            assert names and not any("sin" in name for name in names), "what is left reads x"
            np.testing.assert_allclose(graph.get_output(0).numpy(), x + np.sin(TABLE[:s]), rtol=1e-5, atol=1e-6)


def ran_all(library: GraphLibrary) -> list[str]:
    nodes = json.loads(library.graph_json)["nodes"]
    return [n["attrs"]["func_name"] for n in nodes if n["op"] == "tvm_op"]


def test_a_parameter_that_is_set_again_is_read_again() -> None:
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(parse(BIASES), "llvm")  # the table stays an input, which is set for each run
    assert not any("sin" in name for name in marked(library))
    graph = executor_of(built())
    x, other = np.zeros((1, 5, 4), np.float32), TABLE + 1
    graph.set_input("x", x)
    graph.run()
    for name in set(graph.input_names) - {"x"}:
        graph.set_params({name: other})
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy()[0], np.sin(other[:5]), rtol=1e-5, atol=1e-6)


def test_what_fails_for_a_size_fails_in_every_run_of_it() -> None:
    graph = executor_of(built())
    for s in (41, 41, 50, 3):
        x = np.zeros((1, s, 4), np.float32)
        graph.set_input("x", x)
        if s <= len(TABLE):
            graph.run()
            np.testing.assert_allclose(graph.get_output(0).numpy()[0], np.sin(TABLE[:s]), rtol=1e-5, atol=1e-6)
            continue
        with pytest.raises(ExecutionError, match="positions"):
            graph.run()


def test_cheap_sums_of_positions_stay_in_what_reads_them() -> None:
    text = """def @main(%x: Tensor[(b, s), float32]) {
        %0 = arange(start=0, stop=s, dtype="float32");
        %1 = multiply(%0, 2f);
        add(%x, %1)
    }"""
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(parse(text), "llvm")
    assert len(ran_all(library)) == 1


def test_an_output_of_sizes_alone_is_computed_in_every_run() -> None:
    text = """def @main(%x: Tensor[(b, s), float32]) {
        %0 = arange(start=0, stop=s, dtype="float32");
        %1 = sin(%0);
        (%1, add(%x, %1))
    }"""
    with armillary.transform.PassContext(opt_level=3):
        graph = executor_of(relay.build(parse(text), "llvm"))
    for s in (3, 9, 9):
        graph.set_input("x", np.ones((2, s), np.float32))
        graph.run()
        np.testing.assert_allclose(graph.get_output(0).numpy(), np.sin(np.arange(s)), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(graph.get_output(1).numpy()[1], 1 + np.sin(np.arange(s)), rtol=1e-5, atol=1e-6)


def test_a_graph_that_marks_what_reads_inputs_computes_is_refused() -> None:
    library = built("def @main(%x: Tensor[(b, s), float32]) { %0 = nn.softmax(%x); nn.softmax(%0) }")
    graph = json.loads(library.graph_json)
    last = graph["nodes"][graph["heads"][0][0]]
    last["attrs"]["size_time"] = "1"
    spec = GraphSpec.from_json(json.dumps(graph))
    with pytest.raises(ArtifactError, match="size_time"):
        GraphExecutor(spec.to_json(), library.module)
