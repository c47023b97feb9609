"""What the command line of Relay's time is made of, as scripts call it: targets, shapes, options, tasks, results."""

from __future__ import annotations

import argparse
import inspect
import json
import types
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import autotvm, relay
from armillary.cli.main import main
from armillary.contrib.download import download_testdata
from armillary.driver import tvmc
from armillary.driver.tvmc.config_options import convert_config_json_to_cli
from armillary.driver.tvmc.pass_config import parse_configs
from armillary.driver.tvmc.pass_list import parse_pass_list_str
from armillary.driver.tvmc.registry import generate_registry_args, reconstruct_registry_entity
from armillary.driver.tvmc.result_utils import get_top_results
from armillary.driver.tvmc.shape_parser import parse_shape_string
from armillary.driver.tvmc.target import (
    generate_target_args,
    parse_target,
    reconstruct_target_args,
    target_from_cli,
    tokenize_target,
)
from armillary.driver.tvmc.tracker import tracker_host_port_from_cli
from armillary.errors import ArmillaryError
from armillary.frontend.formats import FORMATS
from armillary.relay.backend import Executor
from armillary.transform import PassContext

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 4), float32], %w: Tensor[(3, 4), float32]) { nn.dense(%x, %w) }
"""


def test_lists_of_targets() -> None:
    text = "opencl -device=mali, clml, llvm -mattr=+neon,+dotprod -mtriple='aarch64-linux-gnu'"
    assert tokenize_target(text)[:4] == ["opencl", "-device=mali", ",", "clml"]
    found = parse_target(text)
    assert [(entry["name"], entry["is_tvm_target"]) for entry in found] == [
        ("opencl", True),
        ("clml", False),
        ("llvm", True),
    ]
    assert found[2]["opts"] == {"mattr": "+neon,+dotprod", "mtriple": "aarch64-linux-gnu"}
    target, libraries = target_from_cli(text, {"llvm": {"mcpu": "cortex-a76"}, "clml": {"level": 2}})
    assert target.kind.name == "opencl" and target.host is not None
    assert "-mcpu=cortex-a76" in str(target.host) and "aarch64" in str(target.host)
    assert [entry["opts"] for entry in libraries] == [{"level": "2"}]
    quoted = parse_target('llvm -mattr="+a, +b" --fast-math')[0]["opts"]
    assert quoted == {"mattr": "+a, +b", "fast-math": ""}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("llvm, llvm", "one target, or one and its host"),
        ("opencl, c, llvm", "one target, or one and its host"),
        ("clml", "got none"),
        ("tpu", "neither a target nor a library"),
        ("-mcpu=x", "has no name"),
    ],
)
def test_lists_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(tvmc.TVMCException, match=message):
        target_from_cli(text)
    with pytest.raises(tvmc.TVMCException, match="Passed --target-c-mcpu but did not specify c target"):
        target_from_cli("llvm", {"c": {"mcpu": "x"}})


def test_options_of_targets_and_executors() -> None:
    parser = argparse.ArgumentParser()
    generate_target_args(parser)
    generate_registry_args(parser, Executor, "graph")
    words = ["--target=llvm", "--target-llvm-mcpu=cortex-a53", "--executor-graph-link-params=1"]
    args = parser.parse_args(words)
    assert reconstruct_target_args(args) == {"llvm": {"mcpu": "cortex-a53"}}
    entity = reconstruct_registry_entity(args, Executor)
    assert entity is not None and str(entity) == "graph" and entity["link-params"] is True
    with pytest.raises(ArmillaryError, match="did not specify graph executor"):
        reconstruct_registry_entity(parser.parse_args([*words, "--executor=aot"]), Executor)
    with pytest.raises(ArmillaryError, match='Executor "woof" is not defined'):
        reconstruct_registry_entity(parser.parse_args(["--executor=woof"]), Executor)
    assert reconstruct_registry_entity(argparse.Namespace(), Executor) is None


def test_shapes_and_addresses() -> None:
    found = parse_shape_string("gpu_0/x.1: [1, -1] y:0:[7]")
    assert found == {"gpu_0/x.1": [1, relay.Any()], "y:0": [7]}
    for text in ("x:[a]", "x:1,2", ":[1]"):
        with pytest.raises(argparse.ArgumentTypeError, match="cannot read"):
            parse_shape_string(text)
    assert tracker_host_port_from_cli("10.0.0.1:91") == ("10.0.0.1", 91)
    assert tracker_host_port_from_cli("board") == ("board", 9090)
    assert tracker_host_port_from_cli("") == (None, None)


def test_a_shape_that_is_not_known_is_no_shape_of_a_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.relay").write_text(TEXT)
    assert main(["compile", str(tmp_path / "m.relay"), "--input-shapes", "x:[-1,4]"]) == 4
    assert "'x' has a dimension that is not known: [-1, 4]" in capsys.readouterr().err


def test_options_of_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = types.ModuleType("my_passes")
    mine.simplify = armillary.tir.transform.Simplify()  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "my_passes", mine)
    name = "tir.add_lower_pass"
    both = [f"{name}=1,tir.transform.UnrollLoop", f"{name}=2,my_passes.simplify", "tir.disable_vectorize=true"]
    found = parse_configs(both)
    passes = found[name]
    assert isinstance(passes, list) and [phase for phase, _ in passes] == [1, 2]
    assert passes[1][1] is mine.simplify
    x = armillary.te.placeholder((8,), name="x")
    y = armillary.te.compute((8,), lambda i: x[i] + 1)
    with PassContext(config=found):
        armillary.build(armillary.te.create_schedule(y.op), [x, y], "llvm")
    for wrong in (
        "",
        "relay.no_such=1",
        "tir.disable_vectorize=7",
        f"{name}=tir.UnrollLoop,1",
        f"{name}=1,my_passes.x",
    ):
        with pytest.raises(tvmc.TVMCException):
            parse_configs([wrong])
    assert parse_pass_list_str("FoldScaleAxis,FuseOps") == ["FoldScaleAxis", "FuseOps"]
    with pytest.raises(argparse.ArgumentTypeError, match="MyPass, Other"):
        parse_pass_list_str("MyPass,FuseOps,Other")


def test_options_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = {
        "targets": [{"kind": "llvm", "mcpu": "core-avx2"}],
        "runtime": {"kind": "cpp", "system-lib": 1},
        "pass-config": {"tir.disable_vectorize": "1"},
        "output": "a.tar",
    }
    assert convert_config_json_to_cli(held) == [
        {"target_llvm_mcpu": "core-avx2"},
        {"target": "llvm"},
        {"runtime": "cpp"},
        {"runtime_cpp_system_lib": "1"},
        {"pass_config": ["tir.disable_vectorize=1"]},
        {"output": "a.tar"},
    ]
    del held["runtime"]
    file, model, made = tmp_path / "o.json", tmp_path / "m.relay", tmp_path / "b.tar"
    model.write_text(TEXT)
    file.write_text(json.dumps({**held, "dump-code": "asm"}))
    assert tvmc.main.main(["compile", "--config", str(file), str(model), "-o", str(made)]) == 0
    assert "vfmadd" in (tmp_path / "b.tar.asm").read_text() and made.exists()
    for text in ("[1]", "{", '{"targets": 1}', '{"output": null}'):
        file.write_text(text)
        assert main(["compile", f"--config={file}", str(model)]) == 4
    assert main(["compile", f"--config={tmp_path / 'none.json'}", str(model)]) == 4
    assert "cannot read the configuration" in capsys.readouterr().err


def test_libraries_by_name() -> None:
    names = tvmc.composite_target.get_codegen_names()
    assert {"compute-library", "arm_compute_lib", "clml"} <= set(names)
    pipeline = tvmc.composite_target.get_codegen_by_target("compute-library")["pass_pipeline"]
    assert inspect.isfunction(pipeline)
    x, w = relay.var("x", shape=(2, 8)), relay.const(np.ones((4, 8), "float32"))
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, w)))
    assert len(list(pipeline(module).items())) == 2
    with pytest.raises(tvmc.TVMCException, match="there is no library"):
        tvmc.composite_target.get_codegen_by_target("no_such")


def test_forms_of_models(tmp_path: Path) -> None:
    assert sorted(tvmc.frontends.get_frontend_names()) == sorted(FORMATS)
    assert type(tvmc.frontends.guess_frontend("a.onnx")) is tvmc.frontends.OnnxFrontend
    assert tvmc.frontends.get_frontend_by_name("keras").suffixes() == ["h5", "keras"]
    (tmp_path / "m.relay").write_text(TEXT)
    module, params = tvmc.frontends.guess_frontend(tmp_path / "m.relay").load(tmp_path / "m.relay")
    assert "nn.dense" in str(module) and params == {}
    with pytest.raises(tvmc.TVMCException, match=", ".join(FORMATS)):
        tvmc.frontends.get_frontend_by_name("x")
    with pytest.raises(tvmc.TVMCException, match=r"the model: \.onnx, \.h5, \.keras"):
        tvmc.frontends.guess_frontend("a.txt2")


def test_results_and_inputs(tmp_path: Path) -> None:
    result = tvmc.TVMCResult({"output_0": np.array([[3, 9, 1, 9]])}, None)
    np.testing.assert_array_equal(get_top_results(result, 2), [[1, 3], [9, 9]])
    assert tvmc.TVMCResult(None, None).outputs == {}
    made = tvmc.runner.generate_tensor_data((2, 3), "int8", "ones")
    assert made.dtype == np.int8 and made.sum() == 6
    with pytest.raises(tvmc.TVMCException, match="fill_mode"):
        tvmc.runner.generate_tensor_data((1,), "int8", "whatever")
    tvmc.compiler.save_dumps("m", {"ll": "text"}, dump_root=tmp_path)
    assert (tmp_path / "m.ll").read_text() == "text"


def test_tasks_of_a_model(tmp_path: Path) -> None:
    module = relay.parse(TEXT.replace("4)", "64)").replace("(3,", "(32,"))
    tasks = tvmc.autotuner.autotvm_get_tuning_tasks(module, {"w": np.ones((32, 64), "float32")}, "llvm")
    assert len(tasks) == 1 and "0. " in tvmc.autotuner.gen_task_list(tasks)
    assert tvmc.autotuner.filter_tasks(tasks, "0,list") == (tasks, True)
    assert tvmc.autotuner.filter_tasks(tasks, "all") == (tasks, False)
    assert tvmc.autotuner.filter_tasks(tasks, "help") == ([], True)
    for wrong, words in (
        ("1", "Task index out of range"),
        ("-5-", "Malformed"),
        ("x", "Malformed"),
        ("-", "Missing lhs"),
    ):
        for kind in (tvmc.TVMCException, AssertionError):  # as scripts of tvmc catch it
            with pytest.raises(kind, match=words):
                tvmc.autotuner.filter_tasks(tasks, wrong)
    with pytest.raises(AssertionError, match="Right-hand side expression out of range"):
        tvmc.autotuner.filter_tasks(tasks, "0-1")
    option = autotvm.measure_option(builder="local", runner=autotvm.LocalRunner(number=1, repeat=1))
    log = tmp_path / "log.json"
    tvmc.autotuner.tune_tasks(tasks, log, option, "random", trials=1)
    assert len(log.read_text().splitlines()) == 1
    with pytest.raises(tvmc.TVMCException, match="there is no tuner"):
        tvmc.autotuner.tune_tasks(tasks, log, option, "no_such", 1)


def test_a_folder_of_test_data_may_be_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMILLARY_CACHE_DIR", str(tmp_path))
    (tmp_path / "testdata/tvmc/more").mkdir(parents=True)
    (tmp_path / "testdata/tvmc/more/a.npz").write_bytes(b"1")
    assert Path(download_testdata("http://x/a.npz", "a.npz", module=["tvmc", "more"])).read_bytes() == b"1"


def test_pools_get_a_layout_of_data_and_convolutions_of_both() -> None:
    x, w = relay.var("x", shape=(1, 4, 8, 8)), relay.const(np.ones((4, 4, 3, 3), "float32"))
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.max_pool2d(relay.nn.conv2d(x, w), (2, 2))))
    for layouts in (["NHWC"], ["NHWC", "NHWC:OHWI"]):
        wanted = {"desired_layout": layouts, "desired_layout_ops": ["nn.max_pool2d", "nn.conv2d"]}
        made = str(tvmc.transform.apply_graph_transforms(module, wanted))
        lines = [line for line in made.splitlines() if "max_pool2d" in line or "conv2d" in line]
        assert len(lines) == 2 and all('layout="NHWC"' in line for line in lines)
        assert ("OHWI" in made) == (len(layouts) == 2)
    wanted["desired_layout"] = ["NHWC"] * 3
    with pytest.raises(tvmc.TVMCException, match="3 layouts for 2 operators"):
        tvmc.transform.apply_graph_transforms(module, wanted)
    with pytest.raises(tvmc.TVMCException, match="takes a list of a data layout"):
        relay.transform.ConvertLayout({"nn.max_pool2d": ["NHWC", "HWIO"]})(module)


def test_a_run_that_was_not_timed_has_an_empty_list_of_times() -> None:
    result = tvmc.TVMCResult({"output_0": np.zeros(3)})
    assert result.times == [] and "output_0" in str(result)
    with pytest.raises(tvmc.model.TVMCException, match="not timed"):
        result.format_times()


def test_a_build_takes_the_switch_of_the_auto_scheduler() -> None:
    config = parse_configs(["relay.backend.use_auto_scheduler=true"])
    with PassContext(config=config):
        assert relay.build(relay.parse(TEXT), "llvm").graph_json
    with PassContext(config={"relay.backend.use_auto_scheduler": False}):
        assert relay.build(relay.parse(TEXT), "llvm").graph_json
    assert isinstance(armillary.tir.transform.Simplify(), armillary.tir.transform.PrimFuncPass)
