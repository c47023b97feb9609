"""One engine that has loaded a network and runs it when told: the process behind `armc bench`.

In: the engine's name, a file, inputs, threads and streams as arguments; then on stdin a line of seconds for each turn.
Out: on stdout a line of JSON when it is loaded (seconds, a file with its outputs), and one for each turn: milliseconds
of every inference, and the seconds of the turn. Invariant: a stream is a thread with an executor of its own; other
engines than ours are imported here alone. The other end: `race.py`.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.contrib.graph_executor import GraphModule
from armillary.errors import ArmillaryError
from armillary.runtime.device import cpu
from armillary.runtime.module import load_module
from armillary.runtime.threads import config_threadpool

Inputs = dict[str, Array]
Run = Callable[[], list[Array]]
Load = Callable[[str, Inputs, int, int], list[Run]]


def _ours(file: str, inputs: Inputs, threads: int, streams: int) -> list[Run]:
    config_threadpool(0, threads)
    library = load_module(file)

    def made() -> Run:
        network = GraphModule(library["default"](cpu(0)))
        count = network.get_num_outputs()

        def run() -> list[Array]:
            network.run(inputs)
            return [network.get_output(index).numpy() for index in range(count)]

        return run

    return [made() for _ in range(streams)]


def _onnxruntime(file: str, inputs: Inputs, threads: int, streams: int) -> list[Run]:
    ort = importlib.import_module("onnxruntime")  # a library without types
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return [lambda: [np.asarray(value) for value in session.run(None, inputs)]] * streams


def _openvino(file: str, inputs: Inputs, threads: int, streams: int) -> list[Run]:
    ov = importlib.import_module("openvino")  # a library without types
    options = {"INFERENCE_NUM_THREADS": str(threads * streams), "NUM_STREAMS": str(streams)}
    options["INFERENCE_PRECISION_HINT"] = "f32"
    model = ov.Core().compile_model(file, "CPU", options)

    def made() -> Run:
        request = model.create_infer_request()

        def run() -> list[Array]:
            results = request.infer(inputs, share_inputs=True)
            return [np.asarray(results[output]) for output in model.outputs]

        return run

    return [made() for _ in range(streams)]


ENGINES: dict[str, tuple[Load, str]] = {  # how to load a file, and the package that must be installed
    "armillary": (_ours, "armillary"),
    "onnxruntime": (_onnxruntime, "onnxruntime"),
    "openvino": (_openvino, "openvino"),
}


def timed_round(streams: Sequence[Run], seconds: float) -> tuple[list[float], float]:
    """Run all streams for a while: milliseconds of every inference, and the seconds that it took."""
    times: list[list[float]] = [[] for _ in streams]
    start = time.perf_counter()

    def work(run: Run, times: list[float]) -> None:
        while not times or time.perf_counter() < start + seconds:
            begin = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - begin))

    others = [threading.Thread(target=work, args=pair) for pair in list(zip(streams, times, strict=True))[1:]]
    for other in others:
        other.start()
    work(streams[0], times[0])
    for other in others:
        other.join()
    return [t for row in times for t in row], time.perf_counter() - start


def main(arguments: Sequence[str]) -> int:
    """Load, answer, and serve turns until stdin ends."""
    name, file, inputs, outputs, threads, streams = arguments
    with np.load(inputs) as archive:
        arrays = {key: archive[key] for key in archive.files}
    begin = time.perf_counter()
    try:
        runs = ENGINES[name][0](file, arrays, int(threads), int(streams))
        np.savez(outputs, *[np.array(output) for output in runs[0]()])
    except (ArmillaryError, RuntimeError, ValueError, ImportError) as error:
        print(json.dumps({"failed": str(error)}), flush=True)
        return 1
    print(json.dumps({"load_s": time.perf_counter() - begin}), flush=True)
    for line in sys.stdin:
        times, seconds = timed_round(runs, float(line))
        print(json.dumps({"times": times, "seconds": seconds}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
