"""The C++ classes' `configure` beside the table of functions: the same arguments in the same order.

In: the headers, as text. Out: a failure that names a class whose arguments are others. Invariant: an argument may lack
its name or have a part of it, and the last ones may be missing; classes that a macro makes share another one's method.
"""

from __future__ import annotations

import re
from pathlib import Path

from armillary import compute
from armillary.compute.functions.signatures import ROWS

HEADERS = Path(compute.__file__).parent / "ahead"
TEXT = "\n".join(path.read_text() for path in sorted(HEADERS.glob("*.hpp")))
ONLY_IN_CPP = {"HarrisCorners": ["use_fp16"]}  # of the library, without effect


def _arguments(name: str) -> list[str] | None:
    """The names of a class's arguments, "" where one has none; None where no class is written down."""
    found = re.search(rf"\nclass NE{name} (?:final )?: public [^{{]+\{{", TEXT)
    method = re.compile(r"void configure\(([^{]*)\)\s*\{").search(TEXT, found.end()) if found else None
    if method is None:
        return None
    text = re.sub(r"\([^()]*\)|\{[^{}]*\}|<[^<>]*>", "", method[1])
    words = [argument.split("=")[0].strip() for argument in text.split(",")]
    return [(re.search(r"[\s*&](\w+)$", word) or ["", ""])[1] if not word.endswith("&") else "" for word in words]


def test_classes_of_cpp_take_the_arguments_of_the_table() -> None:
    compared = 0
    for name, row in ROWS.items():
        have = _arguments(name)
        if have is None:
            continue
        wanted = [each.name for each in row.arguments] + ONLY_IN_CPP.get(name, [])
        pairs = list(zip(have, wanted, strict=False))
        wrong = [f"NE{name}: {own!r} for {other!r}" for own, other in pairs if own not in other]
        assert not wrong and len(have) <= len(wanted), wrong or (name, have, wanted)
        compared += 1
    assert compared > 40
