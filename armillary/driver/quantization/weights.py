"""`armillary.quantize_weights(module, params, data)`: dense layers whose weights are integers of 4 or 8 bits.

In: a float module of any frontend, values of its parameters, for "gptq" and "awq" a few inputs. Out: a `Quantized`: the
module with weights in integers, a scale and a zero point for each group of terms of a row, and a row for each layer.
relay.build computes products from the integers (recognize-low-bit-dense), data stay float. Invariant: a layer whose
rows are no whole groups, or whose weight is computed, stays as it is.

Methods: "nearest" rounds. "gptq" (Frantar et al. 2022, GPTQ: Accurate Post-Training Quantization for Generative
Pre-trained Transformers) rounds column by column and moves what is lost to the columns behind, by the inverse Hessian
of the layer's squared error. "awq" (Lin et al. 2023, AWQ: Activation-aware Weight Quantization) scales columns by a
power of the mean magnitude of their data before rounding, the power that loses least; the data are scaled back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import ml_dtypes
import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.record import record
from armillary.driver.quantization.calibrate import sampled, with_main
from armillary.driver.quantization.network import Layer, Quantized, relative_error, results_of
from armillary.driver.quantization.quantize import prerequisite_optimize
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.ops.elementwise.broadcast import multiply
from armillary.ops.nn._windows import reshape_to
from armillary.ops.nn.dense import dense
from armillary.ops.qnn.quantize import dequantize
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.types import TensorType
from armillary.relay.walk import map_children, not_primitive, post_order

BITS = {4: np.dtype(ml_dtypes.uint4), 8: np.dtype(np.uint8)}
METHODS = ("nearest", "gptq", "awq")
_MOST_ROWS = 2048  # of a layer's data that AWQ's search and GPTQ's Hessian look at
_DAMPING, _BLOCK, _POWERS = 0.01, 128, 21


@record
class Steps:
    """Integers (units, groups, group) from 0 on, scales and zero points (units, groups, 1)."""

    values: Array
    scales: Array
    zeros: Array

    def real(self) -> Array:
        """What they stand for: (units, inner)."""
        values: Array = (self.values - self.zeros) * self.scales
        return values.reshape(len(values), -1)


@boundary("quantize_weights", arguments=True)
def quantize_weights(
    module: IRModule,
    params: Mapping[str, object] | None = None,
    data: Iterable[Mapping[str, object]] = (),
    *,
    bits: int = 4,
    group: int = 32,
    method: str = "nearest",
    keep: Sequence[int] = (),
) -> Quantized:
    """Quantise the constant weights of dense layers to `bits` (4 or 8), by a scale for each `group` terms of a row.

    `data` are dictionaries from inputs to arrays; without any, only "nearest" is possible and the error is not known.
    `keep` are numbers of layers that stay float. Raises ConfigError for another method, bits, group, or no data.
    """
    rows = list(data)
    if bits not in BITS or method not in METHODS or group < 1 or group % 16 or (method != METHODS[0] and not rows):
        got = f"bits {bits!r}, group {group!r}, method {method!r}, {len(rows)} inputs"
        hint = f"bits: 4 or 8; group: a multiple of 16; method: {', '.join(METHODS)}, the latter two with data"
        raise ConfigError(f"quantize_weights: {got}", hint=hint)
    module = prerequisite_optimize(module, params)
    main: Function = module["main"]
    layers = [e for e in post_order(main, not_primitive) if _is_layer(e, group)]
    if not layers or any(not 0 <= n < len(layers) for n in keep):
        got = f"keep {list(keep)}, {len(layers)} layers"
        raise ConfigError(f"quantize_weights: {got}", hint=f"dense layers of constant rows of whole groups of {group}")
    chosen = {id(c): n for n, c in enumerate(layers) if n not in keep}
    inputs = [c.args[0] for c in layers if id(c) in chosen]  # type: ignore[attr-defined]  # calls
    samples = iter(sampled(module, inputs, rows) if rows else [np.zeros(0, np.float32)] * len(inputs))
    new: dict[int, Expr] = {}
    table = [_row(c, "float32", float("nan")) for c in layers]
    for expr in post_order(main, not_primitive):
        rewritten = map_children(expr, lambda child: new.get(id(child), child))
        number = chosen.get(id(expr))
        if number is not None and isinstance(rewritten, Call) and isinstance(expr, Call):
            rewritten, lost = _quantised(rewritten, _weight(expr), next(samples), (bits, group, method))
            table[number] = _row(expr, f"int{bits}", lost)
        new[id(expr)] = rewritten
    quantized = with_main(module, new[id(main)])
    wanted = results_of(module, rows) if rows else []
    return Quantized(
        quantized, tuple(table), relative_error(results_of(quantized, rows), wanted) if rows else float("nan"), True
    )


def _is_layer(expr: Expr, group: int) -> bool:
    if not isinstance(expr, Call) or expr.op is not dense or not isinstance(expr.args[1], Constant):
        return False
    weight = expr.args[1].data
    return weight.dtype == np.float32 and weight.shape[1] % group == 0


def _weight(expr: Call) -> Array:
    weight = expr.args[1]
    assert isinstance(weight, Constant), "layers have constant weights"
    return np.asarray(weight.data, np.float32)


def _row(expr: Expr, kind: str, error: float) -> Layer:
    ty = expr.checked_type
    assert isinstance(ty, TensorType), "a product is a tensor"
    return Layer(dense.name, tuple(ty.shape), error, kind)  # type: ignore[arg-type]  # open sizes are shown as they are


def _quantised(call: Call, weight: Array, data: Array, how: tuple[int, int, str]) -> tuple[Expr, float]:
    """The layer over integers, and what it loses of its result (of its weights, where there are no data)."""
    bits, group, method = how
    x = data.reshape(-1, weight.shape[1])
    if len(x) > _MOST_ROWS:
        x = x[np.random.default_rng(0).choice(len(x), _MOST_ROWS, replace=False)]
    factors = np.ones(weight.shape[1], np.float32)
    if method == "awq":
        factors = awq_factors(weight, x, bits, group)
    steps = gptq(weight, x, bits, group) if method == "gptq" else nearest(weight * factors, bits, group)
    real = steps.real() / factors
    lost, size = (real - weight, weight) if not len(x) else (x @ (real - weight).T, x @ weight.T)
    error = float(np.sqrt((lost.astype(np.float64) ** 2).sum() / max((size.astype(np.float64) ** 2).sum(), 1e-30)))
    stored = Constant(steps.values.astype(np.uint8).astype(BITS[bits]))
    parts = Constant(steps.scales.astype(np.float32)), Constant(steps.zeros.astype(np.int32))
    wide = reshape_to(dequantize(stored, *parts, axis=0), weight.shape)
    source = call.args[0]
    if method == "awq":
        source = multiply(source, Constant((1 / factors).astype(np.float32)))
    return Call(call.op, (source, wide), call.attrs, call.span), error


def nearest(weight: Array, bits: int, group: int) -> Steps:
    """Each weight as the step next to it; a group's steps reach from its least to its largest weight."""
    parts = weight.reshape(len(weight), -1, group)
    scales, zeros = _grid(parts, bits)
    values = np.clip(np.rint(parts / scales) + zeros, 0, (1 << bits) - 1)
    return Steps(values, scales, zeros)


def _grid(parts: Array, bits: int) -> tuple[Array, Array]:
    """Scales and zero points of the last axis, whose steps cover 0."""
    most = (1 << bits) - 1
    low, high = np.minimum(parts.min(-1, keepdims=True), 0), np.maximum(parts.max(-1, keepdims=True), 0)
    scales = np.where(high > low, (high - low) / most, 1)
    return scales, np.clip(np.rint(-low / scales), 0, most)


def gptq(weight: Array, data: Array, bits: int, group: int) -> Steps:
    """GPTQ: column by column, the error of each moved to those behind; a group's grid is that of its updated weights.

    The published order: blocks of columns, with the updates of later blocks gathered into one product.
    """
    w, x = weight.astype(np.float64), data.astype(np.float64)
    units, inner = w.shape
    hessian = x.T @ x
    dead = np.diag(hessian) == 0
    hessian[dead, dead] = 1
    w[:, dead] = 0
    hessian[np.diag_indices(inner)] += _DAMPING * np.diag(hessian).mean()
    factor = np.linalg.cholesky(np.linalg.inv(hessian)).T
    values = np.empty_like(w)
    scales, zeros = np.empty((units, inner // group, 1)), np.empty((units, inner // group, 1))
    block = group * max(1, _BLOCK // group)  # of whole groups
    for begin in range(0, inner, block):
        end = min(begin + block, inner)
        errors = np.zeros((units, end - begin))
        for k in range(begin, end):
            n = k // group
            if k % group == 0:
                scales[:, n], zeros[:, n] = _grid(w[:, k : k + group], bits)
            column = w[:, k : k + 1]
            values[:, k : k + 1] = np.clip(np.rint(column / scales[:, n]) + zeros[:, n], 0, (1 << bits) - 1)
            error = (column - (values[:, k : k + 1] - zeros[:, n]) * scales[:, n]) / factor[k, k]
            w[:, k:end] -= error @ factor[k : k + 1, k:end]
            errors[:, k - begin : k - begin + 1] = error
        w[:, end:] -= errors @ factor[begin:end, end:]
    return Steps(values.reshape(units, -1, group), scales, zeros)


def awq_factors(weight: Array, data: Array, bits: int, group: int) -> Array:
    """AWQ: what columns are multiplied by: the power of their data's mean magnitude that loses least of the result."""
    magnitude = np.maximum(np.abs(data).mean(0), 1e-8)
    wanted = data @ weight.T
    best: Array = np.ones_like(magnitude)
    least = np.inf
    for power in np.linspace(0, 1, _POWERS):
        factors = magnitude**power
        factors = (factors / np.sqrt(factors.max() * factors.min())).astype(np.float32)
        lost = data @ (nearest(weight * factors, bits, group).real() / factors).T.astype(np.float32) - wanted
        error = float((lost**2).mean())
        if error < least:
            best, least = factors, error
    return best
