"""Extents: arithmetic agrees with that of numbers, forms are normal, texts read back equal."""

import operator
import random

import pytest

from armillary import relay, te
from armillary.base.extent import (
    ANY_DIM,
    Extent,
    Known,
    as_size,
    bounds,
    ceil_div,
    divides,
    evaluate,
    least,
    most,
    size,
    substitute,
)
from armillary.errors import ParseError, TypeMismatch
from armillary.text.extent import declared, parse_extent

B, S = size("b", 1, 8), size("s", 0, 512, 4)


def _random(rng: random.Random, depth: int) -> Known:
    if depth == 0:
        return rng.choice([B, S, size("n"), rng.randint(0, 9)])
    a, b = _random(rng, depth - 1), _random(rng, depth - 1)
    operation = rng.choice("+-*/%<>")
    if operation in "/%":
        divisor = rng.randint(1, 7)
        return a // divisor if operation == "/" else a % divisor
    rules = {"+": operator.add, "-": operator.sub, "*": operator.mul, "<": least, ">": most}
    return rules[operation](a, b)  # type: ignore[no-any-return]


def _value(rng: random.Random, depth: int, values: dict[str, int]) -> int:
    if depth == 0:
        picked = rng.choice([B, S, size("n"), rng.randint(0, 9)])
        return evaluate(picked, values)
    a, b = _value(rng, depth - 1, values), _value(rng, depth - 1, values)
    operation = rng.choice("+-*/%<>")
    if operation in "/%":
        divisor = rng.randint(1, 7)
        return a // divisor if operation == "/" else a % divisor
    return {"+": a + b, "-": a - b, "*": a * b, "<": min(a, b), ">": max(a, b)}[operation]


def test_arithmetic_on_extents_is_that_of_their_values() -> None:
    for seed in range(400):
        rng = random.Random(seed)
        values = {"b": rng.randint(1, 8), "s": 4 * rng.randint(0, 128), "n": rng.randint(0, 50)}
        extent = _random(random.Random(f"{seed}"), 3)
        expected = _value(random.Random(f"{seed}"), 3, values)
        assert evaluate(extent, values) == expected, (seed, extent)
        low, high = bounds(extent)
        assert low <= expected <= high, (seed, extent)
        again = parse_extent(declared(extent))
        assert again == extent and bounds(again) == (low, high), (seed, declared(extent))


def test_equal_expressions_have_one_form() -> None:
    h = size("h", 1)
    assert (B + 1) * S == S + B * S and hash(2 * B) == hash(B + B)
    assert (B * S * 768) // (B * 12 * 64) == S
    assert (h * h + 2 * h + 1) // (h + 1) == h + 1
    assert (8 * B + 3) // 8 == B and (S * 2) % 8 == 0 and divides(4, S)
    assert ceil_div(8 * B, 8) == B and str(ceil_div(h, 2)) == "floordiv(h + 1, 2)"
    assert least(B, 8) == B and most(B, 1) == B and B - B == 0
    assert substitute(B * S + h, {"b": 2, "h": S}) == 3 * S
    assert as_size(B) is not None and as_size(B + 1) is None
    assert B * ANY_DIM == ANY_DIM and B != ANY_DIM and ANY_DIM + 1 == ANY_DIM


def test_variables_of_one_name_are_two_sizes() -> None:
    n, other = te.var("n"), te.var("n")
    first, second = relay.TensorType((n, n + n)), relay.TensorType((other, 4))
    assert first.shape[1] == first.shape[0] * 2 and first.shape[0] != second.shape[0] and first.shape[0] == n


def test_a_bad_extent_names_the_place() -> None:
    for text, message in (
        ("b +", "such as 3"),
        ("b{3, 1}", "low, high"),
        ("floordiv(b, 0)", "divided by 0"),
        ("(" * 100 + "b" + ")" * 100, "64 deep"),
        ("b b", "goes on"),
    ):
        with pytest.raises(ParseError, match=message.replace("(", r"\(")):
            parse_extent(text)
    with pytest.raises(TypeMismatch, match="bounds 5 to 2"):
        size("b", 5, 2)


def test_types_and_attributes_with_sizes_are_read_back() -> None:
    x = relay.var("x", relay.TensorType((B, S, 768)))
    body = relay.reshape(x, (B, S, 12, 64))
    text = relay.Function([x], body).astext()
    assert "Tensor[(b{1, 8}, s{0, 512, 4}, 768), float32]" in text
    assert "newshape=[b{1, 8}, s{0, 512, 4}, 12, 64]" in text
    again = relay.fromtext(text)
    assert isinstance(again["main"].params[0].checked_type.shape[0], Extent)
    assert str(again) == text or relay.fromtext(str(again)).astext() == again.astext()
