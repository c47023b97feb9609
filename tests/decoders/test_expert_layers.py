"""Mixtures of experts against ONNX Runtime's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_nodes import by_onnxruntime, compiled, model

from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend import from_onnx

WEIGHTS = ("w1", "b1", "w2", "b2", "w3", "b3")


def inputs(rows: tuple[int, ...], experts: int, fused: int = 1, third: bool = False) -> dict[str, np.ndarray | None]:
    rng, hidden, inner = np.random.default_rng(3), 16, 24

    def some(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    made: dict[str, np.ndarray | None] = {
        "x": some(*rows, hidden),
        "router": some(int(np.prod(rows)), experts),
        "w1": some(experts, fused * inner, hidden),
        "b1": some(experts, fused * inner),
        "w2": some(experts, hidden, inner),
        "b2": some(experts, hidden),
    }
    return made | ({"w3": some(experts, inner, hidden), "b3": some(experts, inner)} if third else {})


@pytest.mark.parametrize(
    ("rows", "fused", "attrs"),
    [
        ((7,), 1, {"k": 1, "activation_type": "relu"}),
        ((2, 3), 1, {"k": 2, "activation_type": "gelu"}),
        ((5,), 1, {"k": 2, "activation_type": "silu", "normalize_routing_weights": 1}),
        ((5,), 2, {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1}),
        (
            (6,),
            2,
            {"k": 4, "activation_type": "swiglu", "swiglu_fusion": 1}
            | {"swiglu_limit": 1.5, "activation_alpha": 1.702, "activation_beta": 1.0},
        ),
    ],
)
def test_experts_are_onnxruntimes(rows: tuple[int, ...], fused: int, attrs: dict[str, Any]) -> None:
    given = inputs(rows, 4, fused)
    made = model("MoE", given, 1, constants=WEIGHTS[:4], **attrs)
    (want,), (got,) = by_onnxruntime(made, given), compiled(made, given)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_gates_of_their_own_are_numpys() -> None:
    given = inputs((5,), 3, 1, third=True)
    made = model("MoE", given, 1, constants=WEIGHTS, k=2, activation_type="swiglu")
    x, router, w1, b1, w2, b2, w3, b3 = (np.float64(a) for a in given.values())
    want = np.zeros_like(x)
    for row, scores, result in zip(x, router, want, strict=True):
        shares = np.exp(scores) / np.exp(scores).sum()
        for e in np.argsort(-scores)[:2]:
            gate, linear = w1[e] @ row + b1[e], w3[e] @ row + b3[e]
            result += shares[e] * (w2[e] @ (gate / (1 + np.exp(-gate)) * linear) + b2[e])
    np.testing.assert_allclose(compiled(made, given)[0], want, rtol=1e-4, atol=1e-4)


def test_what_is_not_supported_is_named() -> None:
    given = inputs((5,), 3)
    with pytest.raises(UnsupportedError, match="a sparse mixer"):
        from_onnx(model("MoE", given, 1, use_sparse_mixer=1, k=2))
    with pytest.raises(TypeMismatch, match="k is 9 of 3 experts"):
        from_onnx(model("MoE", given, 1, k=9))
