"""What this machine can do: peak of multiply-adds and read bandwidths, measured with our own kernels.

In: a number of threads. Out: a `Roof`, measured once per CPU and number of threads and kept beside the kernel cache.
Invariant: it is a ceiling for people to compare with (`armc profile`), and never enters a compiler's decision: those
use the table (target/cpu_table.py), so that a build gives the same everywhere. The kernels: a loop of independent FMAs
whose operands stay in registers, and sums over arrays of half an L1 and half an L2 per thread, of part of L3, and
beyond L3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from armillary import te
from armillary.base.aliases import Array
from armillary.base.aligned import aligned_empty
from armillary.base.config import setting
from armillary.driver.devices.cached_record import read_cached, write_cached
from armillary.driver.te_build import build as te_build
from armillary.runtime.threads import num_threads
from armillary.target import CpuModel, Target, cpu_model

TARGET = "llvm"
VERSION = 3  # of the measurement; a file of another version is measured again
RUNS, WINDOW, BUDGET = 60, 4e-4, 0.12  # at most so many measurements, each at least, and all together at most (seconds)
KB, MB = 1 << 10, 1 << 20
PARTS = 4  # per thread, so that no thread waits long for another
UNROLL = 8
CACHES = ("l1", "l2", "l3")
PLACES = (*CACHES, "memory")
TIMES = 16  # over an array in L1 or L2: one time takes no longer than calling
ENOUGH = 1 << 30  # bytes to read so that memory is measured, where four times the L3 would be more
SLICES = 16  # of the large array, read in turn: short measurements, and each slice is out of the caches again


@dataclass(frozen=True, slots=True)
class Roof:
    """GFLOP/s (float32) and GB/s of reads, of `threads` threads together."""

    cpu: str
    threads: int
    gflops: float
    l1: float
    l2: float
    l3: float
    memory: float
    version: int = VERSION

    def seconds(self, flops: float, nbytes: Mapping[str, float]) -> tuple[float, str]:
        """The least time for arithmetic and bytes by place ("l1" to "memory"), and which of them asks for it."""
        parts = {"arithmetic": flops / (1e9 * self.gflops)}
        traffic = {place: amount / (1e9 * getattr(self, place)) for place, amount in nbytes.items()}
        if traffic:
            slowest = max(traffic, key=lambda place: traffic[place])
            parts[slowest.upper() if slowest in CACHES else slowest] = sum(traffic.values())
        bound = max(parts, key=lambda name: parts[name])
        return parts[bound], bound


def measured_roof(*, again: bool = False) -> Roof:
    """This machine's roof with the threads the runtime uses now; from disk if measured before and not `again`."""
    count, model = num_threads(), cpu_model(TARGET)
    path = _path(model, count)
    result = read_cached(path, Roof, VERSION)
    if result is not None and not again:
        return result
    roof = _best_of(measure(model, count), result)
    write_cached(path, roof)
    return roof


def _path(model: CpuModel, threads: int) -> Path:
    folder: Path = setting("ARMILLARY_CACHE_DIR")
    return folder / "roof" / f"{re.sub(r'[^A-Za-z0-9.-]', '_', model.name)}-{model.l2}-{model.l3}-{threads}.json"


def measure(model: CpuModel, threads: int) -> Roof:
    """Run the kernels; the best of a few runs each."""
    l1, l2, l3 = model.l1 or 32 * KB, model.l2 or MB, max(model.l3, 4 * (model.l2 or MB))
    once, often = (_read_kernel(model, times) for times in (1, TIMES))
    array = aligned_empty((_beyond_caches(l3) // 4,), np.dtype(np.float32))
    array.fill(1)  # zeros would all lie in one page, and that in L1
    inner = {"l1": (l1 // 2,), "l2": (4 * l1, l2 // 2)}  # of L2 a small part: fewer pages than the table of them holds
    rates = {
        name: max(TIMES * _bandwidth(often, [array[: threads * size // 4]], model, threads) for size in parts)
        for name, parts in inner.items()
    }
    rates["l3"] = _bandwidth(once, [array[: min(l3 // 2, threads * 4 * l2) // 4]], model, threads)
    memory = _bandwidth(once, np.split(array[: len(array) // SLICES * SLICES], SLICES), model, threads)
    return Roof(model.name, threads, _peak(model, threads), rates["l1"], rates["l2"], rates["l3"], memory)


def _beyond_caches(l3: int) -> int:
    """Bytes that no cache holds. A virtual machine may tell of the L3 of a whole server, and have less memory."""
    wanted = max(64 * MB, min(4 * l3, max(ENOUGH, 2 * l3)))
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
        available = next(int(line.split()[1]) * KB for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # another system: nobody can tell
        return wanted
    return min(wanted, max(64 * MB, available // 4))


def _best_of(one: Roof, other: Roof | None) -> Roof:
    """The higher figure of each kind: a ceiling is what was reached once."""
    if other is None:
        return one
    figures = {name: max(getattr(one, name), getattr(other, name)) for name in ("gflops", *PLACES)}
    return replace(one, **figures)


def _parallel(tensor: te.Tensor) -> te.Schedule:  # a schedule
    """Parts in parallel, each with its accumulators in registers."""
    schedule = te.create_schedule(tensor.op)
    local = schedule.cache_write(tensor, "local")
    stage = schedule[tensor]
    part, unit, lane = stage.op.axis
    stage.parallel(part)
    stage.unroll(unit)
    stage.vectorize(lane)
    inside = schedule[local]
    inside.compute_at(stage, part)
    _, unit, lane = inside.op.axis
    inside.reorder(*inside.op.reduce_axis, unit, lane)
    inside.unroll(unit)
    inside.vectorize(lane)
    return schedule


def _read_kernel(model: CpuModel, times: int) -> Any:  # Any: a runtime function
    """out[p, u, v] = sum over k of a[p, k, u, v], so many times: every element read in order."""
    parts, steps = te.var("parts"), te.var("steps")
    a = te.placeholder((parts, steps, UNROLL, model.lanes), name="a")
    axes = (te.reduce_axis((0, times), name="t"), te.reduce_axis((0, steps), name="k"))
    total = te.compute(
        (parts, UNROLL, model.lanes), lambda p, u, v: te.sum(a[p, axes[1], u, v], axis=axes), name="total"
    )
    return te_build(_parallel(total), [a, total], Target(TARGET), name="read")


def _bandwidth(read: Any, arrays: Sequence[Array], model: CpuModel, threads: int) -> float:
    """GB/s of reading the arrays in turn, again and again."""
    parts = PARTS * threads
    unit = parts * UNROLL * model.lanes
    steps = max(1, arrays[0].size // unit)
    out = np.zeros((parts, UNROLL, model.lanes), np.float32)
    calls = [read["read"].prepare(a[: steps * unit].reshape(parts, steps, UNROLL, model.lanes), out) for a in arrays]
    return 4 * steps * unit / _best(calls) / 1e9


def _peak(model: CpuModel, threads: int) -> float:
    """GFLOP/s of chains of FMAs of values in registers; loads beside them would take their share on some CPUs."""
    rows, columns = _chains(model.vector_registers)
    parts, steps = PARTS * threads, 4_000
    a = te.placeholder((rows, model.lanes), name="a")
    b = te.placeholder((columns, model.lanes), name="b")
    k = te.reduce_axis((0, steps), name="k")
    total = te.compute(
        (parts, rows * columns, model.lanes),
        lambda _, u, v: te.sum(a[u // columns, v] * b[u % columns, v], axis=k),
        name="total",
    )
    kernel = te_build(_parallel(total), [a, b, total], Target(TARGET), name="peak")
    arrays = [np.ones(shape, np.float32) for shape in ((rows, model.lanes), (columns, model.lanes))]
    out = np.zeros((parts, rows * columns, model.lanes), np.float32)
    return 2 * out.size * steps / _best([kernel["peak"].prepare(*arrays, out)]) / 1e9


def _chains(registers: int) -> tuple[int, int]:
    """The most sums of products of each of some values with each of some others, all of them in registers."""
    pairs = [(r, c) for c in range(1, registers) for r in range(c, registers) if r * c + r + c < registers]
    return max(pairs, key=lambda pair: pair[0] * pair[1], default=(1, 1))


def _best(calls: Sequence[Any]) -> float:
    """Seconds of one run, the calls taking turns: the best of many short measurements, which little disturbs."""
    for call in calls:
        call.run()
    number = max(1, int(WINDOW / max(1e-7, min(calls[0].time(1) for _ in range(3))))) if len(calls) == 1 else 1
    best, spent = float("inf"), 0.0
    for turn in range(RUNS):
        if spent > BUDGET:
            break
        seconds = calls[turn % len(calls)].time(number)
        best, spent = min(best, seconds / number), spent + seconds
    return float(best)
