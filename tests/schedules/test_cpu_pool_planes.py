"""Pooling in the plain layout agrees with numpy: odd sizes, windows, strides, dilations and paddings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.driver.build import build
from armillary.relay.evaluate import evaluate
from armillary.runtime import cpu
from armillary.transform import PassContext


def expected(x: np.ndarray, kind: str, attrs: dict[str, Any]) -> np.ndarray:
    """Every window one by one, in float64."""
    (kh, kw), (sy, sx), (dy, dx) = attrs["pool_size"], attrs["strides"], attrs["dilation"]
    top, left, bottom, right = attrs["padding"]
    pads = [(0, 0), (0, 0), (top, bottom), (left, right)]
    wide = np.pad(x.astype("float64"), pads, constant_values=0 if kind == "avg" else -np.inf)
    inside = np.pad(np.ones(x.shape), pads, constant_values=1 if attrs.get("count_include_pad") else 0)
    rows, columns = (range(0, wide.shape[a] - (k - 1) * d, s) for a, k, d, s in ((2, kh, dy, sy), (3, kw, dx, sx)))
    out = np.empty((*x.shape[:2], len(rows), len(columns)))
    for i, j in np.ndindex(out.shape[2:]):
        y, z = rows[i], columns[j]
        at = (..., slice(y, y + (kh - 1) * dy + 1, dy), slice(z, z + (kw - 1) * dx + 1, dx))
        mean = wide[at].sum((2, 3)) / np.maximum(inside[at].sum((2, 3)), 1)
        out[..., i, j] = mean if kind == "avg" else wide[at].max((2, 3))
    return out


def run(data: np.ndarray, kind: str, **attrs: Any) -> np.ndarray:
    """Pooling, then a multiplication, compiled."""
    x = relay.var("x", shape=data.shape)
    pooled = getattr(relay.nn, f"{kind}_pool2d")(x, **attrs)
    with PassContext(opt_level=3):
        graph = build(relay.Function([x], pooled * relay.const(np.float32(2))), "llvm")["default"](cpu(0))
    graph.set_input("x", data)
    graph.run()
    found: np.ndarray = graph.get_output(0).numpy().copy()
    return found


@pytest.mark.parametrize("kind", ["avg", "avg including padding", "max"])
@pytest.mark.parametrize(
    ("shape", "window", "strides", "dilation", "padding"),
    [
        ((1, 3, 14, 14), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        ((2, 5, 9, 31), (3, 2), (1, 1), (1, 2), (1, 0, 0, 1)),
        ((1, 3, 17, 16), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
        ((2, 3, 33, 5), (2, 3), (1, 1), (1, 1), (0, 1, 1, 2)),
        ((1, 2, 7, 1), (3, 1), (1, 1), (2, 1), (2, 0, 1, 0)),
        ((1, 1, 1, 1), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
        ((1, 5, 55, 55), (3, 3), (2, 2), (1, 1), (0, 0, 0, 0)),
        ((2, 3, 13, 34), (2, 3), (2, 3), (1, 2), (1, 2, 0, 1)),
        ((1, 3, 20, 9), (3, 3), (1, 2), (1, 1), (1, 1, 1, 1)),
        ((1, 2, 8, 8), (2, 2), (3, 1), (1, 1), (0, 0, 0, 0)),
        ((1, 3, 20, 19), (9, 9), (1, 1), (1, 1), (4, 4, 4, 4)),
        ((1, 2, 13, 14), (13, 13), (1, 1), (1, 1), (6, 6, 6, 6)),
        ((2, 2, 11, 37), (1, 30), (1, 1), (1, 1), (0, 9, 0, 8)),
        ((1, 2, 21, 23), (4, 5), (1, 1), (2, 3), (3, 1, 0, 6)),
        ((1, 3, 21, 40), (7, 7), (2, 2), (1, 1), (3, 3, 3, 3)),
        ((1, 2, 17, 18), (5, 4), (3, 1), (2, 1), (1, 2, 4, 0)),
        ((1, 2, 5, 603), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
        ((1, 2, 6, 602), (2, 3), (1, 2), (2, 2), (1, 2, 0, 2)),
        ((2, 3, 6, 7), (6, 7), (1, 1), (1, 1), (0, 0, 0, 0)),
        ((1, 2, 9, 128), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        ((1, 2, 7, 131), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        ((1, 1, 5, 200), (2, 4), (1, 1), (2, 3), (1, 9, 0, 5)),
        ((1, 2, 60, 57), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
        ((1, 1, 129, 509), (9, 5), (1, 1), (1, 1), (4, 2, 4, 2)),
        ((1, 1, 5, 397), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
        ((1, 3, 41, 58), (7, 7), (7, 7), (1, 1), (3, 3, 3, 3)),
        ((1, 2, 60, 60), (30, 20), (30, 20), (1, 1), (0, 0, 0, 0)),
        ((1, 2, 33, 70), (2, 1), (9, 16), (1, 1), (1, 0, 1, 0)),
        ((1, 2, 45, 90), (31, 25), (1, 1), (1, 1), (15, 12, 15, 12)),
        ((1, 1, 80, 150), (70, 71), (5, 3), (1, 1), (35, 35, 34, 20)),
        ((1, 1, 3, 700), (1, 66), (1, 1), (1, 3), (0, 90, 0, 60)),
    ],
)
def test_pooling_of_planes(
    kind: str,
    shape: tuple[int, ...],
    window: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int],
    padding: tuple[int, ...],
) -> None:
    data = np.random.default_rng(1).standard_normal(shape).astype("float32")
    attrs: dict[str, Any] = {"pool_size": window, "strides": strides, "dilation": dilation, "padding": padding}
    if kind.startswith("avg"):
        attrs["count_include_pad"] = kind != "avg"
    got = run(data, kind[:3], **attrs)
    np.testing.assert_allclose(got, 2 * expected(data, kind[:3], attrs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (3, 2)])
def test_partial_windows_count_what_is_inside(strides: tuple[int, int]) -> None:
    data = np.random.default_rng(2).standard_normal((1, 3, 12, 19)).astype("float32")
    attrs = {"pool_size": (3, 4), "strides": strides, "padding": (1, 1, 1, 1), "ceil_mode": True}
    x = relay.var("x", shape=data.shape)
    for kind in ("avg", "max"):
        reference = evaluate(relay.Function([x], getattr(relay.nn, f"{kind}_pool2d")(x, **attrs)), [data])
        np.testing.assert_allclose(run(data, kind, **attrs), 2 * reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("window", "strides"), [((3, 3), (1, 1)), ((5, 5), (1, 1)), ((5, 5), (2, 2))])
def test_maxima_with_nan_and_infinities(window: tuple[int, int], strides: tuple[int, int]) -> None:
    data = np.random.default_rng(5).standard_normal((1, 2, 17, 19)).astype("float32")
    data[0, 0, 3, 4] = data[0, 1, 16, 18] = np.nan
    data[0, 1, :9] = -np.inf
    pads = (window[0] // 2, window[1] // 2)
    x = relay.var("x", shape=data.shape)
    wanted = evaluate(relay.Function([x], relay.nn.max_pool2d(x, window, strides, padding=pads)), [data])
    got = run(data, "max", pool_size=window, strides=strides, dilation=(1, 1), padding=(*pads, *pads))
    np.testing.assert_array_equal(got, 2 * wanted)
    assert np.isnan(got).any() and np.isneginf(got).any()
