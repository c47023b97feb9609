"""Lifetimes of the values of three networks, and what the library's managers make of them.

In: a network's name. Out: events in the order of its functions: a value's bytes where its lifetime starts, -(n + 1)
where that of value n ends. Invariant: `RECORDED` is what `driver.cpp` gives for the events; it is made afresh in CI.
"""

from __future__ import annotations

import numpy as np

from armillary import compute
from armillary.compute import BlobLifetimeManager, DataType, MemoryGroup, OffsetLifetimeManager, TensorInfo, TensorShape
from tests.compute.acl_oracle.vision_cases import drawn
from tests.compute.acl_oracle.wire import Case, Result

# Bytes of the library's blob manager and of its offset manager.
RECORDED = {
    "vgg16": (25_690_112, 25_690_240),
    "mobilenet": (4_816_896, 4_817_024),
    "resnet50": (9_633_792, 9_633_984),
}
_PAIRS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))


class _Values:
    """Collects events; a value is float32, (width, height, channels)."""

    def __init__(self) -> None:
        self.events: list[int] = []
        self._count = 0

    def begin(self, width: int, height: int, channels: int) -> int:
        """A value's number."""
        self.events.append(4 * width * height * channels)
        self._count += 1
        return self._count - 1

    def end(self, *values: int) -> None:
        """Values that nobody reads any more."""
        self.events += [-(value + 1) for value in values]

    def chain(self, before: int | None, width: int, height: int, channels: int) -> int:
        """What one function makes of a value, which ends."""
        made = self.begin(width, height, channels)
        if before is not None:
            self.end(before)
        return made


def vgg16() -> list[int]:
    """Thirteen convolutions with five poolings, three products, softmax."""
    values, side, last = _Values(), 224, None
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            last = values.chain(last, side, side, channels)
        side //= 2
        last = values.chain(last, side, side, channels)
    for outputs in (4096, 4096, 1000, 1000):
        last = values.chain(last, outputs, 1, 1)
    values.end(last if last is not None else 0)
    return values.events


def mobilenet() -> list[int]:
    """A convolution, thirteen pairs of a depthwise and a pointwise one, pooling, product, softmax."""
    values, side = _Values(), 112
    last, channels = values.begin(side, side, 32), 32
    for outputs, step in _PAIRS:
        side //= step
        last = values.chain(last, side, side, channels)
        last, channels = values.chain(last, side, side, outputs), outputs
    for width in (1024, 1000, 1000):
        last = values.chain(last, width, 1, 1)
    values.end(last)
    return values.events


def resnet50() -> list[int]:
    """A convolution, a pooling, sixteen blocks of three convolutions beside a shortcut, pooling, product, softmax."""
    values = _Values()
    last = values.chain(values.begin(112, 112, 64), 56, 56, 64)
    side = 56
    for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for n in range(count):
            step = 2 if n == 0 and width > 64 else 1
            inner = values.begin(side // step, side // step, width)
            side //= step
            inner = values.chain(inner, side, side, width)
            inner = values.chain(inner, side, side, 4 * width)
            shortcut = values.chain(last, side, side, 4 * width) if n == 0 else last
            last = values.begin(side, side, 4 * width)
            values.end(inner, shortcut)
    for width in (2048, 1000, 1000):
        last = values.chain(last, width, 1, 1)
    values.end(last)
    return values.events


NETWORKS = {"vgg16": vgg16, "mobilenet": mobilenet, "resnet50": resnet50}


def peak(events: list[int]) -> int:
    """The most bytes that are needed at once: no manager takes less."""
    sizes, alive, most = [n for n in events if n > 0], 0, 0
    for event in events:
        alive += event if event > 0 else -sizes[-event - 1]
        most = max(most, alive)
    return most


def ours(events: list[int], kind: type[BlobLifetimeManager] | type[OffsetLifetimeManager]) -> int:
    """Bytes of this library's manager."""
    lifetimes = kind()
    group = MemoryGroup(compute.MemoryManagerOnDemand(lifetimes, compute.PoolManager()))
    tensors: list[compute.Tensor] = []
    for event in events:
        if event > 0:
            made = compute.Tensor()
            made.allocator().init(TensorInfo(TensorShape(event), 1, DataType.U8))
            group.manage(made)
            tensors.append(made)
        else:
            tensors[-event - 1].allocator().allocate()
    return lifetimes.total_size()


def cases(name: str) -> list[Case]:
    """What the driver is asked: the blob manager's bytes and the offset manager's."""
    image = drawn(np.random.default_rng(0), "U8", (8, 8))
    events = [float(n) for n in NETWORKS[name]()]

    def result(case: Case) -> Result:
        kind = OffsetLifetimeManager if case.params[0] else BlobLifetimeManager
        return Result([float(ours([int(n) for n in case.params[1:]], kind))], ())

    return [Case("Lifetimes", [image], [kind, *events], result, outputs=()) for kind in (0, 1)]
