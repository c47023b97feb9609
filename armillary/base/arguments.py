"""What a public function was given, checked in a line for each argument.

In: the function's name in messages, an argument's name and value, what is wanted. Out: nothing, or an error of the
function's own class that names all of these. Invariant: nothing is converted; bool is no number. What Python itself
refuses further in: `boundary.py`.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from types import UnionType

from armillary.base.record import record
from armillary.errors import ArmillaryError, TypeMismatch

Kinds = type | UnionType | tuple[type, ...]
_SHOWN = 60  # characters of a value


@record(slots=True)
class Arguments:
    """The arguments of the function `what`; a wrong one raises `error`."""

    what: str
    error: type[ArmillaryError] = TypeMismatch

    def number(self, name: str, value: object, least: float | None = None, *, above: float | None = None) -> None:
        """A finite number, at least `least`, greater than `above`."""
        bound = f" of at least {least:g}" if least is not None else f" above {above:g}" if above is not None else ""
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        fits = is_number and abs(value) < float("inf")  # type: ignore[arg-type]  # not of NaN
        if not fits or (least is not None and value < least) or (above is not None and value <= above):  # type: ignore[operator]
            self.refuse(name, value, f"a number{bound}")

    def whole(self, name: str, value: object, least: int | None = None, most: int | None = None) -> None:
        """A whole number within bounds."""
        bound = "" if least is None else f" of at least {least}" if most is None else f" in [{least}, {most}]"
        fits = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not fits or (least is not None and value < least) or (most is not None and value > most):  # type: ignore[operator]
            self.refuse(name, value, f"a whole number{bound}")

    def counts(self, least: int, **values: object) -> None:
        """Whole numbers of at least `least`, by the names of the arguments."""
        for name, value in values.items():
            self.whole(name, value, least)

    def text(self, name: str, value: object, *, is_empty_allowed: bool = True) -> None:
        """A text that can be written."""
        if not isinstance(value, str) or not (value or is_empty_allowed):
            self.refuse(name, value, "a text" if is_empty_allowed else "a text that is not empty")
        assert isinstance(value, str), "it was refused"
        if "\0" in value or (not value.isascii() and value.encode("utf-8", "replace").decode() != value):
            self.refuse(name, value, "a text of characters that can be written")

    def kind(self, name: str, value: object, kinds: Kinds, wanted: str, hint: str = "") -> None:
        """An object of a class."""
        if not isinstance(value, kinds):
            self.refuse(name, value, wanted, hint)

    def callable(self, name: str, value: object, wanted: str = "a function") -> None:
        """Something that can be called."""
        if not callable(value):
            self.refuse(name, value, wanted)

    def provides(self, name: str, value: object, methods: Iterable[str], wanted: str, hint: str = "") -> None:
        """An object with these methods."""
        missing = [method for method in methods if not hasattr(value, method)]
        if missing:
            self.refuse(name, value, f"{wanted}, with {', '.join(missing)}", hint)

    def refuse(self, name: str, value: object, wanted: str, hint: str = "") -> None:
        """Raise the error."""
        try:
            text = repr(value)
        except Exception:  # of a class that is not ours: its values are named by their kind
            text = "a value"
        text = text.encode("ascii", "backslashreplace").decode()
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        got = "" if isinstance(value, str | int | float | None) else f" ({type(value).__name__})"
        raise self.error(f"{self.what}: {name}={shown}{got}: wanted {wanted}", hint=hint)
