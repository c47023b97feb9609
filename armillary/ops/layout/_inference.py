"""Which layouts an operator's tensors have: what the rules of ops/layout/_rules.py say, and what they share.

In: attributes of a call, the layouts of its inputs as they were (`old`) and, after producers were rewritten, as they
are now (`new`, else None); an unknown layout is None. Out: an `Inferred`: the layouts in which the call reads its
inputs and gives its results, with attributes that fit them; or None: the call stays as it was. Invariant: a rule that
is asked with the layouts it answered gives the same answer. Who asks: relay/transform/layout/_inference_walk.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from armillary.base.data_layout import Layout
from armillary.base.record import record
from armillary.relay.types import Dim, TensorType, TupleType, Type

Attributes: TypeAlias = Any  # Any: each operator has a record of its own
Known = Layout | None
Layouts = Sequence[Known]
SCALAR = Layout("", ())
CHANNELS = Layout("C", (("C", 0),))


@record
class Inferred:
    """The layouts of a call's inputs (fields of a tuple one by one) and results, and its attributes in them."""

    inputs: tuple[Known, ...]
    outputs: tuple[Known, ...]
    attrs: Attributes

    @property
    def is_known(self) -> bool:
        return None not in self.inputs and None not in self.outputs


Rule = Callable[[Attributes, Layouts | None, Layouts, Sequence[Type]], Inferred | None]


def from_parts(parts: Sequence[tuple[str, int]]) -> Known:
    """A layout of some parts; None where a block has no axis to belong to, or an axis comes twice."""
    letters = [letter for letter, _ in parts]
    if len(set(letters)) != len(letters) or any(letter.upper() not in letters for letter in letters):
        return None
    return Layout("".join(f"{size or ''}{letter}" for letter, size in parts), tuple(parts))


def last(layout: Layout, count: int) -> Known:
    """The layout of the last axes."""
    return from_parts(layout.parts[len(layout.parts) - count :])


def widened(layout: Layout, target: Layout) -> Layout:
    """`layout` with the axes in front that `target` has besides."""
    missing = tuple((letter, 0) for letter in target.whole if letter not in layout.axes)
    result = from_parts((*missing, *layout.parts))
    return layout if result is None else result


def place(layout: Layout, letter: str) -> int | None:
    """Where an axis lies, if the layout has it."""
    return layout.axes.index(letter) if letter in layout.axes else None


def shape_of(ty: Type) -> tuple[Dim, ...]:
    """The sizes of a tensor; none of what is not one."""
    return ty.shape if isinstance(ty, TensorType) else ()


def field_types(types: Sequence[Type]) -> list[Type]:
    """The types of a call's inputs, those of a tuple one by one."""
    return [field for ty in types for field in (ty.fields if isinstance(ty, TupleType) else (ty,))]


def changed_alike(layout: Layout, before: Layout, after: Layout) -> Known:
    """`layout` changed as `before` was into `after`: by the names that axes have there, counted from the last one.

    CN, with NC -> NC4n, as axes of NCHW would be: the letters are those of `layout`. None where they do not fit.
    """
    large, small = (before, layout) if len(before.parts) > len(layout.parts) else (layout, before)
    cut = len(large.parts) - len(small.parts)
    rest, tail = large.parts[:cut], large.parts[cut:]
    if {letter.upper() for letter, _ in rest} & {letter.upper() for letter, _ in tail}:
        return None
    names = _renaming(tail, small.parts)
    if names is None:
        return None
    if not layout.parts:
        return layout
    mapping = {b: a for a, b in names.items()} if large is layout else names
    used = {letter for letter, _ in layout.parts if letter.isupper()}
    for letter in before.whole[::-1]:
        if letter not in mapping:
            free = (c for c in (letter, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ") if c not in used)
            mapping[letter] = next(free)
            used.add(mapping[letter])
    if any(letter.upper() not in mapping for letter, _ in after.parts):
        return None
    renamed = [(_in_case(mapping[letter.upper()], letter), size) for letter, size in after.parts]
    return from_parts(renamed)


def _in_case(name: str, like: str) -> str:
    return name if like.isupper() else name.lower()


def _renaming(tail: Sequence[tuple[str, int]], parts: Sequence[tuple[str, int]]) -> dict[str, str] | None:
    """The axes of one layout by those of another that is built alike, or None."""
    names: dict[str, str] = {}
    for (a, size), (b, other) in zip(tail, parts, strict=True):
        if a.isupper() != b.isupper() or size != other or names.setdefault(a.upper(), b.upper()) != b.upper():
            return None
    return names if len(set(names.values())) == len(names) else None


def blocks_that_fit(layout: Layout, before: Layout, shape: Sequence[Dim]) -> Known:
    """`layout` with blocks of 1 along axes that `before` lacks or that are 1 long: those are broadcast."""
    parts = []
    for letter, size in layout.parts:
        at = place(before, letter.upper()) if size else None
        is_one = size and (at is None or (shape[at] == 1 and letter not in before.axes))
        parts.append((letter, 1 if is_one else size))
    return from_parts(parts)
