"""Loops of a schedule and what they touch, as scripts of the Relay era read them: `autotvm.feature`.

In: a TE schedule and its arguments. Out: for each loop, in order, a row of ["_itervar_", variable], ["_attr_", extent,
depth, product of extents from outside, iterations inside, kind (one of eleven)], ["_arith_", additions, products,
divisions] and for each access [name, stride, -1, count, reuse, count and reuse in a thread]. Invariant: the same
accesses for every order of the loops, so that rows of configurations have one length: the constant that a reduction
begins with is not counted, nor are loops that only store it. Our own tuners read loop_feature.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from armillary import te
from armillary.autotvm.errors import TuningError
from armillary.autotvm.loop_feature import Access, accesses_in
from armillary.autotvm.record import decode
from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import nodes_of
from armillary.tir.buffer_access import strides_of
from armillary.tir.simplify import Simplifier

Entry = list[str | float | E.Var]  # a name, then numbers or the variable
Row = list[Entry]
_THREADS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
_KINDS = (*_THREADS, S.LoopKind.UNROLLED, S.LoopKind.VECTORIZED, S.LoopKind.PARALLEL, S.LoopKind.SERIAL, "vthread")
_words = str.split
_ARITHMETIC = ((E.Add, E.Sub), (E.Mul,), (E.Div,))
_ATTRIBUTES = ("length", "nest_level", "topdown", "bottomup", *(f"ann_{k}" for k in range(len(_KINDS))))
_NAMES = {"_attr_": _ATTRIBUTES, "_arith_": _words("add mul div")}
_TOUCH = _words("stride mod count reuse T_count T_reuse")


@record(eq=False)
class _Touch:
    """An access under its name, and how far each loop around it moves it, in elements."""

    name: str
    loops: tuple[S.For, ...]
    strides: tuple[int, ...]

    def inside(self, place: int) -> tuple[int, int]:
        """Of the loops from `place` inwards: the product of those that move the access, and of the others."""
        extents = [(_extent(loop), step) for loop, step in zip(self.loops[place:], self.strides[place:], strict=True)]
        return math.prod(n for n, step in extents if step), math.prod(n for n, step in extents if not step)

    def numbers(self, place: int) -> tuple[int, ...]:
        count, reuse = self.inside(place)
        return self.strides[place], -1, count, reuse, *self._in_thread(place, count, reuse)

    def _in_thread(self, place: int, count: int, reuse: int) -> tuple[int, int]:
        """What a block has to its threads, or a thread to its loops; (0, 0) for a loop that holds neither."""
        levels = [_level(loop) for loop in self.loops]
        for k in range(place + 1, len(levels)):
            if levels[k] + 1 == levels[k - 1] == levels[place]:
                base = self.inside(k)
                return count // base[0], reuse // base[1]
        return 0, 0


def get_itervar_feature(sch: te.Schedule, args: Sequence[te.Tensor], take_log: bool = False) -> list[Row]:
    """The rows of a schedule's loops; with `take_log` counts as logarithms."""
    touches = _touches(sch, args)
    scale = _logarithm if take_log else _same
    loops = dict.fromkeys((loop, place) for touch in touches for place, loop in enumerate(touch.loops))
    return [_row(loop, place, [t for t in touches if loop in t.loops], scale) for loop, place in loops]


def flatten_itervar_feature(fea: Sequence[Row]) -> Array:
    """The numbers of rows, one after another."""
    return np.concatenate([entry[1:] for row in fea for entry in row[1:]])


def get_itervar_feature_flatten(sch: te.Schedule, args: Sequence[te.Tensor], take_log: bool = True) -> Array:
    """The numbers of a schedule's rows."""
    return flatten_itervar_feature(get_itervar_feature(sch, args, take_log))


def get_flatten_name(fea: Sequence[Row] | str) -> list[str]:
    """The names of flattened numbers, of rows or of a line of a log."""
    rows = _of_line(fea) if isinstance(fea, str) else fea
    names = [
        f"{row[0][1]}.{entry[0]}.{name}"
        for row in rows
        for entry in row[1:]
        for name in _NAMES.get(str(entry[0]), _TOUCH)[: len(entry) - 1]
    ]
    return [f"f{k}.{name}" for k, name in enumerate(names)]


def get_buffer_curve_sample_flatten(sch: te.Schedule, args: Sequence[te.Tensor], sample_n: int = 30) -> Array:
    """How counts, reuse and iterations grow together for the accesses of the deepest loops, sampled on log scales.

    Four curves of an access, the last of each buffer; for each of `sample_n` points the value of the curve at or below
    it, and how far below that is.
    """
    touches = _touches(sch, args)
    depth = max((len(t.loops) for t in touches), default=0)
    deepest = {t.name.rpartition("_")[0].partition(".")[0]: t for t in touches if len(t.loops) == depth}
    samples: list[float] = []
    for touch in deepest.values():
        places = range(depth)
        count, reuse = (sorted([0.0, *(math.log2(touch.inside(k)[which]) for k in places)]) for which in (0, 1))
        outside = [0.0, *np.cumsum([math.log2(_extent(loop)) for loop in touch.loops]).tolist()]
        for x, y in ((count, reuse), (reuse, count), (count, outside), (outside, count)):
            samples += [v for at in range(sample_n) for v in _point(x, y, at)]
    return np.asarray(samples, np.float32)


def _point(x: Sequence[float], y: Sequence[float], at: float) -> tuple[float, float]:
    k = max(k for k, value in enumerate(x) if value <= at + 1e-6)
    return y[k], at - x[k]


def _of_line(line: str) -> list[Row]:
    pair = decode(line)
    if pair is None:
        raise TuningError("get_flatten_name: the line is empty or a comment, wanted a line of a log")
    task = pair[0].task
    with task.target:
        return get_itervar_feature(*task.instantiate(pair[0].config))


def _row(loop: S.For, place: int, touches: Sequence[_Touch], scale: Callable[[float], float]) -> Row:
    outside = math.prod(_extent(one) for one in touches[0].loops[: place + 1])
    inside = max(math.prod(t.inside(place)) for t in touches)
    kind = loop.thread_tag if loop.kind is S.LoopKind.THREAD else loop.kind
    attributes = [scale(_extent(loop)), place + 1.0, scale(outside), scale(inside), *(float(k == kind) for k in _KINDS)]
    work = [n for n in nodes_of(loop.body) if isinstance(n, E.Binary) and n.dtype.is_float]
    own = not any(isinstance(n, S.For) for n in nodes_of(loop.body))
    counts = [scale(own and sum(isinstance(n, kinds) for n in work)) for kinds in _ARITHMETIC]
    accesses: list[Entry] = [[t.name, *map(scale, t.numbers(place))] for t in sorted(touches, key=lambda t: t.name)]
    return [["_itervar_", loop.var], ["_attr_", *attributes], ["_arith_", *counts], *accesses]


def _touches(sch: te.Schedule, args: Sequence[te.Tensor]) -> list[_Touch]:
    """The accesses of a schedule in order, numbered for each buffer; constants that are stored are none."""
    body = te.lower_schedule(sch, list(args), "main").body
    simplifier, numbers, touches = Simplifier(), dict[str, int](), list[_Touch]()
    for access in accesses_in(body):
        if isinstance(access.value, E.IntImm | E.FloatImm):
            continue
        number = numbers[access.buffer.name] = numbers.get(access.buffer.name, -1) + 1
        touches.append(_Touch(f"{access.buffer.name}_{number}", access.loops, _strides(access, simplifier)))
    return touches


def _strides(access: Access, simplifier: Simplifier) -> tuple[int, ...]:
    steps = [step.value if isinstance(step, E.IntImm) else 1 for step in strides_of(access.buffer)]
    forms = [simplifier.linear(index).terms for index in access.indices]
    return tuple(sum(s * f.get(loop.var, 0) for s, f in zip(steps, forms, strict=True)) for loop in access.loops)


def _level(loop: S.For) -> int:
    """2: groups of threads; 1: threads; 0: a loop."""
    if loop.kind is S.LoopKind.THREAD:
        return {"b": 2, "t": 1}.get(loop.thread_tag[:1], 0)
    return int(loop.kind is S.LoopKind.PARALLEL)


def _extent(loop: S.For) -> int:
    return max(1, loop.extent.value) if isinstance(loop.extent, E.IntImm) else 1


def _same(number: float) -> float:
    return float(number)


def _logarithm(number: float) -> float:
    return math.copysign(math.log2(abs(number) + 1), number)
