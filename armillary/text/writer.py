"""Indented text output, for printers and source emitters.

In: lines. Out: text. Invariant: output is deterministic: the same program prints the same text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Writer:
    """Collects lines at the current indentation."""

    def __init__(self, step: str = "  ") -> None:
        self.lines: list[str] = []
        self.step = step
        self.depth = 0

    def line(self, text: str = "") -> None:
        self.lines.append(self.step * self.depth + text if text else "")

    @contextmanager
    def block(self, opening: str, closing: str = "}") -> Iterator[None]:
        """Lines written inside are indented between `opening` and `closing`."""
        self.line(opening)
        self.depth += 1
        yield
        self.depth -= 1
        if closing:
            self.line(closing)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
