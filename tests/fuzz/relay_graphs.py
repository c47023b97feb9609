"""`python -m tests.fuzz.relay_graphs`: random Relay graphs, compiled, against the reference interpreter.

In: --count and --seed (the seeds are seed, seed + 1, …), --levels, --target, --jobs. Out: a progress bar, a table of
findings, exit code 1 if there are any; with --shrink each kind of finding becomes a text case in tests/fuzz/cases,
which pytest runs from then on. Invariant: --state names a file of records; with it a run goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import graph_campaign  # noqa: E402
import graph_shrink  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: E402


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.relay_graphs", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="how many graphs")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--levels", default="0,3", help="opt levels, with commas")
    parser.add_argument("--target", default="llvm", help="target")
    parser.add_argument("--state", type=Path, help="file of records: go on from it, add to it")
    parser.add_argument("--shrink", action="store_true", help="make a text case of each kind of finding")
    parser.add_argument("--cases", type=Path, default=HERE / "cases", help="where the text cases go")
    return parser.parse_args()


def main() -> int:
    """Run; the exit code."""
    options = arguments()
    levels = [int(level) for level in options.levels.split(",")]
    console, start = Console(), time.perf_counter()
    columns = (
        TextColumn("graphs"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("0 findings", total=options.count)
        found = 0

        def report(record: graph_campaign.Record) -> None:
            nonlocal found
            found += len(graph_campaign.failures([record]))
            progress.update(task, advance=1, description=f"{found} findings")

        before = graph_campaign.read_records(options.state) if options.state is not None else {}
        seeds = range(options.seed, options.seed + options.count)
        progress.update(task, advance=len(set(before) & set(seeds)))
        records = graph_campaign.run(seeds, levels, options.target, options.jobs, options.state, report)
    records = [r for r in records if r["seed"] in seeds]
    bad = graph_campaign.failures(records)
    kinds = collections.Counter(r["kind"] for r in records)
    elements = sum(r.get("elements", 0) for r in records)
    console.print(
        f"{len(records)} graphs in {time.perf_counter() - start:.0f} s: {dict(kinds)}; {elements} elements compared"
    )
    for signature, rows in graph_shrink.by_signature(bad).items():
        console.print(f"{len(rows):4} × {signature}; seeds {[r['seed'] for r in rows][:8]}", markup=False)
        console.print(f"       {rows[0]['detail'][:400]}", markup=False)
        if options.shrink:
            path = graph_shrink.write_case(rows[0], levels, options.target, options.cases)
            console.print(f"       {path}", markup=False)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
