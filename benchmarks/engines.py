"""The engines that benchmarks/compare.py times, one process each: load a network, then answer commands on stdin.

    python benchmarks/engines.py ENGINE MODEL.onnx THREADS

Prints one JSON line when ready (load seconds, peak memory, output), then for each line `SECONDS` on stdin runs for that
long and prints the milliseconds of every run. Each engine needs its pip package; ncnn also pnnx (and torch) to convert.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

Inputs = dict[str, np.ndarray]
Run = Callable[[], np.ndarray]


def inputs_of(path: Path) -> Inputs:
    """Seeded normal inputs for every graph input that is no initialiser."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    weights = {i.name for i in model.graph.initializer}
    rng = np.random.default_rng(0)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    return {n: rng.standard_normal(s).astype("float32") for n, s in shapes.items() if n not in weights}


def armillary(path: Path, threads: int) -> Run:
    import armillary as arm
    from armillary import relay
    from armillary.contrib import graph_executor

    module, params = relay.frontend.from_onnx(path)
    with arm.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm", params=params)
    network = graph_executor.GraphModule(library["default"](arm.cpu(0)))
    inputs = inputs_of(path)

    def run() -> np.ndarray:
        network.run(**inputs)
        return network.get_output(0).numpy()

    return run


def onnxruntime(path: Path, threads: int) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = inputs_of(path)
    return lambda: session.run(None, inputs)[0]


def openvino(path: Path, threads: int) -> Run:
    import openvino as ov

    core = ov.Core()
    options = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_PRECISION_HINT": "f32"}
    options["INFERENCE_NUM_THREADS"] = str(threads)
    model = core.compile_model(core.read_model(path), "CPU", options)
    request, inputs = model.create_infer_request(), list(inputs_of(path).values())
    return lambda: request.infer(inputs, share_inputs=True, share_outputs=True)[model.output(0)]


def ncnn(path: Path, threads: int) -> Run:
    import ncnn as library

    (x,) = inputs_of(path).values()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, path.name).symlink_to(path.resolve())
        shape = "inputshape=[" + ",".join(map(str, x.shape)) + "]"
        pnnx = Path(sys.executable).with_name("pnnx")
        subprocess.run([pnnx, path.name, "fp16=0", shape], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        net = library.Net()
        net.opt.num_threads, net.opt.use_vulkan_compute = threads, False
        for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
            setattr(net.opt, f"use_{option}", False)
        net.load_param(f"{folder}/{path.stem}.ncnn.param")
        net.load_model(f"{folder}/{path.stem}.ncnn.bin")
    data = library.Mat(x[0]).clone()

    def run() -> np.ndarray:
        with net.create_extractor() as extractor:
            extractor.input("in0", data)
            return np.array(extractor.extract("out0")[1])

    return run


def mnn(path: Path, threads: int) -> Run:
    import MNN

    (x,) = inputs_of(path).values()
    with tempfile.TemporaryDirectory() as folder:
        converted = f"{folder}/model.mnn"
        convert = Path(sys.executable).with_name("mnnconvert")
        command = [convert, "-f", "ONNX", "--modelFile", str(path), "--MNNModel", converted, "--bizCode", "b"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        interpreter = MNN.Interpreter(converted)
    session = interpreter.createSession({"numThread": threads, "precision": "high", "backend": "CPU"})
    source, sink = interpreter.getSessionInput(session), interpreter.getSessionOutput(session)
    held = MNN.Tensor(x.shape, MNN.Halide_Type_Float, x, MNN.Tensor_DimensionType_Caffe)

    def run() -> np.ndarray:
        source.copyFrom(held)
        interpreter.runSession(session)
        shape = sink.getShape()
        out = MNN.Tensor(shape, MNN.Halide_Type_Float, np.empty(shape, np.float32), MNN.Tensor_DimensionType_Caffe)
        sink.copyToHostTensor(out)
        return np.array(out.getNumpyData()).reshape(shape)

    return run


ENGINES = {f.__name__: f for f in (armillary, onnxruntime, openvino, ncnn, mnn)}


def main() -> None:
    engine, path, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what engines print must not mix with the answers
    start = time.perf_counter()
    run = ENGINES[engine](path, threads)
    loaded = time.perf_counter() - start
    output = np.array(run(), copy=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ready = {"load_s": loaded, "peak_mb": memory, "output": output.ravel().tolist()}
    print(json.dumps(ready), file=answers, flush=True)
    for line in sys.stdin:
        times, end = [], time.perf_counter() + float(line)
        while not times or time.perf_counter() < end:
            begin = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - begin))
        print(json.dumps(times), file=answers, flush=True)


if __name__ == "__main__":
    main()
