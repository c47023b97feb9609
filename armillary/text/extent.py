"""Text of extents: `2*b*s + 1`, `floordiv(h + 1, 2)`, `min(a, b)`; a size that states more than its name: `b{1, 64}`.

In: a cursor at an extent, or an extent. Out: the extent, or its text. Invariant: what was printed reads back equal,
with bounds, step and hint of its sizes. In braces stand low and high, then, where one is stated, the step and the hint.
A division is a call, as `//` begins a comment in some of the languages. Nothing is evaluated but sums and products.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from armillary.base.extent import LARGEST, Dim, Extent, Known, Size, least, most, size, sizes_of
from armillary.text.cursor import Cursor

_CALLS = {"floordiv": lambda a, b: a // b, "min": least, "max": most}
_DEEPEST = 64  # calls and parentheses inside one another


def declared(extent: Dim) -> str:
    """The text of an extent in which each size states its bounds where they are not the usual ones."""
    text = str(extent)
    if not isinstance(extent, Extent):
        return text
    for name, limits in sizes_of([extent]).items():
        more = _stated(limits)
        text = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.(])", f"{name}{more}", text) if more else text
    return text


def _stated(size: Size) -> str:
    values = [size.low, size.high, size.step, size.hint]
    usual = [0, LARGEST, 1, 0]
    while len(values) > 2 and values[-1] == usual[len(values) - 1]:
        values.pop()
    return "" if values == usual[:2] else "{" + ", ".join(map(str, values)) + "}"


def parse_extent(text: str, source: str = "<extent>", sizes: Mapping[str, Size] | None = None) -> Known:
    """The extent of a text that holds nothing else; ParseError otherwise. `sizes` are known by their names."""
    cursor = Cursor(text, source)
    result = read_extent(cursor, sizes=sizes)
    if not cursor.at_end():
        raise cursor.error("the extent goes on")
    return result


def read_extent(cursor: Cursor, depth: int = 0, sizes: Mapping[str, Size] | None = None) -> Known:
    """The extent at the cursor: a sum of products."""
    if depth > _DEEPEST:
        raise cursor.error(f"an extent is nested more than {_DEEPEST} deep")
    total = _known(cursor, -_term(cursor, depth, sizes) if cursor.accept("-") else _term(cursor, depth, sizes))
    while cursor.at("+", "-"):
        is_minus = cursor.next().text == "-"
        term = _term(cursor, depth, sizes)
        total = _known(cursor, total - term if is_minus else total + term)
    return total


def _known(cursor: Cursor, value: Dim) -> Known:
    if isinstance(value, int | Extent):
        return value
    raise cursor.error("an extent is a number or an expression over named sizes")


def _term(cursor: Cursor, depth: int, sizes: Mapping[str, Size] | None) -> Known:
    product = _factor(cursor, depth, sizes)
    while cursor.accept("*"):
        product = _known(cursor, product * _factor(cursor, depth, sizes))
    return product


def _factor(cursor: Cursor, depth: int, sizes: Mapping[str, Size] | None) -> Known:
    if cursor.accept("("):
        inner = read_extent(cursor, depth + 1, sizes)
        cursor.expect(")")
        return inner
    if cursor.token.kind == "number":
        return cursor.integer()
    name = cursor.name("a size, such as 3, b or 2*b + 1")
    if name in _CALLS and cursor.accept("("):
        first = read_extent(cursor, depth + 1, sizes)
        cursor.expect(",")
        second = read_extent(cursor, depth + 1, sizes)
        cursor.expect(")")
        if name == "floordiv" and second == 0:
            raise cursor.error("an extent is divided by 0")
        return _known(cursor, _CALLS[name](first, second))
    numbers: list[int] = []
    if cursor.accept("{"):
        while not cursor.accept("}"):
            numbers.append(cursor.integer())
            if not cursor.at("}"):
                cursor.expect(",")
        if not 2 <= len(numbers) <= 4 or numbers[0] > numbers[1]:
            raise cursor.error(f"a size states low, high, step and hint in braces, got {numbers}")
    known = sizes.get(name) if sizes and not numbers else None
    return size(name, *numbers) if known is None else Extent({(known,): 1})
