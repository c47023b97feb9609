"""The products and attentions of transformers that `adreno.py --products` counts, as functions of one call.

In: a data type. Out: `PRODUCTS`, by name. Invariant: weights are constants, all else is an input; a name says the
network, rows, terms and columns of a product, and words, heads and features of an attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from armillary import relay
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import get_op


class Product(NamedTuple):
    """How to make the call, and how often a loop of its kernel's products turns for a block of keys (attention)."""

    make: Callable[[str], Function]
    turns: int = 1


def _dense(rows: int, terms: int, units: int) -> Product:
    def make(dtype: str) -> Function:
        x = relay.var("x", shape=(rows, terms), dtype=dtype)
        return Function([x], relay.nn.dense(x, relay.const(np.ones((units, terms), dtype)), out_dtype=dtype))

    return Product(make)


def _four_bits(terms: int, units: int) -> Product:
    """One row, weights of four bits in groups of 32, with one zero."""

    def make(dtype: str) -> Function:
        x = relay.var("x", shape=(1, terms), dtype=dtype)
        held = (
            np.ones((units, terms // 2), "uint8"),
            np.ones((units, terms // 32), dtype),
            np.full((1, 1), 8, "uint8"),
        )
        return Function([x], call_of("nn.low_bit_dense", [x, *(relay.const(v) for v in held)], bits=4, group=32))

    return Product(make)


def _computed(batches: int, rows: int, terms: int, columns: int) -> Product:
    """Of two matrices that the network computes."""

    def make(dtype: str) -> Function:
        x = relay.var("x", shape=(batches, rows, terms), dtype=dtype)
        y = relay.var("y", shape=(batches, columns, terms), dtype=dtype)
        return Function([x, y], relay.nn.batch_matmul(x, y, out_dtype=dtype))

    return Product(make)


def _attention(words: int, heads: int, features: int, shared: int = 1, masked: bool = False) -> Product:
    """Prefill: as many keys as queries, `shared` heads of queries for one of keys."""

    def make(dtype: str) -> Function:
        sizes = ((1, words, heads, features), *[(1, words, heads // shared, features)] * 2)
        shapes = (*sizes, (1, 1, words, words)) if masked else sizes
        values = [relay.var(f"v{n}", shape=shape, dtype=dtype) for n, shape in enumerate(shapes)]
        name = "nn.masked_attention" if masked else "nn.attention"
        return Function(values, call_of(name, values, scale=features**-0.5, shared=shared))

    return Product(make, features // 16)


def call_of(name: str, values: Sequence[Expr], **attrs: float) -> Expr:
    op = get_op(name)
    return Call(op, tuple(values), op.make_attrs(named=dict(attrs)))


PRODUCTS: dict[str, Product] = {
    "bert_dense_128_768_768": _dense(128, 768, 768),
    "bert_dense_128_768_3072": _dense(128, 768, 3072),
    "bert_dense_128_3072_768": _dense(128, 3072, 768),
    "vit_dense_197_768_2304": _dense(197, 768, 2304),
    "vit_dense_197_3072_768": _dense(197, 3072, 768),
    "llama_dense_256_2048_2048": _dense(256, 2048, 2048),
    "llama_dense_256_2048_8192": _dense(256, 2048, 8192),
    "llama_dense_1_2048_2048": _dense(1, 2048, 2048),
    "llama_dense_1_2048_8192": _dense(1, 2048, 8192),
    "llama_int4_1_2048_2048": _four_bits(2048, 2048),
    "llama_int4_1_2048_8192": _four_bits(2048, 8192),
    "matmul_512_512_512": _computed(1, 512, 512, 512),
    "matmul_256_2048_2048": _computed(1, 256, 2048, 2048),
    "bert_attention_128_12_64": _attention(128, 12, 64),
    "bert_masked_attention_128_12_64": _attention(128, 12, 64, masked=True),
    "vit_attention_197_12_64": _attention(197, 12, 64),
    "llama_attention_256_32_64": _attention(256, 32, 64, shared=4),
    "llama_masked_attention_256_32_64": _attention(256, 32, 64, shared=4, masked=True),
}
