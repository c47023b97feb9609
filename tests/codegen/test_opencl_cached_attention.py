"""Attention over caches on OpenCL devices: two kernels, whatever the row sees, as the operator's reference says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.ops.decoder.cache_update import CacheUpdateAttrs
from armillary.ops.decoder.cached_attention import CachedAttentionAttrs
from armillary.relay.expr import Call
from armillary.relay.op import get_op
from armillary.transform import PassContext

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
HEADS, GROUPS = 6, 2
STEP = {"scale": 0.25}
# attributes, rows, capacity, features of keys and of values, positions of the first row, positions that count
CASES = {
    "step": (STEP, 1, 300, 16, 16, [259, 0], [260, 1]),
    "rows": (STEP, 3, 300, 16, 24, [130, 0], [133, 2]),
    "window": ({"scale": 0.3, "window": 140, "softcap": 3.0}, 2, 300, 8, 8, [270, 12], [272, 14]),
    "wide": (STEP, 1, 150, 12, 200, [140, 3], [141, 4]),
    "odd": (STEP, 1, 40, 7, 5, [39, 3], [40, 0]),
    "all": ({"scale": 0.25, "causal": False}, 2, 129, 16, 16, [0, 0], [129, 128]),
}


def _inputs(name: str, kind: str) -> tuple[CachedAttentionAttrs, list[Array]]:
    attrs, count, capacity, features, width, starts, totals = CASES[name]
    query = RNG.standard_normal((2, count, HEADS, features)).astype("float32")
    caches = [RNG.standard_normal((2, GROUPS, capacity, n)).astype("float32") for n in (features, width)]
    for cache, total in ((c, t) for c in caches for t in [totals]):
        for sequence, end in zip(cache, total, strict=True):
            sequence[:, end:] = np.nan  # what does not count is not read
    sinks = np.array([-np.inf, 0.5, 1, -np.inf, -2, 3], "float32")
    arrays = [query, *caches, np.array(starts, "int32"), np.array(totals, "int32"), sinks]
    if kind == "masked":
        arrays.append(np.where(RNG.random((2, 1, count, capacity)) < 0.2, -np.inf, 0.1).astype("float32"))
    if kind == "float16":
        arrays[1:3] = [cache.astype("float16") for cache in caches]
    if kind == "quantized":
        arrays[1:3] = [RNG.integers(-127, 128, cache.shape).astype("int8") for cache in caches]
        arrays += [(RNG.random((2, GROUPS, capacity, 1)) * 0.02).astype("float32") for _ in caches]
    return CachedAttentionAttrs(**attrs), arrays


@needs_opencl
@pytest.mark.parametrize("kind", ["plain", "masked", "quantized", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_what_counts_is_attended_to(name: str, kind: str) -> None:
    attrs, arrays = _inputs(name, kind)
    op = get_op(f"nn.cached_{'' if kind in ('plain', 'float16') else kind + '_'}attention")
    inputs = [relay.var(f"x{n}", shape=a.shape, dtype=str(a.dtype)) for n, a in enumerate(arrays)]
    with PassContext(opt_level=3):
        library = relay.build(relay.Function(inputs, Call(op, tuple(inputs), attrs)), "opencl")
    (row,) = (row for row in library.lib.descriptor.functions.values() if "cached" in row.name)
    assert len(row.launches) == 2
    graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
    graph.run(**{f"x{n}": a for n, a in enumerate(arrays)})
    wanted = op.reference_rule(attrs, *arrays)
    np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, rtol=2e-5, atol=2e-5)


@needs_opencl
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("features", "dtype"), [(16, "float32"), (7, "float32"), (16, "float16"), (8, "int8")])
def test_new_rows_are_written_where_they_fit(features: int, dtype: str, in_place: bool) -> None:
    op, attrs = get_op("nn.cache_update"), CacheUpdateAttrs(in_place)
    shapes = (3, 2, 37, features), (3, 2, 2, features)
    cache, new = (RNG.integers(-100, 100, shape).astype(dtype) for shape in shapes)
    arrays = [cache, new, np.array([36, -1, 5], "int32")]
    inputs = [relay.var(f"x{n}", shape=a.shape, dtype=str(a.dtype)) for n, a in enumerate(arrays)]
    with PassContext(opt_level=3):
        library = relay.build(relay.Function(inputs, Call(op, tuple(inputs), attrs)), "opencl")
    (row,) = (row for row in library.lib.descriptor.functions.values() if "cache_update" in row.name)
    assert len(row.launches) == 1
    graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
    graph.run(**{f"x{n}": a for n, a in enumerate(arrays)})
    np.testing.assert_array_equal(graph.get_output(0).numpy(), op.reference_rule(CacheUpdateAttrs(), *arrays))


@needs_opencl
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("features", [16, 7])
def test_new_rows_are_computed_where_they_are_written(features: int, in_place: bool) -> None:
    """One kernel rotates, say, and writes; the cache stays its first argument, which is changed where it lies."""
    op = get_op("nn.cache_update")
    cache, new = RNG.standard_normal((2, 3, 21, features)), RNG.standard_normal((2, 2, 3, features))
    arrays = [cache.astype("float32"), new.astype("float32"), np.array([4, 20], "int32")]
    held, rows, start = (relay.var(f"x{n}", shape=a.shape, dtype=str(a.dtype)) for n, a in enumerate(arrays))
    moved = relay.transpose(relay.exp(rows) * relay.const(2.0, "float32"), axes=(0, 2, 1, 3))
    update = Call(op, (held, moved, start), CacheUpdateAttrs(in_place))
    with PassContext(opt_level=3):
        library = relay.build(relay.Function([held, rows, start], update), "opencl")
    (row,) = library.lib.descriptor.functions.values()
    assert "cache_update" in row.name and len(row.launches) == 1
    graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
    graph.run(**{f"x{n}": a for n, a in enumerate(arrays)})
    written = (np.exp(arrays[1]) * np.float32(2)).transpose(0, 2, 1, 3)
    wanted = op.reference_rule(CacheUpdateAttrs(), arrays[0], written, arrays[2])
    np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, rtol=1e-6, atol=1e-6)
