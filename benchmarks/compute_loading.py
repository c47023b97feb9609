"""Whether a graph whose weights come from files runs slower than one that loads none (text: "speed test").

Run: `ARMILLARY_NUM_THREADS=1 python benchmarks/compute_loading.py [cl]`. Out: a line for each kind of weights: what
configuring took, and the least time of a run, in turns. Invariant: the networks are the same but for their weights.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from armillary.compute import (
    ActivationFunction,
    ActivationLayerInfo,
    CLScheduler,
    DataType,
    PadStrideInfo,
    TensorInfo,
    TensorShape,
)
from armillary.compute.graph import (
    ActivationLayer,
    ConvolutionLayer,
    DummyAccessor,
    Graph,
    ITensorAccessor,
    NumPyBinLoader,
    RandomAccessor,
    Target,
    Tensor,
)

LAYERS, CHANNELS, SIDE, ROUNDS = 8, 64, 56, 40
INFO = TensorInfo(TensorShape(SIDE, SIDE, CHANNELS), 1, DataType.F32)


def accessor(kind: str, folder: Path, layer: int) -> ITensorAccessor:
    """Who fills the weights of a layer: nobody, random numbers, or a file."""
    if kind != "files":
        return DummyAccessor() if kind == "none" else RandomAccessor(-0.05, 0.05)
    file = folder / f"{layer}.npy"
    shape = (CHANNELS, CHANNELS, 3, 3)
    np.save(file, np.random.default_rng(layer).uniform(-0.05, 0.05, shape).astype(np.float32))
    return NumPyBinLoader(str(file))


def network(kind: str, target: Target, folder: Path) -> Graph:
    """Convolutions of 3x3, one after another."""
    graph, relu = Graph(), ActivationLayerInfo(ActivationFunction.RELU)
    graph << target << Tensor(INFO, RandomAccessor(0, 1))
    for layer in range(LAYERS):
        weights = accessor(kind, folder, layer)
        graph << ConvolutionLayer(3, 3, CHANNELS, weights, None, PadStrideInfo(1, 1, 1, 1)) << ActivationLayer(relu)
    return graph << Tensor(DummyAccessor())


def main() -> None:
    """Measure in turns."""
    target = Target.CL if sys.argv[1:] == ["cl"] else Target.NEON
    if target is Target.CL:
        CLScheduler.get().default_init()
    graphs, best = {}, dict[str, float]()
    with TemporaryDirectory() as name:
        for kind in ("none", "random", "files"):
            begin = time.perf_counter()
            graphs[kind] = network(kind, target, Path(name))
            graphs[kind].configure()
            graphs[kind].run()
            print(f"{kind}: configured and run once in {time.perf_counter() - begin:.2f} s")
    for _ in range(ROUNDS):
        for kind, graph in graphs.items():
            begin = time.perf_counter()
            graph.run()
            best[kind] = min(best.get(kind, 1e9), time.perf_counter() - begin)
    for kind, seconds in best.items():
        print(f"{kind}: {seconds * 1e3:.2f} ms a run, {seconds / best['none']:.3f} of the one without weights")


if __name__ == "__main__":
    main()
