"""What newcomers stumble over: files that are something else, commands that are nearly right, and what was compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, save

import armillary
from armillary import relay
from armillary.cli.compile import types_of
from armillary.cli.main import main
from armillary.errors import ConfigError

FILES = {
    "page.onnx": (b"<!DOCTYPE html><html>404", "a page of HTML", "address of the file itself"),
    "lfs.onnx": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "a pointer of Git LFS", "git lfs pull"),
    "zip.onnx": (b"PK\x03\x04 and so on", "a zip archive", "unpack it"),
    "net.keras": (b"PK\x03\x04 and so on", "no archive of Keras", "model.save('net.keras')"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_model_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, what, hint = FILES[name]
    (tmp_path / name).write_bytes(content)
    assert main(["compile", str(tmp_path / name), "-o", str(tmp_path / "x.tar")]) != 0
    message = capsys.readouterr().err
    assert what in message and hint in message
    assert not (tmp_path / "x.tar").exists()


def test_a_command_that_is_nearly_right_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["complie", "net.onnx"])
    assert "did you mean compile?" in capsys.readouterr().err


def test_a_library_is_no_archive(tmp_path: Path) -> None:
    x = relay.var("x", shape=(2,))
    library = relay.build(armillary.IRModule.from_expr(relay.Function([x], relay.exp(x))), "llvm")
    for name in ("x.zip", "x.tar.gz", "x.onnx"):
        with pytest.raises(ConfigError, match=r"export to a package \(\.tar\)"):
            library.export_library(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_compile_says_what_computes_with_which_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8]) for n in ("x", "y"))
    save(
        helper.make_model(
            helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y]),
            opset_imports=[helper.make_opsetid("", 17)],
        ),
        tmp_path / "n.onnx",
    )
    assert main(["compile", str(tmp_path / "n.onnx"), "-o", str(tmp_path / "n.tar")]) == 0
    assert "1 calls: 1 float32" in capsys.readouterr().err
    data = relay.var("x", shape=(4, 64), dtype="uint8")
    weight = relay.const(np.ones((16, 64), np.int8))
    product = relay.nn.dense(data, weight, out_dtype="int32")
    network = relay.Function([data], relay.nn.softmax(relay.cast(product, "float32")))
    assert "int8" in types_of(relay.build(armillary.IRModule.from_expr(network), "llvm"))
