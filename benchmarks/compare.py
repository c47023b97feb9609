"""Time a network in Armillary and in ONNX Runtime, interleaved, in one process; check that the outputs agree.

    python benchmarks/compare.py [--networks resnet18,mobilenet] [--threads 1,2] [--rounds 7] [--json FILE]

Networks come from `relay.testing` (random weights) or are ONNX files given by path. One round runs every engine for
about `--seconds`; the order rotates, so drift of the machine hits all alike. Printed: minimum and median of each
engine, and the ratio Armillary / ONNX Runtime of the medians. Needs `pip install armillary[test]`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

Run = Callable[[], np.ndarray]


def prepare_armillary(path: Path, x: dict[str, np.ndarray]) -> tuple[Run, dict[str, float]]:
    import armillary
    from armillary import relay
    from armillary.contrib import graph_executor

    start = time.perf_counter()
    module, params = relay.frontend.from_onnx(path)
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm", params=params)
    seconds = time.perf_counter() - start
    executor = graph_executor.GraphModule(library["default"](armillary.cpu(0)))
    for name, value in x.items():
        executor.set_input(name, value)

    def run() -> np.ndarray:
        executor.run()
        return executor.get_output(0).numpy()

    return run, {"compile_s": seconds}


def prepare_onnxruntime(path: Path, x: dict[str, np.ndarray], threads: int) -> tuple[Run, dict[str, float]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    start = time.perf_counter()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    seconds = time.perf_counter() - start
    return lambda: session.run(None, x)[0], {"load_s": seconds}


def measure(run: Run, seconds: float) -> list[float]:
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def compare(path: Path, threads: int, rounds: int, seconds: float) -> dict[str, object]:
    """All engines on one network in this process, whose thread count is already set."""
    model = onnx.load(path, load_external_data=False)
    weights = {i.name for i in model.graph.initializer}
    rng = np.random.default_rng(0)
    x = {
        i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype("float32")
        for i in model.graph.input
        if i.name not in weights
    }
    engines = {"armillary": prepare_armillary(path, x), "onnxruntime": prepare_onnxruntime(path, x, threads)}
    outputs = {name: run() for name, (run, _) in engines.items()}
    scale = float(np.abs(outputs["onnxruntime"]).max())
    error = float(np.abs(outputs["armillary"] - outputs["onnxruntime"]).max()) / scale
    times: dict[str, list[list[float]]] = {name: [] for name in engines}
    names = list(engines)
    for index in range(rounds):
        for name in names[index % 2 :] + names[: index % 2]:
            times[name].append(measure(engines[name][0], seconds))
    result: dict[str, object] = {"network": path.stem, "threads": threads, "relative_error": error}
    for name, lists in times.items():
        result[name] = {
            "median_ms": statistics.median(statistics.median(t) for t in lists),
            "min_ms": min(min(t) for t in lists),
            **engines[name][1],
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+", type=Path, help="ONNX files")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # a child process: this many threads, JSON out
    args = parser.parse_args()
    if args.one:
        print(json.dumps(compare(args.networks[0], args.one, args.rounds, args.seconds)))
        return
    rows = [run_child(path, int(n), args) for path in args.networks for n in args.threads.split(",")]
    table = Table("network", "threads", "Armillary min / median", "ONNX Runtime min / median", "ratio", "rel. error")
    for row in rows:
        ours, theirs = row["armillary"], row["onnxruntime"]
        cells = [f"{e['min_ms']:.2f} / {e['median_ms']:.2f} ms" for e in (ours, theirs)]
        ratio = f"{ours['median_ms'] / theirs['median_ms']:.2f}"
        table.add_row(row["network"], str(row["threads"]), *cells, ratio, f"{row['relative_error']:.1e}")
    Console().print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


def run_child(path: Path, threads: int, args: argparse.Namespace) -> dict:
    """Each thread count gets a fresh process, so that both engines start with it."""
    options = {"--one": threads, "--rounds": args.rounds, "--seconds": args.seconds}
    command = [sys.executable, __file__, str(path), *(str(word) for pair in options.items() for word in pair)]
    environment = os.environ | {"ARMILLARY_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
