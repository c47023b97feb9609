"""Attributes that are a number for each axis may be given as one number, of any kind, or a list of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.relay.evaluate import evaluate
from armillary.transform import PassContext

SIDES = (9, 8, 7)
CASES: list[tuple[str, int, dict[str, Any]]] = [
    *(("conv", rank, {"strides": 2}) for rank in (1, 2, 3)),
    *(("conv", rank, {"padding": 1, "kernel_size": 3, "channels": 4}) for rank in (1, 2, 3)),
    ("conv", 1, {"strides": np.int64(2), "dilation": 2}),
    ("conv", 2, {"strides": [2], "padding": [1], "dilation": 2}),
    *(("conv_transpose", rank, {"strides": 2, "output_padding": 1}) for rank in (1, 2, 3)),
    *(("conv_transpose", rank, {"strides": 2, "kernel_size": 3, "channels": 4, "padding": 1}) for rank in (1, 2)),
    *(("max_pool", rank, {"pool_size": 3, "strides": 2, "padding": 1}) for rank in (1, 2, 3)),
    *(("avg_pool", rank, {"pool_size": 2, "strides": 2}) for rank in (1, 2, 3)),
]


def built(function: relay.Function, arrays: list[Any], level: int) -> Any:  # Any: arrays
    with PassContext(opt_level=level):
        graph = relay.build(function, "llvm")["default"]()
    for parameter, value in zip(function.params, arrays, strict=True):
        graph.set_input(parameter.name_hint, value)
    graph.run()
    return graph.get_output(0).numpy()


@pytest.mark.parametrize(("kind", "rank", "given"), CASES, ids=str)
def test_windows(kind: str, rank: int, given: dict[str, Any]) -> None:
    random = np.random.default_rng(rank)
    arrays = [np.round(random.standard_normal((1, 4, *SIDES[:rank])) * 3).astype(np.float32)]
    if "conv" in kind:
        arrays.append(np.round(random.standard_normal((4, 4, *(3,) * rank))).astype(np.float32))
    inputs = [relay.var(f"x{k}", shape=a.shape) for k, a in enumerate(arrays)]
    stem, _, rest = kind.partition("_")
    name = f"{kind}{rank}d" if "pool" in kind else f"{stem}{rank}d{'_' if rest else ''}{rest}"
    operator = getattr(relay.nn, name)
    one = relay.Function(inputs, operator(*inputs, **given))
    each = {k: (int(np.ravel(v)[0]),) * rank if k != "channels" else v for k, v in given.items()}
    written_out = relay.Function(inputs, operator(*inputs, **each))
    assert one.body.attrs == written_out.body.attrs
    wanted = evaluate(written_out, arrays)
    for level in (0, 3):
        np.testing.assert_allclose(built(one, arrays, level), wanted, rtol=1e-4, atol=1e-4)


def test_other_operators() -> None:
    x = relay.var("x", shape=(4,))
    value = np.arange(4, dtype=np.float32)
    cases = ((relay.tile(x, 2), np.tile(value, 2)), (relay.strided_slice(x, 1, 3), value[1:3]))
    for body, wanted in (*cases, (relay.broadcast_to(x, 4), value), (relay.transpose(x, 0), value)):
        np.testing.assert_array_equal(built(relay.Function([x], body), [value], 3), wanted)
