"""Tune networks on an OpenCL device of this machine, for some minutes each, and time them before and after.

    python benchmarks/gpu_tune.py [--minutes 10] [--networks resnet-18,mobilenet-v2,…] [--device 0] [--target opencl]
        [--folder benchmarks/records] [--batch 0] [--rounds 20] [--only-table]

In: names of networks (those of gpu.py, and mobilenet-v2) or ONNX files. Out: for each network a log of trials
`<folder>/<device>/<network>.log`, and a row of a table: ms at batch 1 before and after, in turns, the gain, tasks with
a faster record, trials. Invariant: a call goes on with the trials that the log has; a record counts if it is 2 % faster
than what a build takes by itself. Kernels of a batch are compiled on all CPUs at a time; the device runs one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
import numpy as np  # noqa: E402  (the path comes first)
from gpu import NETWORKS, SEED, on_cpu, varied  # noqa: E402

import armillary  # noqa: E402
from armillary import autotvm, relay  # noqa: E402
from armillary.autotvm.record import (  # noqa: E402
    Pair,
    last_of_each,
    load_from_file,
)
from armillary.autotvm.task.dispatcher import spelled_out  # noqa: E402
from armillary.autotvm.tuner.names import make_tuner  # noqa: E402
from armillary.autotvm.tuner.shared_time import tune_together  # noqa: E402
from armillary.contrib import graph_executor  # noqa: E402
from armillary.relay.testing import layers  # noqa: E402
from armillary.relay.testing.init import create_workload  # noqa: E402
from armillary.transform import PassContext  # noqa: E402

WORTH = 0.98  # of the time of what a build takes: a record counts
IN_A_ROW = 10
MOST_AT_ONCE = 16  # trials of a batch
V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2() -> tuple[Any, dict[str, Any]]:  # Any: a module, NDArrays
    """Inverted residuals as published, at batch 1."""

    def unit(x: Any, name: str, out: int, kernel: int, stride: int = 1, groups: int = 1, clips: bool = True) -> Any:
        sizes: dict[str, Any] = {
            "kernel_size": (kernel, kernel),
            "padding": (kernel // 2,) * 2,
            "strides": (stride,) * 2,
        }
        y = layers.conv2d(x, name=f"{name}_conv", channels=out, groups=groups, **sizes)
        y = layers.batch_norm_infer(y, epsilon=1e-5, name=f"{name}_bn")
        return relay.clip(y, 0.0, 6.0) if clips else y

    x, channels = unit(relay.var("data", shape=(1, 3, 224, 224)), "first", 32, 3, 2), 32
    for expand, out, repeats, stride in V2:
        for place in range(repeats):
            name, wide, y = f"b{out}_{place}", channels * expand, x
            y = unit(y, f"{name}_wide", wide, 1) if expand > 1 else y
            y = unit(y, f"{name}_depthwise", wide, 3, stride if place == 0 else 1, wide)
            y = unit(y, f"{name}_narrow", out, 1, clips=False)
            x, channels = (relay.add(x, y) if place else y), out
    x = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(unit(x, "last", 1280, 1)))
    x = relay.nn.softmax(layers.dense_add_bias(x, units=1000, name="fc"))
    return create_workload(layers.function_of(x))


def network_of(name: str) -> tuple[Any, dict[str, Any], tuple[int, ...], str]:  # Any: a module, NDArrays
    """Module, parameters, shape and name of the input."""
    if name.endswith(".onnx"):
        module, params = relay.frontend.from_onnx(name)
        variable = module["main"].params[0]
        return module, params, tuple(int(d) for d in variable.type_annotation.shape), variable.name_hint
    make, shape = {**NETWORKS, "mobilenet-v2": (mobilenet_v2, (1, 3, 224, 224))}[name]
    module, params = make()
    return module, varied(params), shape, "data"


def built(args: argparse.Namespace, given: Any, records: list[Pair], value: Any) -> Any:  # Any: as network_of; arrays
    """The executor of a network with records, and its result."""
    module, params, _, data = given
    with PassContext(opt_level=3), autotvm.ApplyHistoryBest(records, warns=False):
        library = relay.build(module, args.target, params=params)
    graph = graph_executor.GraphModule(library["default"](armillary.opencl(args.device)))
    graph.set_input(data, value)
    graph.run()
    return graph


def useful(log: Path, tasks: list[Any]) -> list[Pair]:  # Any: tasks
    """The best record of each task, if it is faster than what a build takes by itself or the log does not have that."""
    found = last_of_each(load_from_file(log, report=False)) if log.exists() else []
    kept = []
    for task in tasks:
        mine = [pair for pair in found if spelled_out(pair[0].task.workload) == spelled_out(task.workload)]
        if not mine:
            continue
        own = next(iter(task.template.estimates(task)), (-1, 0.0))[0]
        limit = min(
            (r.mean for g, r in mine if task.config_space.index_of(g.config.entity_map) == own), default=math.inf
        )
        best = min(mine, key=lambda pair: pair[1].mean)
        if best[1].mean < WORTH * limit:
            kept.append(best)
    return kept


def measure(name: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:  # Any: numbers
    """Tune one network and time it; a row of the table."""
    start, given = time.monotonic(), network_of(name)
    module, params, shape, data = given
    value = np.random.default_rng(SEED).random(shape).astype("float32")
    before = built(args, given, [], value)
    tasks = autotvm.task.extract_from_program(module["main"], target=args.target, params=params)
    log, since = folder / f"{Path(name).stem}.log", time.monotonic()
    print(f"{name}: {len(tasks)} tasks, default ready after {since - start:.1f} s", flush=True)
    if not args.only_table:
        tune_tasks(args, tasks, log)
    spent = time.monotonic() - since
    records = useful(log, tasks)
    after = built(args, given, records, value) if records else before
    times = [[1e3 * g.module.time(IN_A_ROW) / IN_A_ROW for g in (before, after)] for _ in range(args.rounds)]
    wanted, got = on_cpu(module, params, data, value), after.get_output(0).numpy()
    rows = list(load_from_file(log, report=False)) if log.exists() else []
    first = {(g.task.workload, g.config.key()): r.error_no for g, r in rows}
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    return {
        "network": name,
        "untuned ms": round(medians[0], 4),
        "tuned ms": round(medians[1], 4),
        "faster %": round(100 * (statistics.median(a / b for a, b in times) - 1), 1),
        "tasks": len(tasks),
        "faster records": len(records),
        "trials": len(first),
        "failed": sum(map(bool, first.values())),
        "seconds": round(spent),
        "error": float(np.abs(got - wanted).max() / np.abs(wanted).max()),
    }


def tune_tasks(args: argparse.Namespace, tasks: list[Any], log: Path) -> None:  # Any: tasks
    """Trials for `args.minutes`, on top of those of the log."""
    jobs = args.batch or min(MOST_AT_ONCE, len(os.sched_getaffinity(0)))
    runner = autotvm.LocalRunner(args.timeout, number=10, repeat=3, min_repeat_ms=args.repeat_ms, cooldown_interval=0)
    option = autotvm.measure_option(autotvm.LocalBuilder(timeout=60, n_parallel=jobs), runner)
    tuners = [make_tuner(args.tuner, task) for task in tasks]
    held = sum(tuner.resume(load_from_file(log, report=False)) for tuner in tuners) if log.exists() else 0
    print(f"  {held} trials at hand", flush=True)
    last = time.monotonic()

    def progress(tuner: Any, inputs: Any, results: Any) -> None:  # Any: as callbacks get them
        nonlocal last
        good, now = [r for r in results if not r.error_no], time.monotonic()
        message = "" if good or not results else f" {results[0].error[:200]}"
        rate = f"{len(results)} in {now - last:.1f} s, {len(good)} good, best {tuner.best_flops / 1e9:.0f} GFLOPS"
        print(f"  {tuner.task.name}{[a[1] for a in tuner.task.args[:2]]}: {rate}{message}", flush=True)
        last = now

    callbacks = [autotvm.callback.log_to_file(str(log), fsync=False), progress]
    try:
        tune_together(tuners, option, 60 * args.minutes, callbacks, jobs)
    finally:
        option["builder"].close()
        option["runner"].close()


def table(rows: list[dict[str, Any]]) -> str:  # Any: numbers
    """As Markdown."""
    names = list(rows[0])
    lines = [" | ".join(names), " | ".join("---" for _ in names)]
    lines += [" | ".join(f"{row[n]:.1e}" if n == "error" else str(row[n]) for n in names) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="resnet-18,mobilenet-v2,vgg-16,inception-v3,resnet-50")
    parser.add_argument("--minutes", type=float, default=10, help="of tuning, for each network (default: 10)")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--folder", type=Path, default=ROOT / "benchmarks" / "records")
    parser.add_argument("--batch", type=int, default=0, help="trials of a batch (default: one a CPU, at most 16)")
    parser.add_argument("--tuner", default="model", help="as in armc tune (default: model)")
    parser.add_argument("--timeout", type=float, default=20, help="seconds of one trial (default: 20)")
    parser.add_argument("--repeat-ms", type=float, default=2, help="least length of a time (default: 2)")
    parser.add_argument("--rounds", type=int, default=20, help="of timing (default: 20)")
    parser.add_argument("--only-table", action="store_true", help="time with the records that are there")
    args = parser.parse_args()
    device = armillary.opencl(args.device).facts()["name"]
    folder = args.folder / re.sub(r"[^a-z0-9]+", "-", str(device).lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{device}; records in {folder}", flush=True)
    rows = []
    for name in args.networks.split(","):
        rows.append(measure(name, args, folder))
        (folder / "table.json").write_text(json.dumps(rows, indent=1))
        print(table(rows), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
