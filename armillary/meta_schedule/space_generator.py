"""Spaces of schedules: a user's function (`ScheduleFn`), or tiles that are drawn for any function (`PostOrderApply`).

In: a `tir.Schedule` whose draws are knobs. Out: the schedule of the configuration that is in force. Invariant: the same
draws in the same order for every configuration; what primitives refuse for one is a failed trial. The tiles follow
`auto_scheduler/sketch.py`: elementwise blocks into their readers; register tiles of the reduction with most terms
inside cache tiles inside parallel tiles; other reductions by rows. Known idea: Shao and others, "Tensor Program
Optimization with Probabilistic Programs", 2022.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from armillary.auto_scheduler.sketch import REGISTERS, WRITTEN_OUT
from armillary.autotvm.errors import TuningError
from armillary.autotvm.task.space import ConfigSpace
from armillary.errors import ScheduleError
from armillary.ir import IRModule
from armillary.tir import stmt as S
from armillary.tir.blocks.block import Block
from armillary.tir.build import as_int
from armillary.tir.schedule.handles import BlockRV, LoopRV
from armillary.tir.schedule.schedule import Schedule

_T = TypeVar("_T")
Rule = Callable[[Schedule], object]  # changes a schedule, or gives one, or several
_MOST_POINTS = 1 << 20  # of a space whose points are looked at one by one


class KnobSchedule(Schedule):
    """A schedule whose draws are knobs of a configuration."""

    def __init__(self, mod: S.PrimFunc | IRModule, config: ConfigSpace) -> None:
        super().__init__(mod)
        self.config, self.names = config, list[str]()  # the list is shared with copies

    def _draw(self, what: str, candidates: Sequence[_T], weights: Sequence[float] | None = None) -> int:
        del weights  # trials say what is likely
        name = f"{len(self.names)} {what}"
        self.names.append(name)
        values = [list(one) if isinstance(one, tuple) else one for one in candidates]
        self.config.define_knob(name, values)
        chosen = self.config[name].val
        chosen = list(chosen) if isinstance(chosen, tuple | list) else chosen
        if chosen not in values:
            raise ScheduleError(f"{name}: {chosen} is no candidate after what was drawn before")
        return values.index(chosen)


class SpaceGenerator(ABC):
    """What schedules there are. A subclass says it in `generate(schedule)`."""

    @abstractmethod
    def generate(self, schedule: KnobSchedule) -> Schedule:
        """The schedule of the configuration in force."""

    def generate_design_space(self, mod: S.PrimFunc | IRModule) -> list[Schedule]:
        """One schedule of the space, of its first configuration."""
        return [self.generate(KnobSchedule(mod, ConfigSpace()))]

    @staticmethod
    def create(kind: object = "post-order-apply", **options: object) -> SpaceGenerator:
        """The space of a name, of a function, or one that is one."""
        if isinstance(kind, SpaceGenerator):
            return kind
        if kind == "post-order-apply":
            return PostOrderApply(**options)
        if kind == "union":
            return SpaceGeneratorUnion(**options)  # type: ignore[arg-type]  # as scripts pass them
        if callable(kind):
            return ScheduleFn(kind, **options)
        raise TuningError(f"there is no space {kind!r:.60}", hint='"post-order-apply", or a function of a schedule')


class ScheduleFn(SpaceGenerator):
    """The space that a function of a schedule describes by what it draws; of several schedules one is drawn, too."""

    def __init__(self, sch_fn: Rule, **rules: object) -> None:
        del rules  # nothing is applied after the function
        if not callable(sch_fn):
            raise TuningError(f"ScheduleFn: got {type(sch_fn).__name__}, wanted a function of a schedule")
        self.sch_fn = sch_fn

    def generate(self, schedule: KnobSchedule) -> Schedule:
        """What the function gives: the schedule it was called with, another, or one of several."""
        result = self.sch_fn(schedule)
        if result is None:
            return schedule
        options = list(result) if isinstance(result, list | tuple) else [result]
        if not options or not all(isinstance(one, Schedule) for one in options):
            raise TuningError(f"ScheduleFn: the function gave {type(result).__name__}, wanted None or schedules")
        chosen = options[schedule._draw("schedule", range(len(options)))] if len(options) > 1 else options[0]
        assert isinstance(chosen, Schedule), "checked above"
        return chosen


class SpaceGeneratorUnion(SpaceGenerator):
    """One of several spaces, which is drawn."""

    def __init__(self, space_generators: Sequence[SpaceGenerator], **rules: object) -> None:
        del rules
        self.space_generators = list(space_generators)

    def generate(self, schedule: KnobSchedule) -> Schedule:
        """A schedule of the space that is drawn."""
        options = [space.generate(schedule.copy()) for space in self.space_generators]
        return options[schedule._draw("space", range(len(options)))]


class PostOrderApply(SpaceGenerator):
    """Tiles of the reduction with most terms; rules that a script names are those there are, and change nothing."""

    def __init__(self, f_block_filter: object = None, **rules: object) -> None:
        del f_block_filter, rules

    def generate(self, schedule: KnobSchedule) -> Schedule:
        """Inline, tile, mark."""
        root = schedule.get_block("root")
        blocks = schedule.get_child_blocks(root)
        reductions = [b for b in blocks if any(a.kind == "reduce" for a in _block(schedule, b).iter_vars)]
        outputs = schedule.get_output_blocks(root)
        for block in blocks:
            if block not in reductions and block not in outputs:
                with suppress(ScheduleError):
                    schedule.compute_inline(block)
        heavy = max(reductions, key=lambda b: _iterations(schedule, b), default=None)
        if heavy is not None:
            _tile(schedule, heavy)
        for block in schedule.get_child_blocks(root):
            _rows(schedule, block, block in reductions)
        return schedule


def _block(schedule: Schedule, block: BlockRV) -> Block:
    item = schedule.get(block)
    assert isinstance(item, Block), "a handle of a block names one"
    return item


def _length(schedule: Schedule, loop: LoopRV) -> int:
    return as_int(schedule.get(loop).extent) or 1


def _iterations(schedule: Schedule, block: BlockRV) -> int:
    return math.prod(_length(schedule, loop) for loop in schedule.get_loops(block))


def _tile(schedule: KnobSchedule, block: BlockRV) -> None:
    """Register tiles of a local copy inside cache tiles inside parallel tiles; what reads the result follows them."""
    copy = schedule.cache_write(block, 0, "local")
    for reader in schedule.get_consumers(copy):
        with suppress(ScheduleError):  # such as one that reads it twice: it stays a block of its own
            schedule.reverse_compute_inline(copy)
            copy = reader
    kinds = [axis.kind for axis in _block(schedule, block).iter_vars]
    loops = schedule.get_loops(block)
    if len(loops) != len(kinds):
        raise ScheduleError(f"block {block.name} has {len(loops)} loops and {len(kinds)} axes")
    data: list[list[LoopRV]] = []
    terms: list[list[LoopRV]] = []
    sizes: list[int] = []
    for kind, loop in zip(kinds, loops, strict=True):
        count = 3 if kind == "data" else 2
        factors = schedule.sample_perfect_tile(loop, count, max_innermost_factor=64)
        parts = schedule.split(loop, factors)
        (data if kind == "data" else terms).append(parts)
        sizes += [int(schedule.get(factors[-1]))] if kind == "data" else []
    first, middle, last = ([parts[level] for parts in data] for level in range(3))
    outer, inner = ([parts[level] for parts in terms] for level in range(2))
    schedule.reorder(*first, *middle, *outer, *inner, *last)
    written = math.prod(sizes[:-1])
    if math.prod(sizes) > REGISTERS or written > WRITTEN_OUT:
        raise ScheduleError(f"a tile of {sizes} is larger than the registers")
    schedule.reverse_compute_at(copy, middle[-1])
    start = schedule.decompose_reduction(block, outer[0])
    unrolled = schedule.sample_categorical([0, 1], [0.5, 0.5])
    if schedule.get(unrolled) and written * _length(schedule, inner[-1]) <= 8 * WRITTEN_OUT:
        schedule.unroll(inner[-1])
    for one in (block, start, copy):
        tail = schedule.get_loops(one)[-len(last) :]
        schedule.vectorize(tail[-1])
        for loop in tail[:-1] if one is not copy else ():
            schedule.unroll(loop)
    schedule.parallel(schedule.fuse(*first) if len(first) > 1 else first[0])


def _rows(schedule: KnobSchedule, block: BlockRV, is_reduction: bool) -> None:
    """All data loops of a block that nothing has marked are shared among threads, the last one by vectors."""
    loops = schedule.get_loops(block)
    plain = [schedule.get(loop).kind is S.LoopKind.SERIAL for loop in loops]
    if not loops or not all(plain):
        return
    kinds = [axis.kind for axis in _block(schedule, block).iter_vars]
    data = [loop for loop, kind in zip(loops, kinds, strict=False) if kind == "data"]
    with suppress(ScheduleError):
        if not is_reduction:
            whole = schedule.fuse(*loops) if len(loops) > 1 else loops[0]
            size = _length(schedule, whole)
            widths = [n for n in (1, 4, 8, 16, 32) if size % n == 0]
            width = schedule.sample_categorical(widths, [1.0] * len(widths))
            outer, inner = schedule.split(whole, [None, width])
            schedule.vectorize(inner)
            schedule.parallel(outer)
        elif data:
            schedule.parallel(schedule.fuse(*data) if len(data) > 1 else data[0])
