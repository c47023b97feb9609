"""An operator of TensorFlow as rules see it, and the table of the rules.

In: `@tensorflow("Conv2D")` in a file of rules/. Out: the rule of an operator (`TENSORFLOW_RULES`). Invariant: an
attribute is read as the type that the rule asks for, or refused with its name. A rule returns one expression or a list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.errors import Span, UnsupportedError
from armillary.frontend.folding.fold import Folder
from armillary.frontend.tensorflow.graph import Attr, DTypeOf
from armillary.frontend.values import dtype_of, scalar, shape_of
from armillary.relay.expr import Expr
from armillary.relay.lazy_registry import LazyRegistry


@record(eq=False)
class TensorflowNode:
    """One operator with typed inputs."""

    op: str
    name: str
    inputs: Sequence[Expr]
    attrs: dict[str, Attr]
    folder: Folder
    span: Span

    @property
    def x(self) -> Expr:
        return self.inputs[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first input."""
        return shape_of(self.x)

    def value(self, index: int, what: str) -> Array:
        """The numbers of an input, which have to be known."""
        numbers = self.folder.value(self.inputs[index])
        if numbers is None:
            self.refuse(f"{what} is computed from the network's inputs", "it has to be known when compiling")
        return np.asarray(numbers)

    def numbers(self, index: int, what: str) -> tuple[int, ...]:
        """The numbers of an input as integers."""
        return tuple(int(n) for n in self.value(index, what).reshape(-1))

    def whole(self, name: str, default: int = 0) -> int:
        """A whole number among the attributes."""
        value = self.attrs.get(name, default)
        return int(value) if isinstance(value, int) else self.refuse(f"{name} is {value!r}, wanted a whole number")

    def real(self, name: str, default: float) -> float:
        """A number among the attributes."""
        value = self.attrs.get(name, default)
        return float(value) if isinstance(value, int | float) else self.refuse(f"{name} is {value!r}, wanted a number")

    def flag(self, name: str) -> bool:
        """Whether an attribute is true."""
        return bool(self.attrs.get(name, False))

    def wholes(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Whole numbers among the attributes."""
        value = self.attrs.get(name)
        if value is None:
            return default
        numbers = [int(n) for n in value if isinstance(n, int)] if isinstance(value, list) else []
        if not isinstance(value, list) or len(numbers) != len(value):
            self.refuse(f"{name} is {value!r}, wanted whole numbers")
        return tuple(numbers)

    def text(self, name: str, default: str) -> str:
        """A word among the attributes."""
        value = self.attrs.get(name)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else default

    def dtype(self, name: str, default: str) -> str:
        """A type among the attributes."""
        value = self.attrs.get(name)
        return value.name if isinstance(value, DTypeOf) else default

    def number(self, value: float) -> Expr:
        """A number in the type of the first input."""
        return scalar(value, dtype_of(self.x))

    def refuse(self, what: str, hint: str = "") -> NoReturn:
        """Raise UnsupportedError about this operator."""
        raise UnsupportedError(f"{self.op} {self.name!r}: {what}", span=self.span, hint=hint)


TensorflowRule = Callable[[TensorflowNode], Expr | list[Expr]]
TENSORFLOW_RULES: LazyRegistry[str, TensorflowRule] = LazyRegistry(lambda name: f"tensorflow:{name}")
tensorflow = TENSORFLOW_RULES.register  # @tensorflow("…"): the rule of operators
