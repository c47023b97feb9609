"""add, maximum, reshape, qnn.add and concatenate by the real library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from infrastructure import Array, Device, module_of, nodes, partitioned, run, verify

from armillary import relay
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, const, var

RNG = np.random.default_rng(13)
SHAPES = (((2, 2), (2, 2)), ((1, 7, 9, 16), (1, 7, 9, 16)), ((1, 7, 9, 16), (1, 1, 1, 16)), ((5, 30), (5, 30)))


def test_add_and_maximum(device: Device, tmp_path: Path) -> None:
    given: dict[str, Array] = {}
    results: list[Expr] = []
    for k, (a, b) in enumerate(SHAPES):
        given |= {f"a{k}": RNG.uniform(-9, 9, a).astype("float32"), f"b{k}": RNG.uniform(-9, 9, b).astype("float32")}
        x, y = var(f"a{k}", shape=a), var(f"b{k}", shape=b)
        results += [relay.add(x, y), relay.maximum(x, y)]
    module = module_of(*results)
    found = run(device, partitioned(module, 0, len(results)), given, tmp_path)
    pairs = [(given[f"a{k}"], given[f"b{k}"]) for k in range(len(SHAPES))]
    verify(found, [f(*pair) for pair in pairs for f in (np.add, np.maximum)], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_sums_of_bytes(device: Device, dtype: str, tmp_path: Path) -> None:
    info = np.iinfo(dtype)
    given = {name: RNG.integers(info.min, info.max, (1, 9, 5, 24)).astype(dtype) for name in ("x", "y")}
    x, y = (var(name, shape=(1, 9, 5, 24), dtype=dtype) for name in given)
    zero = 120 if dtype == "uint8" else -8
    numbers = [const(v) for v in (0.02, zero, 0.03, zero + 3, 0.09, zero)]
    module = module_of(relay.qnn.add(x, y, *numbers))
    verify(run(device, partitioned(module), given, tmp_path), [evaluate(module, list(given.values()))], atol=2, rtol=0)
    scales = const(np.full(24, 0.02, "float32"))
    partitioned(module_of(relay.qnn.add(x, y, scales, *numbers[1:], lhs_axis=3)), 1, 0)


def test_a_tensor_and_itself(device: Device, tmp_path: Path) -> None:
    """The library keeps a scale with its tensor: with two of them the sum stays in the graph."""
    value = RNG.integers(-128, 128, (1, 4, 5, 6)).astype("int8")
    x = var("x", shape=value.shape, dtype="int8")
    into = const(0.09), const(3)
    same = relay.qnn.add(x, x, const(0.02), const(1), const(0.02), const(1), *into)
    two = relay.qnn.add(x, x, const(0.02), const(1), const(0.05), const(-7), *into)
    module = module_of(same, two)
    verify(run(device, partitioned(module, 1, 1), {"x": value}, tmp_path), evaluate(module, [value]), atol=1, rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_reshape(device: Device, dtype: str, tmp_path: Path) -> None:
    value = RNG.integers(0, 99, (1, 4, 5, 6)).astype(dtype)
    x = var("x", shape=value.shape, dtype=dtype)
    shapes = ((20, 6), (1, -1), (2, 3, 20), (1, 1, 1, 120))
    module = module_of(*(relay.reshape(x, newshape=shape) for shape in shapes))
    found = run(device, partitioned(module, 0, len(shapes)), {"x": value}, tmp_path)
    verify(found, [value.reshape(shape) for shape in shapes], atol=0, rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
def test_concatenate_is_off_unless_asked_for(device: Device, dtype: str, tmp_path: Path) -> None:
    low = 0 if dtype == "uint8" else -100
    given = {name: RNG.integers(low, 100, (1, 3, 4, 5)).astype(dtype) for name in "xyz"}
    values = [var(name, shape=value.shape, dtype=dtype) for name, value in given.items()]
    axes = (3, 1, -2, 2, -4)
    module = module_of(*(relay.concatenate(values, axis=axis) for axis in axes))
    partitioned(module, len(axes), 0)
    found = run(device, partitioned(module, 0, len(axes), disabled=()), given, tmp_path)
    verify(found, [np.concatenate(list(given.values()), axis) for axis in axes], atol=0, rtol=0)


def test_concatenate_along_an_axis_of_different_sizes(device: Device, tmp_path: Path) -> None:
    given = {f"x{k}": RNG.uniform(-1, 1, (1, 3, 4, size)).astype("float32") for k, size in enumerate((5, 1, 18))}
    values = [var(name, shape=value.shape) for name, value in given.items()]
    after = partitioned(module_of(relay.concatenate(values, axis=3)), disabled=())
    verify(run(device, after, given, tmp_path), [np.concatenate(list(given.values()), 3)], atol=0, rtol=0)


def test_operators_can_be_switched_off() -> None:
    x = var("x", shape=(2, 3))
    partitioned(
        module_of(relay.add(relay.reshape(x, newshape=(3, 2)), relay.reshape(x, newshape=(3, 2)))),
        2,
        1,
        disabled=["reshape"],
    )


def test_nodes_of_add_and_qnn_add() -> None:
    x, y = (var(name, shape=(2, 3)) for name in "xy")
    (rows,) = nodes(partitioned(module_of(relay.add(x, y))))
    leaf = {"op": "input", "name": "", "attrs": {"shape": [[[2, 3]]], "dtype": [["float32"]]}}
    attrs = {"num_inputs": "2", "num_outputs": "1", "shape": [[[2, 3]]], "dtype": [["float32"]]}
    assert rows == [leaf, leaf, {"op": "kernel", "name": "add", "inputs": [[0, 0, 0], [1, 0, 0]], "attrs": attrs}]
    x, y = (var(name, shape=(2, 3), dtype="uint8") for name in "xy")
    numbers = [const(v) for v in (0.02, 1, 0.03, 2, 0.09, 3)]
    (rows,) = nodes(partitioned(module_of(relay.qnn.add(x, y, *numbers))))
    assert rows[-1]["attrs"]["lhs_axis"] == [["-1"]] and rows[-1]["attrs"]["num_inputs"] == "8"


def test_nodes_of_maximum_reshape_and_concatenate() -> None:
    x, y = (var(name, shape=(2, 3)) for name in "xy")
    leaf = {"op": "input", "name": "", "attrs": {"shape": [[[2, 3]]], "dtype": [["float32"]]}}
    common = {"num_outputs": "1", "dtype": [["float32"]]}
    two, one = ({"inputs": [[k, 0, 0] for k in range(n)], "op": "kernel"} for n in (2, 1))
    (rows,) = nodes(partitioned(module_of(relay.maximum(x, y))))
    assert rows == [leaf, leaf, two | {"name": "maximum", "attrs": common | {"num_inputs": "2", "shape": [[[2, 3]]]}}]
    (rows,) = nodes(partitioned(module_of(relay.reshape(x, newshape=(3, -1)))))
    attrs = common | {"num_inputs": "1", "shape": [[[3, 2]]], "newshape": [["3", "-1"]], "allowzero": [["0"]]}
    assert rows == [leaf, one | {"name": "reshape", "attrs": attrs}]
    (rows,) = nodes(partitioned(module_of(relay.concatenate([x, y], axis=-1)), disabled=()))
    attrs = common | {"num_inputs": "2", "shape": [[[2, 6]]], "axis": [["-1"]]}
    assert rows == [leaf, leaf, two | {"name": "concatenate", "attrs": attrs}]


def test_operands_that_the_library_cannot_pair_stay() -> None:
    x, y = var("x", shape=(4, 1)), var("y", shape=(1, 4))
    partitioned(module_of(relay.add(x, y)), 1, 0)  # both are broadcast
    partitioned(module_of(relay.maximum(var("x", shape=(4, 3)), var("y", shape=(3,)))), 1, 0)
