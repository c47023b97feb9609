"""armc compile --mixed-precision: 16-bit floats inside, the network's own types outside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from armillary.cli.main import main
from armillary.target import cpu_model

_RNG = np.random.default_rng(3)
NETWORK = """def @main(%x: Tensor[(5, 64), float32], %w: Tensor[(32, 64), float32]) {
  %0 = nn.dense(%x, %w);
  nn.relu(%0)
}
"""
FLOAT16 = ["--mixed-precision-calculation-type", "float16"]
BFLOAT16 = ["--mixed-precision", "--mixed-precision-calculation-type", "bfloat16"]


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "net.relay"
    path.write_text(NETWORK)
    return path


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [([], 1e-2), ([*FLOAT16, "--mixed-precision-acc-type", "float32"], 1e-3), (BFLOAT16[1:], 1e-2)],
    ids=["what the target multiplies", "float16 in float32", "bfloat16"],
)
def test_a_network_keeps_its_types_outside(network: Path, tmp_path: Path, options: list[str], tolerance: float) -> None:
    package, inputs, results = tmp_path / "net.tar", tmp_path / "in.npz", tmp_path / "out.npz"
    arguments = ["compile", str(network), "-o", str(package), "--mixed-precision", *options, "--dump-code", "relay"]
    assert main(arguments) == 0
    x, w = _RNG.standard_normal((5, 64)).astype(np.float32), _RNG.standard_normal((32, 64)).astype(np.float32)
    np.savez(inputs, x=x, w=w)
    assert main(["run", str(package), "-i", str(inputs), "-o", str(results)]) == 0
    got, wanted = np.load(results)["output_0"], np.maximum(x @ w.T, 0)
    error = np.sqrt(((got - wanted) ** 2).mean() / (wanted**2).mean())
    assert got.dtype == np.float32
    assert 1e-5 < error < tolerance  # it is rounded, but not much
    is_default = not options and cpu_model("llvm -mcpu=native").multiplies_bfloat16
    kind = "bfloat16" if "bfloat16" in options or is_default else "float16"
    assert f'"{kind}"' in (tmp_path / "net.tar.relay").read_text()


@pytest.mark.parametrize(
    ("cpu", "kind"), [("sapphirerapids", "bfloat16"), ("znver4", "bfloat16"), ("haswell", "float16")]
)
def test_the_type_is_one_that_the_target_multiplies(network: Path, tmp_path: Path, cpu: str, kind: str) -> None:
    package = tmp_path / "net.tar"
    target = ["--target", f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}", "--mixed-precision"]
    assert main(["compile", str(network), "-o", str(package), *target, "--dump-code", "relay"]) == 0
    assert f'"{kind}"' in (tmp_path / "net.tar.relay").read_text()


def test_float32_is_what_a_network_has_without(network: Path, tmp_path: Path) -> None:
    texts = []
    for options in ([], ["--mixed-precision", "--mixed-precision-calculation-type", "float32"]):
        package = tmp_path / "net.tar"
        assert main(["compile", str(network), "-o", str(package), *options, "--dump-code", "relay"]) == 0
        texts.append((tmp_path / "net.tar.relay").read_text())
    assert texts[0] == texts[1]


def test_a_target_without_products_of_bfloat16_is_told(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--target", "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", "-o", str(tmp_path / "net.tar")]
    assert main(["compile", str(network), *target, *BFLOAT16]) == 0
    assert "no fast products of bfloat16" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([*BFLOAT16, "--mixed-precision-ops", "nn.conv2d", "nn.dens"], "no operator 'nn.dens'"),
        ([*BFLOAT16, "--mixed-precision-acc-type", "float16"], "summed in bfloat16 or float32"),
        (["--mixed-precision-acc-type", "float32"], "no effect without --mixed-precision"),
        (BFLOAT16[1:], "no effect without --mixed-precision"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["compile", str(network), "-o", str(tmp_path / "net.tar"), *options]) == 4
    assert message in capsys.readouterr().err
    assert not (tmp_path / "net.tar").exists()


def test_an_unknown_type_is_refused(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compile", str(network), "--mixed-precision", "--mixed-precision-calculation-type", "int8"])
    assert "choose from" in capsys.readouterr().err


def test_a_quantised_network_stays_in_integers_and_the_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dequantised weights of 16 bits would take twice the space, and the time of float products."""
    one, zero = numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.int8(0), "z")
    weight = numpy_helper.from_array(_RNG.integers(-128, 128, (64, 64)).astype(np.int8), "w")
    scale = ["s", "z"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *scale], ["q"]),
        helper.make_node("QLinearMatMul", ["q", *scale, "w", *scale, *scale], ["p"]),
        helper.make_node("DequantizeLinear", ["p", *scale], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 64]) for name in "xy")
    graph = helper.make_graph(nodes, "bytes", [x], [y], [one, zero, weight])
    path, texts, results = tmp_path / "net.onnx", [], []
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    np.savez(tmp_path / "in.npz", x=_RNG.standard_normal((8, 64)).astype(np.float32))
    for options in ([], ["--mixed-precision"]):
        package = tmp_path / "net.tar"
        dots = ["--target", "llvm -mcpu=cascadelake", "--dump-code", "relay"]  # others take floats, which are exact
        assert main(["compile", str(path), "-o", str(tmp_path / "dots.tar"), *options, *dots]) == 0
        texts.append((tmp_path / "dots.tar.relay").read_text())
        assert "quantised parts of the network stay in integers" in capsys.readouterr().err or not options
        assert main(["compile", str(path), "-o", str(package), *options]) == 0
        assert main(["run", str(package), "-i", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz")]) == 0
        results.append(np.load(tmp_path / "out.npz")["output_0"])
        assert ("quantised parts of the network stay in integers" in capsys.readouterr().err) == bool(options)
    assert texts[0] == texts[1] and "float16" not in texts[1]
    np.testing.assert_array_equal(*results)
