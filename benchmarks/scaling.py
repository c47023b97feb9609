"""How the time of an inference grows: with the batch, with the side of the image, with the threads.

Along each axis the others stay at batch 1, side 224 and the thread counts of `--threads`. Every point is measured as
benchmarks/compare.py does: one process for each engine, stopped while others run, in turns. Printed per point: ms per
image of each engine and the ratio to Armillary; then the points where Armillary stands worse against an engine than at
batch 1 and side 224 by more than `--notable`. An HTML page with plots is written beside the results, which are kept as
they come: the same command goes on where it was interrupted, and measures again what changed since (`--fresh` starts
over). ONNX files are taken too if they have one input, a picture whose batch and sides are open.

examples:
  python benchmarks/scaling.py
  python benchmarks/scaling.py resnet18 --axes batch --batches 1,8,64 --threads 1,2
  python benchmarks/scaling.py --axes side,threads --engines armillary,onnxruntime,openvino --html scaling.html
  python benchmarks/scaling.py network.onnx --axes side --sides 224,225,256,333
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from models import Model, fixed_file, inputs_file, inputs_of, read_model, sizes
from networks import FOLDER, NETWORKS, network_file
from plots import Panel, Series, page, table
from processes import (
    Results,
    Row,
    chosen,
    console,
    count,
    counts,
    machine,
    print_failures,
    progress_bar,
    race,
    seconds,
    thread_counts,
)
from rich.table import Table

_AXES = ("batch", "side", "threads")
_NETWORKS = ("resnet18", "mobilenet_v1", "squeezenet1_1")
_KEYS = ("network", "batch", "side", "threads", "engine")
_SIDE = 224
_TOLERANCE = 2e-3  # largest difference from ONNX Runtime's outputs (the first engine's without it) that counts as right


@dataclass(frozen=True)
class Case:
    """A network at a batch, side and thread count."""

    network: str
    batch: int
    side: int
    threads: int

    def value(self, axis: str) -> int:
        """Where the case lies on an axis."""
        return {"batch": self.batch, "side": self.side, "threads": self.threads}[axis]


def cases_of(args: argparse.Namespace) -> dict[tuple[str, str], list[Case]]:
    """The cases of each network and axis."""
    every = range(1, len(os.sched_getaffinity(0)) + 1)
    found: dict[tuple[str, str], list[Case]] = {}
    for name in args.networks:
        for axis in args.axes:
            if axis == "batch":
                cases = [Case(name, b, _SIDE, t) for t in args.threads for b in args.batches]
            elif axis == "side":
                cases = [Case(name, 1, s, t) for t in args.threads for s in args.sides]
            else:
                cases = [Case(name, 1, _SIDE, t) for t in every]
            found[name, axis] = cases
    return found


def _axes(text: str) -> list[str]:
    axes = list(dict.fromkeys(item.strip() for item in text.split(",")))
    unknown = [axis for axis in axes if axis not in _AXES]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no axis {unknown[0]!r}; known: {', '.join(_AXES)}")
    return axes


def model_of(case: Case, folder: Path) -> Model:
    """The file of a case, and its inputs."""
    if case.network.endswith(".onnx"):
        path = fixed_file(case.network, folder, shapes_of(case))
    else:
        path = network_file(case.network, case.batch, case.side, folder)
    return Model(case.network, path, inputs_file(path, folder))


def shapes_of(case: Case) -> dict[str, tuple[int, ...]]:
    """The input shape of a case for an ONNX file, or a refusal."""
    shapes = {name: sizes(value) for name, value in inputs_of(read_model(Path(case.network)).graph).items()}
    shown = ", ".join(f"{name} [{','.join(map(str, shape))}]" for name, shape in shapes.items())
    (name, shape), *others = shapes.items() or [("", ())]
    if others or len(shape) != 4 or not isinstance(shape[1], int):
        wanted = "scaling takes one picture, [batch,channels,side,side] with a known number of channels"
        raise SystemExit(f"{case.network}: has the inputs {shown or 'none'}; {wanted}")
    given = (case.batch, shape[1], case.side, case.side)
    if any(isinstance(size, int) and size != got for size, got in zip(shape, given, strict=True)):
        wanted = f"batch {case.batch} and side {case.side}"
        raise SystemExit(f"{case.network}: {shown} cannot take {wanted}: export it with open batch and sides")
    return {name: given}


# --- what it says ---------------------------------------------------------------------------------------------------


def _row(rows: list[Row], case: Case, engine: str) -> Row:
    """The row of an engine in a case; an empty one if it has no figures."""
    wanted = (case.network, case.batch, case.side, case.threads, engine)
    found = (row for row in rows if tuple(row[key] for key in _KEYS) == wanted and "failed" not in row)
    return next(found, {})


def per_image(rows: list[Row], case: Case, engine: str) -> float | None:
    """Milliseconds per image of an engine in a case."""
    row = _row(rows, case, engine)
    return float(row["median_ms"]) / case.batch if row else None


def table_rows(rows: list[Row], axis: str, cases: list[Case], engines: list[str]) -> list[list[str]]:
    """Cells: the value on the axis, threads, ms per image of each engine and its ratio to Armillary's."""
    lines = []
    for case in cases:
        own = per_image(rows, case, "armillary")
        cells = [str(case.value(axis)), *([] if axis == "threads" else [str(case.threads)])]
        for engine in engines:
            time = per_image(rows, case, engine)
            ratio = f" ({time / own:.2f})" if time and own and engine != "armillary" else ""
            wrong = "" if time is None or _row(rows, case, engine).get("difference", 0.0) <= _TOLERANCE else " WRONG"
            cells.append(f"{time:.3f}{ratio}{wrong}" if time else "-")
        lines.append(cells)
    return lines


def notable(rows: list[Row], axis: str, cases: list[Case], engines: list[str], limit: float) -> list[str]:
    """Where Armillary stands worse against an engine than at batch 1, side 224 with as many threads (or 1 thread)."""
    found = []
    for case in cases:
        alike = [c for c in cases if c.threads == case.threads or axis == "threads"]
        first = next((c for c in alike if (c.batch, c.side) == (1, _SIDE)), alike[0])
        for engine in engines:
            times = [per_image(rows, c, e) for c in (first, case) for e in ("armillary", engine)]
            if engine == "armillary" or None in times:
                continue
            own0, other0, own, other = (t for t in times if t is not None)
            worse = (own / other) / (own0 / other0)
            if worse > 1 + limit:
                where = f"{case.network} {axis} {case.value(axis)}, {case.threads} thread{'s' * (case.threads > 1)}"
                then = f"at {axis} {first.value(axis)} {own0 / other0:.2f}"
                times_now = f"{own:.3f} ms per image, {engine} {other:.3f}"
                found.append(f"{where}: {times_now}; armillary / {engine} is {own / other:.2f}, {then}")
    return found


def panels_of(rows: list[Row], plan: dict[tuple[str, str], list[Case]], engines: list[str]) -> list[Panel]:
    """A plot for each network and axis."""
    panels = []
    for (network, axis), cases in plan.items():
        panel = Panel(f"{network}: {axis}", axis, "ms per image")
        counts = sorted({case.threads for case in cases}) if axis != "threads" else [0]
        for colour, engine in enumerate(engines):
            for dash, threads in enumerate(counts):
                mine = [case for case in cases if not threads or case.threads == threads]
                timed = [(float(c.value(axis)), per_image(rows, c, engine)) for c in mine]
                points = [(x, y) for x, y in timed if y is not None]
                name = f"{engine}, {threads} thread{'s' * (threads > 1)}" if threads else engine
                panel.series += [Series(name, colour, dash, points)] if points else []
        panels.append(panel)
    return panels


def report(rows: list[Row], plan: dict[tuple[str, str], list[Case]], args: argparse.Namespace) -> None:
    """Tables and notable cases on the terminal, and the page."""
    engines = args.engines
    tables: list[str] = []
    worse: list[str] = []
    for (network, axis), cases in plan.items():
        lines = table_rows(rows, axis, cases, engines)
        heads = [axis, *([] if axis == "threads" else ["threads"]), *(f"{engine} ms" for engine in engines)]
        shown = Table(*heads, title=f"{Path(network).stem}: ms per image by {axis} (ratio to Armillary)")
        for cells in lines:
            shown.add_row(*cells)
        console.print(shown)
        tables.append(f"<h3>{network}: {axis}</h3>{table(heads, lines)}")
        worse += notable(rows, axis, cases, engines, args.notable)
    console.print(f"\nArmillary scales worse by more than {args.notable:.0%}:" if worse else "\nNothing scales worse.")
    for line in worse:
        console.print(f"  {line}", markup=False, highlight=False)
    shown_cases = {(c.network, c.batch, c.side, c.threads) for planned in plan.values() for c in planned}
    failed = [r for r in rows if tuple(r[key] for key in _KEYS[:4]) in shown_cases and r["engine"] in engines]
    print_failures(
        [
            r | {"failed": f"{r['network']} batch {r['batch']} side {r['side']}: {r['failed']}"}
            for r in failed
            if "failed" in r
        ]
    )
    facts = machine()
    title = f"Scaling on {facts['cpu']}, {facts['cpus']} CPUs"
    path = args.html or args.folder / "scaling.html"
    partial = path.with_name(path.name + ".part")
    partial.write_text(page(title, panels_of(rows, plan, engines), "".join(tables)), "utf-8")
    partial.replace(path)
    console.print(f"plots: {path}", markup=False, highlight=False)


def main() -> None:
    """Measure what the result file lacks, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = f"of {', '.join(NETWORKS)}, or .onnx files"
    parser.add_argument("networks", nargs="*", default=list(_NETWORKS), help=known)
    parser.add_argument("--axes", type=_axes, default=",".join(_AXES), help="default: batch,side,threads")
    parser.add_argument("--batches", type=counts, default="1,2,4,8,16,32,64", help="default: 1,2,4,8,16,32,64")
    parser.add_argument("--sides", type=counts, default="64,128,224,320,512,768,1024", help="default: 64 to 1024")
    parser.add_argument("--threads", type=thread_counts, default="1", help="for batch and side (default: 1)")
    engines = "armillary,onnxruntime"
    parser.add_argument("--engines", type=chosen, default=engines, help=f"default: {engines}")
    parser.add_argument("--rounds", type=count, default=3, help="turns of each engine (default: 3)")
    parser.add_argument("--seconds", type=seconds, default=0.5, help="of each engine in a round (default: 0.5)")
    parser.add_argument("--notable", type=float, default=0.1, help="0.1: worse by more than 10 %% (the default)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="networks and packages (default: build/benchmarks)")
    parser.add_argument("--json", type=Path, help="the result file (default: scaling.json in the folder)")
    parser.add_argument("--html", type=Path, help="the page (default: scaling.html in the folder)")
    parser.add_argument("--fresh", action="store_true", help="measure everything anew")
    args = parser.parse_args()
    plan = cases_of(args)
    results = Results(args.json or args.folder / "scaling.json", _KEYS, args.fresh)
    todo = list(dict.fromkeys(case for cases in plan.values() for case in cases))
    for case in todo:
        if case.network.endswith(".onnx"):
            shapes_of(case)  # refused before hours of measuring
    with progress_bar() as progress:
        task = progress.add_task("", total=len(todo))
        for case in todo:
            model = model_of(case, args.folder)
            name = f"{case.network} batch {case.batch} side {case.side} threads {case.threads}"
            progress.update(task, description=name)
            same = {"network": case.network, "batch": case.batch, "side": case.side, "threads": case.threads}
            if not all(results.measured(engine, model, **same) for engine in args.engines):
                for row in race(model, args.engines, [case.threads], args):
                    results.add(same | row)
            progress.advance(task)
    report(results.rows, plan, args)


if __name__ == "__main__":
    main()
