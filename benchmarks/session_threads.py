"""One session shared by threads: how many answers are wrong, and its throughput beside the best use of GraphModules.

    python benchmarks/session_threads.py [--runs 100000] [--threads 8] [--rounds 20]

In: nothing; a small convolutional network is built and exported. Out: on standard output, wrong answers of all runs,
and runs a second: of a session that all threads share, of one GraphModule with all cores, of two and of one for each
thread that keep to their thread. Invariant: every run has one of 64 inputs, and its answer is compared with what that
input gave alone, bit for bit; the ways are timed in turns, and of each the fastest turn counts (the session's turns
are four times as long as the others', which does not help it).
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import armillary
from armillary import relay
from armillary.contrib.graph_executor import GraphModule
from armillary.ir import IRModule
from armillary.runtime import config_threadpool

_INPUTS = 64
Array = np.ndarray
Run = Callable[[Array], Array]


def network() -> IRModule:
    """Six convolutions of 32 channels over 28 by 28 pixels, a pool and a product."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> relay.Constant:
        return relay.const((rng.standard_normal(shape) / 16).astype("float32"))

    y = x = relay.var("x", shape=(1, 3, 28, 28))
    for channels in (3, 32, 32, 32, 32, 32):
        y = relay.nn.relu(relay.nn.conv2d(y, weight(32, channels, 3, 3), padding=(1, 1)))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y))
    return IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.nn.dense(y, weight(10, 32)))))


def in_threads(runs: list[Run], count: int, inputs: list[Array], wanted: list[Array]) -> tuple[float, float, int]:
    """Seconds and processor seconds that `count` runs take, spread over a thread for each of `runs`; wrong answers."""
    wrong, start = [0] * len(runs), threading.Barrier(len(runs) + 1)

    def work(number: int) -> None:
        start.wait()
        for k in range(number, count, len(runs)):
            result = runs[number](inputs[k % _INPUTS])
            wrong[number] += not np.array_equal(result, wanted[k % _INPUTS])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(runs))]
    for thread in threads:
        thread.start()
    start.wait()
    began, spent = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began, time.process_time() - spent, sum(wrong)


def graph_module(package: str) -> Run:
    """A GraphModule of its own."""
    module = GraphModule(armillary.runtime.load_module(package)["default"](armillary.cpu()))

    def run(x: Array) -> Array:
        module.run(x=x)
        return np.asarray(module.get_output(0).numpy())

    return run


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        package = str(Path(folder) / "net.tar")
        relay.build(network(), "llvm").export_library(package)
        rng = np.random.default_rng(1)
        inputs = [rng.standard_normal((1, 3, 28, 28)).astype("float32") for _ in range(_INPUTS)]
        alone = graph_module(package)
        wanted = [alone(x) for x in inputs]
        session = armillary.InferenceSession(package)

        def shared(x: Array) -> Array:
            return np.asarray(session.run(None, {"x": x})[0])

        ways = {f"session, {args.threads} threads": [shared] * args.threads, "1 GraphModule": [graph_module(package)]}
        config_threadpool(nthreads=1)  # an executor has as many threads as the pool had when it was made
        for count in (2, args.threads):
            ways[f"{count} GraphModules of one thread"] = [graph_module(package) for _ in range(count)]
        config_threadpool()
        each = max(1, args.runs // args.rounds)
        rates, wrong, processor = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0), dict.fromkeys(ways, 1e9)
        for turn in range(args.rounds):
            for name, runs in ways.items():
                count = each if turn else args.runs - each * (args.rounds - 1)
                count = count if name.startswith("session") else max(1, each // 4)
                seconds, spent, failures = in_threads(runs, count, inputs, wanted)
                rates[name], wrong[name] = max(rates[name], count / seconds), wrong[name] + failures
                processor[name] = min(processor[name], spent / count)
    first, *others = rates
    for name, rate in rates.items():
        cost = f"{processor[name] * 1e3:.2f} ms of processor a run"
        print(f"{name}: {rate:.0f} runs a second, {cost}, {wrong[name]} wrong")
    print(f"session / best of the others: {rates[first] / max(rates[name] for name in others):.3f} ({args.runs} runs)")


if __name__ == "__main__":
    main()
