"""One network of gpu_race.py, in a process of its own: made, compiled, and timed when it is asked.

In: a role (`race`, `tune` or `tinygrad`), a network's name, a scratch folder; then a line of JSON for each thing to
do. Out: a line of JSON for each. Invariant: before it is asked to race, a process (but tinygrad's) asks the device for
its facts only; our side and PyTorch's take turns of ten runs; errors are against PyTorch in float64 (without PyTorch:
our CPU result).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
import gpu_tune  # noqa: E402  (the path comes first)
import numpy as np  # noqa: E402
from gpu import SEED, on_cpu  # noqa: E402
from gpu_race import Row  # noqa: E402
from networks import network_file  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

import armillary  # noqa: E402
from armillary import autotvm, relay  # noqa: E402
from armillary.autotvm.record import last_of_each, load_from_file  # noqa: E402
from armillary.contrib import graph_executor  # noqa: E402
from armillary.driver.tvmc.transform import convert_to_mixed_precision  # noqa: E402
from armillary.ir import IRModule  # noqa: E402
from armillary.runtime import NDArray as Tensor  # noqa: E402
from armillary.transform import PassContext  # noqa: E402

try:
    import gpu_networks
    import torch
except ImportError:
    gpu_networks = torch = None  # type: ignore[assignment]
IN_A_ROW, KERNELS, TORCH_THREADS = 10, 40, 4
TO_CAPTURE, TINY_S = 4, 5.0  # runs until tinygrad's JIT replays; seconds of its rounds
TEXTURES = "opencl -device=adreno"
Values = NDArray[np.float32]


class Library(Protocol):
    """What relay.build gives."""

    def __getitem__(self, name: str) -> Callable[[object], object]: ...


def say(row: Row) -> None:
    """One answer."""
    print(json.dumps(row), file=ANSWERS, flush=True)


class Pair:
    """A network on both sides: PyTorch's module, and ours from its ONNX file."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.name, self.side, self.images = str(args.name), int(args.side), int(args.images)
        folder: Path = args.folder
        (folder / "onnx").mkdir(exist_ok=True)
        stem = Path(self.name).stem
        self.file, self.values = folder / "onnx" / f"{stem}.onnx", folder / "onnx" / f"{stem}.input.npy"
        self.wanted = folder / "onnx" / f"{stem}.wanted.npy"
        self.net: object = None

    def make(self) -> None:
        """Draw the network and write its file and its input; of a file, its input."""
        side = self.side or (299 if "inception" in self.name else 224)
        shape: tuple[int, ...] = (self.images, 3, side, side)
        if torch is not None and not self.name.endswith(".onnx"):
            torch.set_num_threads(TORCH_THREADS)  # others are made beside this one
            self.net, (first, *rest) = gpu_networks.network(self.name, self.side)
            shape = (first * self.images, *rest)
        if self.name.endswith(".onnx"):
            self.file.write_bytes(Path(self.name).read_bytes())
            shape = tuple(relay.frontend.from_onnx(str(self.file))[0]["main"].params[0].type_annotation.shape)
        value = np.random.default_rng(SEED).standard_normal(shape).astype("float32")
        np.save(self.values, value)
        if self.name.endswith(".onnx"):
            return
        if torch is not None:
            torch.backends.mha.set_fastpath_enabled(False)  # what is exported is plain operators
            names = {"input_names": ["x"], "opset_version": 17, "dynamo": False}
            torch.onnx.export(self.net, (torch.from_numpy(value),), str(self.file), **names)
        else:
            network_file(self.name, self.images, side, folder=self.file.parent).replace(self.file)

    def module(self) -> tuple[IRModule, dict[str, Tensor]]:
        """As compiled here."""
        module, params = relay.frontend.from_onnx(str(self.file))
        return module, params

    def input(self) -> Values:
        """What both sides are given."""
        value: Values = np.load(self.values)
        return value


class Graph:
    """PyTorch's side: the network inside a CUDA graph, TF32 off."""

    def __init__(self, made: Pair) -> None:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        with torch.no_grad():
            net, x = made.net.double().cuda(), torch.from_numpy(made.input()).cuda()  # type: ignore[attr-defined]
            self.wanted = net(x.double()).cpu().numpy()
            net, side = net.float(), torch.cuda.Stream()
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                for _ in range(5):
                    net(x)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.result = net(x)
            self.time(IN_A_ROW)
        self.held = (net, x)

    def time(self, count: int) -> float:
        """Milliseconds of one run."""
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        self.graph.replay()  # as our side, one that is not timed
        begin.record()
        for _ in range(count):
            self.graph.replay()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / count


class Racer:
    """Our side, and the turns."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.pair = args, Pair(args)
        self.torch: Graph | None = None
        self.wanted: NDArray[np.float64] | None = None
        self.libraries: dict[str, Library] = {}
        self.kept: dict[str, graph_executor.GraphModule] = {}

    def prepare(self) -> Row:
        """Make the network, and compile it."""
        start = time.perf_counter()
        self.pair.make()
        made = time.perf_counter()
        self.module, self.params = self.pair.module()
        self.data = self.module["main"].params[0].name_hint
        self.libraries["default"] = self.compiled(self.args.target, [])
        facts = armillary.opencl(self.args.device).facts()
        seconds = {"made_s": made - start, "compiled_s": time.perf_counter() - made}
        return {"device": facts["name"], "driver": facts.get("driver", ""), **seconds}

    def compiled(self, target: str, records: list[autotvm.record.Pair], module: IRModule | None = None) -> Library:
        """At the level of armc compile."""
        with PassContext(opt_level=3), autotvm.ApplyHistoryBest(records, warns=False):
            library: Library = relay.build(module or self.module, target, params=self.params)
        return library

    def loaded(self, library: Library) -> tuple[graph_executor.GraphModule, float, float]:
        """The executor, the seconds to load it, and those to its first result."""
        start = time.perf_counter()
        graph = graph_executor.GraphModule(library["default"](armillary.opencl(self.args.device)))
        loaded = time.perf_counter()
        graph.set_input(self.data, self.pair.input())
        graph.run()
        graph.get_output(0).numpy()
        return graph, loaded - start, time.perf_counter() - start

    def default(self) -> Row:
        """The default compile beside PyTorch, and its first runs."""
        armillary.nd.array(np.zeros(1, "float32"), armillary.opencl(self.args.device)).numpy()  # the device is open
        _, load_s, first_s = self.loaded(self.libraries["default"])
        graph, load_kept, kept_s = self.loaded(self.libraries["default"])
        self.kept["default"] = graph
        self.torch = Graph(self.pair) if self.pair.net is not None and torch.cuda.is_available() else None
        self.wanted = self.torch.wanted if self.torch is not None else None
        if self.wanted is None:
            self.wanted = on_cpu(self.module, self.params, self.data, self.pair.input())
        np.save(self.pair.wanted, self.wanted)
        row = self.raced(graph)
        row |= {"load_s": load_s, "first_s": first_s, "kept_load_s": load_kept, "kept_s": kept_s}
        return {**row, "programs": load_s / load_kept, "kernels": _slowest(graph)}

    def compile(self, what: str, log: Path) -> Row:
        """Compile with the records of a log that are faster, in half, or for textures."""
        start, found = time.perf_counter(), {}
        if what == "tuned":
            tasks = tasks_of(self.module, self.params, self.args.target)
            records = gpu_tune.useful(log, tasks)
            found = {"tasks": len(tasks), "records": len(records)}
            self.libraries[what] = self.compiled(self.args.target, records) if records else self.libraries["default"]
        elif what == "half":
            module = convert_to_mixed_precision(self.module, None, "float16", "float32")
            self.libraries[what] = self.compiled(self.args.target, [], module)
        else:
            self.libraries[what] = self.compiled(TEXTURES, [])
        return {**found, "compiled_s": time.perf_counter() - start}

    def beside(self, what: str) -> Row:
        """What was compiled beside the default and PyTorch."""
        graph, load_s, first_s = self.loaded(self.libraries[what])
        row = self.raced(graph, self.kept["default"])
        return {**row, "load_s": load_s, "first_s": first_s, "kernels": _slowest(graph)}

    def raced(self, graph: graph_executor.GraphModule, beside: graph_executor.GraphModule | None = None) -> Row:
        """Turns of a graph, of one beside it, and of PyTorch."""
        sides: dict[str, Callable[[], float]] = {"ms": lambda: _ours(graph)}
        if beside is not None:
            sides["default_ms"] = lambda: _ours(beside)
        if self.torch is not None:
            sides["torch_ms"] = lambda graph=self.torch: graph.time(IN_A_ROW)  # type: ignore[misc]
        for side in sides.values():
            side()
        turns = [{name: side() for name, side in sides.items()} for _ in range(self.args.rounds)]
        row: Row = {name: statistics.median(turn[name] for turn in turns) for name in sides}
        row |= {f"least_{name}": min(turn[name] for turn in turns) for name in sides}
        for name in ("torch_ms", "default_ms"):
            if name in sides:
                key = "ratio" if name == "torch_ms" else "to_default"
                row[key] = statistics.median(turn["ms"] / turn[name] for turn in turns)
        row["error"] = self.error(graph.get_output(0).numpy())
        if self.torch is not None:
            row["torch_error"] = self.error(self.torch.result.cpu().numpy())
        return row

    def error(self, got: Values) -> float:
        """As below, of what is known to be right."""
        assert self.wanted is not None, "the default comes first"
        return error(got, self.wanted)


def _ours(graph: graph_executor.GraphModule) -> float:
    """Milliseconds of one run, behind one that is not timed.

    The GPU changes from CUDA's context to OpenCL's, which takes 0.13 ms, a tenth of it of each of ten runs.
    """
    graph.module.time(1)
    return 1e3 * float(graph.module.time(IN_A_ROW)) / IN_A_ROW


def error(got: Values, wanted: NDArray[np.float64]) -> float:
    """The largest difference, relative to the largest value; results that are all 0 compare nothing."""
    largest = float(np.abs(wanted).max())
    if not largest > 0:
        raise ValueError(f"the largest of the results to compare with is {largest}: change the network's weights")
    return float(np.abs(got - wanted).max()) / largest


def tasks_of(module: IRModule, params: dict[str, Tensor], target: str) -> list[autotvm.task.Task]:
    """The tasks of a network."""
    tasks: list[autotvm.task.Task] = autotvm.task.extract_from_program(module["main"], target=target, params=params)
    return tasks


def _slowest(graph: graph_executor.GraphModule) -> list[list[object]]:
    graph.module.profile()
    rows = sorted(graph.module.profile(), key=lambda row: -row.seconds)
    total = sum(row.seconds for row in rows)
    message: list[list[object]] = [["all", len(rows), 1e6 * total]]
    return message + [[row.function, 1e6 * row.seconds] for row in rows[:KERNELS]]


class Tuner:
    """Tunes a network whose file is there."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.pair = args, Pair(args)

    def prepare(self) -> Row:
        """Extract the tasks."""
        start = time.perf_counter()
        module, params = self.pair.module()
        self.tasks = tasks_of(module, params, self.args.target)
        return {"tasks": len(self.tasks), "extracted_s": time.perf_counter() - start}

    def tune(self, log: Path, seconds: float) -> Row:
        """For some time."""
        start = time.perf_counter()
        options = SimpleNamespace(batch=self.args.batch, timeout=20, repeat_ms=1, tuner="model", minutes=seconds / 60)
        gpu_tune.tune_tasks(options, self.tasks, log)  # type: ignore[arg-type]  # what it reads of its arguments
        rows = list(load_from_file(log, report=False)) if log.exists() else []
        found = {"trials": len(rows), "failed_trials": sum(bool(result.error_no) for _, result in rows)}
        best = {"tuned_tasks": len(last_of_each(rows)), "faster": len(gpu_tune.useful(log, self.tasks))}
        return {**found, **best, "seconds": time.perf_counter() - start}


class Tinygrad:
    """The network's file by tinygrad through OpenCL: its kernels as it makes them by itself, replayed by its JIT."""

    def __init__(self, args: argparse.Namespace) -> None:
        os.environ["DEV"] = f"CL:{args.device}" if args.device else "CL"  # read when it is imported
        self.rounds, self.pair = int(args.rounds), Pair(args)
        self.run: Callable[[], Any]  # of tinygrad's types nothing is known

    def prepare(self) -> Row:
        """Read the file, and run it until the JIT has its kernels."""
        tinygrad, onnx = importlib.import_module("tinygrad"), importlib.import_module("tinygrad.nn.onnx")
        start = time.perf_counter()
        network = onnx.OnnxRunner(str(self.pair.file))
        name, x = next(iter(network.graph_inputs)), tinygrad.Tensor(self.pair.input()).realize()
        jit = tinygrad.TinyJit(lambda x: next(iter(network({name: x}).values())).realize())
        device = tinygrad.Device.DEFAULT
        self.run, self.wait = lambda: jit(x), tinygrad.Device[device].synchronize
        for _ in range(TO_CAPTURE):
            self.run().numpy()
        return {"tinygrad_device": device, "compiled_s": time.perf_counter() - start}

    def race(self) -> Row:
        """Rounds of ten runs, three at least, as many as fit."""
        times: list[float] = []
        begin = time.perf_counter()
        while len(times) < min(3, self.rounds) or (len(times) < self.rounds and time.perf_counter() - begin < TINY_S):
            start = time.perf_counter()
            for _ in range(IN_A_ROW):
                self.run()
            self.wait()
            times.append(1e3 * (time.perf_counter() - start) / IN_A_ROW)
        found = error(self.run().numpy(), np.load(self.pair.wanted))
        return {"ms": statistics.median(times), "least_ms": min(times), "rounds": len(times), "error": found}


def serve(args: argparse.Namespace) -> None:
    """Answer until the input ends."""
    holder = Racer(args) if args.role == "race" else Tuner(args) if args.role == "tune" else Tinygrad(args)
    say(holder.prepare())
    for line in sys.stdin:
        asked = json.loads(line)
        log = Path(asked.get("log", ""))
        what = str(asked.get("what", ""))
        if isinstance(holder, Tuner):
            say(holder.tune(log, float(asked["seconds"])))
        elif isinstance(holder, Tinygrad):
            say(holder.race())
        elif asked["do"] == "compile":
            say(holder.compile(what, log))
        else:
            say(holder.default() if what == "default" else holder.beside(what))


if __name__ == "__main__":
    ANSWERS = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("race", "tune", "tinygrad"))
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--side", type=int, default=0)
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--batch", type=int, default=0)
    serve(parser.parse_args())
