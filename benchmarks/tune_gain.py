"""What `armc tune` gains: networks with the default compile and with their records, timed in turns.

In: names of networks, minutes and cores for each. Out: logs of trials and states in a folder, and a table: ms without
and with records, gain, trials, seconds, and how many kernels became slower. Invariant: each network is tuned by the
command on its own cores, all side by side; then each is timed alone. What is interrupted goes on at the next call, with
the time that is left; a network that is timed already is not timed again (--again).

    python benchmarks/tune_gain.py --minutes 20 --cores 0-1,2-3,4-5,6-7 --threads 2

Runs from the repository root without an installation.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from deep_networks import deep_file  # noqa: E402  (the path comes first)

NETWORKS = "resnet18,mobilenet_v1,bert_4,inception_v3"
SAVE_SECONDS = 2.0
SLOWER = 1.01  # times its time without records, in each of the repeats: a kernel counts as slower
REPEATS, SECONDS = 3, 5.0


@dataclass(frozen=True)
class State:
    """What is known of a network: seconds of tuning, trials and how many failed, then the times."""

    seconds: float = 0.0
    is_tuned: bool = False
    trials: int = 0
    failed: int = 0
    tasks: int = 0
    default_ms: float = 0.0
    tuned_ms: float = 0.0
    ratio: float = 0.0
    kernel_ratio: float = 0.0  # of sums of kernels, each at its least time
    kernels: int = 0
    changed: int = 0  # compiled functions that records changed
    slower: tuple[str, ...] = ()
    told: tuple[str, ...] = ()  # of each that changed: microseconds of a run without records and with them


class Place:
    """The files of a network, and its cores."""

    def __init__(self, name: str, folder: Path, cores: set[int]) -> None:
        self.name, self.folder, self.cores = name, folder, cores
        self.log, self.said, self._state = (folder / f"{name}.{end}" for end in ("log", "out", "json"))

    def state(self) -> State:
        """What is known."""
        if not self._state.exists():
            return State()
        found = json.loads(self._state.read_text())
        lists = {name: tuple(found.get(name, ())) for name in ("slower", "told")}
        return State(**{**found, **lists})

    def save(self, state: State) -> None:
        """Keep what is known."""
        partial = self._state.with_suffix(".part")
        partial.write_text(json.dumps(asdict(state)))
        partial.replace(self._state)


def main() -> None:
    """Tune what is not tuned, time what is not timed, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=NETWORKS, help=f"default: {NETWORKS}")
    parser.add_argument("--minutes", type=float, default=20, help="of tuning, for each network (default: 20)")
    parser.add_argument("--cores", default="", help="for each network: 0-1,2-3,… (default: all that are free, in turn)")
    parser.add_argument("--threads", type=int, default=2, help="of trials and of the network (default: 2)")
    parser.add_argument("--tuner", default="model", help="as in armc tune (default: model)")
    parser.add_argument("--rounds", type=int, default=60, help="of timing (default: 60)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "tune_gain")
    parser.add_argument("--stop-after", type=float, default=math.inf, metavar="SECONDS", help="of tuning in this call")
    parser.add_argument("--time", action="store_true", help="time networks now, though tuning has time left")
    parser.add_argument("--again", action="store_true", help="time networks that were timed already, too")
    parser.add_argument("--time-one", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    names = args.networks.split(",")
    places = [Place(name, args.folder, cores) for name, cores in zip(names, core_sets(args, len(names)), strict=True)]
    if args.time_one:
        time_network(next(p for p in places if p.name == args.time_one), args)
        return
    try:
        if not args.time:
            tune_all(places, args)
        for place in places:
            if (place.state().is_tuned or args.time) and (args.again or not place.state().default_ms):
                words = [sys.executable, __file__, *sys.argv[1:], "--time-one", place.name]
                subprocess.run(words, env=environment(args), check=True)
    except KeyboardInterrupt:
        print("ended early: the next call goes on", flush=True)
    finally:
        message = table([(place.name, place.state()) for place in places])
        (args.folder / "table.md").write_text(message + "\n")
        print(message, flush=True)


def core_sets(args: argparse.Namespace, count: int) -> list[set[int]]:
    """The cores of each network."""
    if args.cores:
        sets = [core_set(text) for text in args.cores.split(",")]
        if len(sets) != count:
            raise SystemExit(f"--cores {args.cores}: {len(sets)} sets for {count} networks")
        return sets
    free = sorted(os.sched_getaffinity(0))
    parts = [set(free[i : i + args.threads]) for i in range(0, len(free) - args.threads + 1, args.threads)]
    if not parts:
        raise SystemExit(f"--threads {args.threads}: there are {len(free)} cores")
    return [parts[i % len(parts)] for i in range(count)]


def core_set(text: str) -> set[int]:
    """0-1 as {0, 1}."""
    first, _, last = text.partition("-")
    return set(range(int(first), int(last or first) + 1))


def environment(args: argparse.Namespace) -> dict[str, str]:
    """Of a process that tunes or times: where the package is, and on how many threads kernels run."""
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)
    threads = str(args.threads)
    return os.environ | {"PYTHONPATH": path, "ARMILLARY_NUM_THREADS": threads, "ARMILLARY_COMPILE_JOBS": threads}


# --- tuning


def tune_all(places: list[Place], args: argparse.Namespace) -> None:
    """Run `armc tune` for each network for the time that it has left, as many at once as have cores of their own."""
    waiting = [place for place in places if not place.state().is_tuned]
    running: list[tuple[Place, subprocess.Popen[bytes], State, float]] = []
    while waiting or running:
        for place in [p for p in waiting if all(p.cores.isdisjoint(r.cores) for r, *_ in running)]:
            if any(place.cores & r.cores for r, *_ in running):
                continue
            waiting.remove(place)
            running.append((place, start(place, args), place.state(), time.monotonic()))
            print(f"{place.name}: tuning on cores {sorted(place.cores)}, log {place.log}", flush=True)
        time.sleep(SAVE_SECONDS)
        for row in list(running):
            place, process, before, began = row
            spent = replace(before, seconds=before.seconds + time.monotonic() - began, **trials_of(place))
            code = process.poll()
            place.save(spent)
            if code is None:
                continue
            running.remove(row)
            if code:
                raise SystemExit(f"{place.name}: armc tune ended with {code}: {place.said.read_text()[-2000:]}")
            is_over = (
                args.minutes * 60 <= args.stop_after + before.seconds
                or spent.seconds - before.seconds < 0.9 * args.stop_after
            )
            place.save(replace(spent, is_tuned=is_over))
            last = place.said.read_text().splitlines()[-1:]
            print(f"{place.name}: {spent.trials} trials in {spent.seconds:.0f} s; {' '.join(last)}", flush=True)


def start(place: Place, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    """The command for a network, on its cores."""
    model = deep_file(place.name, args.folder)
    seconds = min(max(5.0, 60 * args.minutes - place.state().seconds), args.stop_after)
    words = [
        sys.executable,
        "-m",
        "armillary.cli",
        "tune",
        str(model),
        "-o",
        str(place.log),
        "--resume",
        "--trials",
        "400",
        "--tuner",
        args.tuner,
        "--time-budget",
        f"{seconds:.0f}",
    ]
    with place.said.open("ab") as said:
        return subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment(args) | {"ARMILLARY_COMPILE_JOBS": str(len(place.cores))},
            stdout=said,
            stderr=said,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, place.cores),
        )


def trials_of(place: Place) -> dict[str, int]:
    """Trials in the log, each configuration once, how many of them failed, and of how many tasks."""
    first: dict[str, bool] = {}
    tasks = set()
    for line in place.log.read_text().splitlines() if place.log.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:  # a line that is being written
            continue
        task = json.dumps(row["input"])
        tasks.add(task)
        first.setdefault(task + json.dumps(row["config"]), bool(row["result"][1]))
    return {"trials": len(first), "failed": sum(first.values()), "tasks": len(tasks)}


# --- timing


def time_network(place: Place, args: argparse.Namespace) -> None:
    """Time a network with the default compile and with its records, in turns; then its kernels."""
    os.sched_setaffinity(0, place.cores)
    without, with_it = networks_of(place, args)
    once = max(1e-6, min(without.time(1), with_it.time(1)))
    number = max(1, math.ceil(0.05 / once))
    rows = []
    for round_ in range(args.rounds):
        pair: list[Callable[[int], float]] = [without.time, with_it.time]
        found = {i: pair[i](number) / number for i in ((0, 1) if round_ % 2 else (1, 0))}
        rows.append((found[0], found[1]))
    repeats = [kernels_of(without, with_it, SECONDS) for _ in range(REPEATS)]
    slow = [{c.names for c in repeat.changes if c.with_it > SLOWER * c.without} for repeat in repeats]
    last = repeats[-1]
    state = replace(
        place.state(),
        default_ms=1e3 * min(a for a, _ in rows),
        tuned_ms=1e3 * min(b for _, b in rows),
        ratio=statistics.median(a / b for a, b in rows),
        kernel_ratio=statistics.median(repeat.before / repeat.after for repeat in repeats),
        kernels=len(without.profile()),
        changed=len(last.changes),
        slower=tuple(said(c) for c in last.changes if all(c.names in repeat for repeat in slow)),
        told=tuple(said(c) for c in sorted(last.changes, key=lambda c: c.with_it - c.without)),
    )
    place.save(state)


def networks_of(place: Place, args: argparse.Namespace) -> tuple[Any, Any]:
    """The executors of both (Any: GraphExecutor)."""
    from armillary import autotvm, relay
    from armillary.autotvm.measure.trial import random_input
    from armillary.runtime import cpu
    from armillary.transform import PassContext

    module, params = relay.frontend.from_onnx(deep_file(place.name, args.folder))
    made = []
    for records in (None, str(place.log)):
        with PassContext(opt_level=3):
            if records is None:
                library = relay.build(module, "llvm", params=params)
            else:
                with autotvm.apply_history_best(records):
                    library = relay.build(module, "llvm", params=params)
        executor = library["default"](cpu())
        for at, name in enumerate(executor.free_inputs):
            shape, dtype = executor.input_type(name)
            executor.set_input(name, random_input(at, shape, str(dtype), 0))
        executor.run()
        made.append(executor)
    return made[0], made[1]


def kernels_of(without: Any, with_it: Any, seconds: float) -> Any:
    """Kernels of both in turns, as the check of `armc tune` compares them (Any: GraphExecutors; Found)."""
    from armillary.autotvm.tuner.kernel_check import measured
    from armillary.autotvm.tuner.network_check import timed_here

    both = timed_here(without, with_kernels=True), timed_here(with_it, with_kernels=True)
    return measured(*both, seconds, frozenset(kernel.name for side in both for kernel in side.names if kernel.name))


def said(change: Any) -> str:
    """A compiled function that records changed (Any: Change)."""
    names = ", ".join(sorted(change.names)) or "unnamed"
    return f"{names}: {1e6 * change.without:.1f} to {1e6 * change.with_it:.1f} us of a run"


def table(rows: list[tuple[str, State]]) -> str:
    """What was found, as Markdown."""
    lines = [
        "| network | default, ms | tuned, ms | faster: runs | kernels | tasks | trials (failed) | seconds | slower |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for name, s in rows:
        runs, kernels = (f"{100 * (ratio - 1):+.1f} %" for ratio in (s.ratio, s.kernel_ratio))
        timed = f"{s.default_ms:.3f} | {s.tuned_ms:.3f} | {runs} | {kernels}" if s.default_ms else "| | |"
        lines.append(
            f"| {name} | {timed} | {s.tasks} | {s.trials} ({s.failed}) | {s.seconds:.0f} | "
            f"{len(s.slower)} of {s.changed} changed |"
        )
    slower = [f"{name}: slower: {text}" for name, s in rows for text in s.slower]
    return "\n".join([*lines, "", *slower, *(f"{name}: {text}" for name, s in rows for text in s.told)])


if __name__ == "__main__":
    main()
