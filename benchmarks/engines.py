"""The engines that the benchmarks compare: how each makes a package from an ONNX file, and runs it.

    python benchmarks/engines.py prepare ENGINE MODEL.onnx FOLDER      make the package: one JSON line
    python benchmarks/engines.py run ENGINE PACKAGE INPUTS.npz THREADS  load it, then answer commands on stdin
    python benchmarks/engines.py direct ENGINE MODEL.onnx INPUTS.npz THREADS FOLDER     both in one process

`run` and `direct` print one JSON line after the first inference (seconds since the process began, seconds of loading
and of the first run, peak memory, a file with the outputs); then for each line `SECONDS` on stdin they run for so long
and print the milliseconds of every run. What fails is one JSON line {"failed": why}. Each engine needs its pip packages
(`ENGINES`). All outputs are computed and compared; ncnn and MNN take 64-bit integers as 32-bit ones.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Inputs = dict[str, Array]
Run = Callable[[], list[Array]]


@dataclass(frozen=True)
class Engine:
    """`prepare` turns an ONNX file into a package in a folder; `load` opens one with inputs and a thread count."""

    prepare: Callable[[Path, Path], Path]
    load: Callable[[Path, Inputs, int], Run]
    packages: tuple[str, ...]  # what pip must have installed
    files: Callable[[Path], list[Path]] = lambda package: [package]  # what a package consists of
    makes_package: bool = True

    def missing(self) -> str:
        """What to install, or an empty text."""
        absent = [name for name in self.packages if importlib.util.find_spec(name) is None]
        return f"not installed: pip install {' '.join(absent)} (for {sys.executable})" if absent else ""


def _tool(name: str, arguments: Sequence[str], result: Path, folder: Path | None = None) -> None:
    """Run a converter beside this Python that writes `result`."""
    command = [str(Path(sys.executable).with_name(name)), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode or not result.exists():
        lines = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise RuntimeError(
            f"{name} ended with status {done.returncode} and no {result.name}: {'; '.join(lines)[-300:]}"
        )


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

    count = network.get_num_outputs()

    def run() -> list[Array]:
        network.run(**inputs)
        return [network.get_output(index).numpy() for index in range(count)]

    return run


# --- ONNX Runtime: its package is the ONNX file ---------------------------------------------------------------------


def _onnxruntime_load(package: Path, inputs: Inputs, threads: int) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(str(package), options, providers=["CPUExecutionProvider"])
    return lambda: [np.asarray(value) for value in session.run(None, inputs)]


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
    request, outputs = model.create_infer_request(), list(model.outputs)

    def run() -> list[Array]:
        results = request.infer(inputs, share_inputs=True, share_outputs=True)
        return [np.asarray(results[output]) for output in outputs]

    return run


# --- ncnn -----------------------------------------------------------------------------------------------------------


_PNNX_TYPES = {"float32": "f32", "float16": "f16", "int64": "i64", "int32": "i32", "int8": "i8", "uint8": "u8"}


def _ncnn_prepare(model: Path, folder: Path) -> Path:
    link, package = folder / "model.onnx", folder / "model.ncnn.param"  # pnnx writes other names with other letters
    link.unlink(missing_ok=True)
    link.symlink_to(model.resolve())
    shapes = []
    for dtype, dims in _input_types(model):
        if dtype not in _PNNX_TYPES:
            raise RuntimeError(f"pnnx takes no inputs of type {dtype}")
        shapes.append(f"[{','.join(map(str, dims))}]{_PNNX_TYPES[dtype]}")
    _tool("pnnx", [link.name, "fp16=0", f"inputshape={','.join(shapes)}"], package, folder)
    return package


def _input_types(model: Path) -> list[tuple[str, list[int]]]:
    """Type and shape of each input that is no weight."""
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    weights = {value.name for value in graph.initializer}
    types = [value.type.tensor_type for value in graph.input if value.name not in weights]
    names = onnx.helper.tensor_dtype_to_np_dtype
    return [(names(t.elem_type).name, [d.dim_value for d in t.shape.dim]) for t in types]


def _narrow(array: Array) -> Array:
    return array.astype(np.int32) if array.dtype == np.int64 else array


def _ncnn_load(package: Path, inputs: Inputs, threads: int) -> Run:
    import ncnn as library  # type: ignore[import-not-found, unused-ignore]

    net = library.Net()
    net.opt.num_threads, net.opt.use_vulkan_compute = threads, False
    for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
        setattr(net.opt, f"use_{option}", False)
    if net.load_param(str(package)) or net.load_model(str(package.with_suffix(".bin"))):
        raise RuntimeError(f"ncnn cannot load {package.name}: it has no kernel for an operator that pnnx wrote")
    batch = next(iter(inputs.values())).shape[0] if len(inputs) == 1 else 1
    turns = [  # it has no batches: one picture after another
        {f"in{i}": library.Mat(np.ascontiguousarray(_narrow(x)[b])).clone() for i, x in enumerate(inputs.values())}
        for b in range(batch)
    ]
    names = list(net.output_names())

    def run() -> list[Array]:
        results: list[list[Array]] = [[] for _ in names]
        for turn in turns:
            with net.create_extractor() as extractor:
                for name, mat in turn.items():
                    extractor.input(name, mat)
                for name, found in zip(names, results, strict=True):
                    found.append(np.array(extractor.extract(name)[1]))
        return [np.stack(found) for found in results]

    return run


# --- MNN ------------------------------------------------------------------------------------------------------------


def _mnn_prepare(model: Path, folder: Path) -> Path:
    import onnx

    package = folder / f"{model.stem}.mnn"
    names = [value.name for value in onnx.load(str(model), load_external_data=False).graph.output]
    package.with_suffix(".outputs.json").write_text(json.dumps(names))
    arguments = ["-f", "ONNX", "--modelFile", str(model), "--MNNModel", str(package), "--bizCode", "b"]
    _tool("mnnconvert", arguments, package)
    return package


def _mnn_load(package: Path, inputs: Inputs, threads: int) -> Run:
    import MNN  # type: ignore[import-not-found, unused-ignore]

    names = {"float32": MNN.Halide_Type_Float, "int32": MNN.Halide_Type_Int, "uint8": MNN.Halide_Type_Uint8}
    kinds = {np.dtype(name): kind for name, kind in names.items()}
    caffe = MNN.Tensor_DimensionType_Caffe
    interpreter = MNN.Interpreter(str(package))
    session = interpreter.createSession({"numThread": threads, "precision": "high", "backend": "CPU"})
    pairs = []
    for name, value in inputs.items():
        x = _narrow(value)
        if x.dtype not in kinds:
            raise RuntimeError(f"MNN takes no inputs of type {x.dtype}")
        pairs.append((interpreter.getSessionInput(session, name), MNN.Tensor(x.shape, kinds[x.dtype], x, caffe)))
    found = interpreter.getSessionOutputAll(session)
    sinks = [found[name] for name in json.loads(package.with_suffix(".outputs.json").read_text())]

    def run() -> list[Array]:
        for source, held in pairs:
            source.copyFrom(held)
        interpreter.runSession(session)
        return [_fetched(sink) for sink in sinks]

    def _fetched(sink: Any) -> Array:  # Any: a tensor of MNN
        shape, kind = sink.getShape(), sink.getDataType()
        dtype = next((d for d, known in kinds.items() if known == kind), np.dtype(np.float32))
        out = MNN.Tensor(shape, kind, np.empty(shape, dtype), caffe)
        sink.copyToHostTensor(out)
        return np.array(out.getNumpyData()).reshape(shape)

    return run


ENGINES = {
    "armillary": Engine(_armillary_prepare, _armillary_load, ("armillary",)),
    "onnxruntime": Engine(lambda model, folder: model, _onnxruntime_load, ("onnxruntime",), makes_package=False),
    "openvino": Engine(_openvino_prepare, _openvino_load, ("openvino",), lambda p: [p, p.with_suffix(".bin")]),
    "ncnn": Engine(_ncnn_prepare, _ncnn_load, ("ncnn", "pnnx"), lambda p: [p, p.with_suffix(".bin")]),
    "mnn": Engine(_mnn_prepare, _mnn_load, ("MNN",)),
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
    outputs = [np.array(output, copy=True) for output in run()]
    done = time.perf_counter()
    facts = {"process_s": process_age(), "load_s": loaded - start, "first_s": done - loaded}
    facts["peak_mb"] = peak_megabytes()
    file = inputs.with_name(f"outputs-{os.getpid()}.npz")
    np.savez(file, *outputs)
    return run, facts | {"outputs": str(file)}


def _serve(run: Run, answers: Any) -> None:  # Any: a text stream
    for line in sys.stdin:
        times: list[float] = []
        end = time.perf_counter() + float(line)
        while not times or time.perf_counter() < end:
            begin = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - begin))
        print(json.dumps(times), file=answers, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", required=True)
    for name in ("prepare", "run", "direct"):
        task = tasks.add_parser(name)
        task.add_argument("engine", choices=ENGINES)
        task.add_argument("path", type=Path, help="the package" if name == "run" else "the ONNX file")
        if name != "prepare":
            task.add_argument("inputs", type=Path, help="an .npz file")
            task.add_argument("threads", type=int)
        if name != "run":
            task.add_argument("folder", type=Path, help="where the package goes")
    return parser.parse_args()


def _do(args: argparse.Namespace, answers: Any) -> None:  # Any: a text stream
    engine, package, more = ENGINES[args.engine], args.path, {}
    if engine.missing():
        raise ImportError(engine.missing())
    if args.task == "prepare":
        print(json.dumps(_prepare(engine, package, args.folder)), file=answers, flush=True)
        return
    if args.task == "direct":
        start = time.perf_counter()
        package = engine.prepare(package, args.folder)
        more = {"prepare_s": time.perf_counter() - start}
    run, facts = _loaded(engine, package, args.inputs, args.threads)
    print(json.dumps(facts | more), file=answers, flush=True)
    _serve(run, answers)


def main() -> None:
    """One engine, one task."""
    args = _arguments()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what engines print must not mix with the answers
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # die with the benchmark: it may be killed while this one is stopped
    try:
        _do(args, answers)
    except Exception as error:  # whatever an engine raises is the answer
        print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
