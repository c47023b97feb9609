"""Several functions in one package, repeated runs, a network, and what goes wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from infrastructure import (
    CONFIG,
    Device,
    build,
    library_functions,
    module_of,
    operators,
    partitioned,
    run,
    verify,
)

import armillary
from armillary import relay
from armillary.errors import TargetError
from armillary.offload.acl.build_runtime import build_runtime
from armillary.offload.contract import JsonModule, Offload, partition, register_offload
from armillary.offload.graph_json import as_json
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, Function, const, var
from armillary.relay.op.contrib.arm_compute_lib import (
    arm_compute_lib_pattern_table,
    is_arm_compute_runtime_enabled,
    partition_for_arm_compute_lib,
)
from armillary.relay.testing import mobilenet

RNG = np.random.default_rng(17)


def test_two_functions_and_what_stays_between_them(device: Device, tmp_path: Path) -> None:
    x = var("x", shape=(1, 1, 1, 1000))
    twice = module_of(relay.reshape(relay.reshape(x, newshape=(1, 1000)), newshape=(10, 100)))
    between = module_of(relay.reshape(relay.sigmoid(relay.reshape(x, newshape=(1, 1000))), newshape=(10, 100)))
    value = RNG.uniform(-1, 1, (1, 1, 1, 1000)).astype("float32")
    for module, kept in ((twice, 0), (between, 1)):
        found = run(device, partitioned(module, kept, 2), {"x": value}, tmp_path, runs=3)
        verify(found, [evaluate(module, [value])], atol=1e-5, rtol=1e-5)


def test_the_runtime_is_asked_for_by_file(
    local_device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ARMILLARY_CACHE_DIR", str(tmp_path))
    assert not is_arm_compute_runtime_enabled()
    monkeypatch.setenv("ARMILLARY_EXTERNAL_PATH", str(local_device.libraries))
    assert is_arm_compute_runtime_enabled()
    names = [row[0] for row in arm_compute_lib_pattern_table()]
    assert names[0] == "arm_compute_lib.conv2d" and "arm_compute_lib.qnn_dense" in names


def test_a_package_on_a_board_without_the_library_says_so(local_device: Device, tmp_path: Path) -> None:
    package = tmp_path / "mod.so"
    library = build(partitioned(module_of(relay.reshape(var("x", shape=(2, 3)), newshape=(6,)))))
    library.export_library(package, cc=CONFIG["cross_compile"] or None)
    message = Device(local_device.runner, tmp_path / "none").told(package)
    assert message.returncode == 1
    assert (
        "computed by arm_compute_lib, whose runtime libarmillary_external_arm_compute_lib.so is not there"
        in message.stderr
    )


def test_a_package_with_our_own_kernels_runs_without_the_library(local_device: Device, tmp_path: Path) -> None:
    """On a board with nothing, and with the library."""
    x = var("x", shape=(1, 8, 8, 16))
    kernel = const(RNG.uniform(-1, 1, (3, 3, 16, 8)).astype("float32"))
    bias = const(RNG.uniform(-1, 1, 8).astype("float32"))
    conv = relay.nn.conv2d(x, kernel, data_layout="NHWC", kernel_layout="HWIO", padding=(1, 1))
    module = module_of(relay.nn.max_pool2d(relay.nn.relu(relay.nn.bias_add(conv, bias, axis=3)), layout="NHWC"))
    value = RNG.uniform(-1, 1, (1, 8, 8, 16)).astype("float32")
    with armillary.transform.PassContext(config={"offload.fallback": True}):
        library = relay.build(partitioned(module, 0, 2), target=CONFIG["target"])
    library.export_library(tmp_path / "net.tar")
    for libraries in tmp_path / "none", local_device.libraries:
        found = Device(local_device.runner, libraries).run(tmp_path / "net.tar", {"x": value})
        verify(found, [evaluate(module, [value])], atol=1e-4, rtol=1e-4)


def test_what_the_library_refuses_is_a_message(local_device: Device, tmp_path: Path) -> None:
    """A manifest without predicates gives the library a convolution of groups and an operator that it lacks.

    A package with kernels of ours runs those.
    """

    def generate(function: Function) -> JsonModule:
        made = as_json(function)
        return JsonModule(made.source, made.constants, kind="arm_compute_lib")

    takes = {"nn.conv2d": lambda call: None, "nn.softmax": lambda call: None}
    manifest = register_offload(Offload("unchecked", generate, operators=takes))
    x = var("x", shape=(1, 4, 4, 4))
    kernel = const(np.ones((4, 3, 3, 2), "float32"))
    common = {"data_layout": "NHWC", "kernel_layout": "OHWI", "padding": (1, 1, 1, 1)}
    grouped = relay.nn.conv2d(x, kernel, groups=2, **common)
    for expr, words in (
        (grouped, ": nn.conv2d is refused: "),
        (relay.nn.softmax(x), "there is no kernel nn.softmax"),
    ):
        package = tmp_path / "mod.so"
        build(partition(module_of(expr), manifest)).export_library(package, cc=CONFIG["cross_compile"] or None)
        message = local_device.told(package)
        assert message.returncode == 1
        assert "tvmgen_default_unchecked_main_0: arm_compute_lib v" in message.stderr and words in message.stderr
        with armillary.transform.PassContext(config={"offload.fallback": True}):
            library = relay.build(partition(module_of(expr), manifest), target=CONFIG["target"])
        library.export_library(tmp_path / "net.tar")
        value = RNG.uniform(-1, 1, (1, 4, 4, 4)).astype("float32")
        (found,) = local_device.run(tmp_path / "net.tar", {"x": value})
        np.testing.assert_allclose(found, evaluate(module_of(expr), [value]), rtol=1e-4, atol=1e-5)


def test_a_missing_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARMILLARY_ACL", raising=False)
    with pytest.raises(TargetError, match="there is no folder"):
        build_runtime(tmp_path, library=tmp_path / "none")
    compiler = tmp_path / "c++"
    compiler.write_text(
        "#!/bin/sh\necho 'fatal error: arm_compute/core/Version.h: No such file or directory' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    with pytest.raises(TargetError, match="Arm Compute Library was not found") as error:
        build_runtime(tmp_path, str(compiler))
    assert "install libarm-compute-dev" in error.value.hint


def network(x: Expr) -> Expr:
    """Layers as a small MobileNet has them, relu6 included."""

    def conv(y: Expr, channels: int, shape: tuple[int, ...], **attrs: object) -> Expr:
        kernel = const((RNG.standard_normal(shape) / np.sqrt(np.prod(shape[:3]))).astype("float32"))
        layout = "HWOI" if "groups" in attrs else "HWIO"
        y = relay.nn.conv2d(y, kernel, data_layout="NHWC", kernel_layout=layout, **attrs)
        return relay.nn.bias_add(y, const(RNG.uniform(-0.1, 0.1, channels).astype("float32")), axis=3)

    y = relay.nn.relu(conv(x, 16, (3, 3, 3, 16), strides=(2, 2), padding=(1, 1)))
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        inner = int(y.checked_type.shape[3])
        y = relay.clip(conv(y, inner, (3, 3, inner, 1), strides=(stride, stride), padding=(1, 1), groups=inner), 0, 6)
        y = relay.nn.relu(conv(y, channels, (1, 1, inner, channels)))
    y = relay.reshape(relay.nn.global_avg_pool2d(y, layout="NHWC"), newshape=(1, 64))
    y = relay.nn.dense(y, const((RNG.standard_normal((10, 64)) / 8).astype("float32")))
    return relay.nn.softmax(relay.nn.bias_add(y, const(RNG.uniform(-1, 1, 10).astype("float32"))))


def test_a_whole_mobilenet_with_normalisations_in_nchw(device: Device, tmp_path: Path) -> None:
    """27 convolutions with bias and relu, a mean, a dense layer; flattening, softmax and one change of layout stay."""
    module, params = mobilenet.get_workload(batch_size=1, num_classes=10, image_shape=(3, 64, 64))
    value = RNG.uniform(-1, 1, (1, 3, 64, 64)).astype("float32")
    graph = relay.build(module, "llvm", params=params)["default"](armillary.cpu(0))
    graph.set_input("data", value)
    graph.run()
    after = partitioned(module, 3, 30, params=params)
    assert operators(after["main"]) == ["layout_transform", "nn.batch_flatten", "nn.softmax"]
    for threads in (1, 2):  # of the runtime: the library's work is spread over them
        found = run(device, after, {"data": value}, tmp_path, threads=threads)
        verify(found, [graph.get_output(0).numpy()], atol=0.002, rtol=0.01)
    merged = partition_for_arm_compute_lib(module, params, merge_regions=True)
    assert len(library_functions(merged)) == 2  # before and after the flattening
    together = run(device, merged, {"data": value}, tmp_path, threads=2)[0]
    np.testing.assert_allclose(together, found[0], rtol=1e-5)  # sums may be split among threads in another way


def test_quantised_models_that_compute_in_float_offload_in_bytes(device: Device, tmp_path: Path) -> None:
    def quantized(value: Expr, scale: float, dtype: str = "int8") -> Expr:
        made = relay.qnn.quantize(value, const(np.float32(scale)), const(np.int32(0)), out_dtype=dtype)
        return relay.qnn.dequantize(made, const(np.float32(scale)), const(np.int32(0)))

    x = var("x", shape=(1, 8, 12, 12))
    kernel = const(RNG.integers(-128, 127, (6, 8, 3, 3)).astype("int8"))
    weight = relay.qnn.dequantize(kernel, const(np.float32(0.01)), const(np.int32(0)))
    y = relay.nn.relu(relay.nn.conv2d(quantized(x, 0.02), weight, padding=(1, 1)))
    module = module_of(quantized(y, 0.05))
    after = partition_for_arm_compute_lib(module)
    assert [f.get_attr("Compiler") for f in library_functions(after)] == ["arm_compute_lib"]
    value = RNG.uniform(-1, 1, (1, 8, 12, 12)).astype("float32")
    (found,) = run(device, after, {"x": value}, tmp_path)
    np.testing.assert_allclose(found, evaluate(module, [value]), atol=0.051)


def test_a_network_of_depthwise_convolutions(device: Device, tmp_path: Path) -> None:
    module = module_of(network(var("x", shape=(1, 32, 32, 3))))
    value = RNG.uniform(-1, 1, (1, 32, 32, 3)).astype("float32")
    after = partitioned(module, 4, 10)  # clip and softmax stay
    verify(run(device, after, {"x": value}, tmp_path, runs=2), [evaluate(module, [value])], atol=0.002, rtol=0.01)
