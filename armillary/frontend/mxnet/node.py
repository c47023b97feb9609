"""A node of MXNet's graph as rules see it, and the table of the rules.

In: `@mxnet("Convolution")` in a file of rules/. Out: the rule of an operator (`MXNET_RULES`). Invariant: attributes are
texts in the file; each is read as the type that the rule asks for, or refused with its name. A rule returns one
expression, or a list of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NoReturn

from armillary.base.record import record
from armillary.errors import Span, UnsupportedError
from armillary.frontend.values import shape_of
from armillary.relay.expr import Expr
from armillary.relay.lazy_registry import LazyRegistry

Axes = tuple[int | None, ...]


@record
class MxnetNode:
    """One operator with typed inputs."""

    op: str
    name: str
    inputs: Sequence[Expr]
    attrs: dict[str, str]
    span: Span

    @property
    def x(self) -> Expr:
        return self.inputs[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first input."""
        return shape_of(self.x)

    def text(self, name: str, default: str = "") -> str:
        """An attribute as it stands; "None" is the default."""
        result = self.attrs.get(name, "None")
        return default if result == "None" else result

    def number(self, name: str, default: float | None = None) -> float:
        """A number with a fraction."""
        text = self.text(name)
        try:
            return float(text) if text or default is None else default
        except ValueError:
            self.refuse(f"{name} is {text!r}, wanted a number")

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        numbers = self.wholes(name, None if default is None else (default,))
        return (
            numbers[0] if len(numbers) == 1 else self.refuse(f"{name} is {self.text(name)!r}, wanted one whole number")
        )

    def wholes(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Whole numbers: "(3, 3)", "[3, 3]" or "3"; older files write "3L"."""
        axes = self.axes(name, default)
        if None in axes:
            self.refuse(f"{name} is {self.text(name)!r}, wanted whole numbers")
        return tuple(n for n in axes if n is not None)

    def axes(self, name: str, default: Axes | None = None) -> Axes:
        """Whole numbers, or None in their places."""
        text = self.text(name)
        if not text:
            return self.refuse(f"it lacks {name}") if default is None else default
        words = [word for word in re.split(r"[\s,()\[\]]+", text) if word]
        if not all(re.fullmatch(r"-?\d+L?|None", word) for word in words):
            self.refuse(f"{name} is {text!r}, wanted whole numbers")
        return tuple(None if word == "None" else int(word.rstrip("L")) for word in words)

    def numbers(self, name: str, default: tuple[float, ...] = ()) -> tuple[float, ...]:
        """Numbers with fractions."""
        try:
            words = [word for word in re.split(r"[\s,()\[\]]+", self.text(name)) if word]
            return tuple(map(float, words)) or default
        except ValueError:
            self.refuse(f"{name} is {self.text(name)!r}, wanted numbers")

    def flag(self, name: str, default: bool = False) -> bool:
        """True and 1, or not."""
        return self.text(name, str(default)) in ("True", "true", "1")

    def one_of(self, name: str, allowed: Sequence[str], default: str = "") -> str:
        """A word out of several."""
        result = self.text(name, default)
        return result if result in allowed else self.refuse(f"{name} is {result!r}", f"supported: {', '.join(allowed)}")

    def refuse(self, what: str, hint: str = "") -> NoReturn:
        """Raise UnsupportedError about this node."""
        raise UnsupportedError(f"{self.op} {self.name!r}: {what}", span=self.span, hint=hint)


MxnetRule = Callable[[MxnetNode], Expr | list[Expr]]
MXNET_RULES: LazyRegistry[str, MxnetRule] = LazyRegistry(lambda name: f"mxnet:{name}")
mxnet = MXNET_RULES.register  # @mxnet("…"): the rule of operators
