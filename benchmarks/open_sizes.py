"""One compile for every size beside a compile for each size, and beside other engines, in one process.

    python benchmarks/open_sizes.py [resnet18 mobilenet_v1 … | model.onnx …] [--sizes "batch=1,height=32,width=32; …"]
                                    [--threads 1] [--rounds 30]

In: networks of networks.py, whose batch, height and width are opened, or files with open axes, whose names `--sizes`
gives numbers, `;` between sizes. Out: a table on standard output: at each size the milliseconds of the network that
was compiled once, its share of the time of one that was compiled for this size, of ONNX Runtime's and of OpenVINO's
where they are installed; the greatest difference from the last of them; medians of the shares. Invariant: all ways
get the same inputs and take turns; of each the least time counts, of the processor with one thread and of the clock
with more.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
from networks import NETWORKS, build

import armillary
from armillary import relay
from armillary.contrib.graph_executor import GraphModule
from armillary.runtime import config_threadpool

PICTURES = "1,32,32; 1,64,64; 1,96,96; 2,64,128; 4,56,56; 1,224,224"
Sizes = dict[str, int]
Feed = dict[str, np.ndarray]
Run = Callable[[], list[np.ndarray]]


def opened(name: str) -> onnx.ModelProto:
    """A network of networks.py with a batch, a height and a width that are names; or a file as it is."""
    if name not in NETWORKS:
        return onnx.load(name)
    model = build(name)
    shape = model.graph.input[0].type.tensor_type.shape.dim
    for axis, size in ((0, "batch"), (2, "height"), (3, "width")):
        shape[axis].dim_param = size
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


def fixed(model: onnx.ModelProto, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """The model with numbers for the names."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for value in [*result.graph.input, *result.graph.output]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return result


def parsed(text: str) -> list[Sizes]:
    """Sizes of "batch=1,seq=8; batch=4,seq=37"; of numbers alone they are batch, height and width."""
    rows = [part.split(",") for part in text.split(";") if part.strip()]
    names = ("batch", "height", "width")
    try:
        pairs = [[item.split("=") if "=" in item else [names[k], item] for k, item in enumerate(row)] for row in rows]
        return [{name.strip(): int(size) for name, size in row} for row in pairs]
    except (IndexError, ValueError):
        raise SystemExit(f'--sizes {text!r}: wanted "batch=1,seq=8; batch=4,seq=37"') from None


def inputs_of(model: onnx.ModelProto, sizes: Mapping[str, int]) -> Feed:
    """Normal floats; whole numbers from 0 to 9, a mask of ones."""
    rng, feed = np.random.default_rng(0), {}
    weights = {weight.name for weight in model.graph.initializer}
    for value in model.graph.input:
        if value.name in weights:
            continue
        dims = value.type.tensor_type.shape.dim
        missing = {dim.dim_param for dim in dims if dim.dim_param} - set(sizes)
        if missing:
            raise SystemExit(f"--sizes gives no number for {', '.join(sorted(missing))} of the input {value.name}")
        shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in dims]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype.kind == "f":
            feed[value.name] = rng.standard_normal(shape).astype(dtype)
        else:
            feed[value.name] = np.ones(shape, dtype) if "mask" in value.name else rng.integers(0, 9, shape, dtype)
    return feed


def compiled(model: onnx.ModelProto) -> GraphModule:
    """Ours, for this CPU; open axes stay open."""
    module, params = relay.frontend.from_onnx(model)
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm -mcpu=native", params=params)
    return GraphModule(library["default"](armillary.cpu()))


def ours(network: GraphModule, feed: Feed) -> Run:
    """A run with the inputs set before, as ONNX Runtime has them bound."""
    for name, value in feed.items():
        network.set_input(name, value)

    def run() -> list[np.ndarray]:
        network.run()
        return [network.get_output(k).numpy() for k in range(network.get_num_outputs())]

    return run


def by_onnxruntime(model: onnx.ModelProto, threads: int) -> Callable[[Feed], Run]:
    """ONNX Runtime's run for a feed."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feed: lambda: [np.asarray(value) for value in session.run(None, feed)]


def by_openvino(model: onnx.ModelProto, threads: int) -> Callable[[Feed], Run]:
    """OpenVINO's run for a feed, in float32 as the others."""
    import openvino

    core = openvino.Core()
    how = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1}
    request = core.compile_model(core.read_model(model.SerializeToString(), b""), "CPU", how).create_infer_request()
    return lambda feed: lambda: list(request.infer(feed, share_inputs=True, share_outputs=True).values())


PEERS = {"onnxruntime": ("ONNX Runtime", by_onnxruntime), "openvino": ("OpenVINO", by_openvino)}


def least(runs: list[Run], rounds: int, clock: Callable[[], float]) -> list[float]:
    """The least seconds of each, by turns in changing order: threads of an engine spin on into the next run."""
    best, order, rng = [float("inf")] * len(runs), list(enumerate(runs)), random.Random(0)
    for _ in range(rounds):
        rng.shuffle(order)
        for k, run in order:
            start = clock()
            run()
            best[k] = min(best[k], clock() - start)
    return best


def measure(name: str, sizes: list[Sizes], threads: int, rounds: int) -> None:
    """Print a network's rows."""
    model, start = opened(name), time.perf_counter()
    once = compiled(model)
    print(f"\n{Path(name).stem}, {threads} threads; compiled once in {time.perf_counter() - start:.1f} s", flush=True)
    installed = [peer for package, peer in PEERS.items() if importlib.util.find_spec(package) is not None]
    titles = ["of fixed", *(f"of {title}" for title, _ in installed)]
    print(f"{'sizes':>32}  once, ms  {'  '.join(titles)}  difference")
    peers, shares = [make(model, threads) for _, make in installed], []
    clock = time.process_time if threads == 1 else time.perf_counter
    for row in sizes:
        feed = inputs_of(model, row)
        runs = [ours(once, feed), ours(compiled(fixed(model, row)), feed), *(peer(feed) for peer in peers)]
        results = [run() for run in runs]
        scale = max(float(np.abs(value).max()) for value in results[-1])
        difference = max(float(np.abs(a - b).max()) for a, b in zip(results[0], results[-1], strict=True)) / scale
        times = least(runs, rounds, clock)
        shares.append([times[0] / other for other in times[1:]])
        label = ",".join(f"{key}={value}" for key, value in row.items())
        print(f"{label:>32}  {times[0] * 1e3:8.3f}  {columns(shares[-1], titles)}  {difference:10.1e}", flush=True)
    medians = [statistics.median(column) for column in zip(*shares, strict=True)]
    print(f"{'median':>32}  {'':8}  {columns(medians, titles)}")


def columns(shares: list[float], titles: list[str]) -> str:
    """A share under each title."""
    return "  ".join(f"{share:>{len(title)}.2f}" for share, title in zip(shares, titles, strict=True))


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["resnet18"], help=f"files, or of {', '.join(NETWORKS)}")
    parser.add_argument("--sizes", default=PICTURES, help=f"default: {PICTURES}")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--rounds", type=int, default=30, help="default: 30")
    args = parser.parse_args()
    config_threadpool(nthreads=args.threads)
    for name in args.models:
        if name not in NETWORKS and not Path(name).is_file():
            parser.error(f"{name}: no such file, and none of {', '.join(NETWORKS)}")
        measure(name, parsed(args.sizes), args.threads, args.rounds)


if __name__ == "__main__":
    main()
