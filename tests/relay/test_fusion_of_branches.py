"""Branches that meet in a concatenation: no kernel may hold two contractions."""

from __future__ import annotations

import numpy as np

from armillary import relay
from armillary.base.node import post_order
from armillary.relay.expr import Call, Function
from armillary.relay.op import Kind, Op, is_primitive


def inception_like() -> Function:
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 8, 8, 8))

    def branch(value: relay.Expr, kernel: int) -> relay.Expr:
        weight = relay.const(rng.standard_normal((8, 8, kernel, kernel)).astype("float32"))
        return relay.nn.relu(relay.nn.conv2d(value, weight, padding=(kernel // 2, kernel // 2)))

    shared = relay.reshape(relay.exp(x), (1, 8, 8, 8))
    branches = [branch(shared, 1), branch(branch(shared, 1), 3), branch(shared, 3)]
    return relay.Function([x], relay.concatenate(branches, axis=1))


def test_branches_from_one_injective_value_keep_their_contractions_apart() -> None:
    fused = relay.transform.FuseOps()(relay.IRModule.from_expr(inception_like()))["main"]
    kernels = [n.op for n in post_order(fused.body) if isinstance(n, Call) and is_primitive(n.op)]
    counts = [
        sum(isinstance(n, Call) and isinstance(n.op, Op) and n.op.kind == Kind.CONTRACTION for n in post_order(k.body))
        for k in kernels
    ]
    assert max(counts) == 1
    assert sum(counts) == 4
