"""Opt levels and pass lists change how fast a network is, never what it computes."""

from __future__ import annotations

from functools import cache
from typing import Any

import e2e_models as models
import numpy as np
import pytest

from armillary.errors import ConfigError
from armillary.ops.nn._windows import call
from armillary.relay.expr import Function, Let, Tuple, TupleGetItem, const, var

Network = tuple[Any, Any, models.Arrays]


def _resnet() -> Network:
    return models.workload("resnet", num_layers=8, image_shape=(3, 20, 20), num_classes=10)


def _mobilenet() -> Network:
    return models.workload("mobilenet", image_shape=(3, 32, 32), num_classes=10)


def _squeezenet() -> Network:
    return models.workload("squeezenet", image_shape=(3, 64, 64), version="1.1", num_classes=10)


def _mlp() -> Network:
    return models.workload("mlp", batch_size=5)


NETWORKS = {"mlp": _mlp, "mobilenet": _mobilenet, "resnet": _resnet, "squeezenet": _squeezenet}


@cache
def _network(name: str) -> tuple[Network, models.Array]:
    network = NETWORKS[name]()
    return network, models.in_double(*network)


@pytest.mark.parametrize("level", range(5))
@pytest.mark.parametrize("name", NETWORKS)
def test_every_level_computes_the_same(name: str, level: int) -> None:
    (module, params, inputs), want = _network(name)
    assert models.relative_error(models.run(models.compiled(module, params, level=level), inputs), want) < 1e-5


DISABLED = (
    ("FuseOps",),
    ("AlterOpLayout",),
    ("FoldConstant",),
    ("FoldScaleAxis",),
    ("SimplifyInference",),
    ("FastMath",),
    ("CanonicalizeOps",),
    ("EliminateCommonSubexpr",),
    ("CombineParallelConv2D",),
    ("AlterOpLayout", "FoldConstant"),
    ("FuseOps", "FoldConstant", "AlterOpLayout", "FoldScaleAxis", "SimplifyExpr"),
)


@pytest.mark.parametrize(
    ("name", "disabled"),
    [
        pytest.param(name, disabled, marks=() if k % 2 == at else pytest.mark.slow, id=f"{name}-{'+'.join(disabled)}")
        for at, name in enumerate(("mobilenet", "resnet"))  # in turns
        for k, disabled in enumerate(DISABLED)
    ],
)
def test_network_survives_disabled_passes(name: str, disabled: tuple[str, ...]) -> None:
    (module, params, inputs), want = _network(name)
    library = models.compiled(module, params, disabled_pass=list(disabled))
    assert models.relative_error(models.run(library, inputs), want) < 1e-5


def test_without_fusion_every_operator_is_a_kernel_of_its_own() -> None:
    (module, params, _), _ = _network("mlp")
    fused, alone = (models.compiled(module, params, disabled_pass=d) for d in ([], ["FuseOps"]))
    assert any(name.startswith("fused_nn_contrib_dense_pack_") and "relu" in name for name in fused.kernels) or any(
        "relu" in name and "dense" in name for name in fused.kernels
    )
    assert not any("relu" in name and "dense" in name for name in alone.kernels)


def test_a_pass_required_at_a_low_level_runs() -> None:
    (module, params, inputs), want = _network("mobilenet")
    library = models.compiled(module, params, level=0, required_pass=["AlterOpLayout", "FoldConstant"])
    assert any("NCHWc" in name for name in library.kernels)
    assert models.relative_error(models.run(library, inputs), want) < 1e-5


def test_parameters_left_unbound_are_inputs() -> None:
    (module, params, inputs), want = _network("resnet")
    library = models.compiled(module, {})
    assert models.relative_error(models.run(library, {**params, **inputs}), want) < 1e-5


@pytest.mark.parametrize(
    ("target", "level"),
    [
        ("llvm", 0),
        ("llvm", 3),
        pytest.param("c", 0, marks=pytest.mark.slow),  # half a megabyte of C; level 0 in C: the operator matrix
        ("c", 3),
        pytest.param("llvm -mcpu=x86-64", 0, marks=pytest.mark.slow),
        ("llvm -mcpu=x86-64", 3),
        ("llvm -opt-level=1", 0),
        pytest.param("llvm -opt-level=1", 3, marks=pytest.mark.slow),
    ],
)
def test_targets_agree(target: str, level: int) -> None:
    (module, params, inputs), want = _network("resnet")
    library = models.compiled(module, params, target, level)
    assert models.relative_error(models.run(library, inputs), want) < 1e-5


def _outputs(function: Function, inputs: models.Arrays, level: int) -> list[models.Array]:
    graph = models.compiled(function, {}, level=level)["default"]()
    for name, value in inputs.items():
        graph.set_input(name, value)
    graph.run()
    return [np.array(graph.get_output(k).numpy()) for k in range(graph.get_num_outputs())]


@pytest.mark.parametrize("level", [0, 3])
def test_several_outputs_some_of_them_inputs_twice_or_constants(level: int) -> None:
    x = var("x", shape=(2, 6), dtype="float32")
    y = call("nn.relu", x)
    parts = call("split", y, indices_or_sections=2, axis=1)
    constant = const(np.arange(3, dtype=np.float32))
    body = Tuple((y, x, TupleGetItem(parts, 1), y, constant, call("reshape", x, newshape=(3, 4))))
    value = np.random.default_rng(models.SEED).uniform(-1, 1, (2, 6)).astype(np.float32)
    relu = np.maximum(value, 0)
    want = [relu, value, relu[:, 3:], relu, np.arange(3, dtype=np.float32), value.reshape(3, 4)]
    for got, wanted in zip(_outputs(Function((x,), body), {"x": value}, level), want, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("level", [0, 3])
def test_let_is_computed_once_and_read_often(level: int) -> None:
    x, y = var("x", shape=(3, 4), dtype="float32"), var("y")
    body = Let(y, call("exp", x), call("add", y, call("multiply", y, y)))
    value = np.random.default_rng(models.SEED).uniform(-1, 1, (3, 4)).astype(np.float32)
    (got,) = _outputs(Function((x,), body), {"x": value}, level)
    np.testing.assert_allclose(got, np.exp(value) + np.exp(value) ** 2, rtol=1e-5)


def test_unknown_pass_configuration_is_refused() -> None:
    (module, params, _), _ = _network("mlp")
    with pytest.raises(ConfigError, match="unknown pass configuration key"):
        models.compiled(module, params, config={"relay.FuseOps.max_dept": 3})
