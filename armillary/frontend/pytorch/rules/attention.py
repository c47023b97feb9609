"""ATen's attention: softmax(scale q k^T + mask) v.

In: query, key, value (batch…, time, width), perhaps a mask. Out: batched products around a softmax; the passes find
attention in them. Invariant: a mask of booleans keeps what is True; rows that are masked whole give 0.
"""

from __future__ import annotations

import math

import numpy as np

from armillary.frontend.pytorch.rules.activation import safe_softmax
from armillary.frontend.pytorch.rules.product import linear, matmul
from armillary.frontend.pytorch.rules.shape import transpose
from armillary.frontend.pytorch.sizes import has_open
from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import cast, dtype_of, op, rank_of, reshape_to, scalar, shape_of
from armillary.relay.expr import Expr, const


@aten("scaled_dot_product_attention")
def attention(
    call: AtenCall,
    query: Expr,
    key: Expr,
    value: Expr,
    mask: Expr | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expr:
    if dropout:
        call.refuse("dropout, which is random", "call model.eval() before the export")
    if enable_gqa:
        key, value = (_for_heads(x, shape_of(query)[-3]) for x in (key, value))
    factor = 1 / math.sqrt(shape_of(query)[-1]) if scale is None else scale
    scores = matmul(call, query, transpose(call, key, -1, -2))
    scores = op("multiply", scores, scalar(factor, dtype_of(query)))
    if is_causal:
        rows, columns = shape_of(query)[-2], shape_of(key)[-2]
        mask = _causal(rows, columns)
    has_empty = mask is not None and not is_causal and dtype_of(mask) == "bool"
    if mask is not None:
        scores = _masked(scores, mask)
    weights = safe_softmax(call, scores, -1) if has_empty else op("nn.softmax", scores, axis=rank_of(scores) - 1)
    result: Expr = matmul(call, weights, value)
    return result


def _causal(rows: int, columns: int) -> Expr:
    """The mask of positions that are not behind the row's."""
    if not has_open([rows, columns]):
        return const(np.tril(np.ones((rows, columns), bool)))
    down, across = (op("arange", 0, n, 1, dtype="int64") for n in (rows, columns))
    return op("less_equal", op("expand_dims", across, axis=0), op("expand_dims", down, axis=1))


def _masked(scores: Expr, mask: Expr) -> Expr:
    dtype = dtype_of(scores)
    if dtype_of(mask) == "bool":
        return op("where", mask, scores, scalar(-math.inf, dtype))
    return op("add", scores, cast(mask, dtype))


def _for_heads(x: Expr, heads: int) -> Expr:
    """Each head of keys and values for several of queries."""
    times = heads // shape_of(x)[-3]
    return x if times == 1 else op("repeat", x, repeats=times, axis=rank_of(x) - 3)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    call: AtenCall,
    query: Expr,
    key: Expr,
    value: Expr,
    dropout: float,
    is_causal: bool,
    mask: Expr | None,
    scale: float | None,
) -> list[Expr]:
    statistics = op("zeros", shape=(*shape_of(query)[:-1],), dtype="float32")
    return [attention(call, query, key, value, mask, dropout, is_causal, scale), statistics]


def _heads(x: Expr, heads: int) -> Expr:
    """(batch, time, width) as (batch, head, time, width of a head)."""
    batch, time, width = shape_of(x)
    return op("transpose", reshape_to(x, (batch, time, heads, width // heads)), axes=(0, 2, 1, 3))


def _of_itself(call: AtenCall, x: Expr, heads: int, weights: list[Expr], mask: Expr | None) -> Expr:
    """Attention of a sequence to itself: one product for query, key and value, and one for the result."""
    into, into_bias, out, out_bias = weights
    batch, time, width = shape_of(x)
    projected: Expr = linear(call, x, into, into_bias)
    parts = [op("strided_slice", projected, begin=(k * width,), end=((k + 1) * width,), axes=(2,)) for k in range(3)]
    query, key, value = (_heads(part, heads) for part in parts)
    mixed = attention(call, query, key, value, mask)
    merged = reshape_to(op("transpose", mixed, axes=(0, 2, 1, 3)), (batch, time, width))
    result: Expr = linear(call, merged, out, out_bias)
    return result


@aten("_transformer_encoder_layer_fwd")
def encoder_layer(
    call: AtenCall,
    x: Expr,
    width: int,
    heads: int,
    into: Expr,
    into_bias: Expr,
    out: Expr,
    out_bias: Expr,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    *rest: Expr | None,
) -> Expr:
    """torch.nn.TransformerEncoderLayer in one call, as its module makes it in inference."""
    scale, shift, scale2, shift2, first, first_bias, second, second_bias, mask = rest[:9]
    if mask is not None:
        call.refuse("a mask", "torch.backends.mha.set_fastpath_enabled(False) before tracing")

    def norm(value: Expr, gamma: Expr | None, beta: Expr | None) -> Expr:
        return op("nn.layer_norm", value, gamma, beta, axis=-1, epsilon=eps)

    def feed(value: Expr) -> Expr:
        inner = linear(call, value, first, first_bias)
        active = op("nn.gelu", inner) if use_gelu else op("nn.relu", inner)
        result: Expr = linear(call, active, second, second_bias)
        return result

    weights = [into, into_bias, out, out_bias]
    if norm_first:
        x = op("add", x, _of_itself(call, norm(x, scale, shift), heads, weights, None))
        return op("add", x, feed(norm(x, scale2, shift2)))
    x = norm(op("add", x, _of_itself(call, x, heads, weights, None)), scale, shift)
    return norm(op("add", x, feed(x)), scale2, shift2)


@aten("_native_multi_head_attention")
def multi_head(
    call: AtenCall,
    query: Expr,
    key: Expr,
    value: Expr,
    width: int,
    heads: int,
    into: Expr,
    into_bias: Expr,
    out: Expr,
    out_bias: Expr,
    mask: Expr | None,
    need_weights: bool,
    *_: object,
) -> list[Expr]:
    if mask is not None or need_weights or query is not key or key is not value:
        hint = "torch.backends.mha.set_fastpath_enabled(False) before tracing"
        call.refuse("a mask, other keys, or weights as a result", hint)
    result = _of_itself(call, query, heads, [into, into_bias, out, out_bias], None)
    return [result, op("zeros", shape=(0,), dtype=dtype_of(query))]
