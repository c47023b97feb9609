"""Values that no network should give: no numbers, infinities, positions far outside.

Operators that turn them into places read nothing outside their inputs, the reference has a value (a fold asks it), and
both agree. A box without a number ended the process.
"""

from __future__ import annotations

import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
import sampling

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.errors import ArmillaryError
from armillary.relay.evaluate import evaluate
from armillary.relay.op import OPS
from armillary.transform import PassContext

NAN, INF = np.nan, np.inf
REALS = [NAN, INF, -INF, 3e38, -3e38, -1e20, 1e20, 2.5e9, -0.0, 0.5, -7.5, 1e-40]
BOXES = [
    [0, 0, 1, 1],
    [NAN, 0, 1, 1],
    [0, NAN, 1, 1],
    [0, 0, NAN, 1],
    [0, 0, 1, NAN],
    [INF, 0, 1, 1],
    [0, 0, INF, INF],
    [-INF, -INF, INF, INF],
    [0, 0, 1e30, 2**31],
    [-1e30, -(2.0**31), 1e30, 2**31],
]
MOST_BYTES = 64 << 20  # of a reference: samples are small, and a size that values give has an end
IMAGES = [0, 5, -3, 2**31 - 1, -(2**31), 0, 0, 0, 1, 1]


def wild(value: Any, random: np.random.Generator, kinds: str) -> Any:
    if isinstance(value, tuple):
        return tuple(wild(v, random, kinds) for v in value)
    if value.dtype.kind == "f" and "f" in kinds:
        with np.errstate(over="ignore"):
            return random.choice(REALS, value.shape).astype(value.dtype)
    if value.dtype.kind in "iu" and "i" in kinds:
        limits = np.iinfo(value.dtype)
        few = [limits.min, limits.max, limits.max - 1, limits.max // 2, 0, 1, 5, 9, 100]
        return random.choice(np.array(few, value.dtype), value.shape)
    return value


@pytest.mark.parametrize("kinds", ["f", "i", "fi"])
def test_references_have_a_value_or_refuse(kinds: str) -> None:
    tried, failed = 0, []
    for name, op in OPS.items():
        for number, sample in enumerate(sampling.list_samples(op)[:2]):
            fixed = sampling.compile_time_arguments(op, sample)
            arrays = sampling.arrays_of(sample, name)
            random = np.random.default_rng(number)
            given = [a if k in fixed else wild(a, random, kinds) for k, a in enumerate(arrays)]
            tried += 1
            tracemalloc.start()
            try:
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    op.evaluate(sample.attrs, given)
            except ArmillaryError as error:
                if error.__cause__ is not None:
                    failed.append(str(error))
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            if most > MOST_BYTES:
                failed.append(f"{name}: takes {most >> 20} MiB for values of sample {number}")
    assert not failed, "\n".join(failed)
    assert tried > 400


def _regions(dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.concatenate([np.array(IMAGES, dtype)[:, None], np.array(BOXES, dtype)], 1)


def _image(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1


GRID = np.array([1e30, -1e30, NAN, INF, -INF, 0, 5, -5, 1e9, NAN, 0, 0, 0, NAN, 1e9, 0], np.float32).reshape(1, 2, 2, 4)
CALLS = {
    "roi_align": (lambda x, r: relay.vision.roi_align(x, r, (2, 1), 1.0, 2), _image(2, 1, 2, 3), _regions()),
    "roi_align max": (
        lambda x, r: relay.vision.roi_align(x, r, (1, 2), 1.0, 2, "NCHW", "max"),
        _image(2, 1, 2, 3),
        _regions(),
    ),
    "roi_align by regions": (lambda x, r: relay.vision.roi_align(x, r, (2, 1), 1.0), _image(2, 1, 2, 3), _regions()),
    "roi_align max by regions": (
        lambda x, r: relay.vision.roi_align(x, r, (1, 2), 1.0, -1, "NCHW", "max"),
        _image(2, 1, 2, 3),
        _regions(),
    ),
    "roi_pool": (lambda x, r: relay.vision.roi_pool(x, r, (2, 2), 1.0), _image(2, 1, 2, 3), _regions()),
    "crop": (
        lambda x, b, k: relay.image.crop_and_resize(x, b, k, (2, 2)),
        _image(2, 2, 3, 1),
        np.array(BOXES, np.float32),
        np.array(IMAGES, np.int32),
    ),
    "crop nearest": (
        lambda x, b, k: relay.image.crop_and_resize(x, b, k, (1, 2), method="nearest_neighbor"),
        _image(2, 2, 3, 1),
        np.array(BOXES, np.float32),
        np.array(IMAGES, np.int64) << 32,
    ),
    "grid": (lambda x, g: relay.image.grid_sample(x, g), _image(1, 1, 5, 5), GRID),
    "grid border": (
        lambda x, g: relay.image.grid_sample(x, g, method="nearest", padding_mode="border"),
        _image(1, 1, 5, 5),
        GRID,
    ),
    "segment_sum": (
        lambda x, k: relay.segment_sum(x, k, 4),
        _image(7, 2),
        np.array([-8, -1, 0, 1, 4, 100, 2], np.int32),
    ),
    "take uint64": (lambda x, k: relay.take(x, k, axis=0), _image(7, 2), np.array([2**64 - 1, 2**63, 1], np.uint64)),
    "take wrap uint64": (
        lambda x, k: relay.take(x, k, axis=0, mode="wrap"),
        _image(7, 2),
        np.array([2**64 - 1, 2**63, 1], np.uint64),
    ),
    "gather uint64": (lambda x, k: relay.gather(x, 0, k), _image(7), np.array([2**64 - 1, 2**63, 1], np.uint64)),
    "deformed": (
        lambda x, o: relay.nn.deformable_conv2d(
            x, o, relay.const(np.ones((1, 1, 2, 2), np.float32)), kernel_size=(2, 2)
        ),
        _image(1, 1, 5, 5),
        np.resize(np.array([0, NAN, 0.5, INF, 1, -INF, -0.25, 1e30, 2, -9, 0], np.float32), (1, 8, 4, 4)),
    ),
    "sparse_reshape": (
        lambda x, a, b: relay.sparse_reshape(x, a, b)[0],
        np.array([[0, 1], [1, 1]], np.int32),
        np.array([2, 2], np.int32),
        np.array([0, 0], np.int32),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_places_that_are_none_are_the_same_everywhere(name: str) -> None:
    make, *arrays = CALLS[name]
    inputs = [relay.var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(arrays)]
    function = relay.Function(inputs, make(*inputs))
    with np.errstate(all="ignore"):
        wanted = evaluate(function, arrays)
    for target, level in (("llvm", 0), ("llvm", 3), ("c", 3)):
        with PassContext(opt_level=level):
            library = relay.build(armillary.IRModule.from_expr(function), target)
        graph = graph_executor.GraphModule(library["default"](armillary.cpu()))
        for k, array in enumerate(arrays):
            graph.set_input(f"x{k}", array)
        graph.run()
        np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, 1e-5, 1e-5, err_msg=f"{target} level {level}")


@pytest.mark.parametrize("name", [name for name in CALLS if name != "segment_sum"])
def test_constant_places_that_are_none_are_folded(name: str) -> None:
    make, *arrays = CALLS[name]
    body = relay.cast(make(*[relay.const(a) for a in arrays]), "float32")
    module = armillary.IRModule.from_expr(relay.Function([], body))
    with np.errstate(all="ignore"):
        relay.transform.FoldConstant()(relay.transform.InferType()(module))
