"""Pipelines: what is cut, connected, built, exported and run computes what the whole function computes."""

import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.contrib import graph_executor, pipeline_executor, pipeline_executor_build
from armillary.contrib.pipeline_executor_build import PipelineConfig, graph_split
from armillary.errors import ArmillaryError, ArtifactError, ConfigError, ExecutionError, TypeMismatch

SHAPE = (3, 4)


def network() -> relay.Function:
    """y * (x + 1 + y) - x * 2, with a split and a concatenation on the way: values skip a stage."""
    x, y = relay.var("x", shape=SHAPE), relay.var("y", shape=SHAPE)
    first = relay.add(x, relay.const(1.0))
    twice = relay.multiply(x, relay.const(2.0))
    both = relay.concatenate((first, twice), 0)
    parts = relay.split(both, 2, 0)
    middle = relay.multiply(relay.add(parts[0], y), y)
    return relay.Function([x, y], relay.subtract(middle, parts[1]))


def expected(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return y * (x + 1 + y) - x * 2


def connected() -> tuple[PipelineConfig, list[armillary.IRModule]]:
    mods = graph_split(network(), [{"op_name": "split", "op_index": 0}, {"op_name": "multiply", "op_index": 1}])
    one, two, three = mods
    config = PipelineConfig()
    config["input"]["a"].connect(config[one]["input"]["x"])
    config["input"]["b"].connect(config[two]["input"]["y"])
    config[one]["output"][0].connect(config[two]["input"]["data_n_0"])
    config[two]["output"][0].connect(config[three]["input"]["data_n_1"])
    config[one]["output"][1].connect(config[three]["input"]["data_n_2"])
    config[three]["output"][0].connect(config["output"][0])
    for mod in mods:
        config[mod].target, config[mod].dev = "llvm", armillary.cpu(0)
    return config, mods


@pytest.fixture(scope="module")
def factory() -> pipeline_executor.PipelineExecutorFactoryModule:
    return pipeline_executor_build.build(connected()[0])


def test_a_function_is_cut_where_it_was_asked() -> None:
    one, two, three = graph_split(
        network(), [{"op_name": "split", "op_index": 0}, {"op_name": "multiply", "op_index": 1}]
    )
    assert [p.name_hint for p in one["main"].params] == ["x"]
    assert [p.name_hint for p in two["main"].params] == ["data_n_0", "y"]
    assert [p.name_hint for p in three["main"].params] == ["data_n_1", "data_n_2"]
    assert len(one["main"].body.fields) == 2
    assert "multiply" in str(two) and "subtract" in str(three)


def test_a_tuple_that_crosses_a_cut_is_taken_apart() -> None:
    x = relay.var("x", shape=(4,))
    parts = relay.split(relay.add(x, x), 2, 0)
    function = relay.Function([x], relay.concatenate(relay.Tuple([parts[1], parts[0]]), 0))
    whole = relay.Function([x], relay.concatenate(relay.split(relay.add(x, x), 2, 0), 0))
    for given, order in ((function, [2, 3, 0, 1]), (whole, [0, 1, 2, 3])):
        one, two = graph_split(given, [{"op_name": "split", "op_index": 0}])
        data = np.arange(4, dtype="float32")
        first = relay.create_executor("graph", one, armillary.cpu(), "llvm").evaluate()(data)
        last = relay.create_executor("graph", two, armillary.cpu(), "llvm").evaluate()(*first)
        np.testing.assert_array_equal(last.numpy(), 2 * data[order])


@pytest.mark.parametrize(
    ("cuts", "message"),
    [
        ([{"op_name": "nn.relu", "op_index": 0}], "no call 0 of nn.relu"),
        ([{"op_name": "subtract", "op_index": 0}], "no call 0 of subtract"),
    ],
)
def test_a_cut_that_is_nowhere_is_named(cuts: list[dict[str, object]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        graph_split(network(), cuts)


def test_parameters_are_bound_and_only_functions_are_cut() -> None:
    mods = graph_split(network(), [{"op_name": "add", "op_index": 0}], {"y": np.ones(SHAPE, "float32")})
    assert [p.name_hint for m in mods for p in m["main"].params] == ["x", "data_n_0", "x"]
    with pytest.raises(TypeMismatch, match="wanted a relay function"):
        graph_split(mods[0], [])  # type: ignore[arg-type]


def test_many_runs_at_once_give_outputs_in_order(factory: pipeline_executor.PipelineExecutorFactoryModule) -> None:
    pipeline = pipeline_executor.PipelineModule(factory)
    runs = 3 * pipeline_executor.DEPTH  # more than wait for a stage
    before = pipeline.num_executing_pipeline
    y = np.linspace(0, 1, 12, dtype="float32").reshape(SHAPE)
    pipeline.set_input("b", y)  # stays for all runs
    for k in range(runs):
        pipeline.set_input("a", np.full(SHAPE, k, "float32"))
        pipeline.run()
    assert pipeline.num_executing_pipeline == before + runs
    for k in range(runs):
        (out,) = pipeline.get_output()
        np.testing.assert_allclose(out.numpy(), expected(np.full(SHAPE, k, "float32"), y), rtol=1e-5, atol=1e-4)
    assert pipeline.get_output(synchronize=False) == []
    with pytest.raises(ExecutionError, match="no run is under way"):
        pipeline.get_output()


def test_stages_work_at_the_same_time() -> None:
    """The first stage takes its second input while the last one still has the first: both wait for each other."""
    meet = threading.Barrier(2, timeout=20)
    config, mods = connected()
    graphs = [graph_executor.GraphModule(armillary.relay.build(m, "llvm")["default"](armillary.cpu())) for m in mods]
    text = pipeline_executor_build.build(config).mods_config
    calls = {0: 0, 2: 0}

    def met(stage: int, run: object) -> object:
        def both(values: object) -> None:
            run(values)  # type: ignore[operator]
            calls[stage] += 1
            if calls[stage] == (2 if stage == 0 else 1):
                meet.wait()

        return both

    for stage in calls:
        graphs[stage].run = met(stage, graphs[stage].run)  # type: ignore[assignment, method-assign]
    pipeline = pipeline_executor.PipelineModule(pipeline_executor.Pipeline(graphs, text))
    data = np.ones(SHAPE, "float32")
    for _ in range(2):
        pipeline.set_input("a", data)
        pipeline.set_input("b", data)
        pipeline.run()
    for _ in range(2):
        np.testing.assert_allclose(pipeline.get_output()[0].numpy(), expected(data, data))


def test_an_exported_pipeline_runs_where_there_is_no_compiler(
    factory: pipeline_executor.PipelineExecutorFactoryModule, tmp_path: Path
) -> None:
    (tmp_path / "made").mkdir()
    name = factory.export_library(tmp_path / "made")
    moved = tmp_path / "moved"
    Path(name).parent.rename(moved)  # the names in the files are relative
    program = f"""
import sys, numpy as np
from armillary.contrib.pipeline_executor import PipelineModule
p = PipelineModule.load_library({str(moved / "config")!r})
assert (p.num_inputs, p.num_outputs) == (2, 1)
assert p.get_input_pipeline_map("b") == ["1", "y"]
x = np.arange(12, dtype="float32").reshape(3, 4)
p.set_input("a", x)
p.set_input("b", x)
p.run()
np.testing.assert_allclose(p.get_output()[0].numpy(), x * (x + 1 + x) - x * 2)
np.testing.assert_array_equal(p.get_input("a").numpy(), x)
assert not any(n.startswith(("armillary.relay", "armillary.driver", "llvmlite")) for n in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_damaged_files_are_named(factory: pipeline_executor.PipelineExecutorFactoryModule, tmp_path: Path) -> None:
    name = Path(factory.export_library(tmp_path))
    load = pipeline_executor.PipelineModule.load_library
    config = json.loads((tmp_path / "pipeline_config").read_text())
    del config["module_connection"][0]["output"]
    (tmp_path / "pipeline_config").write_text(json.dumps(config))
    with pytest.raises(ArtifactError, match="configuration of the pipeline is damaged"):
        load(name)
    (tmp_path / "load_config").write_text('[{"mod_idx": 0}]')
    with pytest.raises(ArtifactError, match="load_config is damaged"):
        load(name)
    name.write_text("{}")
    with pytest.raises(ArtifactError, match="load_config is missing"):
        load(name)
    name.write_text("{")
    with pytest.raises(ArtifactError, match="it is no JSON"):
        load(name)
    with pytest.raises(ArtifactError, match="there is no such file"):
        load(tmp_path / "none")


def test_what_is_not_set_and_what_fails_is_raised(factory: pipeline_executor.PipelineExecutorFactoryModule) -> None:
    graphs, text = factory.graph_executor_create(factory.pipeline_mods, factory.mods_config)
    pipeline = pipeline_executor.PipelineModule(pipeline_executor.Pipeline(graphs, json.loads(text)))
    with pytest.raises(ExecutionError, match="input 'a' of the pipeline was not set"):
        pipeline.run()
    with pytest.raises(ExecutionError, match="has no input 'c'"):
        pipeline.set_input("c", np.zeros(SHAPE, "float32"))
    with pytest.raises(TypeMismatch, match=r"has the shape \(3, 4\), got \(1,\)"):
        pipeline.set_input("a", np.zeros(1, "float32"))
    with pytest.raises(ArmillaryError, match="was not set"):
        pipeline.get_input("a")
    data = np.ones(SHAPE, "float32")
    pipeline.set_input("a", data)
    pipeline.set_input("b", data)
    second = graphs[1].module
    whole = second.run

    def fails_once() -> None:
        second.run = whole  # type: ignore[method-assign]
        raise ExecutionError("out of luck")

    second.run = fails_once  # type: ignore[method-assign]
    pipeline.run()
    pipeline.run()
    with pytest.raises(ExecutionError, match="a stage of the pipeline failed: out of luck"):
        pipeline.get_output()
    np.testing.assert_allclose(pipeline.get_output()[0].numpy(), expected(data, data))  # the next run is not harmed


def test_parameters_of_a_group_reach_their_module() -> None:
    x, weight = relay.var("x", shape=SHAPE), relay.var("weight", shape=SHAPE)
    mod = armillary.IRModule.from_expr(relay.Function([x, weight], relay.add(x, weight)))
    config = PipelineConfig()
    config["param_group"]["p"].connect(config[mod]["param"])
    config["input"]["a"].connect(config[mod]["input"]["x"])
    config[mod]["output"][0].connect(config["output"]["0"])
    assert str(config).splitlines()[:6] == ["Params", "  |p: mod0:param", "", "Inputs", "  |a: mod0:x", ""]
    config[mod].cpu_affinity = str(min(os.sched_getaffinity(0)))
    pipeline = pipeline_executor.PipelineModule(pipeline_executor_build.build(config))
    assert pipeline.get_params_group_pipeline_map("p") == 0
    data = np.ones(SHAPE, "float32")
    pipeline.set_input("a", data)
    with pytest.raises(ExecutionError, match="input 'weight' of module 0 comes from nowhere"):
        pipeline.run()
    with pytest.raises(TypeMismatch, match="no parameters"):
        pipeline.set_params("p", {})
    with pytest.raises(ExecutionError, match="no group of parameters 'q'"):
        pipeline.set_params("q", {"weight": data})
    pipeline.set_params("p", {"weight": 2 * data})
    pipeline.run()
    pipeline.set_params("p", {"weight": 4 * data})  # of the runs that begin now
    pipeline.run()
    assert [pipeline.get_output()[0].numpy()[0, 0] for _ in range(2)] == [3, 5]


def test_connections_that_cannot_be_are_refused() -> None:
    config, (one, two, three) = connected()
    other = PipelineConfig()
    pairs = [
        (config[one]["output"][0], config[one]["input"]["x"]),
        (config[one]["input"]["x"], config[two]["input"]["y"]),
        (config[one]["output"][0], config["input"]["z"]),
        (config["input"]["z"], config[one]["output"][0]),
        (config["output"]["0"], config[one]["output"][0]),
        (config[one]["output"][0], config[two]["output"][0]),
        (config[one]["param"], config[two]["param"]),
        (config["param_group"]["p"], config[two]["input"]["y"]),
    ]
    for source, reader in pairs:
        with pytest.raises(ConfigError, match="cannot feed"):
            source.connect(reader)
    with pytest.raises(ConfigError, match="make a cycle"):
        config[three]["output"][0].connect(config[one]["input"]["x"])
    with pytest.raises(ConfigError, match="is connected already"):
        config[one]["output"][0].connect(config[three]["input"]["data_n_1"])
    with pytest.raises(ConfigError, match="no output '9'"):
        config[one]["output"][9]
    with pytest.raises(ConfigError, match="no input 'z'"):
        config[one]["input"]["z"]
    with pytest.raises(ConfigError, match="has no 'inputs'"):
        config["inputs"]
    with pytest.raises(ConfigError, match="has no outputs"):
        pipeline_executor_build.build(other)
    x = relay.var("x", shape=(1,))
    mod = armillary.IRModule.from_expr(relay.Function([x], x + x))
    with pytest.raises(ConfigError, match=r"is Tensor\[\(3, 4\), float32\], .* wants Tensor\[\(1,\), float32\]"):
        config[one]["output"][0].connect(config[mod]["input"]["x"])


def test_threads_end_with_the_pipeline(factory: pipeline_executor.PipelineExecutorFactoryModule) -> None:
    graphs, text = factory.graph_executor_create(factory.pipeline_mods, factory.mods_config)
    pipeline = pipeline_executor.Pipeline(graphs, json.loads(text))
    stages = pipeline.stages
    assert all(stage.is_alive() for stage in stages)
    del pipeline
    gc.collect()
    for stage in stages:
        stage.join(timeout=20)
    assert not any(stage.is_alive() for stage in stages)
