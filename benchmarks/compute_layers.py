"""Layers of `armillary.compute` against the same Relay function in a graph executor, in turns: least times.

Run: `ARMILLARY_NUM_THREADS=1 python benchmarks/compute_layers.py [threads]`, the same number in both. Out: a table in
Markdown. Invariant: both compile one expression with the same options; what differs is who calls the kernels.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary import compute, relay
from armillary.compute import CPPScheduler, DataType, PadStrideInfo, Scheduler, Tensor, TensorInfo, TensorShape
from armillary.contrib.graph_executor import GraphModule
from armillary.runtime import cpu
from armillary.transform import PassContext

ROUNDS, SECONDS = 40, 0.01
SAME = PadStrideInfo(1, 1, 1, 1)


def tensor(*sizes: int) -> Tensor:
    """An allocated tensor of random values."""
    made = Tensor()
    made.allocator().init(TensorInfo(TensorShape(*sizes), 1, DataType.F32))
    made.allocator().allocate()
    made.array()[...] = np.random.default_rng(0).standard_normal(made.array().shape)
    return made


def cases() -> dict[str, tuple[Any, dict[str, object]]]:  # Any: a configured function
    """Functions with the options that they compile with."""
    found: dict[str, tuple[Any, dict[str, object]]] = {}
    for name, sizes, kernel in (
        ("NEGEMMConvolutionLayer", (56, 56, 64), (3, 3, 64, 64)),
        ("NEGEMMConvolutionLayer", (28, 28, 128), (1, 1, 128, 256)),
        ("NEWinogradConvolutionLayer", (56, 56, 64), (3, 3, 64, 64)),
        ("NEDepthwiseConvolutionLayer", (56, 56, 128), (3, 3, 128)),
    ):
        layer, output = getattr(compute, name)(), Tensor()
        info = SAME if kernel[0] == 3 else PadStrideInfo()
        layer.configure(tensor(*sizes), tensor(*kernel), tensor(kernel[-1]), output, info)
        output.allocator().allocate()
        found[f"{name} {'x'.join(map(str, sizes))}, {'x'.join(map(str, kernel))}"] = layer, layer._config
    product, output = compute.NEGEMM(), Tensor()
    product.configure(tensor(512, 256), tensor(512, 512), None, output)
    output.allocator().allocate()
    found["NEGEMM 256x512x512"] = product, {}
    return found


def executor(function: Any, config: dict[str, object]) -> Callable[[], None]:  # Any: see `cases`
    """The same expression, built by itself."""
    body = function.body
    with PassContext(opt_level=3, config=config):
        library = relay.build(
            body.module(), target="llvm", params={name: body.values_of(name) for name in body.weights}
        )
    module = GraphModule(library["default"](cpu(0)))
    for name, given in body.inputs.items():
        module.set_input(name, np.ascontiguousarray(given.array()).reshape(body.shapes[name]))
    return lambda: module.run()


def least(run: Callable[[], None], seconds: float) -> float:
    """The least time of a run, in as many runs as take so long."""
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print the table."""
    scheduler = CPPScheduler.get()
    scheduler.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    Scheduler.set(scheduler)
    print("| | function, us | executor, us | ratio |\n|---|---|---|---|")
    for name, (function, config) in cases().items():
        other = executor(function, config)
        function.run()
        other()
        times = [float("inf"), float("inf")]
        for _ in range(ROUNDS):
            for n, run in enumerate((function.run, other)):
                times[n] = min(times[n], least(run, SECONDS))
        print(f"| {name} | {times[0] * 1e6:.0f} | {times[1] * 1e6:.0f} | {times[0] / times[1]:.3f} |", flush=True)


if __name__ == "__main__":
    main()
