"""How many trials tuners need on a space that was measured whole.

    python benchmarks/tuner_quality.py measure space.json [--target llvm] [--rounds 5] [--layer 64,56,64[,2]]
    python benchmarks/tuner_quality.py replay space.json [--seeds 5] [--share 0.95]

`measure` builds every configuration of a 3x3 convolution (channels, rows and columns, units, stride; batch 1), with
`--blocks` in other blocks of channels too, and times them by portions in turns, round by round; the table keeps the
least time of each. `--finals 20` measures those near the best in more rounds, as a busy machine wants. It can be ended
at any time: `space.json.part` keeps what was measured, the same command goes on.
`replay` gives those times to each tuner instead of a machine, so its answer is the same everywhere: the trials until a
configuration with `share` of the best speed was measured, as the median over seeds, and as a part of what chance needs.
The model's own first choice is counted like any other trial, and given to no tuner that does not find it by itself.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from armillary import autotvm, relay
from armillary.autotvm.measure.local_builder import LocalBuilder
from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.measure.measure import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult, failed
from armillary.autotvm.task.network_cpu import keep_layouts
from armillary.autotvm.tuner import Tuner, XGBTuner
from armillary.autotvm.tuner.names import make_tuner
from armillary.backends.cpu.conv2d.direct.space import OWN_TAPS, TAPS
from armillary.backends.cpu.record_knobs import number_of

NAMES = ("random", "ga", "xgb_knob alone", "xgb alone", "xgb_curve alone", "xgb_knob", "xgb", "model")


PORTION = 16  # configurations that are built and timed before the table is written
Layer = tuple[int, ...]  # channels, rows and columns, units, and the stride where it is not 1
Kept = dict[str, tuple[int, float]]  # by knobs: rounds, and the least microseconds


def convolution(layer: Layer, target: str, *, with_blocks: bool = False) -> autotvm.Task:
    """The task of a 3x3 convolution."""
    channels, size, units, stride = (*layer, 1)[:4]
    x = relay.var("x", shape=(1, channels, size, size))
    w = relay.const(np.random.default_rng(0).random((units, channels, 3, 3), "float32"))
    body = relay.nn.conv2d(x, w, (stride, stride), (1, 1), kernel_size=(3, 3), channels=units)
    (task,) = autotvm.task.extract_from_program(relay.Function([x], body), target=target)
    if not with_blocks:
        keep_layouts(task)
    return task


def measure(args: argparse.Namespace) -> None:
    """Write the table."""
    layer = tuple(map(int, args.layer.split(",")))
    task = convolution(layer, args.target, with_blocks=args.blocks)
    indices = [int(i) for i in task.config_space.valid_indices()]
    names = {index: _key(task, index) for index in indices}
    head = {"layer": layer, "target": args.target, "rounds": args.rounds}
    head |= {"blocks": True} if args.blocks else {}
    part = Path(f"{args.table}.part")
    kept = _kept(part, head)
    builder = LocalBuilder(timeout=300)
    runner = LocalRunner(timeout=60, number=2, repeat=3, cooldown_interval=0, enable_cpu_cache_flush=True)
    runner.set_task(task)
    builder.set_task(task)
    while left := _left(indices, names, kept, args):
        now = sorted(left, key=lambda i: kept.get(names[i], (0, 0.0))[0])[:PORTION]
        inputs = [MeasureInput(task.target, task, task.config_space.get(i)) for i in now]
        for index, result in zip(now, runner.run(inputs, builder.build(inputs)), strict=True):
            rounds, least = kept.get(names[index], (0, FAILED))
            least = least if result.error_no else min(least, 1e6 * min(result.costs))
            kept[names[index]] = rounds + 1, least
        _save(part, head | {"kept": kept})
        least = min(least for _, least in kept.values())
        print(f"{len(left) - len(now)} of {len(indices)} lack rounds, best {least:.1f} us", flush=True)
    runner.close()
    builder.close()
    lines = [json.dumps([json.loads(key), round(us, 2)]) for key, (_, us) in kept.items() if us < FAILED]
    message = json.dumps(head)[:-1] + ', "microseconds": [\n' + ",\n".join(lines) + "\n]}\n"
    Path(args.table).write_text(message)
    part.unlink()


FAILED = 1e9  # microseconds of what gave no time
NEAR = 1.15  # times the least: what is measured in more rounds, since noise decides among these


def _left(indices: Sequence[int], names: dict[int, str], kept: Kept, args: argparse.Namespace) -> list[int]:
    """Which lack rounds: all of them, else those near the best."""
    rows = {i: kept.get(names[i], (0, FAILED)) for i in indices}
    left = [i for i, (rounds, _) in rows.items() if rounds < args.rounds]
    limit = NEAR * min(least for _, least in rows.values())
    return left or [i for i, (rounds, least) in rows.items() if least <= limit and rounds < args.finals]


def _kept(part: Path, head: dict[str, Any]) -> Kept:
    """What an earlier call measured of the same space."""
    if not part.exists():
        return {}
    found = json.loads(part.read_text())
    mine = {"layer": head["layer"], "target": head["target"], "blocks": head.get("blocks", False)}
    if {"layer": tuple(found["layer"]), "target": found["target"], "blocks": found.get("blocks", False)} != mine:
        raise SystemExit(f"{part} is of {found['layer']} for {found['target']}: name another table")
    return {key: (int(rounds), float(least)) for key, (rounds, least) in found["kept"].items()}


def _save(path: Path, what: dict[str, Any]) -> None:
    partial = path.with_suffix(".new")
    partial.write_text(json.dumps(what))
    partial.replace(path)


def _key(task: autotvm.Task, index: int) -> str:
    return json.dumps(_knobs(task, index), sort_keys=True)


def _knobs(task: autotvm.Task, index: int) -> dict[str, int]:
    config = task.config_space.get(index)
    knobs = {name: number_of(config[name]) for name in config}
    return {name: value for name, value in knobs.items() if value is not None and (name, value) != (TAPS, OWN_TAPS)}


class Replayed:
    """A builder and a runner that answer from a table."""

    n_parallel = 4

    def __init__(self, seconds: dict[int, float]) -> None:
        self.seconds, self.seen = seconds, list[int]()

    def set_task(self, task: autotvm.Task, build_kwargs: Any = None) -> None:
        """Nothing to know."""

    def get_build_kwargs(self) -> dict[str, Any]:
        """Nothing to say."""
        return {}

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[BuildResult]:
        """Nothing to build."""
        return [BuildResult("none")] * len(measure_inputs)

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult]) -> list[MeasureResult]:
        """The table's times."""
        self.seen += [given.config.index for given in measure_inputs]
        return [self._one(given.config.index) for given in measure_inputs]

    def _one(self, index: int) -> MeasureResult:
        if index not in self.seconds:
            return failed(MeasureErrorNo.RUNTIME_DEVICE, "it is not in the table", 0.0)
        return MeasureResult((self.seconds[index],), 0, 0.0, time.time())

    def close(self) -> None:
        """Nothing to end."""


class Space:
    """A task, and the seconds of its configurations."""

    def __init__(self, path: str | Path) -> None:
        table = json.loads(Path(path).read_text())
        self.task = convolution(tuple(table["layer"]), table["target"], with_blocks=table.get("blocks", False))
        known = {json.dumps(knobs, sort_keys=True): 1e-6 * us for knobs, us in table["microseconds"]}
        indices = [int(i) for i in self.task.config_space.valid_indices()]
        keys = {index: _key(self.task, index) for index in indices}
        self.seconds = {index: known[key] for index, key in keys.items() if key in known}
        self.part = len(self.seconds) / len(indices)  # of today's space that the table has

    def by_chance(self, share: float) -> int:
        """Trials after which chance has found such a configuration in half of all cases, exactly."""
        wanted = min(self.seconds.values()) / share
        total, good = len(self.seconds), sum(seconds <= wanted for seconds in self.seconds.values())
        return next(n for n in range(1, total + 1) if 2 * comb(total - n, good) <= comb(total, good))

    def _tuner(self, name: str, seed: int) -> Tuner:
        """The tuner of a name; "xgb… alone" is one of trees that see nothing of the model of costs."""
        family, _, alone = name.partition(" ")
        if not alone:
            return make_tuner(family, self.task, seed)
        kind = family.partition("_")[2] or "itervar"
        return XGBTuner(self.task, feature_type=kind, seed=seed, uses_model=False)

    def trials(self, name: str, seed: int, share: float) -> int:
        """Trials until a tuner has measured a configuration with that share of the best speed."""
        tuner = self._tuner(name, seed)
        tuner.starts_from_model = False
        table = Replayed(self.seconds)
        wanted = min(self.seconds.values()) / share
        tuner.is_done = _never if name == "model" else tuner.is_done  # type: ignore[method-assign]

        def stop(of: Tuner, inputs: Any, results: Any) -> None:
            if any(result.mean <= wanted for result in results):
                of.deadline, of.is_done = 0.0, _always  # type: ignore[method-assign]

        option = {"builder": table, "runner": table}
        tuner.tune(len(self.task.config_space), option, callbacks=[stop])
        return next(n for n, index in enumerate(table.seen, 1) if self.seconds.get(index, 1.0) <= wanted)


def _never() -> bool:
    return False


def _always() -> bool:
    return True


def replay(args: argparse.Namespace) -> None:
    """Print a line for each tuner."""
    space = Space(args.table)
    best, worst = min(space.seconds.values()), max(space.seconds.values())
    good = sum(seconds <= best / args.share for seconds in space.seconds.values())
    print(
        f"{len(space.seconds)} configurations ({space.part:.0%} of the space), {1e6 * best:.1f} to {1e6 * worst:.1f} us"
    )
    print(f"{good} have {args.share:.0%} of the best speed")
    by_chance = space.by_chance(args.share)
    print(f"chance needs {by_chance} trials in the middle")
    for name in NAMES:
        found = [space.trials(name, seed, args.share) for seed in range(args.seeds)]
        middle = statistics.median(found)
        print(f"{name:10} {middle:6g} trials (median of {found}), {middle / by_chance:.2f} of chance")


def main() -> int:
    """Measure, or replay."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True)
    row = actions.add_parser("measure")
    row.add_argument("table")
    row.add_argument("--target", default="llvm")
    row.add_argument("--rounds", type=int, default=5)
    row.add_argument("--finals", type=int, default=0, help=f"rounds of those within {NEAR} of the best")
    row.add_argument("--layer", default="64,56,64", help="channels, rows and columns, units[, stride]")
    row.add_argument("--blocks", action="store_true", help="in other blocks of channels too")
    row.set_defaults(run=measure)
    row = actions.add_parser("replay")
    row.add_argument("table")
    row.add_argument("--seeds", type=int, default=5)
    row.add_argument("--share", type=float, default=0.95)
    row.set_defaults(run=replay)
    args = parser.parse_args()
    run: Callable[[argparse.Namespace], None] = args.run
    run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
