"""`save("m.o")`, `create_shared`, `load_module`: with a compiler and without; and attributes of functions by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay, te, tir
from armillary.contrib import cc
from armillary.driver.library import FunctionLibrary
from armillary.errors import ArtifactError, ModelError


def built(target: str = "llvm") -> FunctionLibrary:
    x = te.placeholder((8,), "float32", name="x")
    y = te.compute((8,), lambda i: te.exp(x[i]) + 1)
    library = armillary.build(te.create_schedule(y.op), [x, y], target, name="f")
    assert isinstance(library, FunctionLibrary)
    return library


def run(path: Path) -> list[float]:
    out = armillary.nd.array(np.zeros(8, "float32"))
    armillary.runtime.load_module(path)["f"](armillary.nd.array(np.ones(8, "float32")), out)
    return [float(value) for value in out.numpy()]


WANTED = [float(np.float32(np.exp(np.float32(1)) + 1))] * 8


@pytest.mark.parametrize("compiler", [None, "cc"])
def test_a_saved_object_becomes_a_library_that_loads(
    tmp_path: Path, compiler: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiler is None:
        monkeypatch.setenv("PATH", str(tmp_path))  # there is no compiler
    built().save(tmp_path / "m.o")
    cc.create_shared(tmp_path / "m.so", [str(tmp_path / "m.o")], cc=compiler)
    assert run(tmp_path / "m.so") == pytest.approx(WANTED, rel=1e-6)


def test_a_damaged_library_of_saved_objects_is_refused(tmp_path: Path) -> None:
    built().save(tmp_path / "m.o")
    cc.create_shared(str(tmp_path / "m.so"), str(tmp_path / "m.o"))
    data = bytearray((tmp_path / "m.so").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "m.so").write_bytes(data)
    with pytest.raises(ArtifactError, match=r"damaged|checksum"):
        armillary.runtime.load_module(tmp_path / "m.so")


def test_kernels_of_a_network_are_one_object(tmp_path: Path) -> None:
    data, weight = relay.var("x", shape=(1, 8, 6, 6)), relay.var("w", shape=(8, 8, 3, 3))
    body = relay.nn.softmax(relay.nn.relu(relay.nn.conv2d(data, weight, padding=(1, 1))))
    library = relay.build(armillary.IRModule.from_expr(relay.Function([data, weight], body)), "llvm")
    library.save(tmp_path / "n.o")
    for compiler in (None, "cc"):
        cc.create_shared(tmp_path / "n.so", tmp_path / "n.o", cc=compiler)  # type: ignore[arg-type]
        module = armillary.runtime.load_module(tmp_path / "n.so")
        assert len(library.kernels) >= 2
        assert all(module[name] is not None for name in library.kernels)


def test_an_object_for_another_machine_is_written(tmp_path: Path) -> None:
    built("llvm -mtriple=aarch64-linux-gnu").save(tmp_path / "a.o")
    head = (tmp_path / "a.o").read_bytes()[:20]
    assert (head[16], head[18]) == (1, 183)


def test_a_missing_object_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"create_shared.*No such file"):
        cc.create_shared(tmp_path / "m.so", [str(tmp_path / "none.o")])


def test_attributes_of_functions_are_read_by_name() -> None:
    x = relay.var("x", shape=(1,))
    f = relay.Function([x], x).with_attr("Primitive", 1).with_attr("Composite", "a.b")
    assert f.attrs["Primitive"] == 1
    assert (f.attrs.keys(), f.attrs.values()) == (("Primitive", "Composite"), (1, "a.b"))
    assert "Composite" in f.attrs and "Compiler" not in f.attrs
    assert dict(f.attrs) == {**f.attrs} == {"Primitive": 1, "Composite": "a.b"}
    assert f.attrs.get("Compiler", 3) == 3 and f.attrs[0] == ("Primitive", 1)
    with pytest.raises(KeyError, match="Compiler"):
        f.attrs["Compiler"]
    assert relay.Function([x], x, attrs={"Primitive": 1}).attrs["Primitive"] == 1
    assert tir.PrimFunc([], tir.Evaluate(0), {"global_symbol": "f"}).attrs["global_symbol"] == "f"
    with pytest.raises(ModelError, match="attrs is int 3, wanted a dict or pairs"):
        relay.Function([x], x, attrs=3)
