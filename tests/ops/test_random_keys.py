"""Random numbers: the published cipher's known answers, keys that are used up, distributions."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import relay, te, topi
from armillary.errors import TypeMismatch

FULL = (1 << 64) - 1


def _run(*outputs):
    made = relay.Tuple(tuple(outputs))
    return [a.numpy() for a in relay.create_executor("debug").evaluate(relay.Function([], made))()]


def test_words_of_the_zero_key_are_the_ciphers_known_answers():
    numbers = relay.random.threefry_generate(relay.random.threefry_key(0), (4,))[1]
    known = [0x09218EBDE6C85537, 0x55941F5266D86105, 0x4BD25E16282434DC, 0xEE29EC846BD2E40B]
    assert [int(n) for n in _run(numbers)[0]] == known


def test_a_key_goes_on_and_its_halves_differ():
    key = relay.random.threefry_key(3)
    after, first = relay.random.threefry_generate(key, (7,))
    _, again = relay.random.threefry_generate(key, (3,))
    _, second = relay.random.threefry_generate(after, (7,))
    left, right = relay.random.threefry_split(key)
    a, b = (relay.random.threefry_generate(half, (64,))[1] for half in (left, right))
    one, same, two, halves = _run(first, again, second, relay.op.not_equal(a, b))
    assert (one != two).all() and (one[4:] != two[:3]).all() and halves.all() and len(same) == 3


def test_a_used_up_counter_lengthens_the_path_and_a_used_up_path_changes_the_key():
    with_path = np.array([1, 2, 3, 4, 0, 0, 0, FULL - 1, 1 << 63, 0], np.uint64)
    without = np.array([1, 2, 3, 4, 5, 6, 0, FULL - 1, 0, 0], np.uint64)
    longer, fresh = _run(*(relay.random.threefry_generate(relay.const(k), (8,))[0] for k in (with_path, without)))
    assert [int(n) for n in longer] == [1, 2, 3, 4, 1 << 63, 0, 0, 8, 1 << 62, 0]
    assert (fresh[:4] != without[:4]).all() and [int(n) for n in fresh[4:]] == [0, 0, 0, 8, 1 << 63, 0]


def test_distributions_compiled_have_their_moments():
    key = relay.random.threefry_key(11)
    flat = relay.random.uniform(key, (4000,), "float32", relay.const(5.0), relay.const(10.0))[1]
    bell = relay.random.normal(key, (4000,), "float64", -2.0, 3.0)[1]
    drawn = relay.random.multinomial(key, relay.const(np.array([1.0, -4.0, 3.0], "float32")), 4000)[1]
    function = relay.Function([], relay.Tuple((flat, bell, drawn)))
    flat, bell, drawn = (a.numpy() for a in relay.create_executor("graph").evaluate(function)())
    assert 5 <= flat.min() < 5.1 and 9.9 < flat.max() < 10 and abs(flat.mean() - 7.5) < 0.1
    assert abs(bell.mean() + 2) < 0.2 and abs(bell.std() - 3) < 0.2
    assert abs(np.bincount(drawn, minlength=3) / 4000 - [0.25, 0, 0.75]).max() < 0.03


def test_topi_takes_tensors_and_gives_the_same_numbers():
    key = te.placeholder((10,), dtype="uint64", name="key")
    after, numbers = topi.random.threefry_generate(key, (5,))
    function = armillary.build(topi.generic.schedule_extern([after, numbers]), [key, after, numbers], "llvm")
    held = [armillary.nd.array(np.zeros(n, np.uint64)) for n in (10, 5)]
    constant = relay.random.threefry_key(1 << 70)
    function(armillary.nd.array(constant.data.numpy()), *held)
    expected = _run(*relay.random.threefry_generate(constant, (5,)))
    np.testing.assert_array_equal(held[1].numpy(), expected[1])
    np.testing.assert_array_equal(held[0].numpy(), expected[0])


def test_wrong_keys_and_dtypes_are_named():
    with pytest.raises(TypeMismatch, match=r"wanted Tensor\[\(10,\), uint64\]"):
        relay.random.threefry_split(relay.const(np.zeros(9, np.uint64))).checked_type  # noqa: B018
    with pytest.raises(TypeMismatch, match="dtype int32, wanted float32 or float64"):
        relay.random.uniform(relay.random.threefry_key(0), (2,), "int32")
