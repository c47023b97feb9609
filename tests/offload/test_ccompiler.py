"""`ccompiler`: parts of a graph as C source; and executables that are saved with such parts in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay, runtime
from armillary.errors import ArtifactError, UnsupportedError
from armillary.ir import IRModule
from armillary.offload.contract import find_offload, partition
from armillary.relay.expr import Call, Function

X, Y = (np.random.default_rng(k).uniform(-3, 3, (4, 5)) for k in (0, 1))


def _network(dtype: str) -> IRModule:
    x, y = relay.var("x", shape=(4, 5), dtype=dtype), relay.var("y", shape=(4, 5), dtype=dtype)
    held = relay.const(np.arange(20).reshape(4, 5).astype(dtype))
    inside = relay.multiply(relay.subtract(relay.add(x, y), held), x)
    return IRModule.from_expr(Function([x, y], relay.maximum(inside, y)))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_sums_and_products_are_c_source(dtype: str, tmp_path: Path) -> None:
    module = partition(_network(dtype), find_offload("ccompiler"))
    texts = [str(f) for _, f in module.items()]
    assert sum('Compiler="ccompiler"' in text for text in texts) == 3
    library = relay.build(module, "llvm")
    library.export_library(tmp_path / "net.so")
    data = [(40 * a).astype(dtype) for a in (X, Y)]  # int8 wraps around
    wanted = relay.create_executor("debug", _network(dtype)).evaluate()(*data).numpy()
    for held in (library, runtime.load_module(tmp_path / "net.so")):
        graph = armillary.contrib.graph_executor.GraphModule(held["default"](armillary.cpu(0)))
        graph.set_input(x=data[0], y=data[1])
        graph.run()
        np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, rtol=1e-6)


def test_a_list_of_targets_may_name_it() -> None:
    library = relay.build(_network("float32"), "ccompiler, llvm")
    assert library.offload_report is not None and "ccompiler" in str(library.offload_report)


def test_what_it_cannot_write_stays_or_is_refused() -> None:
    x, row = relay.var("x", shape=(4, 5)), relay.var("row", shape=(5,))
    module = IRModule.from_expr(Function([x, row], relay.add(x, row)))
    assert len(list(partition(module, find_offload("ccompiler")).items())) == 1
    z = relay.var("z", shape=(4, 5))
    attrs = (("Compiler", "ccompiler"), ("Primitive", 1), ("global_symbol", "cc"))
    with pytest.raises(UnsupportedError, match="ccompiler: tanh: there is no C for it"):
        relay.build(IRModule.from_expr(Call(Function((z,), relay.tanh(z), None, attrs), (x,))), "llvm")


def test_an_executable_is_saved_and_loaded(tmp_path: Path) -> None:
    executable = relay.vm.compile(partition(_network("float32"), find_offload("ccompiler")), "llvm")
    code, library = executable.save()
    library.export_library(tmp_path / "lib.so")
    loaded = runtime.vm.Executable.load_exec(bytes(code), runtime.load_module(tmp_path / "lib.so"))
    machine = runtime.vm.VirtualMachine(loaded, armillary.cpu(0))
    data = [a.astype("float32") for a in (X, Y)]
    wanted = relay.create_executor("debug", _network("float32")).evaluate()(*data).numpy()
    np.testing.assert_allclose(machine.run(y=data[1], x=data[0]).numpy(), wanted, rtol=1e-6)
    np.testing.assert_allclose(machine.run(*data).numpy(), wanted, rtol=1e-6)
    assert machine.get_input_index("y") == 1
    held = runtime.load_module(tmp_path / "lib.so")
    for bad in (b"", bytes(code)[:20], b"x" + bytes(code), bytes(code)[:9] + b"\xff" * 7 + bytes(code)[16:]):
        with pytest.raises(ArtifactError, match=r"load_exec|params"):
            runtime.vm.Executable.load_exec(bad, held)


def test_an_executable_with_parameters_and_one_of_open_shapes(tmp_path: Path) -> None:
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    weight, data = np.ones((4, 3), "float32"), np.full((2, 3), 2, "float32")
    module = IRModule.from_expr(Function([x, w], relay.Tuple([relay.nn.dense(x, w), x])))
    code, library = relay.vm.compile(module, "llvm", params={"w": weight}).save()
    library.export_library(tmp_path / "lib.so")
    loaded = runtime.vm.Executable.load_exec(code, runtime.load_module(tmp_path / "lib.so"))
    first, second = runtime.vm.VirtualMachine(loaded, armillary.cpu(0)).run(data)
    np.testing.assert_array_equal(first.numpy(), data @ weight.T)
    np.testing.assert_array_equal(second.numpy(), data)
    z = relay.var("z", shape=(relay.Any(), 3))
    with pytest.raises(UnsupportedError, match="kernels depend on shapes is not saved: z is"):
        relay.vm.compile(IRModule.from_expr(Function([z], relay.reshape(z, (-1, 7)))), "llvm").save()
