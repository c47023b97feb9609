"""`relay.transform.LayoutConfig`: convolutions that ConvertLayout leaves alone.

In: the numbers of those, counted in the order in which they are computed. Out: a context. Invariant: the count starts
anew with each context; outside one nothing is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class LayoutConfig:
    """`with LayoutConfig(skip_layers=[0]):` leaves the first convolution as it is; -1 counts nothing."""

    current: ClassVar[LayoutConfig | None] = None

    def __init__(self, skip_layers: Sequence[int] | None = None) -> None:
        self.skip_layers = frozenset(skip_layers or ())
        self.counter = 0
        self.outer: LayoutConfig | None = None

    def check_skip(self) -> bool:
        """Whether the next convolution is left alone."""
        number, self.counter = self.counter, self.counter + 1
        return number in self.skip_layers

    def reset(self) -> None:
        """Count from 0 again."""
        self.counter = 0

    def __enter__(self) -> LayoutConfig:
        self.counter, self.outer = 0, LayoutConfig.current
        LayoutConfig.current = self
        return self

    def __exit__(self, *error: object) -> None:
        LayoutConfig.current = self.outer

    @staticmethod
    def skips() -> bool:
        """Whether the config in force, if there is one, leaves the next convolution alone."""
        return LayoutConfig.current is not None and LayoutConfig.current.check_skip()
