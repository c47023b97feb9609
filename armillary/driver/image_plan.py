"""Which tensors share an image: a plan in two dimensions.

In: for each image its width in pixels, bits of a number, height, first and last step in which it is alive, both
inclusive. Out: for each the number of the first image that it shares memory with (its own, where it is the first).
Invariant: two that are alive in the same step do not share; those that share are equally wide, so that reading beside a
row reads beside the image, which gives zeros. The highest of those that share is what is allocated.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.record import record


@record(slots=True)
class Image:
    """An image that is written in step `first` and last read in step `last`."""

    width: int
    bits: int
    height: int
    first: int
    last: int


def share_images(images: Sequence[Image]) -> tuple[int, ...]:
    """For each image the first one in whose memory it lies: the one whose height is nearest, of those that are free."""
    owner = list(range(len(images)))
    ends: dict[int, int] = {}  # of a memory: the last step in which somebody uses it
    heights: dict[int, int] = {}
    for index in sorted(range(len(images)), key=lambda i: (images[i].first, i)):
        image = images[index]
        free = [
            o
            for o, end in ends.items()
            if end < image.first and (images[o].width, images[o].bits) == (image.width, image.bits)
        ]
        nearest = min(free, key=lambda o: (abs(heights[o] - image.height), o), default=index)
        owner[index] = nearest
        ends[nearest] = max(ends.get(nearest, 0), image.last)
        heights[nearest] = max(heights.get(nearest, 0), image.height)
    return tuple(owner)
