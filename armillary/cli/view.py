"""Show what is in a package: its kernels, what each reads and writes, where that lies, and how it is computed.

Takes a package (.tar, .so, a folder) or a graph (.json) and prints a table of its steps. --html writes a page with the
graph as a picture beside the table, --svg the picture alone, --json the graph, which Netron opens too. With --times the
package runs with random inputs (--sizes where it has open ones), and every step says how long it takes.

examples:
  armc view resnet18.tar
  armc view resnet18.tar --html resnet18.html --times
  armc view bert.tar --html bert.html --times --sizes "batch=1 seq=128"
  armc view network.so --json network.json
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from armillary.artifact import GraphSpec
from armillary.base.files import MOST_MODEL_BYTES, check_writable, read_regular, write_atomic
from armillary.cli._console import errors, output, stages
from armillary.cli.options.models import positive
from armillary.cli.options.sizes import add_sizes_argument, one_size_each
from armillary.cli.pages.graph import Step, graph_page, graph_picture, steps_of, work_text
from armillary.cli.run import chosen_device, fill_inputs
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.trace import shares
from armillary.errors import ArtifactError, ConfigError, Span
from armillary.runtime import cpu, load_module
from armillary.runtime.module import Module
from armillary.runtime.threads import num_threads

_NAME = 44  # letters of a step's name in the table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc view`."""
    parser.add_argument("FILE", help="a package (.tar, .so, a folder), or a graph (.json)")
    parser.add_argument("--html", metavar="FILE", help="write a page: the graph as a picture, and the table")
    parser.add_argument("--svg", metavar="FILE", help="write the picture")
    parser.add_argument("--json", metavar="FILE", help="write the graph, as Netron opens it")
    parser.add_argument("--times", action="store_true", help="run it, and say how long each step takes")
    parser.add_argument("--runs", type=positive, default=20, help="runs to take the median of (default: 20)")
    parser.add_argument("--device", default="cpu", help="where to run (default: cpu)")
    add_sizes_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Read the graph, run it where times are wanted, show it."""
    for output_file in filter(None, (args.html, args.svg, args.json)):
        check_writable(output_file)
    path = Path(args.FILE)
    with stages() as progress:
        progress.start("loading")
        text, package = _graph_of(path)
        spec = GraphSpec.from_json(text)
        if args.times:
            progress.start("running")
        times = _times(args, package) if args.times else {}
    steps = steps_of(spec, times)
    output.print(table(steps))
    output.print(_summary(spec, steps), highlight=False)
    if args.html:
        _write(args.html, graph_page(path.name, spec, steps))
    if args.svg:
        _write(args.svg, graph_picture(spec, steps))
    if args.json:
        _write(args.json, text)
    return 0


def _write(file: str, text: str) -> None:
    write_atomic(file, text.encode("utf-8", "replace"))
    errors.print(f"{file}: written", highlight=False)


def _graph_of(path: Path) -> tuple[str, Module | None]:
    """The graph's JSON, and the package that runs it."""
    if path.suffix == ".json":
        return read_regular(path, MOST_MODEL_BYTES).decode("utf-8", "replace"), None
    package = load_module(path)
    if package.graph_json is None:
        raise ArtifactError("the library holds functions but no network", span=Span(str(path)))
    return package.graph_json, package


def _times(args: argparse.Namespace, package: Module | None) -> dict[int, float]:
    """The median seconds of each node."""
    if package is None:
        raise ConfigError("--times: a graph alone does not run", hint="name the package (.tar, .so) that it is of")
    executor = package["default"](chosen_device(args.device))
    if executor.device != cpu(0):
        raise ConfigError("--times reads the processor's clock", hint="armc profile shows kernels of devices")
    module = GraphModule(executor)
    for name, value in fill_inputs(module, {}, "random", one_size_each(args.sizes)).items():
        module.set_input(name, value)
    executor.run()
    taken = [shares(executor.trace()[1], num_threads()) for _ in range(args.runs)]
    return {node: statistics.median(run[node].seconds for run in taken if node in run) for node in taken[0]}


def table(steps: list[Step]) -> Table:
    """The steps as rows, in the order in which they run."""
    has_times = any(step.seconds is not None for step in steps)
    shown = Table(box=None, pad_edge=False, header_style="bold")
    shown.add_column("#", justify="right", no_wrap=True)
    shown.add_column("step", no_wrap=True)
    for heading in ("MFLOP", *(("ms",) if has_times else ())):
        shown.add_column(heading, justify="right", no_wrap=True)
    for heading in ("algorithm", "gives"):
        shown.add_column(heading, no_wrap=True)
    for step in steps:
        name = step.name if len(step.name) <= _NAME else f"{step.name[: _NAME - 1]}…"
        milliseconds = "" if step.seconds is None else f"{1e3 * step.seconds:.4f}"
        figures = (f"{step.flops / 1e6:.2f}" if step.flops else "", *((milliseconds,) if has_times else ()))
        shown.add_row(str(step.node), escape(name), *figures, escape(step.algorithm), escape(step.gives))
    return shown


def _summary(spec: GraphSpec, steps: list[Step]) -> str:
    kernels = {step.function for step in steps if step.function}
    parts = [f"{len(steps)} steps of {len(kernels)} kernels", work_text(steps)]
    if spec.sizes:
        parts.append("open sizes " + ", ".join(row.name for row in spec.sizes))
    times = [step.seconds for step in steps if step.seconds is not None]
    if times:
        parts.append(f"{1e3 * sum(times):.3f} ms in kernels")
    return "; ".join(parts)
