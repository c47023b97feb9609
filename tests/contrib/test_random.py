"""Random tensors of loop programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import te
from armillary.contrib import random
from armillary.errors import TypeMismatch


def drawn(tensor: te.Tensor, times: int = 1) -> list[np.ndarray]:
    """What a program of one tensor gives, run several times."""
    function = armillary.build(te.create_schedule(tensor.op), [tensor], "llvm")
    out = armillary.nd.empty(tuple(map(int, tensor.shape)), str(tensor.dtype))
    found = []
    for _ in range(times):
        function(out)
        found.append(out.numpy().copy())
    return found


def test_numbers_are_of_their_distribution_and_new_each_time() -> None:
    random.seed(3)
    first, second = drawn(random.uniform(-1.0, 3.0, size=(300, 100)), 2)
    assert first.min() >= -1 and first.max() < 3 and abs(first.mean() - 1) < 0.03 and (first != second).any()
    (values,) = drawn(random.normal(3.0, 4.0, size=30_000))
    assert abs(values.mean() - 3) < 0.1 and abs(values.std() - 4) < 0.1
    (whole,) = drawn(random.randint(-127, 128, size=(300, 100)))
    assert (whole.min(), whole.max()) == (-127, 127) and abs(whole.mean()) < 2 and whole.dtype == np.int32


def test_a_seed_begins_the_sequence_again_and_stages_read_what_was_drawn() -> None:
    base = random.uniform(0.0, 1.0, size=(4, 5))
    twice = te.compute((4, 5), lambda i, j: base[i, j] + base[i, j], name="twice")
    random.seed(7)
    (first,) = drawn(twice)
    random.seed(7)
    (again,) = drawn(base)
    np.testing.assert_array_equal(first, again + again)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: random.randint(3, 3, 4), r"no number in \[3, 3\)"),
        (lambda: random.randint(0, 3, 4, "int8"), "wanted int32 or uint32"),
        (lambda: random.normal(0.0, -1.0, 4), "standard deviation of -1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeMismatch, match=message):
        make()
