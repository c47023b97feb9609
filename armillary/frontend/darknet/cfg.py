"""Darknet's `.cfg` text: sections of options, the first of the network, each further one a layer.

In: the text. Out: its sections in order, with typed options. Invariant: white space means nothing, lines that begin
with # or ; are comments, and of an option that is set twice the first counts, all as Darknet reads them; a line or a
number that cannot be read is a ModelError with its place. See entry.py.
"""

from __future__ import annotations

import re
from typing import NoReturn

from armillary.base.record import record
from armillary.errors import ModelError, Span, UnsupportedError

_LARGEST = 1 << 31
_ALIASES = {
    "network": "net",
    "conv": "convolutional",
    "conn": "connected",
    "max": "maxpool",
    "avg": "avgpool",
    "soft": "softmax",
}


@record
class Section:
    """One section: its kind by the long name, its number (the first layer is 0), its options as texts."""

    kind: str
    number: int
    options: dict[str, str]
    span: Span

    def text(self, name: str, default: str) -> str:
        """An option as it stands."""
        return self.options.get(name, default)

    def whole(self, name: str, default: int, least: int | None = None) -> int:
        """A whole number, not below `least`."""
        text = self.text(name, str(default))
        value = _whole(text)
        if value is None or (least is not None and value < least):
            bound = "" if least is None else f" from {least} on"
            self.wrong(f"{name}={text}, wanted a whole number{bound}")
        return value

    def wholes(self, name: str, default: str = "") -> tuple[int, ...]:
        """Whole numbers between commas."""
        words = [word for word in self.text(name, default).split(",") if word]
        values = [value for value in map(_whole, words) if value is not None]
        return tuple(values) if len(values) == len(words) else self.wrong(f"{name}={self.text(name, default)}")

    def number_of(self, name: str, default: float) -> float:
        """A finite number with a fraction."""
        (value,) = self.numbers(name, str(default))[:1] or (default,)
        return value

    def numbers(self, name: str, default: str = "") -> tuple[float, ...]:
        """Finite numbers with fractions, between commas."""
        text = self.text(name, default)
        try:
            values = tuple(float(word) for word in text.split(",") if word)
        except ValueError:
            values = (float("inf"),)
        return values if all(abs(v) < _LARGEST for v in values) else self.wrong(f"{name}={text}, wanted numbers")

    def check_unset(self, *names: str) -> None:
        """Refuse options that change what the layer computes and have no rule here; 0 is as good as none."""
        for name in names:
            if self.text(name, "0") not in ("0", "none"):
                raise UnsupportedError(f"{self.title}: {name}={self.options[name]} is not supported", span=self.span)

    @property
    def title(self) -> str:
        """How messages call the layer."""
        return f"[{self.kind}]" if self.number < 0 else f"layer {self.number} [{self.kind}]"

    def wrong(self, what: str, hint: str = "") -> NoReturn:
        """Raise ModelError about this section."""
        raise ModelError(f"{self.title}: {what}", span=self.span, hint=hint)


def _whole(text: str) -> int | None:
    value = int(text) if re.fullmatch(r"[-+]?[0-9]{1,12}", text) else None
    return value if value is not None and abs(value) < _LARGEST else None


def read_cfg(text: str, path: str) -> list[Section]:
    """The sections of a text, the network's first; `path` is what errors call it."""
    sections: list[Section] = []
    for line, words in enumerate(text.splitlines(), 1):
        content = "".join(words.partition("#")[0].split())
        if not content or content.startswith(";"):
            continue
        name, equals, value = content.partition("=")
        if content.startswith("[") and content.endswith("]"):
            kind = content[1:-1].lower()
            sections.append(Section(_ALIASES.get(kind, kind), len(sections) - 1, {}, Span(path, line=line)))
        elif equals and sections:
            sections[-1].options.setdefault(name, value)
        else:
            hint = "[layer] begins a section, option=value belongs to one"
            raise ModelError(f"cannot read {content[:60]!r}", span=Span(path, line=line), hint=hint)
    if not sections or sections[0].kind != "net":
        hint = "the .cfg file that the weights were trained with"
        raise ModelError("it is no text of Darknet: it does not begin with [net]", span=Span(path), hint=hint)
    if len(sections) == 1:
        raise ModelError("the network has no layers", span=Span(path))
    return sections
