"""Mixtures of experts, in floats and of few bits, against ONNX Runtime's kernels and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_nodes import by_onnxruntime, compiled, model

from armillary import relay
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend import from_onnx
from armillary.ops.decoder.low_bit_dense import packed

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


SWIGLU = {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0}
QUANTISED = ("w1", "s1", "b1", "w2", "s2", "b2", "z1", "z2")


def quantised(bits: int, block: int, wide: int, has_zeros: bool) -> tuple[dict[str, np.ndarray | None], list[Any]]:
    """Inputs, and the two weights as float64."""
    rng, (rows, experts, hidden, inner) = np.random.default_rng(4), (5, 4, 32, 64)
    given: dict[str, np.ndarray | None] = {
        "x": rng.standard_normal((rows, hidden), dtype=np.float32),
        "router": rng.standard_normal((rows, experts), dtype=np.float32),
    }
    zeros, real = dict[str, np.ndarray](), []
    for n, (units, terms) in enumerate(((wide * inner, hidden), (hidden, inner)), 1):
        groups = terms // block if block else 1
        values = rng.integers(0, 1 << bits, (experts, units, terms))
        scales = rng.uniform(0.01, 0.1, (experts, units, groups)).astype(np.float32)
        points = rng.integers(0, 1 << bits, scales.shape) if has_zeros else np.full(scales.shape, 1 << (bits - 1))
        given |= {f"w{n}": packed(values, bits), f"s{n}": scales if block else scales[..., 0]}
        given[f"b{n}"] = rng.standard_normal((experts, units), dtype=np.float32)
        zeros[f"z{n}"] = packed(points, bits)
        each = terms // groups
        real.append((values - points.repeat(each, -1)) * np.float64(scales).repeat(each, -1))
    return given | ({"w3": None, "s3": None, "b3": None, **zeros} if has_zeros else {}), real


@pytest.mark.parametrize(
    ("bits", "block", "has_zeros", "attrs"),
    [
        (2, 16, True, SWIGLU),
        (4, 16, False, SWIGLU),
        (4, 32, True, {"activation_type": "relu"}),
        (4, 0, False, {"activation_type": "silu"}),
        (8, 0, False, SWIGLU),
    ],
)
def test_experts_of_few_bits_are_onnxruntimes(bits: int, block: int, has_zeros: bool, attrs: dict[str, Any]) -> None:
    given, _ = quantised(bits, block, 2 if attrs is SWIGLU else 1, has_zeros)
    attrs = attrs | {"k": 2, "normalize_routing_weights": 1, "expert_weight_bits": bits}
    attrs |= {"block_size": block} if block else {}
    made = model("QMoE", given, 1, constants=tuple(n for n in QUANTISED if n in given), **attrs)
    (want,), (got,) = by_onnxruntime(made, given), compiled(made, given)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
    assert "nn.low_bit_dense" in relay.astext(from_onnx(made)[0])


def test_blocks_of_bytes_are_exact() -> None:
    """ONNX Runtime rounds rows to integers there, and its shares are always normalised."""
    given, (w1, w2) = quantised(8, 16, 1, True)
    made = model("QMoE", given, 1, constants=QUANTISED, k=2, block_size=16, expert_weight_bits=8)
    x, router, b1, b2 = (np.float64(given[n]) for n in ("x", "router", "b1", "b2"))
    want = np.zeros_like(x)
    for row, scores, result in zip(x, router, want, strict=True):
        shares = np.exp(scores) / np.exp(scores).sum()
        for e in np.argsort(-scores)[:2]:
            result += shares[e] * (w2[e] @ np.maximum(w1[e] @ row + b1[e], 0) + b2[e])
    np.testing.assert_allclose(compiled(made, given)[0], want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_experts_of_other_bits_are_refused() -> None:
    given, _ = quantised(4, 16, 1, False)
    names = tuple(n for n in QUANTISED if n in given)
    for attrs, kind, message in (
        ({"expert_weight_bits": 5}, UnsupportedError, "of 5 bits"),
        ({"quant_type": "fp8"}, UnsupportedError, "quant_type 'fp8'"),
        ({"block_size": 48}, TypeMismatch, "no whole blocks of 48"),
        ({"block_size": 32}, TypeMismatch, "scales of shape"),
    ):
        with pytest.raises(kind, match=message):
            from_onnx(model("QMoE", given, 1, constants=names, **({"k": 1} | attrs)))


def test_what_is_not_supported_is_named() -> None:
    given = inputs((5,), 3)
    with pytest.raises(UnsupportedError, match="a sparse mixer"):
        from_onnx(model("MoE", given, 1, use_sparse_mixer=1, k=2))
    with pytest.raises(TypeMismatch, match="k is 9 of 3 experts"):
        from_onnx(model("MoE", given, 1, k=9))
