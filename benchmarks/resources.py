"""What an engine costs besides the time of an inference: start, compile time, package size, memory.

Every figure comes from a process of its own, the smallest of `--repeat`:
  start      a new process until the first output: interpreter, import, load the package, first inference
  direct     the same from the ONNX file, with compiling (or converting) inside; Armillary's kernel cache is empty
  compile    making the package from the ONNX file, in a new process; for Armillary with an empty kernel cache
  cached     the same again: for Armillary with the kernel cache of the run before
  package    bytes of the package (ONNX Runtime runs the ONNX file itself)
  run MB     peak memory of the process of `start`
  direct MB  peak memory of the process of `direct`, without the processes it starts
  compile MB peak memory of the largest process of `compile`: converters and compile workers count
Ratios are to the best other engine: below 1 is better than all others. `floor` is a process that imports numpy and
reads the inputs; no Python process that runs a network takes less. Times are wall times: other load shows in them.
Results are kept as they come: the same command goes on where it was interrupted, and measures again what has changed
since (the model, Armillary's sources); `--fresh` starts over.

examples:
  python benchmarks/resources.py
  python benchmarks/resources.py resnet18 --engines armillary,onnxruntime --threads 2 --repeat 5
  python benchmarks/resources.py model.onnx --json out.json --fresh
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engines import ENGINES
from models import Model, add_arguments, models_of
from processes import (
    ALL,
    EngineFailed,
    Process,
    Results,
    Row,
    chosen,
    console,
    count,
    environment,
    package_of,
    pinned,
    prepare,
    print_failures,
    progress_bar,
    thread_count,
)
from rich.table import Table

# Column, key of the row, scale, digits.
_FIGURES = (
    ("start s", "start_s", 1.0, 2),
    ("direct s", "direct_s", 1.0, 2),
    ("compile s", "compile_s", 1.0, 2),
    ("cached s", "cached_s", 1.0, 2),
    ("package MB", "bytes", 1e-6, 1),
    ("run MB", "peak_mb", 1.0, 0),
    ("direct MB", "direct_peak_mb", 1.0, 0),
    ("compile MB", "compile_peak_mb", 1.0, 0),
)
_OF_PACKAGES = ("compile_s", "cached_s", "compile_peak_mb")  # what making a package costs, where one is made
_CAPTION = (
    "start: a new process until its first output, from the package; direct: from the ONNX file, nothing cached; "
    "compile: making the package, nothing cached; cached: the same again (ONNX Runtime makes none). MB: peak memory. "
    "In brackets: the ratio to the best other engine, below 1 is better; --help says more."
)
_FLOOR = (
    "import sys; sys.path.insert(0, sys.argv[1]); import engines, numpy as np\n"
    "with np.load(sys.argv[2]) as a: x = [a[n] for n in a.files]\nprint(engines.peak_megabytes())"
)


def measure(engine: str, model: Model, args: argparse.Namespace) -> Row:
    """All figures of one engine and network."""
    row: Row = {}
    inputs = str(model.inputs)
    with tempfile.TemporaryDirectory(prefix="resources-") as name:
        folder = Path(name)
        cold, warm, peaks = [], [], []
        for turn in range(args.repeat):
            cache = {"ARMILLARY_CACHE_DIR": str(folder / f"cache{turn}")}
            made = prepare(engine, model.path, folder / f"made{turn}", cache)
            cold.append(made["process_s"])
            peaks.append(made["peak_mb"])
            warm.append(prepare(engine, model.path, folder / f"again{turn}", cache)["process_s"])
        row |= {"compile_s": min(cold), "cached_s": min(warm), "compile_peak_mb": min(peaks), "bytes": made["bytes"]}
        package = str(package_of(engine, model, args.folder))
        starts = [_started(["run", engine, package, inputs, str(args.threads)], args) for _ in range(args.repeat)]
        row |= {key: min(s[key] for s in starts) for key in ("start_s", "load_s", "first_s", "peak_mb")}
        directs = []
        for turn in range(args.repeat):
            place = folder / f"direct{turn}"
            place.mkdir()
            task = ["direct", engine, str(model.path), inputs, str(args.threads), str(place)]
            directs.append(_started(task, args, {"ARMILLARY_CACHE_DIR": str(place / "cache")}))
        row |= {"direct_s": min(s["start_s"] for s in directs), "direct_peak_mb": min(s["peak_mb"] for s in directs)}
    return row


def _started(task: list[str], args: argparse.Namespace, more: dict[str, str] | None = None) -> Row:
    """Start a process and stop it after its first output; compiling may use all CPUs."""
    begin = time.perf_counter()
    with Process(task, args.threads, more, pin=task[0] == "run") as process:
        return process.start | {"start_s": time.perf_counter() - begin}


def floor(inputs: Path, threads: int) -> float:
    """Megabytes of a process that only imports numpy and reads the inputs."""
    command = [sys.executable, "-c", _FLOOR, str(Path(__file__).parent), str(inputs)]
    done = subprocess.run(
        command, env=environment(threads), capture_output=True, text=True, check=True, preexec_fn=pinned(threads)
    )
    return float(json.loads(done.stdout))


def print_table(rows: list[Row], least: float) -> None:
    """One network: a row for each engine, in each cell the figure and its ratio to the best other engine."""
    table = Table("engine", *(name for name, *_ in _FIGURES))
    table.title = f"{rows[0]['network']}, {rows[0]['threads']} thread{'s' * (rows[0]['threads'] > 1)}"
    good = [row for row in rows if "failed" not in row]
    for row in good:
        others = [r for r in good if r is not row]
        table.add_row(row["engine"], *(_cell(row, others, *figure) for _, *figure in _FIGURES))
    table.add_row("floor", *(f"{least:.0f}" if key == "peak_mb" else "" for _, key, *_ in _FIGURES))
    table.caption = _CAPTION
    console.print(table)
    print_failures(rows)


def _cell(row: Row, others: list[Row], key: str, scale: float, digits: int) -> str:
    """A figure and its ratio to the best other; a dash where an engine, or a result file of old, has none."""
    if not _has(row, key):
        return "-"
    best = min((r[key] for r in others if _has(r, key)), default=0)
    return f"{row[key] * scale:.{digits}f}" + (f" ({row[key] / best:.2f})" if best else "")


def _has(row: Row, key: str) -> bool:
    return key in row and (key not in _OF_PACKAGES or ENGINES[row["engine"]].makes_package)


def main() -> None:
    """Measure what the result file lacks, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--engines", type=chosen, default=ALL, help=f"default: {ALL}")
    parser.add_argument("--threads", type=thread_count, default=2, help="of the inference (default: 2)")
    parser.add_argument("--repeat", type=count, default=3, help="the smallest of so many (default: 3)")
    parser.add_argument("--json", type=Path, help="the result file (default: resources.json in the folder)")
    parser.add_argument("--fresh", action="store_true", help="measure everything anew")
    args = parser.parse_args()
    results = Results(args.json or args.folder / "resources.json", ("file", "engine", "threads"), args.fresh)
    models = models_of(args)
    with progress_bar() as progress:
        task = progress.add_task("", total=len(models) * len(args.engines))
        for model in models:
            for engine in args.engines:
                progress.update(task, description=f"{model.name} {engine}")
                if not results.measured(engine, model, threads=args.threads):
                    results.add(_row(engine, model, args))
                progress.advance(task)
    for model in models:
        key = (str(model.path.resolve()), args.threads)
        rows = [r for r in results.rows if (r.get("file"), r["threads"]) == key]
        print_table([r for r in rows if r["engine"] in args.engines], floor(model.inputs, args.threads))


def _row(engine: str, model: Model, args: argparse.Namespace) -> Row:
    row = {"network": model.name, "file": str(model.path.resolve()), "engine": engine, "threads": args.threads}
    try:
        return row | measure(engine, model, args)
    except EngineFailed as error:
        return row | {"failed": str(error)}


if __name__ == "__main__":
    main()
