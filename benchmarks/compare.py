"""Time networks in Armillary and in other engines, interleaved; check that the outputs agree.

Each engine runs in a process of its own (benchmarks/engines.py), stopped while another runs, so that spinning threads
of one do not slow another. A round runs every engine for `--seconds` with each number of threads; the order rotates, so
drift of the machine hits all alike. Printed per engine: minimum and median in ms, the ratio of its median to the
fastest other engine's (below 1 is faster than all others), seconds to load the package and to run it first, peak
memory, and the largest difference from ONNX Runtime's outputs (or the first engine's, where it is not among them)
relative to their largest values. An engine whose output is off by more than `--tolerance` is marked and not counted.
Then how much faster each is with more threads: the median over the rounds of the ratio within a round, the middle half
of them, and the ratio of the minima. Networks are made on the spot (benchmarks/networks.py), or ONNX files, with any
number of inputs and outputs.

examples:
  python benchmarks/compare.py
  python benchmarks/compare.py resnet18 mobilenet_v1 --threads 1 --rounds 3
  python benchmarks/compare.py model.onnx --engines armillary,onnxruntime --json out.json
  python benchmarks/compare.py bert.onnx --input-shapes "input_ids:[1,128]" --inputs sentence.npz
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from pathlib import Path

from models import add_arguments, models_of
from processes import (
    ALL,
    Results,
    Row,
    chosen,
    console,
    count,
    print_failures,
    progress_bar,
    race,
    seconds,
    thread_counts,
)
from rich.table import Table


def milliseconds(value: float) -> str:
    """Two digits behind the point, or four below a millisecond."""
    return f"{value:.2f}" if value >= 1 else f"{value:.4f}"


def print_table(rows: list[Row], tolerance: float) -> None:
    """One network at one thread count, fastest first; then why others have no figures."""
    if all("failed" in row for row in rows):
        console.print(f"{rows[0]['network']}: no engine ran it", markup=False, highlight=False)
        print_failures(rows)
        return
    table = Table("engine", "min ms", "median ms", "/ best other", "load s", "first s", "peak MB", "difference")
    table.title = f"{rows[0]['network']}, {rows[0]['threads']} thread{'s' * (rows[0]['threads'] > 1)}"
    right = {r["engine"]: r["median_ms"] for r in rows if "failed" not in r and r["difference"] <= tolerance}
    for row in sorted((r for r in rows if "failed" not in r), key=lambda r: float(r["median_ms"])):
        others = [ms for engine, ms in right.items() if engine != row["engine"]]
        ratio = f"{row['median_ms'] / min(others):.2f}" if others and row["engine"] in right else ""
        wrong = "" if row["engine"] in right else " WRONG"
        table.add_row(
            row["engine"],
            milliseconds(row["min_ms"]),
            milliseconds(row["median_ms"]),
            ratio,
            f"{row['load_s']:.2f}",
            f"{row['first_s']:.2f}",
            f"{row['peak_mb']:.0f}",
            f"{row['difference']:.1e}{wrong}",
        )
    console.print(table)
    print_failures(rows)


def speed_ups(rows: list[Row]) -> list[tuple[str, list[float], float]]:
    """Engines with figures for the fewest and the most threads, the highest speed-up first: those of rounds, of minima.

    `rows` are those of one network; the speed-ups of an engine's rounds are sorted.
    """
    few, many = ({r["engine"]: r for r in rows if r["threads"] == n and "round_ms" in r} for n in _ends(rows))
    found = []
    for engine in few.keys() & many.keys():
        pairs = zip(few[engine]["round_ms"], many[engine]["round_ms"], strict=False)
        found.append((engine, sorted(a / b for a, b in pairs), few[engine]["min_ms"] / many[engine]["min_ms"]))
    return sorted(found, key=lambda entry: -statistics.median(entry[1]))


def _ends(rows: list[Row]) -> tuple[int, int]:
    numbers = [row["threads"] for row in rows]
    return min(numbers), max(numbers)


def print_speed_ups(rows: list[Row]) -> None:
    """What more threads give on one network, most first."""
    few, many = _ends(rows)
    table = Table("engine", "median", "middle half", "of minima")
    table.title = f"{rows[0]['network']}, {few} to {many} threads: times as fast"
    for engine, ratios, of_minima in speed_ups(rows):
        quarter = len(ratios) // 4
        half = f"{ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f}"
        table.add_row(engine, f"{statistics.median(ratios):.2f}", half, f"{of_minima:.2f}")
    console.print(table)


def main() -> None:
    """Measure what the result file lacks, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--engines", type=chosen, default=ALL, help=f"default: {ALL}")
    parser.add_argument("--threads", type=thread_counts, default="1,2", help="default: 1,2")
    parser.add_argument("--rounds", type=count, default=5, help="turns of each engine (default: 5)")
    parser.add_argument("--seconds", type=seconds, default=1.0, help="of each engine in a round (default: 1)")
    parser.add_argument("--tolerance", type=float, default=2e-3, help="largest right difference (default: 0.002)")
    parser.add_argument("--json", type=Path, help="keep the rows here; what is there is not measured again")
    args = parser.parse_args()
    keys = ("file", "threads", "engine")
    results = Results(args.json or args.folder / "compare.json", keys, args.json is None)
    for model in models_of(args):
        wanted = list(itertools.product(args.engines, args.threads))
        if not all(results.measured(engine, model, threads=threads) for engine, threads in wanted):
            with progress_bar() as progress:
                progress.add_task(model.name, total=None)
                for row in race(model, args.engines, args.threads, args):
                    results.add({"network": model.name, **row})
        rows = [r for r in results.rows if r.get("file") == str(model.path.resolve())]
        rows = [r for r in rows if (r["engine"], r["threads"]) in wanted]
        for threads in args.threads:
            print_table([r for r in rows if r["threads"] == threads], args.tolerance)
        if speed_ups(rows) and len(args.threads) > 1:
            print_speed_ups(rows)


if __name__ == "__main__":
    main()
