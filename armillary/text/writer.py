"""Indented text output and unique names, for printers and source emitters.

In: lines and names. Out: text. Invariant: output is deterministic: the same program prints the same text.
"""

from __future__ import annotations

import re
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


class Names:
    """Unique, legal identifiers, one per object: x, x_1, x_2, …"""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self._by_object: dict[int, str] = {}
        self._keep: list[object] = []
        self._used: dict[str, int] = dict.fromkeys(reserved, 0)

    def of(self, item: object, hint: str) -> str:
        """The name of `item`, made from `hint` the first time."""
        found = self._by_object.get(id(item))
        if found is None:
            found = self._by_object[id(item)] = self.fresh(hint)
            self._keep.append(item)
        return found

    def fresh(self, hint: str) -> str:
        """A name not given out before."""
        base = re.sub(r"\W", "_", hint) or "v"
        base = f"_{base}" if base[0].isdigit() else base
        if base not in self._used:
            self._used[base] = 0
            return base
        while True:
            self._used[base] += 1
            name = f"{base}_{self._used[base]}"
            if name not in self._used:
                self._used[name] = 0
                return name
