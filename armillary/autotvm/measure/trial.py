"""One run of a built library on this machine: inputs, answer, check, times.

In: a library (.so or package .tar) of one function, or of a graph; how to time it; the answer it should give. Out: its
answer, and seconds per call. Invariant: inputs depend on their place, shape, dtype and the seed alone, so that a trial
and its reference see the same; an answer is compared before anything is timed. Imports the runtime only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from armillary import runtime
from armillary.artifact import FunctionRow
from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import ExecutionError
from armillary.runtime.benchmark import Timing, evaluate
from armillary.runtime.device import Device, device
from armillary.runtime.executor import GraphExecutor

# of the largest value: sums in another order, Winograd's transforms, products of few bits
_ALLOWED = {"float64": 1e-9, "float32": 1e-3, "float16": 2e-2, "bfloat16": 4e-2}
_SHOWN = 3
Shapes = Mapping[str, Sequence[int]]  # by name of an input


@record
class Prepared:
    """A library with its inputs: `run` runs it once, `time` many times; `outputs` are its answer; `touch` reads the
    inputs, which what runs before it in a network leaves in the caches; `wake` gives the threads that share it work on
    other memory, as that does."""

    run: Callable[[], object]
    time: Callable[[int], float]
    outputs: Callable[[], list[Array]]
    touch: Callable[[], object] = lambda: None
    wake: Callable[[], object] = lambda: None


@functools.lru_cache(maxsize=16)
def random_input(place: int, shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Values for an input: in [-1, 1), small whole numbers, or truths; read-only, as calls share them."""
    rng, kind = np.random.default_rng([seed, place]), DType(dtype)
    if kind.is_float:
        values: Array = rng.random(shape, dtype=np.float32) * 2 - 1
    elif kind.is_bool:
        values = rng.integers(0, 2, shape)
    else:
        values = rng.integers(max(-8, kind.min_value), min(8, kind.max_value) + 1, shape)
    result = values.astype(kind.numpy)
    result.flags.writeable = False
    return result


def prepare(
    path: str,
    seed: int = 0,
    kind: str = "cpu",
    shapes: Shapes = MappingProxyType({}),
    arguments: Sequence[Array] = (),
) -> Prepared:
    """Load a library and give it inputs, on a device of a kind; `shapes`: of inputs with open axes.

    A function gets `arguments` instead of random values where there are any, one for each of its own.
    """
    module, where = runtime.load_module(path), device(kind)
    if module.graph_json is None:
        return _function(module, seed, where, arguments)
    has_others = kind == "cpu" and runtime.num_threads() > 1
    other = runtime.load_module(path) if has_others else None  # executors of one module share their weights
    return _graph(module, seed, where, other, shapes)


def _function(module: runtime.Module, seed: int, where: Device, values: Sequence[Array]) -> Prepared:
    function = module.entry_func
    arguments, outputs = [], []
    check_arguments(function.row, values)
    for place, row in enumerate(function.row.args):
        shape = tuple(n for n in row.shape if isinstance(n, int))
        if len(shape) != len(row.shape):
            raise ExecutionError(f"{function.name}: the argument {row.name} has the symbolic shape {row.shape}")
        tensor = runtime.empty(shape, row.dtype, where)
        array = values[place] if values else random_input(place, shape, str(row.dtype), seed)
        if row.role == "out":
            array = np.zeros_like(array)
            outputs.append(tensor)
        tensor.copyfrom(array)
        arguments.append(tensor)
    call = function.prepare(*arguments)
    return Prepared(call.run, call.time, lambda: [t.numpy() for t in outputs])


def check_arguments(row: FunctionRow, values: Sequence[Array]) -> None:
    """ExecutionError where values, if there are any, are no arguments of a function."""
    if values and len(values) != len(row.args):
        raise ExecutionError(f"{row.name}: it takes {len(row.args)} arguments, ref_input has {len(values)}")
    for argument, value in zip(row.args, values, strict=False):
        got, wanted = f"{value.dtype} {value.shape}", f"{argument.dtype} {tuple(argument.shape)}"
        if got != wanted:
            raise ExecutionError(f"{row.name}: ref_input has {got} for {argument.name}, wanted {wanted}")


def _graph(module: runtime.Module, seed: int, where: Device, other: runtime.Module | None, shapes: Shapes) -> Prepared:
    executor, is_cpu = _executor(module, seed, where, shapes), where.device_type == 1

    def outputs() -> list[Array]:
        return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]

    inputs = [executor.get_input(name).memory for name in executor.free_inputs] if is_cpu else []
    wake = (lambda: None) if other is None else _executor(other, seed, where, shapes).run
    return Prepared(executor.run, executor.time, outputs, lambda: [np.max(array) for array in inputs], wake)


def _executor(module: runtime.Module, seed: int, where: Device, shapes: Shapes) -> GraphExecutor:
    executor = module.create_executor(where)
    set_inputs(executor, seed, shapes)
    return executor


def set_inputs(executor: Any, seed: int, shapes: Shapes) -> None:
    """Random inputs for an executor, here or on another machine (Any); `shapes`: of those with open axes."""
    for place, name in enumerate(executor.free_inputs):
        shape, dtype = executor.input_type(name)
        executor.set_input(name, np.array(random_input(place, tuple(shapes.get(name, shape)), str(dtype), seed)))


def difference(computed: Sequence[Array], wanted: Sequence[Array]) -> str:
    """How an answer differs from the reference; "" where it agrees as far as rounding allows."""
    if len(computed) != len(wanted):
        return f"{len(computed)} outputs, the reference has {len(wanted)}"
    for place, (mine, right) in enumerate(zip(computed, wanted, strict=True)):
        if mine.shape != right.shape:
            return f"output {place} has the shape {mine.shape}, the reference {right.shape}"
        message = _difference(mine, right)
        if message:
            return f"output {place} {message}"
    return ""


def _difference(mine: Array, right: Array) -> str:
    allowed = _ALLOWED.get(mine.dtype.name, 0.0)
    a, b = mine.astype(np.float64), right.astype(np.float64)
    largest = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
    off = ~(np.abs(a - b) <= allowed * max(largest, 1e-30)) & ~((a == b) | (np.isnan(a) & np.isnan(b)))
    count = int(off.sum())
    if not count:
        return ""
    rows = [
        f"{tuple(int(i) for i in at)}: {a[tuple(at)]:.6g}, wanted {b[tuple(at)]:.6g}"
        for at in np.argwhere(off)[:_SHOWN]
    ]
    return f"differs from the reference in {count} of {a.size} elements; at {'; '.join(rows)}"


def times(sizes: Sequence[Prepared], timing: Timing) -> list[float]:
    """Seconds per call for each repeat, the sum over `sizes`; what is flushed from the caches before one is all but the
    inputs.

    Emptying the caches takes longer than threads wait for work: with 16 of them, waking took 40 us of a kernel's 45. So
    they have other work just before.
    """

    def measure(prepared: Prepared, number: int) -> float:
        prepared.touch()
        prepared.wake()
        return prepared.time(number)

    runs = [functools.partial(measure, each) if timing.f_preproc else each.time for each in sizes]
    return [sum(row) for row in zip(*(evaluate(run, timing).results for run in runs), strict=True)]


def without_extremes(costs: Sequence[float]) -> tuple[float, ...]:
    """Three or more costs without the least and the greatest, as logs have them."""
    return tuple(sorted(costs)[1:-1]) if len(costs) > 2 else tuple(costs)


def save_answer(path: str, answer: Sequence[Array]) -> None:
    """Write an answer; types that numpy does not know itself (bfloat16) as their bits."""
    np.savez(path, *[a if a.dtype.isbuiltin == 1 else a.view(f"u{a.dtype.itemsize}") for a in answer])
