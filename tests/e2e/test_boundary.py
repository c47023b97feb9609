"""What a user gives wrongly ends in an ArmillaryError that says what was given, with Python's error as its cause."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import armillary
from armillary import autotvm, compute, relay, rpc, te
from armillary.artifact import GraphSpec, load_params
from armillary.autotvm import record
from armillary.base.boundary import boundary
from armillary.cli.run import read_npz
from armillary.compute.graph import NumPyBinLoader, TopNPredictionsAccessor
from armillary.compute.runtime.ppm import read_image
from armillary.contrib import cc, graph_executor, tar
from armillary.driver.build import build
from armillary.driver.library import GraphLibrary
from armillary.driver.tvmc.model import TVMCModel
from armillary.errors import ArmillaryError, ExecutionError, InternalError, TypeMismatch
from armillary.frontend import from_keras, from_onnx
from armillary.rpc.secret import read_secret
from armillary.rpc.serving import Tls
from armillary.runtime import cpu, load_module
from armillary.runtime.module import from_package
from armillary.runtime.ndarray import from_numpy
from armillary.runtime.threads import config_threadpool

VALUE = np.ones((2, 3), np.float32)
Graph = Any  # a GraphModule
Call = Callable[[Graph, GraphLibrary], object]


@pytest.fixture(scope="module")
def library() -> GraphLibrary:
    x = relay.var("x", shape=(2, 3))
    return build(relay.Function([x], relay.tanh(x)), "llvm")


@pytest.mark.parametrize("shape", [(1 << 62, 4), (1 << 63,), (1 << 40,)])
def test_an_array_that_is_too_large_for_numpy_is_out_of_memory(shape: tuple[int, ...]) -> None:
    refused(boundary("make")(lambda: np.zeros(shape)), "make: out of memory")
    with pytest.raises(ValueError, match="other"):
        boundary("make")(lambda: (_ for _ in ()).throw(ValueError("other")))()


def refused(call: Callable[[], object], match: str) -> ArmillaryError:
    with pytest.raises(ArmillaryError, match=match) as caught:
        call()
    assert not isinstance(caught.value, InternalError), caught.value
    return caught.value


CALLS: dict[str, tuple[Call, str]] = {
    "input named by bytes": (lambda g, _: g.set_input(b"x", VALUE), "got bytes b'x'"),
    "input without a name": (lambda g, _: g.set_input(None, VALUE), "without the name"),
    "input beyond 32 bits": (lambda g, _: g.set_input(1 << 32, VALUE), "there is no input 4294967296"),
    "input of ragged rows": (lambda g, _: g.set_input("x", [[1, 2], [3]]), "input .* from list: .*inhomogeneous"),
    "input that is an object": (lambda g, _: g.set_input("x", object()), "input x|object"),
    "no input asked for": (lambda g, _: g.get_input(None), "got NoneType None"),
    "output beyond 32 bits": (lambda g, _: g.get_output(1 << 32), "there is no output 4294967296"),
    "output beyond 64 bits": (lambda g, _: g.get_output(1 << 70), "there is no output"),
    "output below 0": (lambda g, _: g.get_output(-1), "there is no output -1"),
    "output into a text": (lambda g, _: g.get_output(0, "x"), "no value yet"),
    "parameters of another graph": (lambda g, _: g.share_params(1, b""), "share_params"),
    "parameters that are none": (lambda g, _: g.load_params(None), "got NoneType"),
    "a graph that is none": (lambda _, lib: graph_executor.create(None, lib.get_lib(), cpu(0)), "got NoneType None"),
    "a graph of brackets": (
        lambda _, lib: graph_executor.create("[" * 100_000, lib.get_lib(), cpu(0)),
        "nested too deeply",
    ),
    "threads beyond 32 bits": (lambda *_: config_threadpool(0, 1 << 40), "1099511627776 threads"),
    "threads below 0": (lambda *_: config_threadpool(0, -3), "-3 threads"),
    "a file name of 5,000 characters": (lambda _, lib: lib.export_library("a" * 5000 + ".so"), "File name too long"),
    "a file name with NUL": (lambda _, lib: lib.export_library("a\0.so"), "wanted its path"),
    "a package name of 5,000 characters": (lambda *_: load_module("a" * 5000 + ".so"), "File name too long"),
    "a package name with NUL": (lambda *_: load_module("a\0.so"), "there is no such file"),
    "a model name of 5,000 characters": (lambda *_: from_onnx("a" * 5000), "File name too long"),
    "a tensor beyond any memory": (lambda *_: armillary.nd.empty((1 << 62,)), "nd.empty: a number is too large"),
    "a tensor beyond this memory": (lambda *_: armillary.nd.empty((1 << 44,)), "nd.empty: out of memory"),
    "a shape that is a text": (lambda *_: armillary.nd.empty("a"), "nd.empty: .*got str a"),
    "a dtype that is none": (lambda *_: armillary.nd.empty((1,), None), "got NoneType None"),
    "a variable without a name": (lambda *_: relay.var(5), "got int 5"),
    "a parameter blob that is none": (lambda *_: load_params(None), "load_params"),
    "options of a board that are a number": (lambda *_: armillary.target.mali("x", 3), "target.mali: .*int 3"),
    "a board that is a number": (lambda *_: armillary.target.arm_cpu(7), "target.arm_cpu"),
    "records that are numbers": (lambda *_: autotvm.apply_history_best([None]), "autotvm.apply_history_best"),
    "a line of records that is a table": (lambda *_: record.decode({"a": 1}), "autotvm.record.decode"),
    "the best of a number": (lambda *_: record.best_of(-1), "autotvm.record.best_of"),
    "an array that is a number": (lambda *_: from_numpy(0), "wraps a numpy array, .*got int"),
    "a package that is an array": (lambda *_: from_package(np.zeros(2)), "runtime.from_package"),
    "deep JSON": (lambda *_: GraphSpec.from_json("[" * 100_000), "graph: not valid JSON"),
    "deep text": (
        lambda *_: relay.fromtext("def @main(%x: Tensor[(2), float32]) { " + "(" * 5000 + "%x" + ")" * 5000 + " }"),
        "nested more than 80 deep",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_refused_in_our_words(name: str, library: GraphLibrary) -> None:
    call, told = CALLS[name]
    graph = graph_executor.GraphModule(library["default"](cpu(0)))
    refused(lambda: call(graph, library), told)


def model(node: Any, weights: dict[str, np.ndarray], shape: tuple[int, ...] = (1, 1, 4, 4)) -> ModelProto:
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in (("x", shape), ("y", None)))
    graph = helper.make_graph([node], "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# what is wrong, and what Conv and ConvTranspose say of it
WINDOWS: dict[str, tuple[dict[str, Any], str, str]] = {
    "one stride": ({"strides": [2]}, "expected 2 strides", r"strides is \[2\], wanted 2"),
    "strides of 0": ({"strides": [0, 0]}, "strides must be 2 integers >= 1", "strides must be 2 integers >= 1"),
    "one pad": ({"pads": [1]}, "expected .* 4 pads", r"pads is \[1\], wanted 4"),
    "one dilation": ({"dilations": [1]}, "expected 2 .*dilations", r"dilations is \[1\], wanted 2"),
    "no group": ({"group": 0}, "groups must be >= 1, got 0", "divided into 0 groups"),
    "more groups than channels": ({"group": 3}, "divided into 3 groups", "divided into 3 groups"),
    "a kernel of one axis": ({"kernel_shape": [3]}, r"kernel_shape is \(3,\)", r"kernel_shape is \[3\], wanted 2"),
    "another kernel": ({"kernel_shape": [2, 2]}, r"is \(2, 2\), the weight", r"is \(2, 2\), the weight has \(3, 3\)"),
    "unknown padding": ({"auto_pad": "X"}, "unknown auto_pad 'X'", "unknown auto_pad 'X'"),
    "pads of 2^62": ({"pads": [1 << 62] * 4}, "4611686018427387904 as a size", "leaves no output along H"),
}


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("wrong", WINDOWS)
def test_windows_that_do_not_fit_are_refused(op: str, wrong: str) -> None:
    attributes, of_conv, of_transpose = WINDOWS[wrong]
    node = helper.make_node(op, ["x", "w"], ["y"], name="n", **attributes)
    made = model(node, {"w": np.ones((1, 1, 3, 3), np.float32)})
    refused(lambda: build(from_onnx(made)[0], "llvm"), of_conv if op == "Conv" else of_transpose)


def test_an_operator_whose_name_is_no_text_is_unknown() -> None:
    made = model(helper.make_node("Relu", ["x"], ["y"]), {}).SerializeToString()
    refused(lambda: from_onnx(made.replace(b"Relu", b"\xff\xfeu\xc0")), "cannot be imported")


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.onnx")
    refused(lambda: from_onnx(tmp_path / "x.onnx"), "not a regular file")


PIPES: dict[str, Callable[[str], object]] = {
    "model": from_onnx,
    "keras": from_keras,
    "package": load_module,
    "records": lambda path: list(record.load_from_file(path)),
    "inputs": read_npz,
    "saved model": lambda path: TVMCModel(model_path=path),
    "object": lambda path: cc.create_shared("out.so", [path]),
    "hybrid script": lambda path: te.hybrid.HybridModule().load(path),
    "tar": lambda path: tar.untar(path, "."),
    "image": lambda path: read_image(path),
    "portable image": lambda path: read_image(str(Path(path).with_suffix(".ppm"))),
    "labels": lambda path: TopNPredictionsAccessor(path),
    "array": lambda path: NumPyBinLoader(path).access_tensor(None),  # type: ignore[arg-type]
    "tuned sizes": lambda path: compute.CLTuner().load_from_file(path),
    "upload": lambda path: rpc.LocalSession().upload(path),
    "secret": lambda path: read_secret(Path(path)),
    "certificate": lambda path: Tls(path, path).context(),
}


@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for suffix in (".o", ".ppm"):
        os.mkfifo(tmp_path / f"pipe{suffix}", 0o600)
    late = threading.Timer(5, lambda: os.close(os.open("pipe.o", os.O_WRONLY | os.O_NONBLOCK)))
    late.start()  # ends a wait for what is written
    try:
        refused(lambda: PIPES[name](str(tmp_path / "pipe.o")), "not a regular file")
    finally:
        late.cancel()


def test_external_data_of_a_long_name_is_refused_with_its_tensor(tmp_path: Path) -> None:
    made = model(helper.make_node("Add", ["x", "w"], ["y"]), {"w": np.ones((1, 1, 4, 4), np.float32)})
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="a" * 5000)
    (tmp_path / "x.onnx").write_bytes(made.SerializeToString())
    refused(lambda: from_onnx(tmp_path / "x.onnx"), "tensor 'w': .*File name too long")


def test_more_axes_than_the_runtime_knows_are_refused_when_compiling() -> None:
    made = model(helper.make_node("Transpose", ["x"], ["y"]), {}, (1,) * 33)
    refused(lambda: build(from_onnx(made)[0], "llvm"), "33 axes")
    x = relay.var("x", shape=(1,) * 33)
    refused(lambda: build(relay.Function([x], relay.squeeze(x)), "llvm"), "33 axes")


def test_a_library_that_cannot_be_loaded_does_not_get_its_name(library: GraphLibrary, tmp_path: Path) -> None:
    path, linker = tmp_path / "net.so", tmp_path / "linker"
    library.export_library(path)
    whole = path.read_bytes()
    linker.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done\n'
        'exec cc -shared -nostdlib -x c /dev/null -o "$out"\n'
    )
    linker.chmod(0o700)
    with pytest.raises(ArmillaryError, match=r"cannot be loaded: .*armillary_descriptor"):
        library.export_library(path, cc=str(linker))
    assert path.read_bytes() == whole and sorted(os.listdir(tmp_path)) == ["linker", "net.so"]


def test_the_cause_is_kept_and_calls_that_do_not_fit_are_python_s() -> None:
    @boundary("double", arguments=True)
    def double(value: Any) -> Any:
        return value["a"] * 2

    error = refused(lambda: double(7), r"double: .*\(got int 7\)")
    assert isinstance(error, TypeMismatch)
    assert isinstance(error.__cause__, TypeError)
    with pytest.raises(TypeError, match="positional argument"):
        double()  # type: ignore[call-arg]


def test_no_memory_is_an_error_of_ours() -> None:
    script = (
        "import resource, armillary\n"
        "from armillary.errors import ExecutionError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "try: armillary.nd.empty((1 << 29,))\n"
        "except ExecutionError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "nd.empty: out of memory" in ran.stdout, ran.stderr
    assert issubclass(ExecutionError, ArmillaryError)


@pytest.mark.parametrize("call", ["a.numpy()", "a.asnumpy()", "np.asarray(a, 'float32')"])
def test_no_memory_for_a_copy_is_an_error_of_ours(call: str) -> None:
    script = (
        "import resource, armillary, numpy as np\n"
        "from armillary.errors import ExecutionError\n"
        "a = armillary.nd.empty((1 << 26,), 'float64')\n"  # 512 MiB
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "most = pages * resource.getpagesize() + (1 << 27)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (most, most))\n"
        f"try: {call}\n"
        "except ExecutionError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "out of memory" in ran.stdout, ran.stderr
