"""Time networks in Armillary and in other engines, interleaved; check that the outputs agree.

Each engine runs in a process of its own (benchmarks/engines.py), stopped while another runs, so that spinning threads
of one do not slow another. A round runs every engine for `--seconds`; the order rotates, so drift of the machine hits
all alike. Printed per engine: minimum and median in ms, the ratio of its median to the fastest other engine's (below 1
is faster than all others), seconds to load the package and to run it first, peak memory, and the largest difference
from ONNX Runtime's output relative to its largest value. An engine whose output is off by more than `--tolerance` is
marked and not counted. Networks are made on the spot (benchmarks/networks.py), or ONNX files.

examples:
  python benchmarks/compare.py
  python benchmarks/compare.py resnet18 mobilenet_v1 --threads 1 --rounds 3
  python benchmarks/compare.py model.onnx --engines armillary,onnxruntime --json out.json
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from networks import FOLDER, NETWORKS, network_file
from processes import (
    ALL,
    EngineFailed,
    Process,
    Results,
    Row,
    chosen,
    console,
    difference,
    print_failures,
    progress_bar,
    run_task,
)  # fmt: skip
from rich.table import Table


def compare(path: Path, threads: int, args: argparse.Namespace) -> list[Row]:
    """Rows of one network and thread count, one per engine."""
    running, rows = [], []
    try:
        for name in chosen(args.engines):
            try:
                running.append(Process(run_task(name, path, threads, args.folder), threads))
            except EngineFailed as error:
                rows.append({"network": path.stem, "threads": threads, "engine": name, "failed": str(error)})
        for index in range(args.rounds):
            turn = index % max(1, len(running))
            for process in running[turn:] + running[:turn]:
                process.turn(args.seconds)
        truth = next((p.output for p in running if p.name == "onnxruntime"), running[0].output if running else None)
        for process in running:
            medians = [statistics.median(times) for times in process.times]
            row: Row = {"network": path.stem, "threads": threads, "engine": process.name}
            row |= {"median_ms": statistics.median(medians), "min_ms": min(min(times) for times in process.times)}
            rows.append(row | process.start | {"difference": difference(process.output, truth)})
    finally:
        for process in running:
            process.close()
    return rows


def print_table(rows: list[Row], tolerance: float) -> None:
    """One network at one thread count, fastest first."""
    table = Table("engine", "min ms", "median ms", "/ best other", "load s", "first s", "peak MB", "difference")
    table.title = f"{rows[0]['network']}, {rows[0]['threads']} thread{'s' * (rows[0]['threads'] > 1)}"
    right = {r["engine"]: r["median_ms"] for r in rows if "failed" not in r and r["difference"] <= tolerance}
    for row in sorted((r for r in rows if "failed" not in r), key=lambda r: float(r["median_ms"])):
        others = [ms for engine, ms in right.items() if engine != row["engine"]]
        ratio = f"{row['median_ms'] / min(others):.2f}" if others else ""
        wrong = "" if row["engine"] in right else " WRONG"
        table.add_row(
            row["engine"], f"{row['min_ms']:.2f}", f"{row['median_ms']:.2f}", ratio, f"{row['load_s']:.2f}",
            f"{row['first_s']:.2f}", f"{row['peak_mb']:.0f}", f"{row['difference']:.1e}{wrong}",
        )  # fmt: skip
    console.print(table)
    print_failures(rows)


def main() -> None:
    """Measure what the result file lacks, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=f"ONNX files, or of {', '.join(NETWORKS)}")
    parser.add_argument("--engines", default=ALL, help=f"default: {ALL}")
    parser.add_argument("--threads", default="1,2", help="default: 1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each engine in a round")
    parser.add_argument("--tolerance", type=float, default=2e-3, help="largest difference that counts as right")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="networks and packages (default: build/benchmarks)")
    parser.add_argument("--json", type=Path, help="keep the rows here; what is there is not measured again")
    args = parser.parse_args()
    results = Results(args.json or args.folder / "compare.json", ("network", "threads", "engine"), args.json is None)
    cases = [(name, int(threads)) for name in args.networks for threads in args.threads.split(",")]
    for name, threads in cases:
        path = network_file(name, folder=args.folder)
        if not all(results.has(network=path.stem, threads=threads, engine=e) for e in chosen(args.engines)):
            with progress_bar() as progress:
                progress.add_task(f"{path.stem}, {threads} threads", total=None)
                for row in compare(path, threads, args):
                    results.add(row)
        rows = [r for r in results.rows if (r["network"], r["threads"]) == (path.stem, threads)]
        print_table(rows, args.tolerance)


if __name__ == "__main__":
    main()
