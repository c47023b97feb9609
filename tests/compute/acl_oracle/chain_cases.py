"""Random chains of vision functions: each reads what those before it wrote, and says where its output is valid.

In: a generator of random numbers, names of functions. Out: a `Case` whose outputs are all tensors of the chain and
whose numbers are their valid regions. Invariant: what no function has computed is different on both sides - bytes of
outputs, of paddings - so an equal pixel inside a valid region depends on none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.compute.acl_oracle.feature_cases import FEATURES
from tests.compute.acl_oracle.vision_cases import BUILDERS, Calling, Images, Rng, drawn, image_of, like, with_padding
from tests.compute.acl_oracle.wire import Array, Case, Result, Tensor

_ELSEWHERE = ("NEColorConvert", "NEChannelExtract", "NEChannelCombine", "NEHistogram", "NEMinMaxLocation")
LINKS = tuple(name for name in BUILDERS if name not in _ELSEWHERE)
ENDS = ("NEHistogram", "NEMinMaxLocation", "NEFastCorners", "NEHarrisCorners")  # which give numbers
_RESIZING = ("NEScale", "NERemap", "NEWarpAffine", "NEWarpPerspective")
_POINTWISE = ("Bitwise", "Absolute", "Accumulate", "Threshold", "Arithmetic", "PixelWise", "Magnitude", "Phase")
_POINTWISE += ("TableLookup", "EqualizeHistogram", "IntegralImage")
_TRIES = 50


@dataclass
class Link:
    """A function of a chain over tensors by number."""

    name: str
    slots: list[int]
    params: list[float]
    calling: Calling
    step: int
    writes: list[int]

    def reads_beside(self) -> bool:
        """Whether it reads other pixels than its own, as a border mode says."""
        return not any(word in self.name for word in _POINTWISE)


@dataclass
class ChainCase(Case):
    """A chain, and what it is made of."""

    links: list[Link] = field(default_factory=list)

    def steps(self, regions: Sequence[tuple[int, ...]]) -> list[int]:
        """How far pixels of each tensor may be from the library's; -1: nobody knows its pixels.

        The library takes the pixels left and right of a valid region that is not the whole image from other places
        than its edge (REPLICATE), and places in it from all of the image.
        """
        steps = [0] * len(self.tensors)
        for link in self.links:
            reads = [n for n in link.slots if n not in link.writes]
            is_known = all(steps[n] == 0 and not self.is_whole(n) for n in reads) and not self._reads_elsewhere(
                link, regions
            )
            for n in link.writes:
                steps[n] = link.step if is_known else -1
        return steps

    def _reads_elsewhere(self, link: Link, regions: Sequence[tuple[int, ...]]) -> bool:
        is_partial = any(regions[n][2:] != self.tensors[n].sizes for n in link.slots if n not in link.writes)
        return is_partial and link.reads_beside() and (link.params[:1] == [2] or link.name in _RESIZING)

    def has_known_numbers(self, regions: Sequence[tuple[int, ...]]) -> bool:
        """Whether the numbers that the last function gives are those of pixels that are known."""
        last, steps = self.links[-1], self.steps(regions)
        is_rounded = self.rounded(last.slots[0]) > 0
        return all(steps[n] == 0 for n in last.slots) and not is_rounded and not self._reads_elsewhere(last, regions)

    def is_whole(self, at: int) -> bool:
        """Whether the library says that all of a tensor is valid, whatever is valid of what it is made of.

        It says so of a threshold's image, and so of what is made of that.
        """
        links = [link for link in self.links if at in link.writes]
        sources = [n for link in links for n in link.slots if n not in link.writes]
        return any(link.name == "NEThreshold" for link in links) or any(map(self.is_whole, sources))

    def rounded(self, at: int) -> int:
        """How many pixels of a tensor may lie at another place, where a place is at the edge of a pixel."""
        is_warped = any(at in link.writes for link in self.links if "Warp" in link.name)
        return 3 if is_warped else 0


def _outputs(case: Case) -> list[int]:
    return sorted(n % len(case.tensors) for n in case.outputs)


class _Chain:
    """Tensors so far, and which of them were written."""

    def __init__(self, rng: Rng) -> None:
        self.rng, self.tensors, self.links = rng, list[Tensor](), list[Link]()
        self.sizes = (int(rng.integers(36, 75)), int(rng.integers(36, 50)))
        self.written: list[int] = []

    def add(self, name: str) -> bool:
        """Put a function behind the others; False where it takes none of the last outputs."""
        case, last = (BUILDERS | FEATURES)[name](self.rng), self.links[-1].slots if self.links else []
        last = [n for n in last if n in self.written]
        writes, first = _outputs(case), case.tensors[0].sizes
        kinds = [t.kind for n, t in enumerate(case.tensors) if n not in writes]
        if name == "NEPixelWiseMultiplication" and {t.kind for t in case.tensors} == {"U8"}:
            return False  # the library's code for 32 pixels mixes them
        if name == "NETableLookup" and case.tensors[0].kind == "S16":
            return False  # what no table holds is not defined
        if self.links and not any(self.tensors[n].kind in kinds for n in last):
            return False
        slots, is_taken = [], not self.links
        for n, tensor in enumerate(case.tensors):
            fits = [k for k in range(len(self.tensors)) if self._is_like(k, tensor.kind)]
            mine = [k for k in fits if k in last]
            if (n not in writes and name != "NERemap") or n == 0:
                pool = mine if mine and not is_taken else fits
                if pool and (not is_taken or self.rng.integers(2)):
                    is_taken = is_taken or bool(mine)
                    slots.append(int(self.rng.choice(pool)))
                    continue
            slots.append(self._new(name, tensor, first))
        writes = [slots[n] for n in writes]
        self.links.append(Link(name, slots, case.params, case.ours, case.step, writes))  # type: ignore[arg-type]
        self.written += writes
        if writes:
            self.sizes = self.tensors[writes[0]].sizes  # type: ignore[assignment]
        return True

    def _is_like(self, at: int, kind: str) -> bool:
        return (self.tensors[at].kind, self.tensors[at].sizes) == (kind, self.sizes)

    def _new(self, name: str, tensor: Tensor, first: tuple[int, ...]) -> int:
        """A tensor as a function's own case has it, in the size of this chain."""
        sizes = self.sizes
        if name in _RESIZING and tensor.sizes != first:
            ratio = (a / b for a, b in zip(tensor.sizes, first, strict=True))
            sizes = tuple(max(12, round(n * min(1.6, r))) for n, r in zip(self.sizes, ratio, strict=True))
        if name == "NERemap":
            sizes = self.sizes
        values = tensor.planes[0]
        low, high = float(values.min()), float(values.max())
        self.tensors.append(drawn(self.rng, tensor.kind, sizes, low, high))
        return len(self.tensors) - 1


def chain(rng: Rng, names: Sequence[str]) -> ChainCase | None:
    """A chain of these functions; None where one does not take what the one before gives."""
    chain = _Chain(rng)
    for name in names:
        if not any(chain.add(name) for _ in range(_TRIES)):
            return None
    text = "+".join(f"{link.name}@{','.join(map(str, link.slots))}" for link in chain.links)
    params = [v for link in chain.links for v in (len(link.params), *link.params)]
    links, written = chain.links, chain.written

    def ours(case: Case) -> Result:
        images: Images = [image_of(t, case.side) for t in case.tensors]
        with_padding(case, images)
        functions, found = [], None
        for link in links:
            functions.append(like(case.side, link.name))
            found = link.calling.configure(functions[-1], [images[n] for n in link.slots])
        for n, (image, tensor) in enumerate(zip(images, case.tensors, strict=True)):
            image.allocator().allocate()
            if case.side == "NE":
                image.buffer()[...] = 0x5A
            image.write(other(tensor.planes[0]) if n in written and not _is_read(n) else tensor.planes[0])
        for function in functions:
            function.run()
        regions = [image.info().valid_region() for image in images]
        numbers = [float(v) for r in regions for v in (r.anchor[0], r.anchor[1], *r.shape[:2])]
        return Result([*numbers, *(found() if found else ())], (), [image.read().copy() for image in images])

    def _is_read(at: int) -> bool:
        """Whether a tensor is added to, or keeps pixels."""
        names = [link.name for link in links if link.slots[-1] == at]
        return any("Accumulate" in name or name == "NETableLookup" for name in names)

    return ChainCase(text, chain.tensors, params, ours, outputs=tuple(range(len(chain.tensors))), links=links)


def other(values: Array) -> Array:
    """Other values of the same type."""
    return -values - 1 if values.dtype.kind == "f" else ~values


def differences(case: ChainCase, mine: Result, theirs: Result) -> list[str]:
    """Where valid regions, pixels in the library's, or numbers differ."""
    message, ends = [], 4 * len(case.tensors)
    regions = [[tuple(map(int, r.numbers[n : n + 4])) for n in range(0, ends, 4)] for r in (mine, theirs)]
    steps = case.steps(regions[1])
    found, wanted = (r.numbers[ends:] for r in (mine, theirs))
    if case.has_known_numbers(regions[1]):
        message += [] if found == wanted else [f"numbers {found[:9]}, the library's {wanted[:9]}"]
    for n, (tensor, step) in enumerate(zip(case.tensors, steps, strict=True)):
        x, y, width, height = regions[1][n]
        if regions[0][n] != regions[1][n] and not case.is_whole(n):
            message.append(f"tensor {n} ({tensor.sizes}): valid region {regions[0][n]}, the library's {regions[1][n]}")
        elif step >= 0 and not case.is_whole(n):
            parts = [r.outputs[n][y : y + height, x : x + width].astype(np.float64) for r in (mine, theirs)]
            places = np.argwhere(np.abs(parts[0] - parts[1]) > step).tolist()
            if len(places) > case.rounded(n):
                message.append(f"tensor {n} ({tensor.sizes}, {regions[0][n]}): pixels (y, x) {places[:4]} differ")
    return message
