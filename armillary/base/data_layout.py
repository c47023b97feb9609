"""Layouts as values: "NCHW", "NCHW16c", "OIHW16i16o".

In: a layout's text; upper case is a whole axis (or its outer part), a number and lower case letter a block of it. Out:
its axes, the shape a tensor takes in it, where an axis lies. Invariant: every axis occurs once in upper case; a
block's axis is there; equal layouts have equal text. `layout_transform` (ops/nn/shape.py) does the moving; which
layouts a graph uses is decided in relay/transform/layout and backends/cpu/graph.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from armillary.base.extent import Known
from armillary.base.record import record
from armillary.errors import TypeMismatch

_PART = re.compile(r"(\d{0,9})([A-Za-z])")


@record(slots=True)
class Layout:
    """A layout. `parts` are (letter, block size or 0) in order."""

    text: str
    parts: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return self.text

    def __len__(self) -> int:
        return len(self.parts)

    def __contains__(self, axis: str) -> bool:
        return axis in self.axes

    def __getitem__(self, index: int) -> str:
        return self.axes[index]

    @property
    def name(self) -> str:
        """The text, as scripts ask for it."""
        return self.text

    def index_of(self, axis: str) -> int:
        """Where an axis lies, -1 where it is not there."""
        return self.axes.find(axis)

    def factor_of(self, axis: str) -> int:
        """The block size of an axis, -1 where it is whole."""
        return self.block(axis) or -1

    @property
    def axes(self) -> str:
        """The letters, without block sizes: NCHWc."""
        return "".join(letter for letter, _ in self.parts)

    @property
    def whole(self) -> str:
        """The axes as an unblocked layout: NCHW16c -> NCHW."""
        return "".join(letter for letter, _ in self.parts if letter.isupper())

    @property
    def is_blocked(self) -> bool:
        return any(letter.islower() for letter, _ in self.parts)

    def block(self, axis: str) -> int:
        """The block size of an axis, 0 where it is whole."""
        return next((size for letter, size in self.parts if letter == axis.lower()), 0)

    def index(self, axis: str) -> int:
        """Where an axis (upper case: its outer part) lies."""
        if axis not in self.axes:
            raise TypeMismatch(f"the layout {self.text} has no axis {axis}")
        return self.axes.index(axis)

    def with_block(self, axis: str, size: int) -> Layout:
        """The same layout with another block size of an axis that is blocked."""
        parts = ((letter, size if letter == axis.lower() else block) for letter, block in self.parts)
        return layout("".join(f"{block or ''}{letter}" for letter, block in parts))

    def shape(self, whole: Sequence[Known], source: Layout) -> tuple[Known, ...]:
        """The shape in this layout of a tensor that has shape `whole` in the unblocked layout `source`."""
        size = dict(zip(source.axes, whole, strict=True))
        result: list[Known] = []
        for letter, block in self.parts:
            divisor = self.block(letter)
            if letter.isupper() and divisor and size[letter] % divisor:
                raise TypeMismatch(f"{self.text}: axis {letter} of size {size[letter]} is no multiple of {divisor}")
            result.append(block if letter.islower() else size[letter] // (divisor or 1))
        return tuple(result)


UNKNOWN = Layout("", ())


def named_layout(text: str | Layout, dtype: str = "int32") -> Layout:
    """`tir.layout("NCHW")`; "" and "__undef__" are a layout without axes, which stands for an unknown one."""
    del dtype
    if isinstance(text, Layout):
        return text
    if not isinstance(text, str):
        raise TypeMismatch(f"a layout is a text, got {text!r}", hint='such as "NCHW16c"')
    return layout(text) if text not in ("", "__undef__") else UNKNOWN


@record
class BijectiveLayout:
    """Two layouts of the same axes: indices (numbers, or loop variables) and shapes in one as in the other.

    Sizes are filled up to blocks.
    """

    src_layout: Layout
    dst_layout: Layout

    def forward_index(self, indices: Sequence[int]) -> list[int]:
        """An element's place in the second layout."""
        return _index(indices, self.src_layout, self.dst_layout)

    def backward_index(self, indices: Sequence[int]) -> list[int]:
        """An element's place in the first layout."""
        return _index(indices, self.dst_layout, self.src_layout)

    def forward_shape(self, shape: Sequence[int]) -> list[int]:
        """A shape in the second layout."""
        return _shape(shape, self.src_layout, self.dst_layout)

    def backward_shape(self, shape: Sequence[int]) -> list[int]:
        """A shape in the first layout."""
        return _shape(shape, self.dst_layout, self.src_layout)


def bijective_layout(src_layout: str | Layout, dst_layout: str | Layout) -> BijectiveLayout | None:
    """`tir.bijective_layout("NCHW", "NCHW16c")`; None where one is unknown, or their axes are not the same."""
    source, target = named_layout(src_layout), named_layout(dst_layout)
    if UNKNOWN in (source, target) or sorted(source.whole) != sorted(target.whole):
        return None
    return BijectiveLayout(source, target)


def _index(indices: Sequence[int], source: Layout, target: Layout) -> list[int]:
    at = _by_axis(indices, source)
    whole = {a: at[a] * block + at[a.lower()] if (block := source.block(a)) else at[a] for a in source.whole}
    return [_part(whole[letter.upper()], letter, target) for letter, _ in target.parts]


def _part(place: int, letter: str, target: Layout) -> int:
    block = target.block(letter)
    return place if not block else place % block if letter.islower() else place // block


def _shape(shape: Sequence[int], source: Layout, target: Layout) -> list[int]:
    size = _by_axis(shape, source)
    whole = {a: size[a] * (source.block(a) or 1) for a in source.whole}
    blocks = [(letter, target.block(letter)) for letter, _ in target.parts]
    return [
        block if letter.islower() else (whole[letter] + block - 1) // block if block else whole[letter]
        for letter, block in blocks
    ]


def _by_axis(values: Sequence[int], order: Layout) -> dict[str, int]:
    if len(values) != len(order):
        raise TypeMismatch(f"the layout {order} has {len(order)} axes, got {len(values)} values")
    return dict(zip(order.axes, values, strict=True))


@functools.cache
def layout(text: str) -> Layout:
    """A layout from its text; raises TypeMismatch where it is none."""
    parts = tuple((letter, int(size) if size else 0) for size, letter in _PART.findall(text))
    letters = [letter for letter, _ in parts]
    well_formed = "".join(f"{size or ''}{letter}" for letter, size in parts) == text and letters
    blocks_fit = all((size > 0) == letter.islower() for letter, size in parts)
    axes_fit = len(set(letters)) == len(letters) and all(letter.upper() in letters for letter in letters)
    if not (well_formed and blocks_fit and axes_fit):
        raise TypeMismatch(f"{text!r} is not a layout", hint="write NCHW, NHWC, NCHW16c or OIHW16i16o")
    return Layout(text, parts)


def choose_block(channels: int, lanes: int) -> int:
    """The block for a channel count: the vector length, or the best divisor of at least 4, or 1 if there are few.

    Powers of two come first: they fill half and quarter vectors. Blocks of 1 are the plain layout under another name,
    so the image that enters a network is not copied. 0 means that no block fits.
    """
    sizes = [lanes >> k for k in range(8) if lanes >> k >= 4]
    sizes += [d for d in range(lanes, 3, -1) if d not in sizes]
    result = next((size for size in sizes if channels % size == 0), 0)
    return result or int(0 < channels < 4)
