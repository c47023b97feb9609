"""`--target-<kind>-<attribute>`, lists of targets, layouts and precision of a graph, as older scripts have them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from armillary import relay
from armillary.cli.main import _Parser, main
from armillary.cli.options.models import add_target_arguments, target_of
from armillary.driver.tvmc.transform import apply_graph_transforms
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Function, const, var
from armillary.runtime import load_module

X = np.random.default_rng(0).uniform(-1, 1, (1, 4, 8, 8)).astype("float32")


def network() -> IRModule:
    weight = const(np.linspace(-1, 1, 6 * 4 * 9, dtype="float32").reshape(6, 4, 3, 3))
    x = var("x", shape=(1, 4, 8, 8))
    return IRModule.from_expr(Function((x,), relay.nn.relu(relay.nn.conv2d(x, weight, padding=(1, 1)))))


def chosen(*options: str) -> str:
    parser = _Parser()
    add_target_arguments(parser)
    return target_of(parser.parse_args(list(options)))


def test_attributes_go_to_their_target() -> None:
    assert chosen() == "llvm -mcpu=native"
    text = chosen(
        "--target", "opencl, llvm", "--target-llvm-mtriple", "aarch64-linux-gnu", "--target-opencl-device=adreno"
    )
    assert text == "opencl -device=adreno, llvm -mtriple=aarch64-linux-gnu"
    assert chosen("--target", "opencl, clml, llvm", "--target-opencl-device", "adreno").split(", ")[1:] == [
        "clml",
        "llvm",
    ]
    assert (
        chosen("--target=llvm -mattr=+avx,+fma", "--target-llvm-mcpu=haswell") == "llvm -mattr=+avx,+fma -mcpu=haswell"
    )
    with pytest.raises(ConfigError, match="--target-opencl-device: the target 'llvm' has no opencl"):
        chosen("--target", "llvm", "--target-opencl-device", "adreno")


def test_armc_compiles_for_a_phone(tmp_path: Path) -> None:
    model, package = tmp_path / "m.relay", tmp_path / "m.tar"
    model.write_text(network().astext())
    options = ["--target", "opencl, clml, llvm", "--target-opencl-device", "adreno", "--dump-code", "cl,relay"]
    command = [sys.executable, "-m", "armillary.driver.tvmc", "compile", str(model), "-o", str(package), *options]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert [m.type_key for m in load_module(package).get_lib().imported_modules] == ["opencl", "clml"]
    assert 'Compiler="clml"' in (tmp_path / "m.tar.relay").read_text()
    assert main(["compile", str(model), "-o", str(package), "--target", "opencl, llvm", "--dump-code", "cl"]) == 0
    assert "__kernel" in (tmp_path / "m.tar.cl").read_text()
    assert "__global float* restrict p0" in (tmp_path / "m.tar.cl").read_text()


def test_armc_converts_layouts(tmp_path: Path) -> None:
    model, package = tmp_path / "m.relay", tmp_path / "m.tar"
    model.write_text(network().astext())
    options = ["--desired-layout", "NHWC:HWIO", "--dump-code", "relay", "--disabled-pass", "AlterOpLayout"]
    assert main(["compile", str(model), "-o", str(package), *options]) == 0
    assert 'data_layout="NHWC"' in (tmp_path / "m.tar.relay").read_text()


@pytest.mark.parametrize("sums", ["float16", "float32"])
def test_graph_transforms_choose_precision(sums: str) -> None:
    options = {
        "mixed_precision": True,
        "mixed_precision_ops": ["nn.conv2d", "nn.dense"],
        "mixed_precision_calculation_type": "float16",
        "mixed_precision_acc_type": sums,
    }
    made = apply_graph_transforms(network(), options)
    assert 'cast(%x, dtype="float16")' in str(made)
    assert ('out_dtype="float32"' in str(made)) == (sums == "float32")
    np.testing.assert_allclose(evaluate(made, [X]).astype("float32"), evaluate(network(), [X]), rtol=2e-2, atol=2e-2)


def test_graph_transforms_convert_layouts_and_refuse_what_they_do_not_know() -> None:
    made = apply_graph_transforms(network(), {"desired_layout": "NHWC:HWIO"})
    assert 'kernel_layout="HWIO"' in str(made)
    np.testing.assert_allclose(evaluate(made, [X]), evaluate(network(), [X]), rtol=1e-5, atol=1e-5)
    assert apply_graph_transforms(made, None) is made
    with pytest.raises(ConfigError, match="there is no 'mixed_precison'"):
        apply_graph_transforms(made, {"mixed_precison": True})
    with pytest.raises(ConfigError, match="2 layouts for 3 operators"):
        apply_graph_transforms(made, {"desired_layout": ["NHWC", "NCHW"]})
