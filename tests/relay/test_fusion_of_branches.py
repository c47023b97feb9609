"""Where kernels end: at contractions of branches that meet, at the tensors a device takes, at marks of scripts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.base.node import post_order
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, Var
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


def _kernels_of(result: Expr, inputs: list[Var], target: str) -> list[dict[str, Any]]:
    library = relay.build(IRModule.from_expr(Function(tuple(inputs), result)), target)
    return [node for node in json.loads(library.graph_json)["nodes"] if node["op"] != "null"]


def test_stop_fusion_ends_a_kernel() -> None:
    x = relay.var("x", shape=(4,))
    joined, parted = relay.exp(relay.sqrt(x)), relay.exp(relay.annotation.stop_fusion(relay.sqrt(x)))
    assert [len(_kernels_of(e, [x], "llvm")) for e in (joined, parted)] == [1, 2]
    data = np.array([1, 4, 9, 16], np.float32)
    result = relay.create_executor("graph", IRModule.from_expr(Function((x,), parted))).evaluate()(data)
    np.testing.assert_allclose(result.numpy(), np.exp(np.sqrt(data)), rtol=1e-6)


def test_no_opencl_kernel_takes_more_tensors_than_the_target_allows() -> None:
    inputs = [relay.var(f"x{k}", shape=(1, 2)) for k in range(300)]
    whole = relay.concatenate(relay.Tuple(inputs), axis=1)
    counts = [len(node["inputs"]) + 1 for node in _kernels_of(whole, inputs, "opencl")]
    assert max(counts) <= 128 and sum(counts) >= 300
    with pytest.raises(ConfigError, match="max_function_args is 2, too few to concatenate"):
        relay.transform.SplitArgs(2)(IRModule.from_expr(Function(tuple(inputs), whole)))
