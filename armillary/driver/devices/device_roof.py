"""What an OpenCL device can do: peak of multiply-adds, read bandwidths of memory and of a small tensor, by our kernels.

In: a device. Out: a `DeviceRoof`, measured once per device and driver and kept beside the kernel cache. Invariant: as
of the CPU's (driver/roof.py): a ceiling for people, which enters no compiler's decision. Arithmetic is float32's; the
kernels: polynomials whose values stay in registers, sums over an array that no cache holds, and many over one that all
do. Textures (`image_roof.py`) are measured when a network has some. Used by driver/devices/device_profile.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from armillary import te
from armillary.base.config import setting
from armillary.driver.devices.cached_record import read_cached, write_cached
from armillary.driver.devices.image_roof import image_rates
from armillary.driver.te_build import build as te_build
from armillary.runtime import Device
from armillary.runtime.ndarray import array, empty
from armillary.target import Target

VERSION = 2  # of the measurement
GROUP = 256  # work-items
DEGREE, STEPS, WAYS = 16, 64, 4  # of a polynomial; how many of them one after the other, and side by side
ITEMS = 2048  # of a compute unit, at least
LARGE, SMALL, TIMES = 1 << 28, 1 << 20, 16  # bytes read from memory; bytes of a small tensor, read so many times
WINDOW, RUNS = 2e-3, 20  # seconds of one measurement, and how many


@dataclass(frozen=True, slots=True)
class DeviceRoof:
    """GFLOP/s (float32) and GB/s of reads: of memory, and of tensors of up to `SMALL` bytes, which caches hold; the
    same of textures (0.0: not measured)."""

    device: str
    gflops: float
    memory: float
    cache: float
    version: int = VERSION
    texture_memory: float = 0.0
    texture_cache: float = 0.0

    def seconds(self, flops: float, nbytes: float, in_textures: float = 0.0) -> tuple[float, str]:
        """The least time for arithmetic and bytes, some of them in textures, and which of these asks for it."""
        place = "cache" if nbytes <= SMALL else "memory"
        of_textures = getattr(self, f"texture_{place}")
        images = in_textures / (1e9 * of_textures) if of_textures else 0.0
        rest = (nbytes - in_textures if of_textures else nbytes) / (1e9 * getattr(self, place))
        arithmetic, traffic = flops / (1e9 * self.gflops), images + rest
        if arithmetic >= traffic:
            return arithmetic, "arithmetic"
        return traffic, f"texture {place}" if images > rest else place


def measured_device_roof(device: Device, *, textures: bool = False, again: bool = False) -> DeviceRoof:
    """The roof of a device, with that of textures if asked; from disk if measured before and not `again`. TargetError
    where there is no device."""
    facts = device.facts()
    name = f"{facts.get('name', device)}, driver {facts.get('driver', '?')}"
    folder: Path = setting("ARMILLARY_CACHE_DIR")
    path = folder / "roof" / f"{re.sub(r'[^A-Za-z0-9.-]', '_', name)}.json"
    cached = None if again else read_cached(path, DeviceRoof, VERSION)
    memory = int(facts.get("memory", LARGE))
    roof = cached or measure(device, name, int(facts.get("units", "1")), memory)
    if textures and not roof.texture_memory:
        in_memory, in_cache = image_rates(device, _large(device, memory), SMALL)
        roof = replace(roof, texture_memory=in_memory, texture_cache=in_cache)
    if roof is not cached:
        write_cached(path, roof)
    return roof


def _large(device: Device, memory: int) -> int:
    """Bytes that no cache holds; fewer on a processor."""
    is_gpu = device.facts().get("gpu") != "0"
    return min(LARGE if is_gpu else LARGE // 4, memory // 8)


def measure(device: Device, name: str, units: int, memory: int) -> DeviceRoof:
    """Run the kernels; the best of many runs each."""
    is_gpu = device.facts().get("gpu") != "0"
    items, lanes = (ITEMS * max(1, units), 4) if is_gpu else (GROUP * max(1, units), 16)
    memory_rate = _read_rate(device, items, lanes, _large(device, memory), 1)
    cache_rate = _read_rate(device, items, lanes, SMALL, TIMES)
    return DeviceRoof(name, _peak(device, items, lanes), memory_rate, cache_rate)


def _peak(device: Device, items: int, lanes: int) -> float:
    """GFLOP/s: each work-item sums polynomials (Horner), several side by side, of a variable that moves on."""
    start = te.placeholder((items, WAYS, lanes), name="start")
    k = te.reduce_axis((0, STEPS), name="k")

    def polynomial(p: te.Expr, w: te.Expr, u: te.Expr) -> te.Expr:
        x = start[p, w, u] + k.astype("float32") * te.const(1e-3, "float32")
        value: te.Expr = te.const(0.5, "float32")
        for degree in range(DEGREE):
            value = value * x + te.const(1.0 / (degree + 2), "float32")
        return te.sum(value, axis=k)

    total = te.compute((items, WAYS, lanes), polynomial, name="total")
    run = _timed(device, total, start, np.full((items, WAYS, lanes), 1e-2, np.float32))
    return 2.0 * DEGREE * STEPS * items * WAYS * lanes / run / 1e9


def _read_rate(device: Device, items: int, lanes: int, nbytes: int, times: int) -> float:
    """GB/s of reading an array so many times: on a GPU neighbouring work-items read neighbouring elements, on a
    processor, which runs one after the other, each reads on."""
    is_gpu, steps = device.facts().get("gpu") != "0", max(1, nbytes // (4 * items * lanes))
    a = te.placeholder((steps, items, lanes) if is_gpu else (items, steps, lanes), name="a")
    axes = te.reduce_axis((0, times), name="t"), te.reduce_axis((0, steps), name="k")

    def read(p: te.Expr, u: te.Expr) -> te.Expr:
        return te.sum(a[axes[1], p, u] if is_gpu else a[p, axes[1], u], axis=axes)

    total = te.compute((items, lanes), read, name="total")
    run = _timed(device, total, a, np.ones(te.static_shape(a), np.float32))
    return 4.0 * steps * items * lanes * times / run / 1e9


def _over_items(total: te.Tensor) -> te.Schedule:
    """A work-item for each row, its sums in registers, the lanes of a row together."""
    schedule = te.create_schedule(total.op)
    local = schedule.cache_write(total, "local")
    stage, inside = schedule[total], schedule[local]
    row, *ways, lane = stage.op.axis
    group, item = stage.split(row, factor=GROUP)
    stage.bind(group, te.thread_axis("blockIdx.x"))
    stage.bind(item, te.thread_axis("threadIdx.x"))
    stage.vectorize(lane)
    inside.compute_at(stage, item)
    row, *own, lane = inside.op.axis
    inside.reorder(row, *inside.op.reduce_axis, *own, lane)
    inside.vectorize(lane)
    for part, way in ((stage, ways), (inside, own)):
        for axis in way:
            part.unroll(axis)
    return schedule


def _timed(device: Device, total: te.Tensor, source: te.Tensor, host: NDArray[np.float32]) -> float:
    """The least seconds of one run of a kernel."""
    kernel = te_build(_over_items(total), [source, total], Target("opencl"), name="roof")
    call = kernel["roof"].prepare(array(host, device), empty(te.static_shape(total), "float32", device))
    call.run()
    device.sync()
    number = max(1, int(WINDOW / max(1e-6, float(call.time(1)))))
    return min(float(call.time(number)) / number for _ in range(RUNS))
