"""Attention over named sizes: one kernel for every batch, every count of queries and of keys; against float64."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import armillary
from armillary import relay
from armillary.contrib.graph_executor import GraphModule
from armillary.ir import IRModule
from armillary.relay.op import get_op
from armillary.relay.parser import parse
from armillary.relay.types import tensor_type
from armillary.runtime import GraphExecutor
from armillary.te import var
from armillary.transform import PassContext

TARGETS = ["llvm -mcpu=native", "llvm -mcpu=haswell"]
ROWS = (1, 5, 7, 8, 9, 13, 14, 15, 16, 33)  # beside tiles of 5 to 14 rows; vectors of 8 and 16 keys
Dims = tuple[str | int, ...]


def f32(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def run_of(module: IRModule, target: str) -> GraphModule:
    with PassContext(opt_level=3):
        executor = relay.build(module, target)["default"](armillary.cpu())
    assert isinstance(executor, GraphExecutor)
    return GraphModule(executor)


def expected(q: Any, k: Any, v: Any, scale: float, mask: Any = 0) -> NDArray[np.float64]:
    """Of (b, t, h, d); heads of keys and values are shared by neighbours; a row without a number is zeros."""
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
    scores = np.einsum("bthd,bshd->bhts", q.astype("float64"), k) * scale + mask
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        weights = powers / powers.sum(-1, keepdims=True)
    return np.asarray(np.einsum("bhts,bshd->bthd", np.where(np.isnan(weights), 0, weights), v), "float64")


def network(query: Dims, key: Dims, value: Dims, mask: Dims | None, target: str, **attrs: Any) -> GraphModule:
    """The operator alone, over types whose dimensions may be names."""
    names: dict[str, Any] = {}
    shapes = [[names.setdefault(d, var(d)) if isinstance(d, str) else d for d in dims] for dims in (query, key, value)]
    inputs = [relay.var(n, tensor_type(s)) for n, s in zip("qkv", shapes, strict=True)]
    if mask is not None:
        inputs.append(relay.var("m", tensor_type([names[d] if isinstance(d, str) else d for d in mask])))
    call = get_op("nn.attention" if mask is None else "nn.masked_attention")(*inputs, **attrs)
    return run_of(IRModule.from_expr(relay.Function(inputs, call)), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", [None, ("b", 1, 1, "s"), (1, 4, "t", "s"), ("b", 4, "t", "s"), (1, 1, "t", 1)])
@pytest.mark.parametrize("features", [8, 24])
def test_every_size_is_right(mask: Dims | None, features: int, target: str) -> None:
    dims = ("b", "s", 2, features)
    net = network(("b", "t", 4, features), dims, dims, mask, target, scale=0.3, shared=2)
    for t in ROWS:
        for b, s in ((1, 1), (2, t), (1, 16), (3, 17), (1, 50)):
            sizes = {"b": b, "t": t, "s": s}
            q, k, v = f32(1, b, t, 4, features), f32(2, b, s, 2, features), f32(3, b, s, 2, features)
            added = None if mask is None else f32(4, *(sizes[d] if isinstance(d, str) else d for d in mask))
            net.run(q=q, k=k, v=v, **({} if added is None else {"m": added}))
            wanted = expected(q, k, v, 0.3, 0 if added is None else added)
            np.testing.assert_allclose(net.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_a_step_reads_any_count_of_keys_where_they_lie(target: str) -> None:
    dims = (1, "s", 2, 16)
    net = network((1, 1, 4, 16), dims, dims, (1, 1, 1, "s"), target, scale=0.5, shared=2)
    for s in (1, 2, 7, 8, 15, 16, 17, 64, 130):
        q, k, v, m = f32(1, 1, 1, 4, 16), f32(2, 1, s, 2, 16), f32(3, 1, s, 2, 16), f32(4, 1, 1, 1, s)
        net.run(q=q, k=k, v=v, m=m)
        np.testing.assert_allclose(net.get_output(0).numpy(), expected(q, k, v, 0.5, m), rtol=1e-4, atol=1e-5)


TEXT = """def @main(%x: Tensor[(b, s, 64), float32], %keep: Tensor[(b, 1, 1, s), bool]) {
    %0 = reshape(%x, newshape=[b, s, 4, 16]);
    %1 = transpose(%0, axes=[0, 2, 1, 3]);
    %2 = reshape(%1, newshape=[b*4, s, 16]);
    %3 = transpose(%0, axes=[0, 2, 3, 1]);
    %4 = reshape(%3, newshape=[b*4, 16, s]);
    %5 = nn.batch_matmul(%2, %4, transpose_b=False);
    %6 = reshape(%5, newshape=[b, 4, s, s]);
    %7 = where(%keep, 0f, LOW);
    %8 = add(%6, %7);
    %9 = nn.softmax(%8);
    GUARD
    %12 = reshape(%11, newshape=[b*4, s, s]);
    %13 = nn.batch_matmul(%12, %2, transpose_b=False);
    %14 = reshape(%13, newshape=[b, 4, s, 16]);
    transpose(%14, axes=[0, 2, 1, 3])
}"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("opt_level", [2, 3])
def test_rows_whose_keys_are_all_hidden_are_zeros(opt_level: int, target: str) -> None:
    guard = "%10 = isnan(%9); %11 = where(%10, 0f, %9);"
    low = "multiply(-1f, power(10f, 39f))"  # no number of float32 is as low
    module = parse(TEXT.replace("GUARD", guard).replace("LOW", low))
    with PassContext(opt_level=opt_level):
        library = relay.build(module, target)
    executor = library["default"](armillary.cpu())
    assert isinstance(executor, GraphExecutor)
    assert (opt_level == 3) == ("masked_attention" in str(library.get_graph_json()))
    net = GraphModule(executor)
    for b, s in ((1, 1), (2, 7), (3, 16), (1, 33)):
        x, keep = f32(1, b, s, 64), np.random.default_rng(2).random((b, 1, 1, s)) < 0.6
        keep[-1] = False
        net.run(x=x, keep=keep)
        heads = x.reshape(b, s, 4, 16)
        wanted = expected(heads, heads, heads, 1.0, np.where(keep, 0, -np.inf))
        assert not wanted[-1].any()
        np.testing.assert_allclose(net.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_a_row_with_a_score_that_is_no_number_is_no_number_without_a_guard() -> None:
    text = TEXT.replace("GUARD", "%11 = reshape(%9, newshape=[b, 4, s, s]);").replace("LOW", "-1000f")
    net = run_of(parse(text), TARGETS[0])
    x = f32(1, 1, 9, 64)
    x[0, 3] = np.nan
    net.run(x=x, keep=np.ones((1, 1, 1, 9), bool))
    assert np.isnan(net.get_output(0).numpy()).all()
