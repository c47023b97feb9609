"""Textures: how tensors lie in images, which kernels read and write them, and networks that equal the CPU's."""

from __future__ import annotations

import operator
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.artifact import GraphSpec
from armillary.base.c_compiler import need_compiler
from armillary.base.dtype import DType
from armillary.codegen.opencl.texel import without_column_tests
from armillary.contrib import graph_executor
from armillary.errors import ArmillaryError
from armillary.program.arena import Image, share_images
from armillary.target import Target
from armillary.target.texture import NHWC, TEXTURE, WEIGHT, image_size
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.transform import PassContext

Array = np.ndarray[Any, Any]
ADRENO = "opencl -device=adreno"
RNG = np.random.default_rng(8)
SHAPE = (1, 3, 20, 28)
COMPARE = {E.GE: operator.ge, E.LT: operator.lt, E.GT: operator.gt}
X = RNG.standard_normal(SHAPE).astype("float32")


def weight(*shape: int) -> Any:
    return relay.const((RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32"))


def conv(data: Any, inputs: int, outputs: int, kernel: int, **attrs: Any) -> Any:
    made = relay.nn.conv2d(
        data,
        weight(outputs, inputs // attrs.get("groups", 1), kernel, kernel),
        channels=outputs,
        kernel_size=(kernel, kernel),
        padding=attrs.pop("padding", (kernel // 2, kernel // 2)),
        **attrs,
    )
    return relay.nn.relu(relay.nn.bias_add(made, weight(outputs)))


def network() -> armillary.IRModule:
    """Three channels, strides, a residual sum, groups, a depthwise layer, poolings, a join, sizes not in fours."""
    x = relay.var("x", shape=SHAPE)
    a = conv(x, 3, 16, 3, strides=(2, 2))
    b = relay.nn.relu(relay.add(a, conv(a, 16, 16, 3)))
    c = conv(conv(b, 16, 16, 3, groups=16), 16, 8, 1)
    d = relay.concatenate([c, conv(b, 16, 8, 5, padding=(2, 2), groups=2), relay.sigmoid(c)], 1)
    e = relay.nn.max_pool2d(d, (3, 3), (2, 2), padding=(1, 1))
    f = relay.nn.avg_pool2d(conv(e, 24, 12, 3, dilation=(2, 2), padding=(2, 2)), (2, 2), (2, 2))
    g = conv(f, 12, 6, 1)  # six channels: no blocks
    y = relay.nn.dense(relay.nn.batch_flatten(g), weight(5, 6 * 2 * 3))
    return armillary.IRModule.from_expr(relay.Function([x], relay.nn.softmax(y)))


NETWORK = network()


def output(library: Any, device: Any) -> Array:
    module = graph_executor.GraphModule(library["default"](device))
    module.set_input("x", X)
    module.run()
    module.run()  # images are used again
    return np.asarray(module.get_output(0).numpy())


def built(target: str, level: int = 3) -> Any:
    with PassContext(opt_level=level):
        return relay.build(NETWORK, target)


def source(library: Any) -> str:
    return "\n".join(m.get_source() for m in library.get_lib().imported_modules if m.type_key == "opencl")


@pytest.fixture(scope="module")
def wanted() -> Array:
    return output(built("llvm"), armillary.cpu())


@pytest.fixture(scope="module")
def library() -> Any:
    return built(ADRENO)


@pytest.mark.parametrize(
    ("scope", "shape", "size"),
    [
        (TEXTURE, (1, 16, 14, 28, 4), (224, 28)),
        (WEIGHT, (8, 16, 3, 3, 4), (8, 144)),
        (WEIGHT, (8, 4, 3, 3, 4, 4), (8, 144)),
        (NHWC, (1, 14, 28, 16, 4), (14, 448)),
        (NHWC, (8, 2, 4), (8, 2)),
    ],
)
def test_tensors_lie_in_images_as_their_scope_says(scope: str, shape: tuple[int, ...], size: tuple[int, int]) -> None:
    assert image_size(scope, shape) == size


def test_a_sampler_reads_only_what_may_lie_beside_an_image(library: Any) -> None:
    """With one, places become floats, two instructions for each; what a work-item decides is computed once."""
    kernels = re.findall(r"__kernel [^;{]*?void (\w+)\(.*?\) \{\n(.*?)\n\}", source(library), re.S)
    bodies = [body for name, body in kernels if "conv2d_NCHWc" in name and "read_image" in body]
    padded = [body for body in bodies if "image_sampler" in body]
    assert 3 <= len(padded) < len(bodies)
    assert all("(p1, (int2)(" in body and "(p1, image_sampler" not in body for body in bodies)
    assert all(body.count("const sampler_t image_sampler") == 1 for body in padded)
    assert any(re.search(r"const int item_0 = [^;]*thread_", body) for body in bodies)
    places = re.findall(r"\(int2\)\((.*)", "\n".join(bodies))
    assert places and not any(re.match(r"\w* ?\+? ?(thread|block)_\w \*", place) for place in places)


@needs_opencl
@pytest.mark.parametrize(
    ("rows", "terms", "units", "image"), [(1, 512, 24, True), (3, 128, 8, True), (2, 66, 8, False)]
)
def test_dense_layers_of_few_rows_read_their_weights_as_pixels(rows: int, terms: int, units: int, image: bool) -> None:
    x, scale, bias = relay.var("x", shape=(rows, terms)), weight(units, terms), weight(units)
    body = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, scale), bias))
    library = relay.build(armillary.IRModule.from_expr(relay.Function([x], body)), ADRENO)
    text = source(library)
    assert ("__read_only image2d_t p1" in text and "read_imagef(p1, (int2)(" in text) == image
    assert ("barrier(CLK_LOCAL_MEM_FENCE);" in text) == image  # a work-group shares a sum
    values = RNG.standard_normal((rows, terms)).astype("float32")
    graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
    graph.run(x=values)
    wanted = np.maximum(values.astype("float64") @ scale.data.T + bias.data, 0)
    np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_weights_of_a_dense_layer_above_the_limit_stay_in_buffers() -> None:
    x = relay.var("x", shape=(1, 20000))
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, weight(8, 20000))))
    with pytest.warns(UserWarning, match=r"textures of 4096 pixels at most do not hold 1 tensors"):
        text = source(relay.build(module, f"{ADRENO} -texture_spatial_limit=4096"))
    assert "image2d_t" not in text and "*(__global float4*)(p1 + " in text


def test_kernels_take_images_and_buffers_where_they_belong(library: Any) -> None:
    text = source(library)
    heads = [line for line in text.splitlines() if line.startswith("__kernel")]
    inside = [h for h in heads if "nn_contrib_conv2d_NCHWc" in h]
    assert len(inside) >= 5 and all("__read_only image2d_t p0, __read_only image2d_t p1" in h for h in inside)
    assert any("__read_only image2d_t p2, __write_only image2d_t relu)" in h for h in inside)
    assert "__global float* restrict p0, __write_only image2d_t layout_transform)" in text
    assert (
        "const sampler_t image_sampler = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;" in text
    )
    assert "read_imagef(p0, image_sampler, (int2)(" in text and "write_imagef(relu, (int2)(" in text
    assert "image2d_t" not in source(built("opencl"))


@needs_opencl
@pytest.mark.parametrize("level", [2, 3])
def test_a_network_of_textures_computes_what_it_does_on_the_cpu(level: int, wanted: Array) -> None:
    np.testing.assert_allclose(output(built(ADRENO, level), armillary.opencl()), wanted, rtol=1e-5, atol=1e-7)


def test_images_that_are_never_alive_together_share_memory(library: Any) -> None:
    graph = GraphSpec.from_json(library.get_graph_json())
    scopes = list(zip(graph.storage_scopes, graph.storage_ids, strict=True))
    between = {graph.entry(n) for n, node in enumerate(graph.nodes) if node.op != "null"}
    images = [sid for e, (scope, sid) in enumerate(scopes) if scope != "global" and e in between]
    assert len(images) > len(set(images)) > 1
    assert all(graph.image_widths[sid] > 0 for sid in images)


def test_a_plan_of_images_never_overlaps_lives() -> None:
    for _ in range(50):
        images = []
        for _ in range(40):
            first = int(RNG.integers(0, 30))
            last = first + int(RNG.integers(0, 6))
            images.append(
                Image(int(RNG.choice([7, 14])), int(RNG.choice([16, 32])), int(RNG.integers(1, 99)), first, last)
            )
        owner = share_images(images)
        for i, a in enumerate(images):
            assert owner[owner[i]] == owner[i]
            for j, b in enumerate(images[:i]):
                if owner[i] == owner[j]:
                    assert (a.width, a.bits) == (b.width, b.bits) and (a.first > b.last or b.first > a.last)
        assert len(set(owner)) < len(images)


@needs_opencl
def test_images_above_the_limit_are_buffers_and_a_warning_says_so(wanted: Array) -> None:
    with pytest.warns(UserWarning, match=r"textures of 60 pixels at most do not hold .* they stay in buffers"):
        library = built(f"{ADRENO} -texture_spatial_limit=60")
    text = source(library)
    assert 0 < text.count("image2d_t") < source(built(ADRENO)).count("image2d_t")
    np.testing.assert_allclose(output(library, armillary.opencl()), wanted, rtol=1e-5, atol=1e-7)


@needs_opencl
def test_an_image_that_the_device_has_not_is_refused_with_what_it_has() -> None:
    limit = int(armillary.opencl().facts()["widest"])
    x = relay.var("x", shape=(1, 4, 1, limit + 4))
    body = relay.nn.relu(conv(conv(x, 4, 4, 1), 4, 4, 1))
    with PassContext(opt_level=3):
        library = relay.build(
            armillary.IRModule.from_expr(relay.Function([x], body)), f"{ADRENO} -texture_spatial_limit={2 * limit}"
        )
    with pytest.raises(ArmillaryError, match=rf"images of {limit} x .* compile with -texture_spatial_limit={limit}"):
        library["default"](armillary.opencl())


@needs_opencl
def test_a_package_with_images_runs_after_it_was_loaded_and_without_python(
    library: Any, wanted: Array, tmp_path: Path, built_runner: Callable[..., Path]
) -> None:
    library.export_library(tmp_path / "net.tar")
    loaded = armillary.runtime.load_module(tmp_path / "net.tar")
    np.testing.assert_allclose(output(loaded, armillary.opencl()), wanted, rtol=1e-5, atol=1e-7)
    runner = built_runner(need_compiler(""))
    np.savez(tmp_path / "in.npz", x=X)
    files = [f"--model={tmp_path}/net.tar", f"--input={tmp_path}/in.npz", f"--output={tmp_path}/out.npz"]
    command = [str(runner), *files, "--device=opencl", "--run-count=1", "--dry-run=0", "--profile"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["output_0"], wanted, rtol=1e-5, atol=1e-7)


def read(column: E.Expr, width: int) -> E.BufferLoad:
    shape = tuple(T.const(n) for n in (8, width, 4))
    row, lanes = T.const(0), E.Ramp(T.const(0), T.const(1), 4)
    return E.BufferLoad(S.Buffer("image", shape, DType("float32"), TEXTURE), (row, column, lanes))


@pytest.mark.parametrize("times", [1, 2, 7, -3])
def test_tests_that_the_sampler_does_are_exactly_those_left_out(times: int) -> None:
    """By all values of a variable: a test may go where whatever it excludes lies beside the image."""
    x, width = E.Var("x", E.INT32), 14
    for offset in range(-4, 18, 3):
        column = T.add(T.mul(x, times), offset)
        for bound in range(-3, 6):
            for test in (E.GE(x, T.const(bound)), E.LT(x, T.const(bound)), E.GT(x, T.const(bound))):
                compare = COMPARE[type(test)]
                excluded = [times * v + offset for v in range(-40, 40) if not compare(v, bound)]
                may_go = not any(0 <= c < width for c in excluded)
                assert (without_column_tests(test, read(column, width)) is None) == may_go, (offset, bound, test)


def test_the_target_says_how_large_images_may_be() -> None:
    assert Target(ADRENO).attrs["texture_spatial_limit"] == 16384
