"""armc compile, then armc run: the package computes what numpy computes, and nothing partial is ever left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from armillary.cli.main import main
from armillary.cli.run import top
from armillary.runtime import load_module

ROOT = Path(__file__).resolve().parents[2]
_RNG = np.random.default_rng(7)
WEIGHT = _RNG.uniform(-1, 1, (6, 5)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """softmax(relu(x) @ w) for x of shape (batch, 6)."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"], axis=-1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "tiny", [x], [y], [numpy_helper.from_array(WEIGHT, "w")])
    path = tmp_path / "tiny.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def expected(x: Any) -> Any:
    m = np.maximum(x, 0) @ WEIGHT
    e = np.exp(m - m.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("suffix", ["so", "tar"])
def test_a_compiled_package_computes_what_numpy_computes(model: Path, tmp_path: Path, suffix: str) -> None:
    package, inputs, outputs = tmp_path / f"tiny.{suffix}", tmp_path / "in.npz", tmp_path / "out.npz"
    assert main(["compile", str(model), "--input-shapes", "x:[3,6]", "-o", str(package)]) == 0
    x = np.random.default_rng(1).uniform(-1, 1, (3, 6)).astype(np.float32)
    np.savez(inputs, x=x)
    assert main(["run", str(package), "-i", str(inputs), "-o", str(outputs)]) == 0
    np.testing.assert_allclose(np.load(outputs)["output_0"], expected(x), rtol=1e-5)


def test_run_prints_times_top_values_and_a_profile(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "tiny.so"
    assert main(["compile", str(model), "--input-shapes", "x:[1,6]", "-o", str(package)]) == 0
    arguments = ["--print-time", "--repeat", "3", "--print-top", "2", "--profile", "--fill-mode", "ones"]
    assert main(["run", str(package), *arguments]) == 0
    out = capsys.readouterr().out
    scores = expected(np.ones((1, 6), np.float32)).reshape(-1)
    places = np.argsort(-scores)[:2]
    lines = [line.split() for line in out.splitlines()]
    shown = [(int(words[0]), float(words[1])) for words in lines if len(words) == 2 and words[0].isdigit()]
    assert [place for place, _ in shown] == places.tolist()
    np.testing.assert_allclose([value for _, value in shown], scores[places], rtol=1e-5)
    assert "mean (ms)" in out and "softmax" in out


def test_top_values_are_shown_as_what_they_are() -> None:
    assert top(np.array([[3, -1], [7, 3]], np.int8), 3) == "2  7\n0  3\n3  3"
    assert top(np.array([True, False]), 1) == "0  True"
    assert top(np.linspace(0, 1, 11, dtype=np.float32), 2) == "10  1\n 9  0.9"
    assert top(np.array([1, np.nan, 2.5], ml_dtypes.bfloat16), 3) == "2  2.5\n0  1\n1  nan"
    assert top(np.zeros(0, np.float32), 1) == ""


def test_dumped_code_lies_beside_the_package(model: Path, tmp_path: Path) -> None:
    package = tmp_path / "tiny.tar"
    arguments = ["--input-shapes", "x:[1,6]", "-o", str(package), "--dump-code", "relay,tir,ll,asm"]
    assert main(["compile", str(model), *arguments, "--print-pass-times"]) == 0
    texts = {form: (tmp_path / f"tiny.tar.{form}").read_text() for form in ("relay", "tir", "ll", "asm")}
    assert "def @main" in texts["relay"] and "func @" in texts["tir"] and "define " in texts["ll"] and texts["asm"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "x.bin"], "suffix must be .so or .tar"),
        (["-o", "x.dll"], "a library of Windows"),
        (["-o", "x.dylib"], "a library of macOS"),
        (["--dump-code", "relay,fortran"], "unknown form 'fortran'"),
        (["--pass-config", "tir.no_such_key=1"], "tir.no_such_key"),
        (["--target", "toaster"], "toaster"),
        (["--input-shapes", "x:3"], "--input-shapes"),
        (["--input-shapes", "z:[1,6]"], "a shape is given for 'z', which is no input of the model"),
        (["--input-shapes", "z:[1,6]"], "its inputs are: x"),
        (["--variants", "bacth=4"], "a variant names 'bacth', which is no input or dimension"),
    ],
)
def test_a_refused_compilation_says_why_and_leaves_no_file(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    shapes = [] if "--input-shapes" in arguments or not arguments else ["--input-shapes", "x:[1,6]"]
    assert main(["compile", str(model), *shapes, *arguments]) == 4
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err
    assert "shape=" not in err.partition("hint")[0] and "variants=" not in err.partition("hint")[0]  # of scripts
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.onnx"]


def test_a_failing_linker_keeps_the_old_package(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "tiny.so"
    package.write_bytes(b"old")
    arguments = ["--input-shapes", "x:[1,6]", "-o", str(package), "--cross-compiler", "false"]
    assert main(["compile", str(model), *arguments]) == 4
    assert package.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tiny.onnx", "tiny.so"]
    assert "Error" in capsys.readouterr().err


def test_run_refuses_what_is_no_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.so").write_bytes(b"not a library")
    assert main(["run", str(tmp_path / "bad.so")]) == 4
    assert main(["run", str(tmp_path / "none.tar")]) == 4
    assert "Traceback" not in capsys.readouterr().err


def test_a_package_that_cannot_be_read_is_said_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "net.tar"
    package.mkdir()
    assert main(["run", str(package)]) == 4
    message = capsys.readouterr().err
    assert message == f"Error: {package}/mod.so: the package cannot be read: No such file or directory\n"
    package.rmdir()
    package.write_bytes(b"no package")

    def refuse(path: object, *flags: int) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("armillary.artifact.package.os.open", refuse)  # an administrator may read all
    assert main(["run", str(package)]) == 4
    message = capsys.readouterr().err
    assert "net.tar: the package cannot be read: Permission denied" in message and "Errno" not in message
    assert "hint: ls -l shows who may read it" in message


def test_run_without_options_says_what_came_out(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "tiny.so"
    assert main(["compile", str(model), "--input-shapes", "x:[1,6]", "-o", str(package)]) == 0
    assert main(["run", str(package), "--device", "cpu(0)"]) == 0
    captured = capsys.readouterr()
    assert "output_0 float32 [1, 5]" in captured.err and "--print-top" in captured.err and captured.out == ""
    for device, text in (("cpu(1)", "device cpu(1) is not available"), ("cuda", "device cuda(0) is not available")):
        assert main(["run", str(package), "--device", device]) == 4
        assert text in capsys.readouterr().err


def test_folders_and_files_in_each_others_place_are_said(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder.onnx"
    folder.mkdir()
    for command in ("compile", "profile"):
        assert main([command, str(folder)]) == 4
        message = f"Error: Input file '{folder}' doesn't exist, is a broken symbolic link, or a directory.\n"
        assert capsys.readouterr().err == message
    assert main(["compile", str(model), "--input-shapes", "x:[1,6]", "--dump-passes", str(model)]) == 4
    assert "a file has this name; name a folder" in capsys.readouterr().err
    assert main(["build-runner", "-o", str(tmp_path / "nowhere" / "armrun")]) == 4
    assert not (tmp_path / "nowhere").exists()
    assert main(["onnx-score", "-o", str(model), "--filter", "test_relu$"]) == 4
    assert "holds no results of onnx-score" in capsys.readouterr().err


def test_run_refuses_inputs_that_do_not_fit(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package, inputs = tmp_path / "tiny.so", tmp_path / "in.npz"
    assert main(["compile", str(model), "--input-shapes", "x:[1,6]", "-o", str(package)]) == 0
    np.savez(inputs, z=np.zeros(3))
    assert main(["run", str(package), "-i", str(inputs)]) == 4
    assert "'z', which is no input" in capsys.readouterr().err
    np.savez(inputs, x=np.zeros((2, 6), np.float32))
    assert main(["run", str(package), "-i", str(inputs)]) == 4
    inputs.write_bytes(b"no npz")
    assert main(["run", str(package), "-i", str(inputs)]) == 4


def test_the_native_runner_is_built(tmp_path: Path) -> None:
    runner = tmp_path / "armrun"
    assert main(["build-runner", "-o", str(runner)]) == 0
    done = subprocess.run([str(runner), "--help"], capture_output=True, text=True, timeout=20, check=False)
    assert "usage" in (done.stdout + done.stderr).lower()


def test_a_package_is_loadable_by_the_runtime_alone(model: Path, tmp_path: Path) -> None:
    package = tmp_path / "tiny.so"
    assert main(["compile", str(model), "--input-shapes", "x:[1,6]", "-o", str(package)]) == 0
    assert load_module(package).graph_json is not None


def test_an_output_that_cannot_be_is_refused_before_anything_is_compiled(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = tmp_path / "nowhere"
    for arguments in (
        ["compile", "no-such-model.onnx", "-o", str(nowhere / "x.tar")],
        ["run", "no-such-package.tar", "-o", str(nowhere / "x.npz")],
        ["profile", "no-such-model.onnx", "--json", str(nowhere / "x.json")],
        ["opt", str(model), "--svg", str(nowhere / "x.svg")],
        ["onnx-score", "--filter", "(", "--json", str(nowhere / "x.json")],
    ):
        assert main(arguments) == 4
        assert f"there is no folder {str(nowhere)!r}" in capsys.readouterr().err


def test_damaged_inputs_and_those_of_no_usable_type_are_named(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, inputs = tmp_path / "tiny.so", tmp_path / "in.npz"
    assert main(["compile", str(model), "--input-shapes", "x:[1,6]", "-o", str(package)]) == 0
    np.savez_compressed(inputs, x=np.random.default_rng(0).random((1, 6)))
    data = bytearray(inputs.read_bytes())
    data[60:90] = b"\xff" * 30
    inputs.write_bytes(data)
    assert main(["run", str(package), "-i", str(inputs)]) == 4
    assert str(inputs) in capsys.readouterr().err
    np.savez(inputs, x=np.zeros((1, 6), complex))
    assert main(["run", str(package), "-i", str(inputs)]) == 4
    assert "x: an array of complex128" in capsys.readouterr().err


def test_a_package_of_another_machine_says_so(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "tiny.so"
    assert main(["compile", str(model), "--input-shapes", "x:[1,6]", "-o", str(package)]) == 0
    data = bytearray(package.read_bytes())
    data[18:20] = (40).to_bytes(2, "little")  # e_machine: 32-bit Arm
    package.write_bytes(data)
    assert main(["run", str(package)]) == 4
    assert "the code is for arm (32 bits)" in capsys.readouterr().err


def test_names_that_are_no_text_and_streams_that_take_only_ascii_are_no_error(model: Path, tmp_path: Path) -> None:
    odd, package = tmp_path / os.fsdecode(b"m\xff \xc3\xa4.onnx"), tmp_path / os.fsdecode(b"p\xff \xc3\xa4.so")
    model.rename(odd)
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii:strict"}
    for arguments in (
        ["compile", odd, "--input-shapes", "x:[1,6]", "-o", package],
        ["run", package, "--profile"],
        ["verify", odd, "--input-shapes", "x:[1,6]"],
    ):
        command = [sys.executable, "-m", "armillary.cli", *map(str, arguments)]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | plain, capture_output=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr


def test_what_the_system_refuses_is_a_message(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(error: Exception) -> None:
        def load(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("armillary.cli.compile.load_model", load)

    refuse(PermissionError(13, "Permission denied", "/some/file"))
    assert main(["compile", str(model)]) == 4
    assert "Permission denied\n  at: /some/file" in capsys.readouterr().err
    refuse(MemoryError("Unable to allocate 7.00 TiB"))
    assert main(["compile", str(model)]) == 4
    assert "out of memory: Unable to allocate 7.00 TiB" in capsys.readouterr().err


def test_a_model_is_quantised_by_inputs_of_files(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, package, text = tmp_path / "rows", tmp_path / "tiny.tar", tmp_path / "tiny.relay"
    folder.mkdir()
    x = np.random.default_rng(1).uniform(-1, 1, (6, 6)).astype(np.float32)
    np.save(folder / "a.npy", x[:4])  # two inputs of two rows
    np.savez(folder / "b.npz", x=x[4:])
    words = ["quantize", str(model), "--calibrate", str(folder), "--input-shapes", "x:[2,6]"]
    assert main([*words, "-o", str(package)]) == 0
    shown = capsys.readouterr().out
    assert "nn.dense" in shown
    assert "1 of 1 layers in int8" in shown
    assert "parameters: " in shown
    np.savez(tmp_path / "in.npz", x=x[:2])
    assert main([*words, "-o", str(text)]) == 0
    assert main(["compile", str(text), "-o", str(tmp_path / "again.tar")]) == 0
    for file in (package, tmp_path / "again.tar"):
        assert main(["run", str(file), "-i", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz")]) == 0
        got = np.load(tmp_path / "out.npz")["output_0"]
        assert 0 < np.abs(got - expected(x[:2])).max() < 0.02
    capsys.readouterr()
    assert main([*words, "--keep", "0", "-o", str(text)]) == 0
    assert "0 of 1 layers in int8" in capsys.readouterr().out
    assert main([*words, "--keep", "first", "-o", str(text)]) == 4
    assert "--keep 'first'" in capsys.readouterr().err
    np.save(folder / "c.npy", x[:3])
    assert main([*words, "-o", str(package)]) == 4
    assert "has the shape [3, 6], the network takes [2, 6]" in capsys.readouterr().err
