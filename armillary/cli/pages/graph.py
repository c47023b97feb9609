"""The graph of a package as rows, as a picture, and as one HTML page of both; no other file is needed.

In: a `GraphSpec`, seconds by node where it ran. Out: `Step`s, SVG text, the page's text. Invariant: everything from the
package is escaped; parameters are not drawn, they are counted in the step that reads them. The drawing itself:
`relay/visualization/svg.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armillary.artifact import GraphNode, GraphSpec
from armillary.base.dtype import DType
from armillary.cli.pages.profile import PAGE_SCRIPT, PAGE_STYLE, escaped
from armillary.relay.op import OPS, Kind
from armillary.relay.visualization.svg import Box, Edge, Graph, Row, draw

_LONGEST = 46  # letters of a box
_STYLE = ".graph{overflow:auto;max-height:80vh}.graph svg{width:auto;min-width:0;max-width:none;margin:0 auto}"


@dataclass(frozen=True)
class Step:
    """A node that runs: what it is called, what it reads and gives, how; `seconds` where it ran."""

    node: int
    name: str
    function: str
    kind: str
    reads: tuple[tuple[int, int], ...]  # nodes and outputs, parameters not among them
    weights: int  # bytes of the parameters that it reads
    gives: str
    flops: int
    algorithm: str
    reasons: tuple[str, ...]
    seconds: float | None


def steps_of(spec: GraphSpec, times: Mapping[int, float]) -> list[Step]:
    """The nodes that run, in their order; `times` are seconds by node."""
    return [_step(spec, i, times.get(i)) for i, node in enumerate(spec.nodes) if node.op != "null"]


def _step(spec: GraphSpec, index: int, seconds: float | None) -> Step:
    node = spec.nodes[index]
    choice = _choice(node)
    inputs, weights = _read(spec, node)
    name = f"({node.func_name.strip('_')})" if node.func_name.startswith("__") else _short(node.func_name)
    shapes = [shape_text(spec, spec.entry(index, output)) for output in range(node.num_outputs)]
    return Step(
        index,
        name,
        node.func_name,
        _kind(node.func_name),
        inputs,
        weights,
        ", ".join(shapes),
        int(node.attrs.get("flops", 0) or 0),
        str(choice.get("algorithm", "")),
        tuple(map(str, choice.get("objections", ()) or ())),
        seconds,
    )


def _choice(node: GraphNode) -> Mapping[str, list[str] | str]:
    """What a build noted of the kernel: its algorithm, and why not another; nothing in packages of others."""
    try:
        noted = json.loads(node.attrs.get("choice", "") or "{}")
    except ValueError:
        return {}
    return noted if isinstance(noted, dict) else {}


def _kind(function: str) -> str:
    """The colour of a box: that of the strongest operator among those that a kernel's name lists."""
    if function.startswith("__"):
        return "tuple"
    text = f"_{function}_"
    kinds = (OPS[name].kind for name in OPS if f"_{name.replace('.', '_')}_" in text)
    return max((kind for kind in kinds if kind <= Kind.CONTRACTION), default=Kind.OPAQUE).name.lower()


def _short(function: str) -> str:
    words = function.removeprefix("fused_").rpartition("_")[0] or function
    return words.replace("nn_contrib_", "").replace("nn_", "").replace("cpu_", "")


def _read(spec: GraphSpec, node: GraphNode) -> tuple[tuple[tuple[int, int], ...], int]:
    """What a node reads of others, and the bytes of its parameters: inputs of the graph named p0, p1, …"""
    reads: list[tuple[int, int]] = []
    weights = 0
    for source, output, _ in node.inputs:
        if _is_parameter(spec, source):
            weights += _bytes(spec, spec.entry(source))
        else:
            reads.append((source, output))
    return tuple(reads), weights


def _is_parameter(spec: GraphSpec, node: int) -> bool:
    name = spec.nodes[node].name
    return spec.nodes[node].op == "null" and name[:1] == "p" and name[1:].isdigit()


def _bytes(spec: GraphSpec, entry: int) -> int:
    shape = spec.shapes[entry]
    numbers = [d for d in shape if isinstance(d, int)]
    return math.prod(numbers) * DType(spec.dltypes[entry]).bits // 8 if len(numbers) == len(shape) else 0


def shape_text(spec: GraphSpec, entry: int) -> str:
    """A tensor as "1x64x56x56 float32"; sizes by their names."""
    return f"{'x'.join(map(str, spec.shapes[entry])) or 'scalar'} {spec.dltypes[entry]}"


def graph_picture(spec: GraphSpec, steps: Sequence[Step]) -> str:
    """The graph as SVG: a box a step, with its output's shape on the way to who reads it."""
    graph = Graph("", [])
    places: dict[int, int] = {}
    for index, node in enumerate(spec.nodes):
        if node.op == "null" and not _is_parameter(spec, index):
            places[index] = len(graph.boxes)
            shape = shape_text(spec, spec.entry(index))
            graph.boxes.append(Box("input", [Row(node.name, "", shape)], f"input {node.name}: {shape}"))
    for step in steps:
        places[step.node] = len(graph.boxes)
        graph.boxes.append(Box(step.kind, _rows(step), "\n".join(_facts(step))))
        for source, output in step.reads:
            label = shape_text(spec, spec.entry(source, output))
            graph.edges.append(Edge(places[source], places[step.node], label))
    for position, (source, output, _) in enumerate(spec.heads):
        label = shape_text(spec, spec.entry(source, output))
        graph.boxes.append(Box("output", [Row(f"output {position}", "")], label))
        if source in places:
            graph.edges.append(Edge(places[source], len(graph.boxes) - 1, label))
    return draw([graph])


def _rows(step: Step) -> list[Row]:
    name = step.name if len(step.name) <= _LONGEST else f"{step.name[: _LONGEST - 1]}…"
    notes = [step.algorithm] if step.algorithm else []
    if step.seconds is not None:
        notes.append(f"{1e3 * step.seconds:.3f} ms")
    rows = [Row(name, "")]
    return [*rows, Row("", "", " · ".join(notes), is_note=True)] if notes else rows


def _facts(step: Step) -> list[str]:
    """What pointing at a box shows."""
    facts = [f"#{step.node} {step.function}", f"gives {step.gives}"]
    facts += [f"{step.flops / 1e6:.2f} MFLOP"] if step.flops else []
    facts += [f"{step.weights / 1e3:.1f} kB of parameters"] if step.weights else []
    facts += [f"{1e3 * step.seconds:.4f} ms"] if step.seconds is not None else []
    return [*facts, *([f"algorithm: {step.algorithm}"] if step.algorithm else []), *step.reasons]


def graph_page(title: str, spec: GraphSpec, steps: Sequence[Step]) -> str:
    """The page: figures, the picture, the table of steps."""
    cards = "".join(f'<div class="card"><b>{escaped(a)}</b><span>{escaped(b)}</span></div>' for a, b in _cards(steps))
    sizes = ", ".join(row.name for row in spec.sizes)
    subtitle = f"open sizes: {sizes}" if sizes else "fixed shapes"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escaped(title)}</title><style>{PAGE_STYLE}{_STYLE}</style></head><body><main>"
        f'<h1>{escaped(title)}</h1><p class="sub">{escaped(subtitle)}</p><div class="cards">{cards}</div>'
        f'<section><h2>Graph</h2><div class="graph">{graph_picture(spec, steps)}</div></section>'
        f"<section><h2>Steps</h2>{_table(steps)}</section></main>"
        f'<div id="tip"></div><script>{PAGE_SCRIPT}</script></body></html>\n'
    )


def work_text(steps: Sequence[Step]) -> str:
    """The operations of a run, in the unit that fits."""
    flops = sum(step.flops for step in steps)
    return f"{flops / 1e9:.2f} GFLOP" if flops >= 1e9 else f"{flops / 1e6:.2f} MFLOP"


def _cards(steps: Sequence[Step]) -> list[tuple[str, str]]:
    times = [step.seconds for step in steps if step.seconds is not None]
    cards = [
        (str(len(steps)), "steps"),
        (str(len({step.function for step in steps})), "kernels"),
        (work_text(steps), "of a run"),
        (f"{sum(step.weights for step in steps) / 1e6:.1f} MB", "of parameters that steps read"),
    ]
    return [*cards, (f"{1e3 * sum(times):.2f} ms", "in kernels")] if times else cards


def _table(steps: Sequence[Step]) -> str:
    has_times = any(step.seconds is not None for step in steps)
    numbers = ("#", "MFLOP", "kB read", *(("ms",) if has_times else ()))
    heads = ("#", "step", *numbers[1:], "gives", "algorithm, reasons")
    head = "".join(f"<th{' class=n' if h in numbers else ''}>{h}</th>" for h in heads)
    lines = []
    for step in steps:
        figures = [step.flops / 1e6, step.weights / 1e3, *([1e3 * (step.seconds or 0.0)] if has_times else [])]
        cells = "".join(f'<td class="n" data-v="{v:.6g}">{v:.3f}</td>' for v in figures)
        reasons = "<br>".join(map(escaped, step.reasons))
        lines.append(
            f'<tr><td class="n" data-v="{step.node}">{step.node}</td><td class="name">{escaped(step.name)}</td>{cells}'
            f'<td>{escaped(step.gives)}</td><td class="w">{escaped(step.algorithm)}<small>{reasons}</small></td></tr>'
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
