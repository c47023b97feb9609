"""An entry of the table of functions (`signatures.py`): what it is called, where its class is, its arguments.

In: the words of an entry. Out: `Row` with `Argument`s. Invariant: all of it is text, so that names cost no import. What
arguments are checked for: `arguments.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from armillary.base.record import record

_WORD = re.compile(r"(>?)(\w+)([?~]?):([\w|]+)(?:@(\w+))?(?:\{([^}]+)\})?(?:=(.+))?")
_BORDER = ("border_mode:BorderMode=UNDEFINED", "constant_border_value:constant=0")
_TENSORS = {"U8", "S16", "S32", "U32", "F32", "F", "Q", "T"}


@record(slots=True)
class Argument:
    """An argument: its name, kinds, the tensor whose shape it has, its values and its default, as the table says."""

    name: str
    kinds: tuple[str, ...]
    shaped_as: str
    values: str
    default: str
    may_be_none: bool
    gets_information: bool
    is_validated: bool

    def is_tensor(self, others: Sequence[str]) -> bool:
        """Whether it is a tensor: of a type, or of that of another argument."""
        return all(kind in _TENSORS or kind in others for kind in self.kinds)

    def label(self) -> str:
        """What messages call it."""
        if self.name in ("input", "output"):
            return f"the {self.name}"
        return re.sub(r"(?<=[a-z])(\d)$", r" \1", self.name)


@record(slots=True)
class Row:
    """A function: its name without a side, its class with a setting, the modules of both sides, its arguments."""

    name: str
    class_name: str
    setting: str
    modules: tuple[str, str]
    arguments: tuple[Argument, ...]
    doc: str

    def validated(self) -> tuple[Argument, ...]:
        """The arguments of `validate`."""
        return tuple(each for each in self.arguments if each.is_validated)


def row_of(head: Sequence[str], modules: tuple[str, str], words: Sequence[str], doc: str) -> Row:
    """The entry that these words make."""
    name, class_name, setting = (*head, "")[:3]
    parsed = tuple(_arguments(words))
    return Row(name, name if class_name == "-" else class_name, setting, modules, parsed, doc)


def _arguments(words: Sequence[str]) -> Iterator[Argument]:
    for word in words:
        for text in _BORDER if word == "border" else (word,):
            match = _WORD.fullmatch(text)
            assert match is not None, f"{text!r} is no argument of the table"
            left_out, name, mark, kinds, shaped_as, values, default = (part or "" for part in match.groups())
            taken = tuple(kinds.split("|"))
            yield Argument(name, taken, shaped_as, values, default, mark == "?", mark in ("?", "~"), not left_out)
