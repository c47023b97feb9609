"""The engines that the benchmarks compare: how each makes a package from an ONNX file, and runs it.

    python benchmarks/engines.py prepare ENGINE MODEL.onnx FOLDER      make the package: one JSON line
    python benchmarks/engines.py run ENGINE PACKAGE INPUTS.npz THREADS  load it, then answer commands on stdin
    python benchmarks/engines.py direct ENGINE MODEL.onnx INPUTS.npz THREADS FOLDER     both in one process

`run` and `direct` print one JSON line after the first inference (seconds since the process began, seconds of loading
and of the first run, peak memory, outputs); then for each line `SECONDS` on stdin they run for that long and print the
milliseconds of every run. Each engine needs its pip package: onnxruntime, openvino, ncnn with pnnx, MNN.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Inputs = dict[str, Array]
Run = Callable[[], Array]


@dataclass(frozen=True)
class Engine:
    """`prepare` turns an ONNX file into a package in a folder; `load` opens one with inputs and a thread count."""

    prepare: Callable[[Path, Path], Path]
    load: Callable[[Path, Inputs, int], Run]
    files: Callable[[Path], list[Path]] = lambda package: [package]  # what a package consists of
    makes_package: bool = True


# --- Armillary ------------------------------------------------------------------------------------------------------


def _armillary_prepare(model: Path, folder: Path) -> Path:
    import armillary
    from armillary import relay

    module, params = relay.frontend.from_onnx(model)
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm -mcpu=native", params=params)
    package = folder / f"{model.stem}.so"
    library.export_library(package)
    return package


def _armillary_load(package: Path, inputs: Inputs, threads: int) -> Run:
    import armillary
    from armillary.contrib import graph_executor

    library = armillary.runtime.load_module(package)
    network = graph_executor.GraphModule(library["default"](armillary.cpu(0)))

    def run() -> Array:
        network.run(**inputs)
        result: Array = network.get_output(0).numpy()
        return result

    return run


# --- ONNX Runtime: its package is the ONNX file ---------------------------------------------------------------------


def _onnxruntime_load(package: Path, inputs: Inputs, threads: int) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(str(package), options, providers=["CPUExecutionProvider"])
    return lambda: np.asarray(session.run(None, inputs)[0])


# --- OpenVINO -------------------------------------------------------------------------------------------------------


def _openvino_prepare(model: Path, folder: Path) -> Path:
    import openvino as ov  # type: ignore[import-not-found, unused-ignore]

    package = folder / f"{model.stem}.xml"
    ov.save_model(ov.convert_model(str(model)), str(package), compress_to_fp16=False)
    return package


def _openvino_load(package: Path, inputs: Inputs, threads: int) -> Run:
    import openvino as ov  # type: ignore[import-not-found, unused-ignore]

    core = ov.Core()
    options = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_PRECISION_HINT": "f32"}
    options["INFERENCE_NUM_THREADS"] = str(threads)
    model = core.compile_model(core.read_model(str(package)), "CPU", options)
    request, values = model.create_infer_request(), list(inputs.values())
    return lambda: np.asarray(request.infer(values, share_inputs=True, share_outputs=True)[model.output(0)])


# --- ncnn -----------------------------------------------------------------------------------------------------------


def _ncnn_prepare(model: Path, folder: Path) -> Path:
    import onnx

    (value,) = onnx.load(str(model), load_external_data=False).graph.input
    shape = ",".join(str(d.dim_value) for d in value.type.tensor_type.shape.dim)
    link = folder / model.name
    if not link.exists():
        link.symlink_to(model.resolve())
    pnnx = Path(sys.executable).with_name("pnnx")
    command = [str(pnnx), model.name, "fp16=0", f"inputshape=[{shape}]"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / f"{model.stem}.ncnn.param"


def _ncnn_load(package: Path, inputs: Inputs, threads: int) -> Run:
    import ncnn as library  # type: ignore[import-not-found, unused-ignore]

    (x,) = inputs.values()
    net = library.Net()
    net.opt.num_threads, net.opt.use_vulkan_compute = threads, False
    for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
        setattr(net.opt, f"use_{option}", False)
    net.load_param(str(package))
    net.load_model(str(package.with_suffix(".bin")))
    pictures = [library.Mat(picture).clone() for picture in x]  # it has no batches: one picture after another

    def run() -> Array:
        results = []
        for picture in pictures:
            with net.create_extractor() as extractor:
                extractor.input("in0", picture)
                results.append(np.array(extractor.extract("out0")[1]))
        return np.stack(results)

    return run


# --- MNN ------------------------------------------------------------------------------------------------------------


def _mnn_prepare(model: Path, folder: Path) -> Path:
    package = folder / f"{model.stem}.mnn"
    convert = Path(sys.executable).with_name("mnnconvert")
    command = [str(convert), "-f", "ONNX", "--modelFile", str(model), "--MNNModel", str(package), "--bizCode", "b"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return package


def _mnn_load(package: Path, inputs: Inputs, threads: int) -> Run:
    import MNN  # type: ignore[import-not-found, unused-ignore]

    (x,) = inputs.values()
    interpreter = MNN.Interpreter(str(package))
    session = interpreter.createSession({"numThread": threads, "precision": "high", "backend": "CPU"})
    source, sink = interpreter.getSessionInput(session), interpreter.getSessionOutput(session)
    held = MNN.Tensor(x.shape, MNN.Halide_Type_Float, x, MNN.Tensor_DimensionType_Caffe)

    def run() -> Array:
        source.copyFrom(held)
        interpreter.runSession(session)
        shape = sink.getShape()
        out = MNN.Tensor(shape, MNN.Halide_Type_Float, np.empty(shape, np.float32), MNN.Tensor_DimensionType_Caffe)
        sink.copyToHostTensor(out)
        return np.array(out.getNumpyData()).reshape(shape)

    return run


ENGINES = {
    "armillary": Engine(_armillary_prepare, _armillary_load),
    "onnxruntime": Engine(lambda model, folder: model, _onnxruntime_load, makes_package=False),
    "openvino": Engine(_openvino_prepare, _openvino_load, lambda p: [p, p.with_suffix(".bin")]),
    "ncnn": Engine(_ncnn_prepare, _ncnn_load, lambda p: [p, p.with_suffix(".bin")]),
    "mnn": Engine(_mnn_prepare, _mnn_load),
}


# --- one process ----------------------------------------------------------------------------------------------------


def process_age() -> float:
    """Seconds since this process was started: what came before the first line of Python counts too."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - ticks / os.sysconf("SC_CLK_TCK")


def peak_megabytes(process: int | str = "self") -> float:
    """The most memory a process has held (of its own: the resource module also counts what its parent held)."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def peak_with_children() -> float:
    """The most that this process, or one it started, has held: converters and compile workers are such."""
    import resource

    children = [int(p) for f in Path("/proc/self/task").glob("*/children") for p in f.read_text().split()]
    ended = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return max(ended, *(peak_megabytes(p) for p in (os.getpid(), *children)))


def _prepare(engine: Engine, model: Path, folder: Path) -> dict[str, Any]:
    start = time.perf_counter()
    package = engine.prepare(model, folder)
    files = engine.files(package)
    seconds, size = time.perf_counter() - start, sum(f.stat().st_size for f in files)
    times = {"prepare_s": seconds, "process_s": process_age(), "peak_mb": peak_with_children()}
    return {"package": str(package), "bytes": size, **times}


def _loaded(engine: Engine, package: Path, inputs: Path, threads: int) -> tuple[Run, dict[str, Any]]:
    with np.load(inputs) as archive:
        arrays = {name: archive[name] for name in archive.files}
    start = time.perf_counter()
    run = engine.load(package, arrays, threads)
    loaded = time.perf_counter()
    output = np.array(run(), copy=True)
    done = time.perf_counter()
    facts = {"process_s": process_age(), "load_s": loaded - start, "first_s": done - loaded}
    return run, facts | {"peak_mb": peak_megabytes(), "output": output.ravel().tolist()}


def _serve(run: Run, answers: Any) -> None:  # Any: a text stream
    for line in sys.stdin:
        times: list[float] = []
        end = time.perf_counter() + float(line)
        while not times or time.perf_counter() < end:
            begin = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - begin))
        print(json.dumps(times), file=answers, flush=True)


def main() -> None:
    """One engine, one task."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what engines print must not mix with the answers
    task, engine = sys.argv[1], ENGINES[sys.argv[2]]
    paths = list(map(Path, sys.argv[3:5]))
    if task == "prepare":
        print(json.dumps(_prepare(engine, *paths)), file=answers, flush=True)
        return
    package, more = paths[0], {}
    if task == "direct":
        start = time.perf_counter()
        package = engine.prepare(package, Path(sys.argv[6]))
        more = {"prepare_s": time.perf_counter() - start}
    run, facts = _loaded(engine, package, paths[1], int(sys.argv[5]))
    print(json.dumps(facts | more), file=answers, flush=True)
    _serve(run, answers)


if __name__ == "__main__":
    main()
