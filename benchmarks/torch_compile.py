"""`torch.compile` by our backend, by Inductor, and eager PyTorch, over the same networks in the same run.

In: names of networks (none: all that can be built here); `--threads 1,2`, `--batch`, `--seconds`. Out: a line for each
network and number of threads: milliseconds a call (the least of interleaved rounds; processor time at one thread, which
others' load touches less, else the clock's), our part of Inductor's and of eager's, processor seconds of the first call
and of the processes that it starts (compiling, of empty caches, after a function of two operators has warmed up both
compilers), the largest difference from eager; then medians and counts. Rows go to `--log`, one line each as soon as it
is measured, and are not measured again; `--table` prints the log as docs/performance.md has it. Invariant: each network
has a process and cache folders of its own; the weights are seeded, nothing is downloaded. Networks of torch alone need
nothing else; others need torchvision, timm and transformers.

    python benchmarks/torch_compile.py encoder resnet18 --threads 1,2
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._inductor.codegen.cpp
import torch._inductor.compile_fx
import torch._inductor.cpu_vec_isa
from torch import nn
from torch_doors import difference
from torch_networks import ALONE, alone
from torch_zoo import ROWS, Inputs, network

import armillary.contrib.torch_backend

ROUNDS = 7
Call = Callable[[], Any]


def built(name: str, batch: int) -> tuple[nn.Module, Inputs]:
    """A network and its inputs."""
    if name in ALONE:
        model, x = alone(name, batch)
        return model, (x,)
    model, example = network(name, is_small=False)
    return model, example(batch)


def leaves(result: Any) -> list[torch.Tensor]:
    """The tensors of what a network returns."""
    return [v for v in torch.utils._pytree.tree_leaves(result) if isinstance(v, torch.Tensor)]


def spent() -> float:
    """Processor seconds of this process and of all that it started, living ones too."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile: its parent counts it
            fields = path.read_text().rpartition(")")[2].split()
            number = int(path.parent.name)
            parents[number], ticks[number] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {n for n, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks[n] for n in ours) / os.sysconf("SC_CLK_TCK")


def least(calls: dict[str, Call], seconds: float, clock: Callable[[], float]) -> dict[str, float]:
    """Seconds of a call of each by a clock: the least of interleaved rounds."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            end = time.perf_counter() + seconds / ROUNDS
            while time.perf_counter() < end:
                start = clock()
                call()
                best[name] = min(best[name], clock() - start)
    return best


@torch.inference_mode()
def measured(name: str, batch: int, threads: int, seconds: float) -> dict[str, Any]:
    """One network at one number of threads."""
    torch.set_num_threads(threads)
    warm_up()
    model, inputs = built(name, batch)
    wanted = leaves(model(*inputs))
    compiled: dict[str, Any] = {}
    first: dict[str, float] = {}
    worst, reports = 0.0, list[str]()
    for backend in ("armillary", "inductor"):
        options: Any = {"threads": threads, "report": reports.append} if backend == "armillary" else {}
        compiled[backend] = torch.compile(model, backend=backend, options=options or None)
        start = spent()
        result = compiled[backend](*inputs)
        first[backend] = spent() - start
        if backend == "armillary":
            worst = difference(leaves(result), wanted)
    calls: dict[str, Call] = {n: (lambda f=f: f(*inputs)) for n, f in (*compiled.items(), ("eager", model))}
    times = least(calls, seconds, time.process_time if threads == 1 else time.perf_counter)
    return {"times": times, "first": first, "difference": worst, "reports": reports}


def warm_up() -> None:
    """Compile a function of two operators by both."""
    armillary.contrib.torch_backend.register()  # also from a checkout that is not installed
    torch._inductor.config.compile_threads = 1  # no further processes: it is their sum that counts
    for backend in ("armillary", "inductor"):
        torch.compile(lambda y: (y + 1).relu(), backend=backend)(torch.ones(7))


@functools.cache
def warm() -> Path:
    """A folder of caches: `warm` after a function of two operators (what the compiler and the processor can do, headers
    that are compiled before), and a place `now`, where a copy of it serves one network."""
    folder = Path(tempfile.mkdtemp(prefix="torch_compile_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["ARMILLARY_CACHE_DIR"] = str(folder / "now" / "ours")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "now" / "inductor")
    torch._inductor.cpu_vec_isa.valid_vec_isa_list()  # asks the compiler; processes that are forked know it
    process = multiprocessing.get_context("fork").Process(target=warm_up)
    process.start()
    process.join()
    (folder / "now").rename(folder / "warm")
    return folder


def in_process(name: str, batch: int, threads: int, seconds: float, longest: float) -> dict[str, Any]:
    """`measured` in a process whose caches are empty: forked, as one that imports anew takes as long as it compiles."""
    folder = warm()
    shutil.rmtree(folder / "now", ignore_errors=True)
    shutil.copytree(folder / "warm", folder / "now")
    answer = folder / "now" / "row.json"

    def work() -> None:
        os.environ.update({"ARMILLARY_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)})
        os.environ["ARMILLARY_COMPILE_JOBS"] = "1"  # as `compile_threads` of Inductor
        try:
            row = measured(name, batch, threads, seconds)
        except Exception as error:  # of any of the parties, which is the result
            row = {"error": f"{type(error).__name__}: {error}"[:1000]}
        answer.write_text(json.dumps(row))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(longest)
    if not answer.exists():
        ended = f"ended with {process.exitcode}" if process.exitcode is not None else f"not done after {longest:.0f} s"
        process.kill()
        process.join()
        return {"error": ended}
    row: dict[str, Any] = json.loads(answer.read_text())
    return row


def shown(name: str, threads: int, row: dict[str, Any]) -> str:
    """A line for one measurement."""
    times, first = row["times"], row["first"]
    parts = "  ".join(f"{n} {1e3 * t:8.3f}" for n, t in times.items())
    ratio, eager = times["armillary"] / times["inductor"], times["armillary"] / times["eager"]
    seconds = "  ".join(f"{n} {t:5.1f} s" for n, t in first.items())
    parted = "" if all("compiled as one" in text for text in row["reports"]) else "  " + "; ".join(row["reports"])[:200]
    return f"{name:20} {threads} {parts}  {ratio:5.2f} {eager:5.2f}  {seconds}  {row['difference']:.0e}{parted}"


def logged(path: Path) -> list[dict[str, Any]]:
    """The rows of a log; what a killed run left half-written is not one."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as docs/performance.md has them, the slowest beside Inductor last."""
    heads = ("network", "threads", "Armillary, ms", "Inductor, ms", "eager, ms", "of Inductor's", "of eager's")
    heads += ("first, s", "Inductor's first, s")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in sorted(rows, key=lambda r: (r["threads"], r["times"]["armillary"] / r["times"]["inductor"])):
        times, first = row["times"], row["first"]
        ours = times["armillary"]
        cells = [row["name"], str(row["threads"])]
        cells += [f"{1e3 * times[n]:.3g}" for n in ("armillary", "inductor", "eager")]
        cells += [f"{ours / times['inductor']:.2f}", f"{ours / times['eager']:.2f}"]
        cells += [f"{first[n]:.0f}" for n in ("armillary", "inductor")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> str:
    """Counts and medians, a line for each number of threads."""
    lines = []
    for threads in sorted({row["threads"] for row in rows}):
        some = [row for row in rows if row["threads"] == threads]
        ratios = [row["times"]["armillary"] / row["times"]["inductor"] for row in some]
        compiling = statistics.median(row["first"]["armillary"] / row["first"]["inductor"] for row in some)
        faster, median = sum(ratio < 1 for ratio in ratios), statistics.median(ratios)
        lines.append(
            f"{threads} threads: faster than Inductor in {faster} of {len(some)}, median {median:.2f}; "
            f"compile time, median {compiling:.2f} of Inductor's"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each network and engine")
    parser.add_argument("--longest", type=float, default=1200.0, help="seconds of a row, compiling by all included")
    parser.add_argument("--log", type=Path, default=Path("torch_compile.jsonl"))
    parser.add_argument("--table", action="store_true", help="print what the log has")
    options = parser.parse_args()
    rows = logged(options.log)
    if options.table:
        done = [row for row in rows if "times" in row]
        print(f"{table(done)}\n\n{summary(done)}")
        return
    had = {(row["name"], row["threads"]) for row in rows}
    for name in options.names or (*ALONE, *ROWS):
        for threads in (n for n in map(int, options.threads.split(",")) if (name, n) not in had):
            row = in_process(name, options.batch, threads, options.seconds, options.longest)
            row = {"name": name, "threads": threads, **row}
            with options.log.open("a") as file:
                file.write("\n" + json.dumps(row))  # begins a line, whatever the last run left
            print(shown(name, threads, row) if "times" in row else f"{name:20} {row['error'][:200]}", flush=True)
            rows.append(row)
    print(summary([row for row in rows if "times" in row]))


if __name__ == "__main__":
    main()
