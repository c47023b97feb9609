"""`@record` makes what `dataclass` makes: constructor, defaults, checks, equality, hash, text, copies, pickles."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest

from armillary.base.record import record


@record
class Plain:
    name: str
    sizes: tuple[int, ...] = (1, 2)


@record(slots=True)
class Slotted:
    """Has a docstring of its own."""

    low: float
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("empty")


@record(frozen=False)
class Open:
    rows: list[int] = field(default_factory=list)


@record(eq=False)
class Token:
    pass


@record(slots=True)
class Longer(Slotted):
    more: int = 0


def _like(made: type, **options: bool) -> type:
    """The same fields, as a dataclass."""
    own = {f.name: f.default for f in fields(made) if f.default is not dataclasses.MISSING}
    own["__annotations__"] = {f.name: f.type for f in fields(made)}
    return dataclass(frozen=True, **options)(type(made.__name__, (), own))


OTHER = {Plain: _like(Plain), Slotted: _like(Slotted, slots=True)}


@pytest.mark.parametrize("args", [(Plain, ("a",), {}), (Plain, (), {"sizes": (), "name": "b"}), (Slotted, (0.5,), {})])
def test_a_record_is_built_shown_and_hashed_as_a_dataclass(args: tuple[Any, ...]) -> None:
    made, given, named = args
    mine, other = made(*given, **named), OTHER[made](*given, **named)
    assert repr(mine) == repr(other)
    assert hash(mine) == hash(other)
    assert dataclasses.astuple(mine) == dataclasses.astuple(other)
    assert made.__match_args__ == OTHER[made].__match_args__


def test_records_are_equal_by_value_and_class() -> None:
    assert Plain("a") == Plain("a", (1, 2)) != Plain("b")
    assert Slotted(0.5) != Longer(0.5)
    assert Token() != Token()


def test_wrong_arguments_are_refused_at_the_first_call_too() -> None:
    @record
    class Late:
        x: int

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Late()  # type: ignore[call-arg]
    assert Late(3).x == 3


@pytest.mark.parametrize("item", [Plain("a"), Slotted(0.5), Longer(0.5)])
def test_a_frozen_record_does_not_change(item: Any) -> None:
    name = fields(item)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError, match=name):
        setattr(item, name, 1)
    with pytest.raises(dataclasses.FrozenInstanceError, match=name):
        delattr(item, name)


def test_values_are_checked_when_a_record_is_built_or_replaced() -> None:
    with pytest.raises(ValueError, match="empty"):
        Slotted(2.0)
    with pytest.raises(ValueError, match="empty"):
        replace(Slotted(0.0), high=-1.0)
    assert Longer(0.0, 2.0, 3) == replace(Longer(0.0, 2.0), more=3)


def test_default_factories_are_called_for_each_record() -> None:
    first, second = Open(), Open()
    first.rows.append(1)
    assert (first.rows, second.rows, Open([2]).rows) == ([1], [], [2])
    assert first != second
    with pytest.raises(TypeError, match="unhashable"):
        hash(first)


@pytest.mark.parametrize("item", [Plain("a"), Slotted(0.5), Longer(0.5, 2.0, 3), Open([4])])
def test_records_are_copied_and_pickled(item: Any) -> None:
    assert pickle.loads(pickle.dumps(item)) == copy.copy(item) == copy.deepcopy(item) == item
    assert not hasattr(Slotted(0.5), "__dict__")


@record
class Named:
    """Fields with names that a constructor could use itself."""

    own: float
    args: int = 0


def test_fields_may_be_called_anything() -> None:
    assert (Named(0.5).own, Named(0.5, 3).args) == (0.5, 3)
