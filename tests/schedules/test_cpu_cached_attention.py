"""Attention of many rows over caches, by blocks of keys: the same numbers as the reference, whatever is seen."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from armillary import relay
from armillary.backends.cpu.attention.cached_space import MIN_LINES, block_plan, refuses
from armillary.backends.workload import Workload
from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.contrib import graph_executor
from armillary.driver.build import build
from armillary.relay.op import get_op
from armillary.relay.transform._rules import call
from armillary.relay.types import TensorType
from armillary.runtime.device import cpu
from armillary.target import Target
from armillary.target.cpu import cpu_model

Shape = tuple[int, int, int, int, int, int, int]  # batch, rows, heads, groups, features, values, capacity
CASES: dict[str, tuple[Shape, list[int], list[int], dict[str, object], str]] = {
    "two sequences": ((2, 20, 8, 2, 16, 32, 77), [5, 50], [25, 70], {}, "float32"),
    "a window, a cap": ((2, 20, 8, 2, 20, 24, 300), [130, 250], [150, 270], {"window": 37, "softcap": 5.0}, "float32"),
    "all keys": ((1, 33, 4, 4, 64, 80, 300), [200], [233], {"causal": False}, "bfloat16"),
    "none": ((1, 16, 4, 1, 64, 16, 300), [100], [0], {}, "float16"),
    "a full cache": ((1, 40, 2, 1, 40, 8, 300), [290], [400], {}, "float32"),
    "bytes": ((1, 40, 8, 1, 40, 96, 300), [100], [140], {}, "int8"),
    "masked": ((1, 16, 4, 1, 64, 16, 300), [0], [16], {}, "masked"),
}


def arrays_of(shape: Shape, start: list[int], total: list[int], kind: str) -> list[Array]:
    random = np.random.default_rng(len(kind))
    b, t, h, g, d, e, n = shape
    query = random.standard_normal((b, t, h, d)).astype(np.float32)
    caches = [random.standard_normal((b, g, n, size)).astype(np.float32) for size in (d, e)]
    sinks = np.where(np.arange(h) % 2, -np.inf, 0.5).astype(np.float32)
    rest = [np.array(start, np.int32), np.array(total, np.int32), sinks]
    if kind == "masked":
        mask = random.standard_normal((1, h, t, n // 2)).astype(np.float32)
        return [query, *caches, *rest, np.where(random.random(mask.shape) < 0.2, -np.inf, mask).astype(np.float32)]
    if kind == "int8":
        caches = [np.clip(np.rint(c * 40), -127, 127).astype(np.int8) for c in caches]
        return [query, *caches, *rest, *(random.uniform(0.01, 0.03, (2, b, g, n, 1)).astype(np.float32))]
    dtype = np.dtype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)
    caches = [c.astype(dtype) for c in caches]
    for cache, count in zip(caches, [max(total)] * 2, strict=True):
        cache[:, :, count:] = np.nan  # what no row sees is not read
    return [query, *caches, *rest]


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("case", CASES)
def test_blocks_of_keys_give_what_the_reference_gives(case: str, target: str) -> None:
    shape, start, total, named, kind = CASES[case]
    arrays = arrays_of(shape, start, total, kind)
    name = {"masked": "nn.cached_masked_attention", "int8": "nn.cached_quantized_attention"}
    op = get_op(name.get(kind, "nn.cached_attention"))
    named = {"scale": shape[4] ** -0.5, **named}
    inputs = [relay.var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(arrays)]
    module = graph_executor.GraphModule(
        build(relay.Function(inputs, call(op.name, *inputs, **named)), target)["default"](cpu(0))
    )
    module.run(**{f"x{k}": a for k, a in enumerate(arrays)})
    got, want = module.get_output(0).numpy(), op.evaluate(op.make_attrs(named=named), arrays)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_few_heads_of_rows_are_not_worth_a_transposition() -> None:
    op, target = get_op("nn.cached_attention"), Target("llvm -mcpu=haswell")

    def workload(rows: int) -> Workload:
        shapes = [(1, rows, 8, 64), (1, 2, 99, 64), (1, 2, 99, 64), (1,), (1,), (8,)]
        kinds = ["float32"] * 3 + ["int32"] * 2 + ["float32"]
        types = tuple(TensorType(s, DType(k)) for s, k in zip(shapes, kinds, strict=True))
        return Workload(op, op.make_attrs(named={}), types, target)

    assert refuses(workload(MIN_LINES // 4)) is None
    assert "do not pay" in str(refuses(workload(MIN_LINES // 4 - 1)))


def test_sums_of_a_tile_fit_the_registers() -> None:
    for name in ("haswell", "cascadelake", "znver4"):
        model = cpu_model(Target(f"llvm -mcpu={name}"))
        plan = block_plan((1, 128, 32, 64), (1, 4, 2048, 64), (1, 4, 2048, 64), model)
        assert plan.height * plan.width < model.vector_registers
        assert plan.keys % (plan.width * plan.lanes) == 0
