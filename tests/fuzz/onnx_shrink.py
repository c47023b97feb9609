"""Make a failing ONNX graph small, and write it down as a text case.

In: a `Drawn` and a predicate that says whether a candidate still fails. Out: a smaller one that does: one output, fewer
nodes (a value that was computed becomes an input), fewer attributes, shorter axes, plainer numbers; or the text of it,
and back. Invariant: every candidate is a valid model to ONNX Runtime or the reference evaluator.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fuzz_worker
import numpy as np
import onnx
import onnx_check
import onnx_truth
from google.protobuf import json_format
from onnx import ModelProto, numpy_helper
from onnx_kit import Array, Drawn, evaluate, make_model, value_info

Fails = Callable[[Drawn], bool]
Candidate = Callable[[], Drawn]


def shrink(drawn: Drawn, fails: Fails, seconds: float = 60.0) -> Drawn:
    """The smallest that was found in the time."""
    end, changed = time.monotonic() + seconds, True
    while changed:
        changed = False
        for step in (one_output, without_a_node, without_an_attribute, shorter, plainer):
            for candidate in step(drawn):
                if time.monotonic() > end:
                    return drawn
                smaller = _holds(candidate, fails)
                if smaller is not None:
                    drawn, changed = smaller, True
                    break
            if changed:
                break
    return drawn


def _holds(candidate: Candidate, fails: Fails) -> Drawn | None:
    try:
        drawn = candidate()
        return drawn if onnx_truth.truths(*drawn.parts())[0] and fails(drawn) else None
    except Exception:  # a candidate that is no graph
        return None


def _weights(model: ModelProto) -> dict[str, Array]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def _made(model: ModelProto, nodes: Iterable[Any], values: dict[str, Any], outputs: Iterable[str]) -> Drawn:
    """A model of some of the nodes: what it reads comes from `values`, as inputs or weights; dead nodes go."""
    nodes, wanted, kept = list(nodes), set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.insert(0, node)
            wanted |= set(onnx_truth._read(node))
    made = {name for node in kept for name in node.output}
    read = {name for node in kept for name in onnx_truth._read(node)} - made
    held = set(_weights(model))
    inputs = {n: a for n, a in values.items() if n in read and n not in held}
    weights = {n: a for n, a in values.items() if n in read and n in held}
    opset = next(o.version for o in model.opset_import if o.domain == "")
    infos = [value_info(n, values[n]) for n in outputs]
    return Drawn(make_model(kept, inputs, infos, weights, opset), inputs)


def _values(drawn: Drawn) -> dict[str, Any]:
    """Every value of the graph, by the evaluators."""
    model = drawn.model
    values: dict[str, Any] = {**drawn.inputs, **_weights(model)}
    for node in model.graph.node:
        given = {n: values[n] for n in onnx_truth._read(node) if n in values}
        values.update(zip([n for n in node.output if n], onnx_truth._evaluate_one(model, node, given)))
    return values


def _outputs(drawn: Drawn) -> list[str]:
    return [o.name for o in drawn.model.graph.output]


def one_output(drawn: Drawn) -> Iterator[Candidate]:
    """One of several outputs, or any value as the output."""
    values = _values(drawn)
    names = _outputs(drawn)
    if len(names) > 1:
        for name in names:
            yield partial(_made, drawn.model, drawn.model.graph.node, values, [name])
    for node in drawn.model.graph.node:
        for name in node.output:
            if name and [name] != names and isinstance(values[name], np.ndarray) and node.op_type != "Constant":
                yield partial(_made, drawn.model, drawn.model.graph.node, values, [name])


def without_a_node(drawn: Drawn) -> Iterator[Candidate]:
    """A node away: what it computed is an input."""
    values, nodes, outputs = _values(drawn), list(drawn.model.graph.node), _outputs(drawn)
    for k, node in enumerate(nodes):
        if not set(node.output) & set(outputs) and all(isinstance(values[n], np.ndarray) for n in node.output if n):
            yield partial(_made, drawn.model, nodes[:k] + nodes[k + 1 :], values, outputs)


def without_an_attribute(drawn: Drawn) -> Iterator[Candidate]:
    """An attribute away."""
    for k, node in enumerate(drawn.model.graph.node):
        for place in range(len(node.attribute)):
            model = ModelProto.FromString(drawn.model.SerializeToString())
            del model.graph.node[k].attribute[place]
            yield partial(_again, model, drawn.inputs, _weights(drawn.model))


def _again(model: ModelProto, inputs: dict[str, Array], weights: dict[str, Array]) -> Drawn:
    """The same nodes over other arrays; the outputs' types are found anew."""
    names = [o.name for o in model.graph.output]
    opset = next(o.version for o in model.opset_import if o.domain == "")
    bare = [onnx.ValueInfoProto(name=n) for n in names]
    found = evaluate(make_model(model.graph.node, inputs, bare, weights, opset), inputs)
    infos = [value_info(n, a) for n, a in zip(names, found)]
    return Drawn(make_model(model.graph.node, inputs, infos, weights, opset), inputs)


def shorter(drawn: Drawn) -> Iterator[Candidate]:
    """All axes of one size, shorter."""
    weights = _weights(drawn.model)
    arrays = {**drawn.inputs, **weights}
    for old in sorted({s for a in arrays.values() for s in a.shape if s > 1}, reverse=True):
        for new in (1, 2, old // 2, old - 1):
            if new < old:
                cut = {n: _cut(a, old, new) for n, a in arrays.items()}
                yield partial(_again, drawn.model, {n: cut[n] for n in drawn.inputs}, {n: cut[n] for n in weights})


def _cut(array: Array, old: int, new: int) -> Array:
    return np.ascontiguousarray(array[tuple(slice(0, new) if s == old else slice(None) for s in array.shape)])


def plainer(drawn: Drawn) -> Iterator[Candidate]:
    """Floating-point inputs and weights of ones, or of small whole numbers."""
    weights = _weights(drawn.model)
    for name, array in {**drawn.inputs, **weights}.items():
        if array.dtype.kind != "f" or not array.size:
            continue
        for other in (np.ones_like(array), (np.arange(array.size) % 7 + 1).reshape(array.shape).astype(array.dtype)):
            if not np.array_equal(other, array) and not np.array_equal(array, np.ones_like(array)):
                replaced = {**drawn.inputs, **weights, name: other}
                inputs = {n: replaced[n] for n in drawn.inputs}
                yield partial(_again, drawn.model, inputs, {n: replaced[n] for n in weights})


# --- as text ----------------------------------------------------------------------------------------------------------


def to_text(drawn: Drawn) -> str:
    """JSON of the model, its weights and inputs apart, with numbers that can be read."""
    model = ModelProto.FromString(drawn.model.SerializeToString())
    weights = _weights(model)
    del model.graph.initializer[:]
    parts = {"model": json_format.MessageToDict(model), "weights": _listed(weights), "inputs": _listed(drawn.inputs)}
    lines = (f"{json.dumps(name)}: {json.dumps(part)}" for name, part in parts.items())
    return "{" + ",\n".join(lines) + "}"


def _listed(arrays: dict[str, Array]) -> dict[str, Any]:
    return {n: {"dtype": str(a.dtype), "shape": list(a.shape), "data": a.flatten().tolist()} for n, a in arrays.items()}


def _arrays(parts: dict[str, Any]) -> dict[str, Array]:
    return {n: np.asarray(p["data"]).astype(p["dtype"]).reshape(p["shape"]) for n, p in parts.items()}


def from_text(text: str) -> Drawn:
    """What to_text wrote."""
    parts = json.loads(text)
    model = json_format.ParseDict(parts["model"], ModelProto())
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in _arrays(parts["weights"]).items())
    return Drawn(model, _arrays(parts["inputs"]))


def write_case(drawn: Drawn, name: str, levels: Iterable[int], target: str, folder: Path, why: str = "") -> Path:
    """A text case that pytest runs (test_onnx_graphs.py)."""
    levels = list(levels)
    path = folder / f"{name}.case"
    message = "\n".join(f"{target} level {level}: agrees" for level in levels)
    head = f"onnx-fuzz: {' '.join(map(str, levels))} {target}\n" + (f";; {why}\n" if why else "")
    path.write_text(f"{head}[case {name}]\n{to_text(drawn)}\n\n[out]\n{message}\n")
    return path


def _is(kind: str, levels: list[int], target: str, how: str, drawn: Drawn) -> bool:
    return onnx_check.check(drawn, levels, target, how).kind == kind


def write_cases(findings: Iterable[dict[str, Any]], folder: Path) -> Iterator[Path]:
    """One case of each kind of finding of onnx graphs."""
    seen = set()
    for record in findings:
        if (
            record["kind"] not in ("onnx", "window", "nudged")
            or record["signature"] in seen
            or record["what"] == "crash"
        ):
            continue
        seen.add(record["signature"])
        drawn = fuzz_worker.onnx_case(record["kind"], record["seed"])
        levels, target, how = fuzz_worker.plan(record["seed"], record)
        small = shrink(drawn, partial(_is, record["what"], levels, target, how))
        yield write_case(small, f"{record['kind']}-{record['seed']}", levels, target, folder)
