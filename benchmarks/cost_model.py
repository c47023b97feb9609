"""Compare the cost model's choice of algorithm and register tile with the best found by search.

    python benchmarks/cost_model.py
    python benchmarks/cost_model.py --only mobilenet --rounds 6 --json losses.json
    python benchmarks/cost_model.py --keep build/tiles --build
    python benchmarks/cost_model.py --keep build/tiles --time

For each kernel (layers of ResNet, MobileNet, SqueezeNet and VGG, products) the compiler's own choice and every
algorithm and tile of a sensible neighbourhood are built and timed, interleaved; printed are the choice, the best, and
what the choice loses. Before each run as many bytes are read as the network has parameters, so that weights come from
as far away as in the network. With --keep the packages stay in DIR, so that --build and --time can be
two commands: the first needs the processor, the second needs it quiet.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from processes import count, thread_count
from rich.console import Console
from rich.table import Table

from armillary import relay
from armillary.artifact import GraphSpec
from armillary.backends.cpu.conv2d.winograd.cost import TILES, Layer, plans, product_nest
from armillary.backends.cpu.cost.model import Nest, Tile, tiles
from armillary.runtime import cpu, load_module
from armillary.runtime.threads import config_threadpool
from armillary.target import CpuModel, cpu_model
from armillary.transform import PassContext

MB = 1 << 20
TARGET = "llvm"
OTHERS = np.zeros(128 * MB // 4, np.float32) + 1  # stands for the parameters of a network's other layers
MODEL = "model"  # the name of the candidate that is the compiler's choice


@dataclass(frozen=True)
class Problem:
    """One layer: sizes, and the megabytes of parameters of the network it stands in."""

    name: str
    inputs: int
    size: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    network: int = 100
    rows: int = 0  # of a product; 0: a convolution

    @property
    def columns(self) -> int:
        """Output columns of a convolution."""
        return -(-self.size // self.stride)

    @property
    def can_winograd(self) -> bool:
        return self.kernel == 3 and self.stride == 1 and self.groups == 1 and self.rows == 0


PROBLEMS = (
    Problem("resnet stem", 3, 224, 64, 7, 2),
    Problem("resnet 3x3 64@56", 64, 56, 64, 3),
    Problem("resnet 3x3 128@28", 128, 28, 128, 3),
    Problem("resnet 3x3 256@14", 256, 14, 256, 3),
    Problem("resnet 3x3 512@7", 512, 7, 512, 3),
    Problem("resnet 3x3/2 64-128", 64, 56, 128, 3, 2),
    Problem("resnet 3x3/2 256-512", 256, 14, 512, 3, 2),
    Problem("resnet 1x1 64-256@56", 64, 56, 256),
    Problem("resnet 1x1 256-64@56", 256, 56, 64),
    Problem("resnet 1x1 512-128@28", 512, 28, 128),
    Problem("resnet 1x1 1024-256@14", 1024, 14, 256),
    Problem("resnet 1x1 512-2048@7", 512, 7, 2048),
    Problem("resnet 1x1/2 256-512", 256, 56, 512, 1, 2),
    Problem("mobilenet stem", 3, 224, 32, 3, 2, 1, 17),
    Problem("mobilenet dw/2 64@112", 64, 112, 64, 3, 2, 64, 17),
    Problem("mobilenet dw 128@56", 128, 56, 128, 3, 1, 128, 17),
    Problem("mobilenet dw 512@14", 512, 14, 512, 3, 1, 512, 17),
    Problem("mobilenet 1x1 32-64@112", 32, 112, 64, 1, 1, 1, 17),
    Problem("mobilenet 1x1 512@14", 512, 14, 512, 1, 1, 1, 17),
    Problem("mobilenet 1x1 1024@7", 1024, 7, 1024, 1, 1, 1, 17),
    Problem("squeezenet 1x1 64-16@55", 64, 55, 16, 1, 1, 1, 5),
    Problem("squeezenet 3x3 16-64@55", 16, 55, 64, 3, 1, 1, 5),
    Problem("squeezenet 3x3 64-256@13", 64, 13, 256, 3, 1, 1, 5),
    Problem("vgg 3x3 64@224", 64, 224, 64, 3),
    Problem("vgg 3x3 256@56", 256, 56, 256, 3),
    Problem("vgg 3x3 512@14", 512, 14, 512, 3),
    Problem("resnet dense 2048-1000", 2048, 0, 1000, rows=1),
    Problem("dense 128x768-768", 768, 0, 768, rows=128),
    Problem("dense 16x1024-512", 1024, 0, 512, rows=16),
)


def function(problem: Problem) -> Any:  # Any: a relay function
    """The layer with bias and relu, weights constant."""
    rng = np.random.default_rng(0)
    if problem.rows:
        x = relay.var("x", shape=(problem.rows, problem.inputs))
        weight = relay.const(rng.standard_normal((problem.outputs, problem.inputs), dtype=np.float32))
        y = relay.nn.dense(x, weight) + relay.const(rng.standard_normal(problem.outputs, dtype=np.float32))
        return relay.Function([x], relay.nn.relu(y))
    shape = (problem.outputs, problem.inputs // problem.groups, problem.kernel, problem.kernel)
    weight = relay.const(rng.standard_normal(shape, dtype=np.float32))
    bias = relay.const(rng.standard_normal((problem.outputs, 1, 1), dtype=np.float32))
    x = relay.var("x", shape=(1, problem.inputs, problem.size, problem.size))
    pad, stride = problem.kernel // 2, problem.stride
    y = relay.nn.conv2d(x, weight, padding=(pad, pad), strides=(stride, stride), groups=problem.groups)
    return relay.Function([x], relay.nn.relu(y + bias))


def candidates(problem: Problem, cpu: CpuModel) -> dict[str, dict[str, Any]]:
    """Pass options by the name of the candidate: register tiles of each algorithm and form."""
    found: dict[str, dict[str, Any]] = {MODEL: {}}
    rows = problem.rows or problem.columns
    block = cpu.lanes if problem.outputs % cpu.lanes == 0 else 8
    chunks = 1 if problem.groups > 1 else max(1, problem.outputs // block)
    steps = problem.kernel**2 * (1 if problem.groups > 1 else problem.inputs)
    for tile in shortlist(Nest(rows, problem.columns or 1, chunks, steps, cpu.memory.dram), cpu, 3):
        found[f"direct {tile}"] = {"relay.WinogradConv2D.tile": 0, "cpu.tile": str(tile)}
    if not problem.can_winograd:
        return found
    layer = Layer(problem.inputs, problem.outputs, 1, problem.columns, problem.columns)
    for m in (m for m in TILES if m <= 4):
        for plan in plans(layer, m)[:4]:
            for tile in shortlist(product_nest(layer, plan, cpu, cpu.memory.dram), cpu, 2):
                options = {"relay.WinogradConv2D.tile": m, "cpu.winograd.strip": plan.strip, "cpu.tile": str(tile)}
                found[f"{plan} {tile}"] = options
    return found


def shortlist(nest: Nest, cpu: CpuModel, count: int) -> list[Tile]:
    """For each number of vectors the tallest tiles among those that divide the width into equal parts, or nearly."""
    found: list[Tile] = []
    even = {-(-nest.width // parts) for parts in range(1, nest.width + 1)}
    for vectors in sorted({t.vectors for t in tiles(nest, cpu)}):
        fitting = [t for t in tiles(nest, cpu) if t.vectors == vectors]
        tallest = max(t.rows for t in fitting)
        good = [t for t in fitting if t.rows in even or t.rows == tallest]
        good.sort(key=lambda t: -t.rows * t.tall)
        found += good[: count * 2 if nest.chunks == 1 else count]
    return found


def build_all(problem: Problem, folder: Path) -> None:
    """Packages of every candidate that are not in the folder yet."""
    model = cpu_model(TARGET)
    layer = function(problem)
    for name, options in candidates(problem, model).items():
        path = package(folder, problem, name)
        if name != MODEL and path.exists():
            continue
        with PassContext(opt_level=3, config={"cpu.parameters": problem.network, **options}):
            library = relay.build(layer, target=TARGET)
        partial = path.with_name(f"partial-{path.name}")
        library.export_library(partial)
        partial.rename(path)


def package(folder: Path, problem: Problem, name: str) -> Path:
    """Where a candidate's package lies."""
    return folder / f"{problem.name}--{name}.so".replace("/", "_").replace(" ", "_")


class Candidate:
    """A loaded package and its one big kernel."""

    def __init__(self, path: Path, problem: Problem) -> None:
        module: Any = load_module(path)
        self.graph = module["default"](cpu(0))
        spec = GraphSpec.from_json(module.graph_json)
        nodes = [i for i, n in enumerate(spec.nodes) if any(w in n.func_name for w in ("conv2d", "dense", "matmul"))]
        (self.node,) = [i for i in nodes if "weight_transform" not in spec.nodes[i].func_name]
        shape, _ = self.graph.input_type("x")
        self.graph.set_input("x", np.random.default_rng(1).standard_normal(shape, dtype=np.float32))
        self.graph.run()
        size = min(problem.network * MB, 2 * (cpu_model(TARGET).l3 or 16 * MB))
        self.others = OTHERS[: size // 4]
        self.times: list[float] = []

    def measure(self, number: int) -> None:
        """Time the kernel after what stands for the network's other layers: their parameters, then its input."""
        for _ in range(number):
            self.others.max()
            self.times.append(self.graph.run_nodes(0, self.node + 1)[-1].seconds)

    @property
    def seconds(self) -> float:
        """The lower tenth: what a run takes when nothing disturbs it, without the luckiest runs."""
        return sorted(self.times)[len(self.times) // 10]


def time_all(problem: Problem, folder: Path, rounds: int) -> dict[str, float]:
    """Milliseconds of each candidate; poor ones leave the race early."""
    model = cpu_model(TARGET)
    runners: dict[str, Candidate] = {}
    for name in candidates(problem, model):
        path = package(folder, problem, name)
        if path.exists():
            runners[name] = Candidate(path, problem)
            runners[name].measure(4)
    best = min(r.seconds for r in runners.values())
    for runner in runners.values():  # a second chance for those that a disturbance hit
        runner.measure(2 if runner.seconds < 5 * best else 0)
    good = {n: r for n, r in runners.items() if n == MODEL or r.seconds < 1.3 * best}
    number = max(2, min(6, int(0.008 / best)))
    for _ in range(rounds):
        for runner in good.values():
            runner.measure(number)
    return {n: 1e3 * r.seconds for n, r in runners.items()}


def report(results: dict[str, dict[str, float]]) -> float:
    """Print the table; give the average loss in percent."""
    table = Table("kernel", "model's ms", "best ms", "loss %", "best candidate", "second")
    losses = []
    for name, times in results.items():
        found = sorted((ms, n) for n, ms in times.items() if n != MODEL)
        mine = times[MODEL]
        best = min([mine, *(ms for ms, _ in found[:1])])
        losses.append(100 * (mine / best - 1))
        second = f"{found[1][1]} ({found[1][0]:.3f})" if len(found) > 1 else ""
        table.add_row(name, f"{mine:.3f}", f"{best:.3f}", f"{losses[-1]:.1f}", found[0][1] if found else "", second)
    console = Console(width=140)
    console.print(table)
    average = statistics.mean(losses)
    console.print(f"average loss {average:.1f} %, largest {max(losses):.1f} %, {len(losses)} kernels")
    return average


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="kernels whose name holds this text")
    parser.add_argument("--threads", type=thread_count, default=1, help="of a kernel (default: 1)")
    parser.add_argument("--rounds", type=count, default=12, help="turns of the good candidates (default: 12)")
    parser.add_argument("--keep", type=Path, help="folder of the packages (default: one that is removed)")
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--build", action="store_true", help="build only, into --keep")
    alone.add_argument("--time", action="store_true", help="time only, what is in --keep")
    parser.add_argument("--jobs", type=count, default=2, help="processes that build (default: 2)")
    parser.add_argument("--json", type=Path, help="write the milliseconds of each candidate")
    args = parser.parse_args()
    problems = [p for p in PROBLEMS if args.only in p.name]
    if not problems:
        parser.error(f"--only: no kernel's name holds {args.only!r}; they are {', '.join(p.name for p in PROBLEMS)}")
    if (args.build or args.time) and args.keep is None:
        parser.error("--build and --time need --keep, the folder that holds the packages in between")
    if args.time:
        absent = [p.name for p in problems if not package(args.keep, p, MODEL).exists()]
        if absent:
            parser.error(f"--time: {args.keep} holds no packages of {', '.join(absent)}: run with --build first")
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not args.time:
            with ProcessPoolExecutor(args.jobs) as pool:
                list(pool.map(build_all, problems, [folder] * len(problems)))
        if args.build:
            return
        config_threadpool(0, args.threads)
        results = {p.name: time_all(p, folder, args.rounds) for p in problems}
        if args.json:
            args.json.write_text(json.dumps(results, indent=1))
        report(results)


if __name__ == "__main__":
    main()
