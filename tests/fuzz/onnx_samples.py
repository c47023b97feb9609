"""Random graphs from the standard's own node tests: their values shuffled, their axes resized, behind them what fits.

In: a Draw whose graph is empty, and an operator. Out: the nodes of one of its tests in the graph. Invariant: it needs
nothing of ours, so it draws every operator that the installed onnx package has a test of.
"""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
from onnx.backend.test.loader import load_model_tests
from onnx_kit import Draw, Unfit

from armillary.backend.score import case_data

Sample = tuple[Any, list[Any]]  # a model, its inputs


@functools.cache
def samples() -> dict[tuple[str, str], list[Any]]:
    """The node tests of each operator."""
    found = defaultdict(list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the generators overflow on purpose
        for case in load_model_tests(kind="node"):
            name = case.name.removeprefix("test_")
            found[name.partition("_")[0]].append(case)
    by_operator = defaultdict(list)
    for cases in found.values():
        for case in cases:
            model = case_data(case)[0]
            for node in model.graph.node:
                by_operator[node.domain, node.op_type].append(case)
    return dict(by_operator)


def sampled(d: Draw, op: str, domain: str = "") -> None:
    """Put a test of this operator into an empty graph."""
    cases = samples().get((domain, op))
    if not cases or d.nodes or d.inputs or d.weights:
        raise Unfit("no test of it")
    model, data = case_data(d.one(cases))
    if len(model.graph.node) > 12 or model.functions or not data:
        raise Unfit("a long one")
    inputs = data[0][0]
    if any(not isinstance(a, np.ndarray) or a.dtype.kind not in "fiub" or a.size > 20_000 for a in inputs):
        raise Unfit("no numbers")
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    d.opset = version or d.opset
    resized = _resized(d, [_shuffled(d, a) for a in inputs]) if d.chance(0.5) else [_shuffled(d, a) for a in inputs]
    named = {}
    for info, array in zip(model.graph.input, resized, strict=False):
        few = array.size <= 8 and array.dtype.kind in "iu"
        named[info.name] = d.give(array, True if few and d.chance(0.8) else None)
    d.emit_block(model.graph.node, named, [o.name for o in model.graph.output], model.graph.initializer)


def _shuffled(d: Draw, array: Any) -> Any:
    if array.dtype.kind != "f" or not array.size:
        return array
    flat = array.flatten()
    d.numpy.shuffle(flat)
    return flat.reshape(array.shape)


def _resized(d: Draw, arrays: list[Any]) -> list[Any]:
    """All axes of one size, made another size."""
    sizes = sorted({s for a in arrays for s in a.shape if s > 1})
    if not sizes:
        return arrays
    old = d.one(sizes)
    new = max(1, d.one((1, old - 1, old + 1, 2, old * 2)))
    for k, array in enumerate(arrays):
        for axis, size in enumerate(array.shape):
            if size == old:
                arrays[k] = np.ascontiguousarray(np.take(arrays[k], np.arange(new) % old, axis))
    return arrays
