"""Pooling by the real library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from infrastructure import Device, module_of, nodes, partitioned, run, verify

from armillary import relay
from armillary.offload.report import offload_report
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, const, var
from armillary.relay.op.contrib.arm_compute_lib import partition_for_arm_compute_lib

RNG = np.random.default_rng(3)


def inputs(dtype: str) -> np.ndarray:
    if dtype == "float32":
        return RNG.uniform(-127, 128, (1, 16, 14, 24)).astype("float32")
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, (1, 16, 14, 24)).astype(dtype)


def pools(x: Expr, dtype: str) -> list[Expr]:
    """Sizes, strides and paddings that differ down and across."""
    nn, common = relay.nn, {"layout": "NHWC"}
    found = [
        nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(0, 0), **common),
        nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2), padding=(1, 1), ceil_mode=True, **common),
        nn.max_pool2d(x, pool_size=(3, 2), strides=(2, 1), padding=(1, 0, 0, 1), **common),
        nn.global_max_pool2d(x, **common),
    ]
    if dtype != "float32":
        wide = relay.cast(x, "int32")
        means = [
            nn.avg_pool2d(wide, pool_size=(3, 3), strides=(2, 2), padding=(0, 0), **common),
            nn.global_avg_pool2d(relay.cast(x, "int32"), **common),
        ]
        return found + [relay.cast(mean, dtype) for mean in means]
    means = [
        nn.avg_pool2d(x, pool_size=(2, 3), strides=(1, 2), padding=(1, 1), **common),
        nn.avg_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), count_include_pad=True, **common),
        nn.global_avg_pool2d(x, **common),
    ]
    squares = relay.power(x, const(np.float32(2)))
    return [*found, *means, relay.sqrt(nn.avg_pool2d(squares, pool_size=(3, 3), strides=(1, 1), **common))]


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
def test_pools_are_those_of_the_reference(device: Device, dtype: str, tmp_path: Path) -> None:
    x = var("x", shape=(1, 16, 14, 24), dtype=dtype)
    module = module_of(*pools(x, dtype))
    count = len(pools(x, dtype))
    data = inputs(dtype)
    found = run(device, partitioned(module, 0, count), {"x": data}, tmp_path)
    # Means of negative bytes: version 20.08 adds one half and truncates, the reference takes the floor.
    atol = {"float32": 0.001, "uint8": 1, "int8": 2}[dtype]
    verify(found, evaluate(module, [data]), atol=atol, rtol=0.001 if dtype == "float32" else 0)


def test_pools_of_odd_shapes_by_several_threads(device: Device, tmp_path: Path) -> None:
    """A kernel whose window is one piece computes all of it, whatever share it would have of so many threads."""
    shapes = (7, 3, 14), (11, 7, 15), (13, 1, 4), (1, 1, 1), (1, 13, 33)
    given = [var(f"x{k}", shape=(1, *shape)) for k, shape in enumerate(shapes)]
    results = [relay.nn.global_avg_pool2d(x, layout="NHWC") for x in given]
    results += [relay.nn.global_max_pool2d(x, layout="NHWC") for x in given]
    results += [relay.nn.max_pool2d(x, pool_size=(1, 1), strides=(3, 2), layout="NHWC") for x in given]
    module = module_of(*results)
    data = {f"x{k}": RNG.uniform(-1, 1, (1, *shape)).astype("float32") for k, shape in enumerate(shapes)}
    for threads in (2, 3):
        found = run(device, partitioned(module, 0, len(results)), data, tmp_path, threads=threads)
        verify(found, evaluate(module, data), atol=1e-5, rtol=1e-5)


def test_what_no_version_or_not_every_one_computes_stays_in_the_graph(device: Device, tmp_path: Path) -> None:
    """A window that begins behind the data, which the library counts, and means of bytes that count padding."""
    x = var("x", shape=(1, 3, 8, 18))
    common = {"pool_size": (3, 1), "layout": "NHWC", "ceil_mode": True}
    behind = relay.nn.avg_pool2d(x, strides=(1, 2), **common)
    (row,) = offload_report(partitioned(module_of(behind), 1, 0), ["arm_compute_lib"]).rows
    assert "the library counts 5 windows along axis 2, the last one behind the data" in row.reason
    wide = relay.cast(var("x", shape=(1, 4, 4, 2), dtype="uint8"), "int32")
    counting = relay.nn.avg_pool2d(wide, pool_size=(2, 2), padding=(1, 1), layout="NHWC", count_include_pad=True)
    rows = offload_report(partitioned(module_of(relay.cast(counting, "uint8")), 3, 0), ["arm_compute_lib"]).rows
    assert any("means of bytes that count padding are not in all versions" in row.reason for row in rows)
    module = module_of(behind, relay.nn.max_pool2d(x, strides=(1, 1), **common))
    data = RNG.uniform(-1, 1, (1, 3, 8, 18)).astype("float32")
    verify(run(device, partitioned(module, 1, 1), {"x": data}, tmp_path), evaluate(module, [data]), atol=1e-5, rtol=0)


def test_script_of_the_text_runs_as_written(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    script = Path(__file__).with_name("max_pool2d_script.txt")
    scope: dict[str, object] = {}
    exec(compile(script.read_text(), str(script), "exec"), scope)  # as a user runs it
    data = RNG.uniform(0, 1, (1, 14, 14, 512)).astype("float32")
    (found,) = device.run(tmp_path / "lib_acl.so", {"data": data})
    np.testing.assert_array_equal(found, data.reshape(1, 7, 2, 7, 2, 512).max((2, 4)))


def test_nodes_of_pools() -> None:
    x = var("x", shape=(1, 16, 16, 16))
    pool = relay.nn.avg_pool2d(
        x, pool_size=(2, 2), strides=(2, 2), padding=(1, 0), layout="NHWC", count_include_pad=True
    )
    (rows,) = nodes(partitioned(module_of(pool)))
    attrs = {
        "num_inputs": "1",
        "num_outputs": "1",
        "layout": [["NHWC"]],
        "out_layout": [[""]],
        "shape": [[[1, 9, 8, 16]]],
        "dtype": [["float32"]],
        "padding": [["1", "0", "1", "0"]],
        "strides": [["2", "2"]],
        "dilation": [["1", "1"]],
        "pool_size": [["2", "2"]],
        "ceil_mode": [["0"]],
        "count_include_pad": [["1"]],
    }
    assert rows == [
        {"op": "input", "name": "", "attrs": {"shape": [[[1, 16, 16, 16]]], "dtype": [["float32"]]}},
        {"op": "kernel", "name": "nn.avg_pool2d", "inputs": [[0, 0, 0]], "attrs": attrs},
    ]


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
def test_each_pool_is_one_node(dtype: str) -> None:
    """Its name, the size of its result, and what it adds to a global pool's attributes."""
    x = var("x", shape=(1, 16, 14, 24), dtype=dtype)
    wanted = [("nn.max_pool2d", [7, 6]), ("nn.max_pool2d", [9, 8]), ("nn.max_pool2d", [8, 14])]
    wanted += [("nn.global_max_pool2d", [1, 1])]
    wanted += [("nn.avg_pool2d", [17, 7]), ("nn.avg_pool2d", [8, 7])] if dtype == "float32" else []
    wanted += [("nn.avg_pool2d", [7, 6])] if dtype != "float32" else []
    wanted += [("nn.global_avg_pool2d", [1, 1])] + ([("nn.l2_pool2d", [14, 12])] if dtype == "float32" else [])
    found = nodes(partitioned(module_of(*pools(x, dtype)), 0, len(wanted)))
    assert [(rows[-1]["name"], rows[-1]["attrs"]["shape"][0][0][1:3]) for rows in found] == wanted
    local = {"padding", "strides", "dilation", "pool_size", "ceil_mode"}
    common = {"num_inputs", "num_outputs", "layout", "out_layout", "shape", "dtype"}
    for first, last in found:
        assert first["attrs"] == {"shape": [[[1, 16, 14, 24]]], "dtype": [[dtype]]}
        own = set() if "global" in last["name"] else local
        assert set(last["attrs"]) == common | own | (
            {"count_include_pad"} if own and "max" not in last["name"] else set()
        )
        assert last["attrs"]["dtype"] == [[dtype]] and last["inputs"] == [[0, 0, 0]]


def quantized(kind: str, dtype: str, steps: tuple[float, int], to: tuple[float, int]) -> bytes:
    """A file of DequantizeLinear, a mean, QuantizeLinear, as exporters write it."""
    stored = getattr(onnx.TensorProto, dtype.upper())
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]} if kind == "AveragePool" else {}
    numbers = {"s": np.float32(steps[0]), "z": np.array(steps[1], dtype)}
    numbers |= {"t": np.float32(to[0]), "u": np.array(to[1], dtype)}
    rows = [
        onnx.helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        onnx.helper.make_node(kind, ["a"], ["b"], **window),
        onnx.helper.make_node("QuantizeLinear", ["b", "t", "u"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        rows,
        "mean",
        [onnx.helper.make_tensor_value_info("x", stored, (1, 5, 9, 7))],
        [onnx.helper.make_tensor_value_info("y", stored, None)],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()],
    )
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8
    ).SerializeToString()


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("kind", ["AveragePool", "GlobalAveragePool"])
def test_a_mean_of_a_quantised_file_is_the_librarys(kind: str, dtype: str, device: Device, tmp_path: Path) -> None:
    info = np.iinfo(dtype)
    data = RNG.integers(info.min, info.max, (1, 5, 9, 7)).astype(dtype)
    file = quantized(kind, dtype, (0.05, 7), (0.05, 7))
    module, params = relay.frontend.from_onnx(onnx.load_model_from_string(file))
    parts = partition_for_arm_compute_lib(module, params)
    report = offload_report(parts)
    assert [row.what for row in report.offloaded][:1] == ["qnn.avg_pool2d"]
    assert not [row for row in report.kept if "pool" in row.what]
    (wanted,) = onnxruntime.InferenceSession(file).run(None, {"x": data})
    verify(run(device, parts, {"x": data}, tmp_path), [wanted], atol=1 if dtype == "uint8" else 2, rtol=0)
    other, params = relay.frontend.from_onnx(
        onnx.load_model_from_string(quantized("AveragePool", dtype, (0.05, 7), (0.1, 7)))
    )
    reasons = {row.what: row.reason for row in offload_report(partition_for_arm_compute_lib(other, params)).kept}
    assert reasons["qnn.avg_pool2d"] == "the result has other steps than the data"
