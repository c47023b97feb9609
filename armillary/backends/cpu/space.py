"""What an algorithm of the CPU can choose from, and how one choice becomes the choice of a kernel.

In: a workload, and the choice that its call carries, if it does (target/choice.py). Out: `chosen`: the complete choice,
with a value for every knob, its cost, and what was weighed against it. Invariant: the choice is a function of the
workload and of the options in force, so that whoever asks - graph pass, schedule, explanation, records - gets the same
one; a stored choice that does not fit is an error that says why. An algorithm's space lies in `space.py` of its folder;
which algorithms an operator has: select.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from armillary.backends.cpu.cost.model import Estimate, Nest, Tile, choose_tile, ranked_tiles
from armillary.backends.explanation import Explanation
from armillary.backends.workload import Workload
from armillary.base.record import record
from armillary.errors import ConfigError
from armillary.target.choice import Choice, Cost, Rejection, Source, stored_choice
from armillary.target.cpu import CpuModel, cpu_model

Config = tuple[tuple[str, int], ...]
MOST_REJECTED = 4  # with their cycles
TAPS = "ann_reduce"  # a knob of windows: 2 where the loop over kh is unrolled, and 1 where the one over kw is
OWN_TAPS = 1  # where the knob is not stated; tall tiles that reach into padding spell kh in any case
SHOWN = 12  # configurations that an error lists


@record
class Weighed:
    """What a configuration is expected to take, what else there is, and what does not apply."""

    cost: Cost
    others: tuple[Estimate, ...] = ()
    reasons: tuple[Rejection, ...] = ()


@record
class Algorithm:
    """The space of an algorithm: its knobs and what they are expected to cost."""

    name: str
    space: Callable[[Workload, CpuModel], Sequence[Config]]  # every configuration that can be compiled
    default: Callable[[Workload, CpuModel, Config], Config]  # the model's pick among those that agree with some knobs
    weigh: Callable[[Workload, CpuModel, Choice], Weighed]
    title: Callable[[Workload, CpuModel, Config], str]  # for people
    extents: Callable[[Workload, CpuModel], Mapping[str, int]]  # what guards ask about

    def explain(self, workload: Workload) -> Explanation:
        """The choice for a workload, and what was weighed against it."""
        return explained_choice(workload, self)


def tile_config(tile: Tile) -> Config:
    """The knobs of a register tile."""
    return (("rows", tile.rows), ("vectors", tile.vectors), ("lines", tile.tall))


def tile_of(choice: Choice) -> Tile:
    """The register tile of a choice."""
    return Tile(choice.knob("rows"), choice.knob("vectors"), choice.knob("lines", 1))


def best_tile_config(nest: Nest, cpu: CpuModel, stated: Config) -> Config:
    """The knobs of the model's tile among those that agree with what is given."""
    if not stated:
        return tile_config(choose_tile(nest, cpu))
    configs = agreeing([tile_config(tile) for tile, _ in ranked_tiles(nest, cpu)], stated)
    return configs[0]


def agreeing(configs: Sequence[Config], stated: Config) -> list[Config]:
    """Those that have the values which are given."""
    return [config for config in configs if set(stated) <= set(config)]


def chosen(workload: Workload, algorithm: Algorithm, reasons: Sequence[Rejection] = ()) -> Choice:
    """The complete choice of a workload that `algorithm` computes; `reasons`: why others do not."""
    cpu, stored = cpu_model(workload.target), Choice() if workload.inner else stored_choice(workload)
    if stored and stored.algorithm != algorithm.name:
        message = f"the choice {stored.algorithm} does not fit {workload.op.name}, which {algorithm.name} computes here"
        raise ConfigError(message, hint="leave the choice to the model, or take the one for this call")
    if stored.guards and not all(guard.holds(algorithm.extents(workload, cpu)) for guard in stored.guards):
        stored = Choice(algorithm.name)  # it was decided for another kernel
    stated = stored.config
    _check(workload, algorithm, stated, cpu)
    config = algorithm.default(workload, cpu, stated)
    if stored.estimate is not None and set(config) == set(stated):
        return stored
    weighed = algorithm.weigh(workload, cpu, replace(stored, algorithm=algorithm.name, config=config))
    rejected = (*_rejected(weighed, stored), *reasons)
    layouts = layouts_of(workload) or stored.layouts
    return Choice(algorithm.name, config, layouts, weighed.cost, stored.source, rejected, stored.guards)


def _check(workload: Workload, algorithm: Algorithm, stated: Config, cpu: CpuModel) -> None:
    """Something must agree with the given knobs; if not, that is told."""
    space = algorithm.space(workload, cpu) if stated else ()
    if not stated or agreeing(space, stated):
        return
    knobs = list(dict.fromkeys(name for config in space for name, _ in config))
    unknown = [name for name, _ in stated if name not in knobs]
    if unknown:
        message = f"{algorithm.name} has no knob {unknown[0]!r}"
        raise ConfigError(f"{_who(workload)}: {message}", hint=f"its knobs are {', '.join(knobs)}")
    near = sorted(space, key=lambda config: -len(set(config) & set(stated)))[:SHOWN]
    extents = ", ".join(f"{name} {value}" for name, value in algorithm.extents(workload, cpu).items())
    message = f"{_who(workload)}: the choice {algorithm.name} {_shown(stated)} does not fit (here {extents})"
    raise ConfigError(message, hint=f"these do: {'; '.join(_shown(config) for config in near)}; of {len(space)}")


def _shown(config: Config) -> str:
    return " ".join(f"{name}={value}" for name, value in config)


def _who(workload: Workload) -> str:
    types = ", ".join(str(ty) for ty in workload.types)
    return f"{workload.op.name}({types})"


def _rejected(weighed: Weighed, stored: Choice) -> tuple[Rejection, ...]:
    """The cheapest of what was weighed, with their cycles, then what does not apply."""
    others = [Rejection(e.name, e.cycles) for e in weighed.others] + [r for r in stored.rejected if not r.reason]
    others = sorted(dict.fromkeys(others), key=lambda r: r.cycles)
    reasons = dict.fromkeys((*weighed.reasons, *(r for r in stored.rejected if r.reason)))
    return (*others[:MOST_REJECTED], *reasons)


def layouts_of(workload: Workload) -> tuple[str, ...]:
    """The layouts of data, weight and result, as the attributes of the call name them."""
    names = [getattr(workload.attrs, name, "") for name in ("data_layout", "kernel_layout", "out_layout")]
    data, weight, out = names
    return (data, weight, out or data) if data and weight else ()


def explained_choice(workload: Workload, algorithm: Algorithm) -> Explanation:
    """A choice for people, and for packages."""
    cpu, choice = cpu_model(workload.target), chosen(workload, algorithm)
    assert choice.estimate is not None, "a complete choice has one"
    hertz = cpu.memory.ghz * 1e6  # cycles in a millisecond
    weighed = tuple((r.name, round(r.cycles / hertz, 6)) for r in choice.rejected if not r.reason)
    message = tuple(f"{r.name}: {r.reason}" for r in choice.rejected if r.reason)
    if choice.source is not Source.DEFAULT:
        by = "schedule.choice" if choice.source is Source.OVERRIDE else "a record"
        message = (f"the model's choice: {by} says so", *message)
    title = algorithm.title(workload, cpu, choice.config)
    milliseconds = round(choice.estimate.cycles / hertz, 6)
    return Explanation(title, str(tile_of(choice)), milliseconds, choice.estimate.bound, weighed, message)
