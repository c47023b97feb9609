"""Time a network: latency by percentile and throughput, with some threads and streams, beside other engines.

Takes an ONNX model, which is compiled first, or a package that `armc compile` wrote. Every engine, number of threads
and number of streams (inferences at once) is a process of its own; they take turns, and outputs are compared. Engines
other than Armillary need the ONNX model and their pip package. --trace writes when each thread was in which kernel, for
chrome://tracing or Perfetto.

examples:
  armc bench resnet18.onnx
  armc bench resnet18.onnx --against onnxruntime,openvino --threads 1,2 --rounds 10
  armc bench resnet18.tar --threads 1 --streams 1,2 --json figures.json
  armc bench resnet18.onnx --trace trace.json
  armc bench bert.onnx --sizes seq=8,128,512 --against onnxruntime
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
from pathlib import Path

from rich.table import Table

from armillary.backend.bench.engines import ENGINES
from armillary.backend.bench.race import Lane, difference, race
from armillary.base.files import check_writable, scratch_folder, write_atomic
from armillary.cli._console import errors, note, output, stages
from armillary.cli.options.models import input_shapes, load_model, positive, takes_fixed_shapes
from armillary.cli.options.sizes import add_sizes_argument, all_sizes, sizes_text
from armillary.cli.run import fill_inputs, read_npz
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.driver.trace import chrome_trace
from armillary.errors import ConfigError
from armillary.runtime import cpu, load_module
from armillary.runtime.threads import config_threadpool, num_threads
from armillary.transform import PassContext

PACKAGES = (".so", ".tar")
TOLERANCE = 2e-3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc bench`."""
    parser.add_argument("FILE", help="a model (.onnx) or a package (.so, .tar)")
    parser.add_argument("--against", default="", metavar="ENGINES", help="onnxruntime, openvino: a comma list")
    parser.add_argument("--threads", default="", metavar="N,…", help="of an inference (default: as the runtime)")
    parser.add_argument("--streams", default="1", metavar="N,…", help="inferences at once (default: 1)")
    parser.add_argument("--rounds", type=positive, default=5, help="turns of each (default: 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each in a round (default: 1)")
    parser.add_argument("-i", "--inputs", metavar="NPZ", help="input arrays by name; others are random")
    parser.add_argument("--input-shapes", default="", metavar="SHAPES", help='of a model: "data:[1,3,224,224]"')
    add_sizes_argument(parser, each="a table")
    parser.add_argument("--target", default="llvm -mcpu=native", help="of a model (default: llvm -mcpu=native)")
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    parser.add_argument("--trace", metavar="FILE", help="write the timeline of one inference")


def run(args: argparse.Namespace) -> int:
    """Compile, race, report."""
    for file in filter(None, (args.json, args.trace)):
        check_writable(file)
    others = _engines(args.against, args.FILE)
    threads = _counts("--threads", args.threads) if args.threads else [num_threads()]
    streams = _counts("--streams", args.streams)
    if not 0 < args.seconds < 3600:
        raise ConfigError(f"--seconds {args.seconds}: wanted more than 0 and less than an hour")
    with scratch_folder() as folder, stages() as progress:
        progress.start(f"compiling {args.FILE}")
        package = _package(args, folder)
        network = GraphModule(load_module(package)["default"](cpu(0)))
        files = {"armillary": str(package)} | dict.fromkeys(others, args.FILE)
        lanes: list[Lane] = []
        for sizes in all_sizes(args.sizes):
            inputs = fill_inputs(network, read_npz(args.inputs) if args.inputs else {}, "random", sizes)
            raced = race(files, inputs, threads, streams, args.rounds, args.seconds, progress.start)
            if sizes:
                output.print(sizes_text(sizes), highlight=False)
            output.print(_table(raced))
            lanes += [dataclasses.replace(lane, sizes=sizes) for lane in raced]
    for lane in lanes:
        if lane.failed:
            note(f"{lane.engine}, {lane.threads} threads: {lane.failed}")
    if args.json:
        write_atomic(args.json, (json.dumps([lane.plain() for lane in lanes], indent=1) + "\n").encode())
    if args.trace:
        config_threadpool(0, threads[0])
        network.run(inputs)
        text = json.dumps(chrome_trace(network.module))
        write_atomic(args.trace, text.encode())
        errors.print(f"{args.trace}: written, for chrome://tracing or Perfetto", highlight=False)
    return 1 if any(lane.failed for lane in lanes) else 0


def _engines(text: str, file: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip() and name.strip() != "armillary"]
    for name in names:
        if name not in ENGINES:
            raise ConfigError(f"--against: there is no engine {name!r}", hint=f"known: {', '.join(ENGINES)}")
        if importlib.util.find_spec(ENGINES[name][1]) is None:
            raise ConfigError(f"--against: {name} is not installed", hint=f"pip install {ENGINES[name][1]}")
    if names and Path(file).suffix in PACKAGES:
        raise ConfigError(f"--against: {names[0]} cannot run {file}", hint="name the .onnx file")
    return names


def _counts(option: str, text: str) -> list[int]:
    items = [item.strip() for item in text.split(",")]
    if not all(item.isdecimal() and 0 < int(item) < 1025 for item in items):
        raise ConfigError(f"{option} {text!r}: wanted whole numbers from 1 to 1024, such as 1,2")
    return [int(item) for item in items]


def _package(args: argparse.Namespace, folder: Path) -> Path:
    path = Path(args.FILE)
    if path.suffix in PACKAGES:
        return path
    module, params = load_model(args.FILE, input_shapes(args.input_shapes), assume=takes_fixed_shapes(args.target))
    package = folder / "network.so"
    with PassContext(3):
        build(module, target=args.target, params=params).export_library(str(package))
    return package


def _table(lanes: list[Lane]) -> Table:
    """The lanes as rows: milliseconds, and how Armillary's median compares, round by round."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    many = len({lane.engine for lane in lanes}) > 1
    more = ("ours / it", "difference") if many else ()
    for heading in ("engine", "threads", "streams", "p50 ms", "p90", "p99", "min", "per second", *more):
        shown.add_column(heading, justify="left" if heading == "engine" else "right", no_wrap=True)
    for lane in lanes:
        if lane.failed or not lane.times:
            continue
        ours = next(o for o in lanes if (o.engine, o.threads, o.streams) == ("armillary", lane.threads, lane.streams))
        figures = [lane.percentile(50), lane.percentile(90), lane.percentile(99), min(lane.times)]
        cells = [f"{figure:.3f}" for figure in figures] + [f"{lane.per_second:.1f}"]
        shown.add_row(
            lane.engine, str(lane.threads), str(lane.streams), *cells, *(_compared(lane, ours) if many else ())
        )
    return shown


def _compared(lane: Lane, ours: Lane) -> tuple[str, str]:
    if lane is ours or not ours.rounds:
        return "", ""
    ratios = sorted(a / b for a, b in zip(ours.rounds, lane.rounds))
    off = difference(lane.outputs, ours.outputs)
    return f"{ratios[len(ratios) // 2]:.2f}", f"{off:.0e}" + ("" if off <= TOLERANCE else " !")
