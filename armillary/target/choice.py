"""A stored choice for a call on a CPU: the algorithm and the register tile that a tuning record names.

In: the attribute `choice` of a call ("winograd=4 strip=7 tile=6x4 width=7"), written by the pass apply-records. Out: a
`Choice`; as options of a pass context, what cost models then take (cost/model.py, winograd/cost.py). Invariant: text
and value turn into each other; an empty text is the choice that leaves everything to the model.
"""

from __future__ import annotations

from typing import Any

from armillary.base.record import record
from armillary.errors import ConfigError
from armillary.transform import PassContext

_NUMBERS = ("winograd", "strip", "width")


@record
class Choice:
    """-1 and "" leave a decision to the model. `winograd`: the tile of the transform, 0 for the direct convolution;
    `strip` of its tiles, 0 for phases; `tile`: registers, for rows of `width` outputs (0: of any)."""

    winograd: int = -1
    strip: int = -1
    tile: str = ""
    width: int = -1

    def __str__(self) -> str:
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        parts = [f"{name}={value}" for name, value in numbers.items() if value >= 0]
        return " ".join([*parts, *([f"tile={self.tile}"] if self.tile else [])])

    @staticmethod
    def parse(text: str) -> Choice:
        """The choice of a text."""
        found: dict[str, Any] = {}  # Any: numbers, and the tile
        for part in text.split():
            name, _, value = part.partition("=")
            if name == "tile":
                found[name] = value
            elif name in _NUMBERS and value.isdecimal():
                found[name] = int(value)
            else:
                hint = "winograd=4 strip=7 tile=6x4 width=7"
                raise ConfigError(f"choice={text!r}: cannot read {part!r}", hint=hint)
        return Choice(**found)

    def context(self) -> PassContext:
        """The current options with this choice among them."""
        current = PassContext.current().without_instruments()
        current.config |= {"cpu.tile": self.tile} if self.tile else {}
        current.config |= {"cpu.tile.width": self.width or -1} if self.width >= 0 else {}
        current.config |= {"cpu.winograd.strip": self.strip} if self.strip >= 0 else {}
        return current


def stored_choice(call: Any) -> Choice:  # Any: an expression; those without attributes have none
    """The choice that a call carries."""
    text = getattr(getattr(call, "attrs", None), "choice", "")
    return Choice.parse(text) if text else Choice()
