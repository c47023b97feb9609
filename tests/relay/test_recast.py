"""Operators that compute in another type between casts."""

from __future__ import annotations

import pytest

from armillary import relay
from armillary.errors import TypeMismatch
from armillary.relay.transform import recast


def _two_layers() -> relay.Function:
    x, w = relay.var("x", shape=(1, 8, 6, 6)), relay.var("w", shape=(8, 8, 3, 3))
    first = relay.nn.conv2d(x, w, padding=(1, 1), out_dtype="float32")
    return relay.Function([x, w], relay.nn.conv2d(first, w, padding=(1, 1), out_dtype="float32"))


def _types(function: relay.Function) -> list[str]:
    """The types in which convolutions sum, in order."""
    order = relay.analysis.post_order_visit
    found: list[str] = []
    order(
        function,
        lambda e: found.append(e.attrs.out_dtype) if isinstance(e, relay.Call) and "conv2d" in str(e.op) else None,
    )
    return found


def test_every_layer_reads_casts_and_is_cast_back() -> None:
    made = recast(_two_layers(), "int8", "int32")
    assert _types(made) == ["int32", "int32"]
    assert made.checked_type.ret_type == relay.TensorType((1, 8, 6, 6), "float32")
    assert str(made).count("cast(") == 6


@pytest.mark.parametrize(("skipped", "types"), [([0], ["float32", "int32"]), ([-1], ["int32", "float32"])])
def test_layers_are_numbered_from_both_ends(skipped: list[int], types: list[str]) -> None:
    assert _types(recast(_two_layers(), "int8", "int32", skip_layers=skipped)) == types


def test_fields_of_a_tuple_are_cast_and_other_operators_stay() -> None:
    x, y = relay.var("x", shape=(1, 4)), relay.var("y", shape=(1, 4))
    body = relay.nn.relu(relay.concatenate([x, y], axis=1))
    text = str(recast(relay.Function([x, y], body), "float16", "float32", ops=["concatenate"]))
    assert text.count('dtype="float16"') == 2 and text.count('dtype="float32"') == 1 and "nn.relu" in text


def test_a_layer_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeMismatch, match="skip_layers has 2, there are 2 calls"):
        recast(_two_layers(), "int8", "int32", skip_layers=[2])
