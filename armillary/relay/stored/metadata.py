"""The `#[metadata]` sections of a text: constants too large to print inline.

In: the text. Out: the text without its sections (line numbers kept) and the constants by index. A section belongs to
the functions between the section before it and itself. Invariant: every record is checked (known dtype, shape, exact
number of bytes) before its bytes are used; damage is a ParseError or ModelError, never a crash.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.base.json_types import JsonObject
from armillary.errors import ArmillaryError, ModelError, ParseError, Span
from armillary.relay.expr import Constant

_SECTION = re.compile(r"^#\[metadata\][ \t\r]*$", re.MULTILINE)


@dataclass
class Metadata:
    """Sections by the line where each begins; constants are made on first use and shared."""

    sections: list[tuple[int, JsonObject]]
    constants: dict[tuple[int, int], Constant] = field(default_factory=dict)
    rows_by_kind: dict[str, Sequence[object]] = field(default_factory=dict)  # by kind, of the caller

    @staticmethod
    def split(text: str, source: str) -> tuple[Metadata, str]:
        """The sections, and the text with them blanked."""
        sections: list[tuple[int, JsonObject]] = []
        plain: list[str] = []
        position, lines = 0, 1
        while (match := _SECTION.search(text, position)) is not None:
            before = text[position : match.start()]
            plain.append(before)
            lines += before.count("\n")
            content, end = _decode(text, match.end(), Span(source, "", lines))
            sections.append((lines, content))
            blank = text.count("\n", match.start(), end)
            plain.append("\n" * blank)
            lines += blank
            position = end
        return Metadata(sections), "".join(plain) + text[position:]

    def give(self, table: Mapping[str, Sequence[object]]) -> None:
        """Constants for a text without sections of its own, and what else it names by kind and number."""
        self.rows_by_kind.update({kind: rows for kind, rows in table.items() if kind != "relay.Constant"})
        constants = [c for c in table.get("relay.Constant", ()) if isinstance(c, Constant)]
        if not self.sections:
            self.sections.append((sys.maxsize, {"relay.Constant": list(constants)}))
            self.constants.update({(sys.maxsize, number): constant for number, constant in enumerate(constants)})

    def item(self, kind: str, index: int) -> object:
        """What the caller gave for `meta[kind][index]`."""
        rows = self.rows_by_kind[kind]
        if not 0 <= index < len(rows):
            raise ModelError(f"the table of {kind} has {len(rows)} entries, the text asks for number {index}")
        return rows[index]

    def constant(self, line: int, kind: str, index: int) -> Constant:
        """The constant that `meta[kind][index]` on a line stands for."""
        at, content = next(((at, content) for at, content in self.sections if at > line), (0, None))
        if content is None:
            hint = "print the module with show_meta_data=True"
            raise ModelError(f"there is no #[metadata] section for meta[{kind}][{index}]", hint=hint)
        rows = content.get(kind)
        if kind != "relay.Constant" or not isinstance(rows, list) or not 0 <= index < len(rows):
            raise ModelError(f"the #[metadata] section has no {kind} number {index}")
        if (at, index) not in self.constants:
            what = f"constant {index} of the #[metadata] section"
            self.constants[at, index] = Constant(read_array(rows[index], what))
        return self.constants[at, index]


def _decode(text: str, position: int, span: Span) -> tuple[JsonObject, int]:
    start = position + len(text[position:]) - len(text[position:].lstrip())
    try:
        content, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"the #[metadata] section is not JSON: {error}\n    #[metadata]\n    ^", span=span) from None
    if not isinstance(content, dict):
        raise ParseError("the #[metadata] section is not a JSON object\n    #[metadata]\n    ^", span=span)
    return content, end


def read_array(row: object, what: str) -> Array:  # Any: whatever the JSON held
    """The array of a record (dtype, shape, base64 data); ModelError, calling it `what`, where it is damaged."""
    if not isinstance(row, dict) or not {"dtype", "shape", "data"} <= row.keys():
        raise ModelError(f"{what} lacks dtype, shape or data")
    shape = row["shape"]
    if not isinstance(shape, list) or not all(isinstance(d, int) and not isinstance(d, bool) and d >= 0 for d in shape):
        raise ModelError(f"{what} has the shape {shape!r}")
    try:
        dtype = DType(str(row["dtype"])).numpy
        data = base64.b64decode(str(row["data"]), validate=True)
    except (ArmillaryError, binascii.Error, ValueError) as error:
        raise ModelError(f"{what}: {error}") from None
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ModelError(f"{what}: got {len(data)} bytes, wanted {math.prod(shape) * dtype.itemsize} for {shape}")
    return np.frombuffer(data, dtype).reshape(shape).copy()
