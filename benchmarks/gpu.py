"""Compile and time five networks on an OpenCL device, against the CPU's results.

    python benchmarks/gpu.py [--device 0] [--networks resnet-18,vgg-16,net.onnx] [--target "opencl"] [--rounds 20]
        [--kernels 8] [--opt-level 3]

Prints, per network at batch 1: seconds to compile, seconds to load (the driver builds the kernels; again from kept
binaries the next time), the median of a run in ms, the largest error relative to the largest value of the CPU's result,
and, with --kernels, the slowest kernels. A run is timed as the mean of ten in a row, with one wait at the end.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.relay import testing

IN_A_ROW = 10
SEED = 5
NETWORKS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {  # Any: a module and its parameters
    "resnet-18": (lambda: testing.resnet.get_workload(batch_size=1, num_layers=18), (1, 3, 224, 224)),
    "resnet-50": (lambda: testing.resnet.get_workload(batch_size=1, num_layers=50), (1, 3, 224, 224)),
    "mobilenet": (lambda: testing.mobilenet.get_workload(batch_size=1), (1, 3, 224, 224)),
    "vgg-16": (lambda: testing.vgg.get_workload(batch_size=1, num_layers=16), (1, 3, 224, 224)),
    "inception-v3": (lambda: testing.inception_v3.get_workload(batch_size=1), (1, 3, 299, 299)),
}


def measure(name: str, args: argparse.Namespace, device: Any) -> None:  # Any: a Device
    """One line of the table, and the slowest kernels."""
    module, params, shape, data = _network(name)
    value = np.random.default_rng(SEED).random(shape).astype("float32")
    start = time.perf_counter()
    with armillary.transform.PassContext(opt_level=args.opt_level):
        library = relay.build(module, args.target, params=params)
    built = time.perf_counter()
    graph = graph_executor.GraphModule(library["default"](device))
    loaded = time.perf_counter()
    graph.set_input(data, value)
    graph.run()
    result = graph.get_output(0).numpy()
    first = time.perf_counter()
    wanted = on_cpu(module, params, data, value)
    error = float(np.abs(result - wanted).max() / np.abs(wanted).max())
    times = [graph.module.time(IN_A_ROW) / IN_A_ROW for _ in range(args.rounds)]
    row = (built - start, loaded - built, first - loaded, 1e3 * statistics.median(times), 1e3 * min(times))
    print(f"{name:14}", " ".join(f"{number:9.3f}" for number in row), f"{error:9.1e}", flush=True)
    for row in sorted(graph.module.profile(), key=lambda r: -r.seconds)[: args.kernels]:
        print(f"    {1e6 * row.seconds:9.1f} us  {row.function}")


def _network(name: str) -> tuple[Any, dict[str, Any], tuple[int, ...], str]:  # Any: a module, NDArrays
    """Module, parameters, shape and name of the input: of a network by name, or of an ONNX file."""
    if not name.endswith(".onnx"):
        make, shape = NETWORKS[name]
        module, params = make()
        return module, varied(params), shape, "data"
    module, params = relay.frontend.from_onnx(name)
    variable = module["main"].params[0]
    return module, params, tuple(int(d) for d in variable.type_annotation.shape), variable.name_hint


def varied(params: dict[str, Any]) -> dict[str, Any]:  # Any: NDArrays
    """Parameters for which the result depends on the input: the networks come with weights that give equal logits."""
    random = np.random.default_rng(SEED)
    made = {}
    for name, array in params.items():
        values = np.asarray(array.numpy())
        if name.endswith("weight"):
            fan = max(1, values[0].size)
            values = (random.standard_normal(values.shape) * np.sqrt(2 / fan)).astype(values.dtype)
        made[name] = armillary.nd.array(values)
    return made


def on_cpu(module: Any, params: dict[str, Any], data: str, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The reference (Any: a Relay module, arrays)."""
    graph = graph_executor.GraphModule(relay.build(module, "llvm", params=params)["default"](armillary.cpu()))
    graph.set_input(data, value)
    graph.run()
    result: np.ndarray[Any, Any] = graph.get_output(0).numpy()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--opt-level", type=int, default=3, help="as of armc compile (default: 3)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kernels", type=int, default=0)
    args = parser.parse_args()
    device = armillary.opencl(args.device)
    for name, fact in device.facts().items():
        print(f"{name:8} {fact}")
    print(f"{'network':14} {'compile s':>9} {'load s':>9} {'first s':>9} {'run ms':>9} {'best ms':>9} {'error':>9}")
    for name in args.networks.split(","):
        measure(name, args, device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
