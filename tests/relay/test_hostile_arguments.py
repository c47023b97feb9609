"""Public functions given what they were not made for: a right answer or an ArmillaryError, never an error of Python."""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import armillary
from armillary import relay, te, tir
from armillary.errors import ArmillaryError

Function = Callable[..., Any]  # Any: every function of a package
DATA = relay.var("x", shape=(1, 4, 8, 8))
TENSOR = te.placeholder((4,), "float32", name="t")
VAR = tir.Var("v", "int32")
PLACES: tuple[tuple[ModuleType, object], ...] = (
    (te, TENSOR),
    (tir, VAR),
    (relay.nn, DATA),
    (relay, DATA),
    (armillary, VAR),
)
HOSTILE = (
    None,
    "x",
    b"x",
    object(),
    [],
    {},
    float("nan"),
    float("inf"),
    2**63,
    -(2**70),
    10**400,
    (),
    1.5,
    1 << 40,
    "\ud800",
    [None],
    DATA,
    TENSOR,
    VAR,
)
INNER = frozenset({"late", "lower_schedule", "static_shape"})  # of the packages' own use
MOST = 6  # arguments that are tried


def functions() -> Iterator[tuple[str, Function, object]]:
    for module, usual in PLACES:
        for name in sorted(set(dir(module)) - INNER):
            found = None if name.startswith("_") else getattr(module, name, None)
            if inspect.isfunction(found):
                yield f"{module.__name__}.{name}", found, usual


FUNCTIONS = tuple(functions())


@pytest.mark.parametrize(("name", "function", "usual"), FUNCTIONS, ids=[name for name, _, _ in FUNCTIONS])
def test_only_our_errors_leave_public_functions(name: str, function: Function, usual: object) -> None:
    places = [p for p in inspect.signature(function).parameters.values() if p.kind in (0, 1)]
    wanted = sum(p.default is p.empty for p in places)
    for at in range(max(1, min(len(places), MOST))):
        for value in HOSTILE:
            given = [usual] * max(wanted, at + 1)
            given[at] = value
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    function(*given)
            except ArmillaryError:
                continue
            except TypeError as error:
                trace = error.__traceback__
                if trace is not None and trace.tb_next is not None:
                    raise  # else the call does not fit the signature


@pytest.mark.parametrize("number", [0.5, float("nan"), float("inf"), 1 << 40, -(1 << 31) - 1])
def test_a_tensor_of_integers_meets_numbers_that_are_integers(number: float) -> None:
    x = relay.var("x", shape=(2,), dtype="int32")
    with pytest.raises(ArmillaryError, match="int32"):
        x * number
    assert (x * 2.0).args[1].data == 2


@pytest.mark.parametrize(
    ("number", "dtype"), [(300, "uint8"), (-1, "uint8"), (float("inf"), "int32"), (2**63, "int64")]
)
def test_a_constant_lies_in_the_range_of_its_type(number: float, dtype: str) -> None:
    with pytest.raises(ArmillaryError, match=f"a constant of {dtype} cannot be"):
        relay.const(number, dtype)
