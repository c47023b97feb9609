"""Shape-specialised variants: one package, chosen by shapes in Python and in armrun; parameters exist once."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from emulators import qemu_aarch64
from onnx import TensorProto, helper

import armillary
from armillary import relay
from armillary.artifact import GraphSpec
from armillary.cli.main import main as armc
from armillary.contrib.cc import get_cc
from armillary.contrib.graph_executor import GraphModule
from armillary.contrib.variants import JitModule
from armillary.errors import ArtifactError, ConfigError, ExecutionError, ModelError, TypeMismatch
from armillary.frontend import from_onnx
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.parser import parse
from armillary.runtime import load_module

node, value, F, B = helper.make_node, helper.make_tensor_value_info, TensorProto.FLOAT, TensorProto.BOOL
Array = np.ndarray[Any, Any]
CROSS, QEMU = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64-static")


def f32(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def network() -> Any:
    """A convolution and a product: batch and side are symbolic, `shift` has one shape for all variants."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("GlobalAveragePool", ["r"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "v"], ["y"]),
        node("Add", ["y", "shift"], ["z"]),
    ]
    held = [onnx.numpy_helper.from_array(a, n) for n, a in (("w", f32(16, 16, 3, 3)), ("v", f32(16, 5)))]
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", F, ["batch", 16, "side", "side"]), value("shift", F, [5])],
        [value("z", F, ["batch", 5])],
        held,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected(x: Array, shift: Array) -> Array:
    module, _ = from_onnx(network(), {"x": x.shape})
    return np.asarray(evaluate(module["main"], {"x": x, "shift": shift}))


@pytest.fixture(scope="module")
def library() -> Any:
    module, _ = from_onnx(
        network(), {"x": ("batch", 16, 8, 8)}, variants=[{"batch": 1}, {"batch": 4}, {"x": (2, 16, 12, 12)}]
    )
    return relay.build(module, "llvm -mcpu=native")


def run_all(graph: GraphModule) -> None:
    shift = f32(5, seed=9)
    graph.set_input("shift", shift)
    for seed, shape in enumerate([(1, 8), (4, 8), (2, 12), (4, 8), (1, 8)]):
        x = f32(shape[0], 16, shape[1], shape[1], seed=seed)
        graph.set_input("x", x)
        graph.run()
        np.testing.assert_allclose(graph.get_output(0).numpy(), expected(x, shift), rtol=1e-4, atol=1e-4)
        assert graph.get_input_info()[0] == {"x": x.shape, "shift": (5,)}


def test_shapes_choose_the_variant_and_other_inputs_stay(library: Any) -> None:
    run_all(GraphModule(library["default"](armillary.cpu(0))))


def test_parameters_are_stored_once(library: Any) -> None:
    spec = GraphSpec.from_json(library.graph_json)
    assert [len(row.inputs) for row in spec.variants] == [2, 2, 2]
    one, _ = from_onnx(network(), {"x": (1, 16, 8, 8)})
    alone = relay.build(one, "llvm -mcpu=native")
    assert sum(p.nbytes for p in library.params.values()) == sum(p.nbytes for p in alone.params.values())


def test_a_shape_without_a_variant_lists_those_there_are(library: Any) -> None:
    graph = GraphModule(library["default"](armillary.cpu(0)))
    with pytest.raises(
        TypeMismatch, match=r"no variant is compiled for shape \(3, 16, 8, 8\); there are: \(1, 16, 8, 8\), "
    ):
        graph.set_input("x", f32(3, 16, 8, 8))
    with pytest.raises(TypeMismatch, match="the model has no input q"):
        graph.set_input("q", f32(3))


@pytest.mark.parametrize("suffix", ["tar", "so"])
def test_packages_hold_all_variants(library: Any, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"m.{suffix}"
    library.export_library(path)
    run_all(GraphModule(load_module(path)["default"](armillary.cpu(0))))


def armrun(runner: list[str], path: Path, tmp_path: Path, **inputs: Array) -> subprocess.CompletedProcess[str]:
    np.savez(tmp_path / "in.npz", **inputs)  # type: ignore[arg-type, unused-ignore]
    command = [
        *runner,
        f"--model={path}",
        f"--input={tmp_path / 'in.npz'}",
        f"--output={tmp_path / 'out.npz'}",
        "--run-count=2",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("machine", ["here", "aarch64"])
def test_armrun_chooses_the_variant_and_runs_control_flow(
    machine: str, tmp_path: Path, built_runner: Callable[..., Path]
) -> None:
    cross = machine == "aarch64"
    if cross and (CROSS is None or QEMU is None):
        pytest.skip("no cross compiler or emulator")
    program = built_runner(["aarch64-linux-gnu-gcc"] if cross else get_cc(), sanitized=not cross)
    runner = [*qemu_aarch64(), str(program)] if cross else [str(program)]
    target = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76" if cross else "llvm -mcpu=native"
    options = {"cc": CROSS} if cross else {}
    module, _ = from_onnx(network(), {"x": ("batch", 16, 8, 8)}, variants=[{"batch": 1}, {"batch": 2}])
    relay.build(module, target).export_library(tmp_path / "v.tar", **options)
    x, shift = f32(2, 16, 8, 8), f32(5)
    done = armrun(runner, tmp_path / "v.tar", tmp_path, x=x, shift=shift)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as outputs:
        np.testing.assert_allclose(outputs["output_0"], expected(x, shift), rtol=1e-4, atol=1e-4)
    done = armrun(runner, tmp_path / "v.tar", tmp_path, x=f32(3, 16, 8, 8))
    assert done.returncode == 1 and "there are: (1, 16, 8, 8), (2, 16, 8, 8)" in done.stderr
    module = parse(CONTROL)
    relay.build(module, target).export_library(tmp_path / "c.tar", **options)
    for flag, count in ((True, 3), (False, 7)):
        done = armrun(runner, tmp_path / "c.tar", tmp_path, c=np.array(flag), n=np.array(count), x=x[0, 0, 0, :2])
        assert done.returncode == 0, done.stderr
        with np.load(tmp_path / "out.npz") as outputs:
            wanted = evaluate(module, [np.array(flag), np.array(count), x[0, 0, 0, :2]])
            for k, array in enumerate(wanted):
                np.testing.assert_allclose(outputs[f"output_{k}"], array, rtol=1e-6)


CONTROL = """def @main(%c: Tensor[(), bool], %n: Tensor[(), int64], %x: Tensor[(2,), float32]) {
  %2 = fn (%i: Tensor[(), int64], %go: Tensor[(), bool], %s: Tensor[(2,), float32], %f: Tensor[(), bool]) {
    %1 = if (%f) {
      add(%s, 1f)
    } else {
      multiply(%s, 0.5f)
    };
    (%go, %1, %s)
  };
  loop(%2, %n, True, %x, %c, states=1, trips=5)
}
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g["variants"][0].update(nodes=[0, 999]), "variants"),
        (lambda g: g["variants"][0].update(inputs=[999]), "variants"),
        (lambda g: g["variants"][1].update(heads=[2, 9]), "variants"),
        (lambda g: g["variants"][1].update(nodes=[0, 3]), "overlap"),
        (lambda g: g.update(variants=[]), "variants"),
    ],
)
def test_damaged_variants_are_refused(library: Any, change: Any, message: str) -> None:
    graph = json.loads(library.graph_json)
    change(graph)
    with pytest.raises(ArtifactError, match=message):
        armillary.runtime.GraphExecutor(json.dumps(graph), library.module)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("first_nodes", "99", "leave the graph"),
        ("first_nodes", "1", "ends with a __yield|its inputs and outputs"),
        ("states", "2", "inputs and outputs are not those"),
        ("scans", "x", "is not a count"),
        ("trips", "4", "another size"),
    ],
)
def test_damaged_loops_are_refused(key: str, text: str, message: str) -> None:
    built = relay.build(parse(CONTROL), "llvm -mcpu=native")
    graph = json.loads(built.graph_json)
    (loop,) = [n for n in graph["nodes"] if n.get("attrs", {}).get("func_name") == "__loop"]
    loop["attrs"][key] = text
    with pytest.raises(ArtifactError, match=message):
        armillary.runtime.GraphExecutor(json.dumps(graph), built.module)


def test_variants_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ModelError, match="names 'bach', which is no input or dimension"):
        from_onnx(network(), variants=[{"bach": 1}])
    with pytest.raises(TypeMismatch, match="leaves a dimension of input 'x' open"):
        from_onnx(network(), variants=[{"batch": 1}])
    with pytest.raises(TypeMismatch, match="variants= is empty"):
        from_onnx(network(), variants=[])
    module, _ = from_onnx(network(), {"x": ("batch", 16, 8, 8)}, variants=[{"batch": 1}, {"batch": 1}])
    with pytest.raises(TypeMismatch, match="variants 0 and 1 take the same shapes"):
        relay.build(module, "llvm")


def test_open_sizes_are_compiled_once() -> None:
    module = JitModule.from_onnx(network(), "llvm -mcpu=native")
    with pytest.raises(ExecutionError, match="nothing has run"):
        module.get_output(0)
    for batch in (1, 2, 1, 3):
        x, shift = f32(batch, 16, 6, 6), f32(5)
        module.run(x=x, shift=shift)
        np.testing.assert_allclose(module.get_output(0).numpy(), expected(x, shift), rtol=1e-4, atol=1e-4)
    assert not module.compiled and module.get_num_outputs() == 1


def test_functions_of_shapes_are_called_for_new_ones() -> None:
    def compiled(shapes: dict[str, tuple[int, ...]]) -> GraphModule:
        module, params = from_onnx(network(), shapes)
        return GraphModule(relay.build(module, "llvm -mcpu=native", params=params)["default"](armillary.cpu()))

    module = JitModule(compiled, most=2)
    for batch in (1, 2, 1, 3):
        x, shift = f32(batch, 16, 6, 6), f32(5)
        module.run(x=x, shift=shift)
        np.testing.assert_allclose(module.get_output(0).numpy(), expected(x, shift), rtol=1e-4, atol=1e-4)
    assert len(module.compiled) == 2 and module.get_num_outputs() == 1


def test_command_line_compiles_and_runs_variants(tmp_path: Path) -> None:
    path, package = tmp_path / "m.onnx", tmp_path / "m.tar"
    onnx.save(network(), path)
    assert armc(["compile", str(path), "--variants", "batch=1 side=6; x:2x16x4x4", "-o", str(package)]) == 0
    np.savez(tmp_path / "in.npz", x=f32(2, 16, 4, 4))
    assert armc(["run", str(package), "-i", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as outputs:
        assert outputs["output_0"].shape == (2, 5)
    with pytest.raises(ConfigError, match="--variants: cannot read 'y=a'"):
        armillary.cli.options.models.variants("x:2x3 y=a")
    assert isinstance(from_onnx(network(), {"x": (1, 16, 4, 4)})[0], IRModule)
