"""`torch.compile` by our backend, by Inductor, and eager PyTorch, over the same networks in the same run.

In: names of networks (none: all that can be built here); `--threads 1,2`, `--batch`, `--seconds`. Out: a line for each
network and number of threads: milliseconds a call (the least of interleaved rounds), our part of Inductor's and of
eager's, seconds of the first call (compiling, of empty caches, after a function of two operators has warmed up both
compilers), the largest difference from eager; then medians and counts; rows go to `--log`, which is read first.
Invariant: each network has a process and cache folders of its own; the weights are seeded, nothing is downloaded.
Networks of torch alone need nothing else; others need torchvision, timm and transformers.

    python benchmarks/torch_compile.py encoder resnet18 --threads 1,2
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
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


def least(calls: dict[str, Call], seconds: float) -> dict[str, float]:
    """Seconds of a call of each: the least of interleaved rounds."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            end = time.perf_counter() + seconds / ROUNDS
            while time.perf_counter() < end:
                start = time.perf_counter()
                call()
                found[name] = min(found[name], time.perf_counter() - start)
    return found


@torch.inference_mode()
def measured(name: str, batch: int, threads: int, seconds: float) -> dict[str, Any]:
    """One network at one number of threads."""
    armillary.contrib.torch_backend.register()  # also from a checkout that is not installed
    torch.set_num_threads(threads)
    model, inputs = built(name, batch)
    wanted = leaves(model(*inputs))
    compiled: dict[str, Any] = {}
    for backend in ("armillary", "inductor"):
        torch.compile(lambda y: (y + 1).relu(), backend=backend)(torch.ones(7))
    first: dict[str, float] = {}
    worst, reports = 0.0, list[str]()
    for backend in ("armillary", "inductor"):
        torch._dynamo.reset()
        options: Any = {"threads": threads, "report": reports.append} if backend == "armillary" else {}
        compiled[backend] = torch.compile(model, backend=backend, options=options or None)
        start = time.perf_counter()
        result = compiled[backend](*inputs)
        first[backend] = time.perf_counter() - start
        if backend == "armillary":
            worst = difference(leaves(result), wanted)
    calls: dict[str, Call] = {n: (lambda f=f: f(*inputs)) for n, f in (*compiled.items(), ("eager", model))}
    times = least(calls, seconds)
    return {"times": times, "first": first, "difference": worst, "reports": reports}


def in_process(name: str, batch: int, threads: int, seconds: float) -> dict[str, Any]:
    """`measured` in a process whose caches are empty."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"ARMILLARY_CACHE_DIR": f"{folder}/ours", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
        places |= {"ARMILLARY_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        words = [sys.executable, __file__, name, "--one", "--batch", str(batch), "--threads", str(threads)]
        words += ["--seconds", str(seconds)]
        done = subprocess.run(words, env={**os.environ, **places}, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["?"])[-1]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def shown(name: str, threads: int, row: dict[str, Any]) -> str:
    """A line for one measurement."""
    times, first = row["times"], row["first"]
    parts = "  ".join(f"{n} {1e3 * t:8.3f}" for n, t in times.items())
    ratio, eager = times["armillary"] / times["inductor"], times["armillary"] / times["eager"]
    seconds = "  ".join(f"{n} {t:5.1f} s" for n, t in first.items())
    parted = "" if all("compiled as one" in text for text in row["reports"]) else "  " + "; ".join(row["reports"])[:200]
    return f"{name:20} {threads} {parts}  {ratio:5.2f} {eager:5.2f}  {seconds}  {row['difference']:.0e}{parted}"


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each network and engine")
    parser.add_argument("--log", type=Path, default=Path("torch_compile.jsonl"))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.names[0], options.batch, int(options.threads), options.seconds)))
        return
    rows = [json.loads(line) for line in options.log.read_text().splitlines()] if options.log.exists() else []
    had = {(row["name"], row["threads"]) for row in rows}
    for name in options.names or (*ALONE, *ROWS):
        for threads in (n for n in map(int, options.threads.split(",")) if (name, n) not in had):
            row = {"name": name, "threads": threads, **in_process(name, options.batch, threads, options.seconds)}
            with options.log.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(shown(name, threads, row) if "times" in row else f"{name:20} {row['error'][:200]}", flush=True)
            rows.append(row)
    rows = [row for row in rows if "times" in row]
    ratios = [row["times"]["armillary"] / row["times"]["inductor"] for row in rows]
    compile_ratios = [row["first"]["armillary"] / row["first"]["inductor"] for row in rows]
    if rows:
        faster = sum(ratio < 1 for ratio in ratios)
        print(f"faster than Inductor in {faster} of {len(rows)}, median {statistics.median(ratios):.2f};", end=" ")
        print(f"compile time, median {statistics.median(compile_ratios):.2f} of Inductor's")


if __name__ == "__main__":
    main()
