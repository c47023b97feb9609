"""Tables of trees that lead nowhere are refused when a network is built, and by the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sampling

from armillary.driver.build import build
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.relay.expr import Call, Constant, Function, var
from armillary.relay.op import get_op
from armillary.relay.types import tensor_type

Array = np.ndarray[Any, Any]
OP = get_op("ml.tree_ensemble")
NAMES = ("data", "features", "thresholds", "children", "roots", "depths", "leaf_targets", "leaf_weights")
SAMPLE = sampling.list_samples(OP)[1]  # 3 trees, 3 targets; children have a third column


def tables(**changed: Any) -> list[Array]:
    given = dict(zip(NAMES, sampling.arrays_of(SAMPLE, OP.name), strict=True))
    for name, (place, value) in changed.items():
        given[name] = given[name].copy()
        given[name][place] = value
    return list(given.values())


def built(arrays: list[Array], known: tuple[str, ...] = NAMES[1:]) -> None:
    params = [var(f"x{k}", tensor_type(a.shape, str(a.dtype))) for k, a in enumerate(arrays)]
    args = [Constant(a) if name in known else p for name, a, p in zip(NAMES, arrays, params, strict=True)]
    free = tuple(p for name, p in zip(NAMES, params, strict=True) if name not in known)
    build(Function(free, Call(OP, tuple(args), SAMPLE.attrs)), "llvm")


LONG = 60
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "child": ({"children": ((0, 1), 99)}, "child 99 is not in"),
    "negative child": ({"children": ((4, 0), -1)}, "child -1 is not in"),
    "feature": ({"features": (1, 7)}, "feature 7 is not in"),
    "root": ({"roots": (2, -3)}, "root -3 is not in"),
    "depth": ({"depths": (0, 1 << 30)}, "depth 1073741824 is not in"),
    "shallow": ({"depths": (2, 1)}, "tree 2, of depth 1, ends at no leaf"),
    "circle": ({"children": ((2, 0), 1)}, "ends at no leaf, or has a circle"),
    "self": ({"children": ((0, slice(None)), 0)}, "ends at no leaf, or has a circle"),
    "leaf": ({"children": ((5, 1), 6)}, "their own children"),
    "target": ({"leaf_targets": ((0, 0), 3)}, "target 3 is not in"),
}


@pytest.mark.parametrize("what", BAD)
def test_tables_that_lead_nowhere_are_refused(what: str) -> None:
    changed, told = BAD[what]
    with pytest.raises(TypeMismatch, match=told):
        built(tables(**changed))
    with pytest.raises(TypeMismatch, match=told):
        OP.evaluate(SAMPLE.attrs, tables(**changed))


def test_a_circle_of_any_length_is_refused() -> None:
    inner = LONG
    children = np.repeat(np.arange(1, inner + 2), 2).reshape(-1, 2)
    children[inner] = inner
    children[inner - 1, 0] = 0  # the last question leads back to the first
    zeros, one = np.zeros(inner + 1), np.zeros(1, np.int64)
    arrays = [zeros[None, :1], zeros.astype(int), zeros, children, one, one + inner, one[None], zeros[:1, None]]
    with pytest.raises(TypeMismatch, match="circle"):
        OP.evaluate(type(SAMPLE.attrs)(1, inner), arrays)
    children[inner - 1, 0] = inner
    assert OP.evaluate(type(SAMPLE.attrs)(1, inner), arrays).shape == (1, 1)


def test_tables_that_are_computed_are_refused() -> None:
    for name in ("features", "children", "roots", "depths", "leaf_targets"):
        with pytest.raises(UnsupportedError, match=f"{name} must be known when building"):
            built(tables(), tuple(n for n in NAMES[1:] if n != name))
    built(tables(), tuple(n for n in NAMES[1:] if n not in ("thresholds", "leaf_weights")))
