"""`ccompiler`: parts of a graph as C source; and executables that are saved with such parts in them."""

from __future__ import annotations

from collections.abc import Callable
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
    machine = runtime.vm.VirtualMachine(
        relay.vm.compile(_external(relay.var("z", shape=(relay.Any(), 5)), relay.tanh), "llvm"), armillary.cpu()
    )
    for rows in (2, 7):  # a part of open sizes is written for those that come
        value = np.linspace(-2, 2, rows * 5, dtype="float32").reshape(rows, 5)
        np.testing.assert_allclose(machine.run(value).numpy(), np.tanh(value), rtol=1e-6)
    with pytest.raises(UnsupportedError, match=r"ccompiler: argwhere: there is no C for it: it has no compute"):
        relay.build(_external(relay.var("z", shape=(4, 5)), relay.argwhere), "llvm")


def _external(x: relay.Var, body: Callable[[relay.Expr], relay.Expr]) -> IRModule:
    """A call of a function that is all for the C compiler."""
    inner = relay.var("inner", type_annotation=x.type_annotation)
    attrs = (("Compiler", "ccompiler"), ("Primitive", 1), ("global_symbol", "cc"))
    return IRModule.from_expr(Function([x], Call(Function((inner,), body(inner), None, attrs), (x,))))


IMAGE = np.random.default_rng(5).uniform(-2, 2, (1, 6, 9, 9)).astype("float32")
WEIGHT = np.random.default_rng(6).uniform(-1, 1, (4, 6, 3, 3)).astype("float32")
BODIES: dict[str, Callable[[relay.Expr], relay.Expr]] = {
    "tanh": lambda x: relay.tanh(x) * relay.exp(x),
    "conv2d": lambda x: relay.nn.relu(relay.nn.conv2d(x, relay.const(WEIGHT), padding=(1, 1))),
    "batch_norm": lambda x: relay.nn.batch_norm(x, *(relay.const(np.full(6, v, "float32")) for v in (1, 2, 3, 4)))[0],
    "pool": lambda x: relay.nn.max_pool2d(x, (3, 3), strides=(2, 2)),
    "softmax": lambda x: relay.nn.softmax(x, axis=-1),
    "dense": lambda x: relay.nn.dense(relay.nn.batch_flatten(x), relay.const(np.ones((3, 486), "float32"))),
    "split": lambda x: relay.concatenate(list(relay.split(x, 3, axis=1))[::-1], axis=1),
    "mean": lambda x: relay.mean(x, axis=(2, 3), keepdims=True) - relay.const(1.0),
    "strided_slice": lambda x: relay.strided_slice(x, (0, 1, 0, 8), (1, 5, 9, -10), (1, 2, 3, -2)),
    "resize": lambda x: relay.image.resize2d(x, (5, 13), method="linear"),
    "argsort": lambda x: relay.argsort(x, axis=-1, dtype="int32"),
    "quantize": lambda x: relay.qnn.quantize(x, relay.const(0.05), relay.const(3), out_dtype="int8"),
}


@pytest.mark.parametrize("name", BODIES)
def test_calls_of_any_operator_that_a_script_gives_it(name: str) -> None:
    module = _external(relay.var("x", shape=IMAGE.shape), BODIES[name])
    x = relay.var("x", shape=IMAGE.shape)
    wanted = relay.create_executor("debug", IRModule.from_expr(Function([x], BODIES[name](x)))).evaluate()(IMAGE)
    executable = relay.vm.compile(module, "llvm")
    found = runtime.vm.VirtualMachine(executable, armillary.cpu()).run(IMAGE)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


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
