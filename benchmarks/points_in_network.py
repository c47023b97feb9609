"""What points of a network's tasks take where the network calls them, and what trials alone say of the same points.

In: a network, how many points of each task. Out: a line of JSON for each kernel of the default and for each point:
microseconds of a run with it and without, the least and the middle over rounds in turns, and how many rounds it wins;
for the first ones of each task, what a trial alone takes with emptied caches, so beside a second copy that ran just
before, and again and again. Invariant: in one build there is a point of every task, so that all are timed at once, by
what `armc tune` checks records with; a second executor without records runs in the same turns.

    ARMILLARY_NUM_THREADS=16 python benchmarks/points_in_network.py --points 24 --file points.jsonl

Runs from the repository root without an installation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from deep_networks import deep_file  # noqa: E402  (the path comes first)
from processes import count  # noqa: E402

from armillary import autotvm, relay  # noqa: E402
from armillary.autotvm.measure import trial  # noqa: E402
from armillary.autotvm.measure.local_builder import LocalBuilder  # noqa: E402
from armillary.autotvm.measure.local_runner import LocalRunner  # noqa: E402
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult  # noqa: E402
from armillary.autotvm.record import Pair  # noqa: E402
from armillary.autotvm.tuner.kernel_check import Change, known_names, measured  # noqa: E402
from armillary.autotvm.tuner.network_check import Network, Timed  # noqa: E402
from armillary.backends.cpu.graph.apply_records import number_of  # noqa: E402
from armillary.runtime import num_threads  # noqa: E402

ROUNDS, REPEATS = 300, 7  # of the default alone; of a trial
EMPTIED = 64 << 20  # bytes


def main() -> None:
    """Time the default, then the points, then those alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="mobilenet_v1")
    parser.add_argument("--points", type=int, default=0, help="of each task (default: 0, the default's kernels alone)")
    parser.add_argument("--alone", type=int, default=0, help="of those, how many as trials do (default: 0)")
    parser.add_argument("--seconds", type=float, default=0.8, help="for a point of each task (default: 0.8)")
    parser.add_argument("--budget", type=count, default=600, help="seconds after which nothing new is begun")
    parser.add_argument("--folder", type=Path, default=ROOT / "build")
    parser.add_argument("--file", type=Path, required=True, help="where the lines go")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + args.budget
    module, params = relay.frontend.from_onnx(deep_file(args.network, args.folder))
    with Network(module, params, "llvm", LocalRunner()) as network, args.file.open("w") as file:

        def tell(row: dict[str, Any]) -> None:  # Any: JSON
            file.write(json.dumps({"network": args.network, "threads": num_threads()} | row) + "\n")
            file.flush()

        library = network.built([])
        sides = network.timed(library), network.timed(library)
        of_default(sides[0], tell)
        if not args.points:
            return
        tasks = autotvm.task.extract_from_program(module, params, "llvm")
        points = {task.workload: points_of(task, args.points) for task in tasks}
        for place in range(args.points):
            if time.monotonic() < until:
                in_network(network, sides, tasks, points, place, args.seconds, tell)
        for task in tasks:
            if args.alone and time.monotonic() < until:
                alone(task, points[task.workload][: args.alone], tell)


Tell = Callable[[dict[str, Any]], None]  # Any: JSON


def of_default(side: Timed, tell: Tell) -> None:
    """Each kernel, and a run, without records."""
    assert side.kernels is not None, "kernels of a CPU are timed"
    rows = np.array([side.kernels() for _ in range(ROUNDS)])
    runs = [side(20) for _ in range(40)]
    for at, kernel in enumerate(side.names):
        tell({"kernel": kernel.name, "function": kernel.function} | times_of(rows[:, at].tolist()))
    tell({"kernel": "", "function": "a run"} | times_of(runs))
    tell({"kernel": "", "function": "sum of kernels"} | times_of(rows.sum(axis=1).tolist()))
    print(f"{num_threads()} threads: a run {1e6 * min(runs):.0f} us, kernels {1e6 * rows.min(axis=0).sum():.0f} us")


def times_of(seconds: Sequence[float]) -> dict[str, float]:
    """The least and the middle, in microseconds."""
    return {"least": round(1e6 * min(seconds), 2), "middle": round(1e6 * statistics.median(seconds), 2)}


def points_of(task: autotvm.Task, count: int) -> list[int]:
    """Indices: the model's choice, then in turn the next by the model and the best of each kind - algorithm, vectors
    of a tile, blocks - by places in it."""
    ranked = [index for index, _ in task.template.estimates(task)]
    of_kind: dict[tuple[int, ...], list[int]] = {}
    for index in ranked:
        knobs = knobs_of(task, index)
        kind = tuple(knobs.get(name, 0) for name in ("winograd", "vectors", "data_block", "result_block"))
        of_kind.setdefault(kind, []).append(index)
    firsts = [rows[at] for at in range(count) for rows in of_kind.values() if len(rows) > at]
    mixed = [index for pair in zip(ranked, firsts, strict=False) for index in pair]
    return list(dict.fromkeys(mixed))[:count]


def knobs_of(task: autotvm.Task, index: int) -> dict[str, int]:
    """The values of a configuration."""
    config = task.config_space.get(index)
    return {name: value for name in config if (value := number_of(config[name])) is not None}


def in_network(
    network: Network,
    sides: tuple[Timed, Timed],
    tasks: Sequence[autotvm.Task],
    points: dict[Any, list[int]],  # Any: workloads
    place: int,
    seconds: float,
    tell: Tell,
) -> None:
    """The points at one place of all lists, in one build."""
    began, names = time.monotonic(), {task.workload: task.names for task in tasks}
    now = [(task, points[task.workload][place]) for task in tasks if place < len(points[task.workload])]
    pairs: list[Pair] = [
        (MeasureInput(task.target, task, task.config_space.get(i)), MeasureResult((1.0,), 0, 0.0, 0.0))
        for task, i in now
    ]
    side = network.timed(network.built(pairs))
    built = time.monotonic() - began
    found = measured(sides[0], side, seconds, known_names(pairs, names), sides[1])
    for task, index in now:
        mine = [change for change in found.changes if change.names & task.names]
        tell({**about(task, index), "place": place, "others": others_in(mine, task), **told_of(mine)})
    print(f"place {place}: {built:.1f} s to build, {time.monotonic() - began:.1f} s in all", flush=True)


def about(task: autotvm.Task, index: int) -> dict[str, Any]:  # Any: JSON
    """A point, and what the model expects of it on one thread."""
    expected = dict(task.template.estimates(task))[index]
    ranked = [i for i, _ in task.template.estimates(task)]
    shapes = [arg[1] for arg in task.args[:2]]
    message = {"task": task.name, "shapes": shapes, "calls": task.calls, "index": index, "rank": ranked.index(index)}
    return message | {"knobs": knobs_of(task, index), "expected": round(1e6 * expected, 2)}


def others_in(changes: Iterable[Change], task: autotvm.Task) -> int:
    """How many kernels of other tasks changed together with those of this one."""
    return len({name for change in changes for name in change.names} - task.names)


def told_of(changes: Sequence[Change]) -> dict[str, Any]:  # Any: JSON
    """Sums over what changed: without records, again without, with the point."""
    if not changes:
        return {"rounds": 0}
    rounds = np.array(
        [[sum(parts) for parts in zip(*rows, strict=True)] for rows in zip(*(c.rounds for c in changes), strict=True)]
    )
    least = [sum(getattr(change, side) for change in changes) for side in ("without", "again", "with_it")]
    wins = [int((rounds[:, 2] < rounds[:, side]).sum()) for side in (0, 1)]
    middle = np.median(rounds, axis=0)
    return {
        "rounds": len(rounds),
        "wins": wins,
        "least": [round(1e6 * s, 2) for s in least],
        "middle": [round(1e6 * float(s), 2) for s in middle],
    }


def alone(task: autotvm.Task, indices: Sequence[int], tell: Tell) -> None:
    """The first points as trials time them."""
    builder, began = LocalBuilder(timeout=60), time.monotonic()
    builder.set_task(task)
    junk = np.ones(EMPTIED // 8)
    inputs = [MeasureInput(task.target, task, task.config_space.get(index)) for index in indices]
    for index, built in zip(indices, builder.build(inputs), strict=True):
        if built.error_no:
            continue
        one, other = trial.prepare(built.filename), trial.prepare(built.filename)
        ways = {"emptied": list[float](), "beside": list[float]()}
        for way in ("emptied", "beside") * REPEATS:
            np.add(junk, 1.0, out=junk)
            one.touch()
            if way == "beside":
                other.run()
            ways[way].append(one.time(1))
        ways["again"] = [one.time(10) / 10 for _ in range(REPEATS)]
        tell({**about(task, index), "alone": {way: times_of(seconds) for way, seconds in ways.items()}})
    builder.close()
    print(f"alone: {task.name} {task.args[0][1]}, {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
