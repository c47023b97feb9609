"""ONNX TfIdfVectorizer over numbers.

In: nodes whose pools and keys are integers or floats (strings are refused). Out: comparisons and sums. Invariant: an
n-gram is counted at each place and with each distance between its items that the attributes allow.
"""

from __future__ import annotations

import numpy as np

from armillary.budgets import EXPANDED_NODES
from armillary.errors import ModelError, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops._iota import splat
from armillary.ops.nn._windows import call, reshape_to
from armillary.relay.expr import Expr, const


@from_onnx("TfIdfVectorizer")
def tf_idf_vectorizer(node: OnnxNode) -> Expr:
    """How often each n-gram of a pool stands in the input (TF), whether it does (IDF), or the product (TFIDF)."""
    if node.attributes.get("pool_strings"):
        raise UnsupportedError(f"TfIdfVectorizer node {node.name!r}: its pool holds strings")
    mode, skips = node.string("mode"), int(node.int("max_skip_count"))
    low, high = int(node.int("min_gram_length")), int(node.int("max_gram_length"))
    weights = node.floats("weights", default=None)
    shape = node.type_of(0).static
    x = reshape_to(node.input(0), (1, *shape)) if len(shape) == 1 else node.input(0)
    places = [int(k) for k in node.ints("ngram_indexes")]
    width = max(places, default=-1) + 1
    message = f"TfIdfVectorizer node {node.name!r}"
    if min(places, default=0) < 0 or not 1 <= low <= high or skips < 0:
        problem = (
            f"{message}: n-grams of {low} to {high} items with {skips} skipped, columns from {min(places, default=0)}"
        )
        raise ModelError(problem, hint="lengths are at least 1 and in order, the others at least 0")
    steps = min(skips, node.type_of(0).size) + 1
    EXPANDED_NODES.check(width + len(places) * high * steps, message, free=64 * len(places))
    columns: list[Expr | None] = [None] * width
    for number, gram in enumerate(_grams(node)):
        if low <= len(gram) <= high:
            count = _occurrences(x, gram, skips)
            weight = float(weights[number]) if weights else 1.0
            columns[places[number]] = _weighted(count, str(mode), weight)
    (rows, _) = (1, shape[0]) if len(shape) == 1 else shape
    zeros = splat((rows,), 0, "float32")
    table = call("stack", tuple(zeros if c is None else c for c in columns), axis=1)
    return reshape_to(table, (width,)) if len(shape) == 1 else table


def _grams(node: OnnxNode) -> list[list[int]]:
    """The pool's n-grams: `ngram_counts` says where those of each length begin."""
    pool, starts = [int(v) for v in node.ints("pool_int64s")], [int(v) for v in node.ints("ngram_counts")]
    ends = [*starts[1:], len(pool)]
    if any(not 0 <= begin <= end <= len(pool) for begin, end in zip(starts, ends, strict=True)):
        raise ModelError(f"TfIdfVectorizer node {node.name!r}: ngram_counts {starts[:8]} in a pool of {len(pool)}")
    grams = []
    for size, (begin, end) in enumerate(zip(starts, ends, strict=True), 1):
        grams += [pool[k : k + size] for k in range(begin, end, size)]
    return grams


def _occurrences(x: Expr, gram: list[int], skips: int) -> Expr:
    """(rows,) float32: at how many places the items of a gram follow at equal distances of 1 to skips + 1."""
    rows, length = x.checked_type.static  # type: ignore[attr-defined]
    total = splat((rows,), 0, "float32")
    for step in range(1, 2 if len(gram) == 1 else skips + 2):
        span = (len(gram) - 1) * step + 1
        if span > length:
            break
        count: Expr | None = None
        for k, item in enumerate(gram):
            begin, end = k * step, k * step + length - span + 1
            part = call("strided_slice", x, begin=(begin,), end=(end,), strides=(1,), axes=(1,))
            same = call("equal", part, const(np.array(item, x.checked_type.dtype.numpy)))  # type: ignore[attr-defined]
            count = same if count is None else call("logical_and", count, same)
        assert count is not None, "a gram has an item"
        total = total + call("sum", call("cast", count, dtype="float32"), axis=(1,), keepdims=False)
    return total


def _weighted(count: Expr, mode: str, weight: float) -> Expr:
    if mode == "TF":
        return count
    if mode == "TFIDF":
        return count * weight
    return call("where", call("greater", count, const(np.float32(0))), const(np.float32(weight)), const(np.float32(0)))
