"""From a failing graph to a small one that fails in the same way, and from that to a text case.

In: a function with inputs, and a predicate on their text. Out: the smallest pair found: outputs dropped, nodes cut off
their inputs (their value becomes an input), nodes passed over, lets and branches opened, attributes set to their
defaults, sizes reduced, numbers rounded. Invariant: each step was seen to fail with the same signature, in another
process; the case file repeats the failure from its text alone.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import graph_values
import numpy as np
from graph_campaign import Record, Worker
from graph_check import from_text, to_text
from graph_motifs import generate
from graph_values import Array, Reject, is_float

from armillary.base.dtype import dtype_of
from armillary.errors import ArmillaryError
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from armillary.relay.op import Op
from armillary.relay.types import TensorType, TupleType
from armillary.relay.walk import post_order, rewrite, substitute

Graph = tuple[Function, dict[str, Array]]
Step = Callable[[Graph], Iterator[Graph]]
SECONDS = 90.0


def shrink(graph: Graph, fails: Callable[[Graph], bool], seconds: float = SECONDS) -> Graph:
    """Take each smaller graph that still fails, until none does or the time is up."""
    deadline = time.monotonic() + seconds
    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        for step in STEPS:
            found = _first(step(graph), fails, deadline)
            while found is not None:
                graph, progress = found, True
                found = _first(step(graph), fails, deadline)
    return graph


def _first(candidates: Iterator[Graph], fails: Callable[[Graph], bool], deadline: float) -> Graph | None:
    for candidate in candidates:
        if time.monotonic() > deadline:
            return None
        if _is_well_typed(candidate[0]) and fails(candidate):
            return candidate
    return None


def _is_well_typed(function: Function) -> bool:
    try:
        return function.checked_type is not None
    except ArmillaryError:
        return False


def _graph(body: Expr, inputs: dict[str, Array], extra: Sequence[tuple[Var, Array]] = ()) -> Graph:
    """The function over the variables that `body` reads; variables bound inside it stay."""
    inner = {id(v) for e in post_order(body) for v in _bound(e)}
    params = [e for e in post_order(body) if isinstance(e, Var) and id(e) not in inner]
    values = inputs | {v.name_hint: a for v, a in extra}
    return Function(tuple(params), body), {p.name_hint: values[p.name_hint] for p in params}


def _bound(expr: Expr) -> tuple[Var, ...]:
    return expr.params if isinstance(expr, Function) else (expr.var,) if isinstance(expr, Let) else ()


# --- the steps: each gives smaller graphs, most promising first -------------------------------------------------------


def _fewer_outputs(graph: Graph) -> Iterator[Graph]:
    body, inputs = graph[0].body, graph[1]
    if isinstance(body, Tuple):
        yield from (_graph(field, inputs) for field in body.fields)
        for k in range(len(body.fields) if len(body.fields) > 2 else 0):
            yield _graph(Tuple(body.fields[:k] + body.fields[k + 1 :]), inputs)


def _inner_node(graph: Graph) -> Iterator[Graph]:
    """An intermediate result as the only output."""
    bound = {id(v) for e in post_order(graph[0].body) for v in _bound(e)}
    for expr in post_order(graph[0].body)[:-1]:
        below = post_order(expr)
        free = not any(id(e) in bound for e in below) or any(isinstance(e, Let) for e in below)
        if isinstance(expr, Call | TupleGetItem) and free and isinstance(expr.checked_type, TensorType):
            yield _graph(expr, graph[1])


def _opened(graph: Graph) -> Iterator[Graph]:
    """Lets, branches and local calls replaced by what they stand for."""
    body = graph[0].body
    for expr in post_order(body):
        if isinstance(expr, Let):
            inner = substitute(expr.body, {id(expr.var): expr.value})
            yield _graph(substitute(body, {id(expr): inner}), graph[1])
        elif isinstance(expr, If):
            for taken in (expr.true_branch, expr.false_branch):
                yield _graph(substitute(body, {id(expr): taken}), graph[1])
        elif isinstance(expr, Call) and isinstance(expr.op, Function):
            inner = substitute(expr.op.body, {id(p): a for p, a in zip(expr.op.params, expr.args, strict=True)})
            yield _graph(substitute(body, {id(expr): inner}), graph[1])


def _cut(graph: Graph) -> Iterator[Graph]:
    """A node's value as a new input, latest nodes first: all before it goes."""
    body, inputs = graph[0].body, graph[1]
    try:
        known = graph_values.values_of(*graph)
    except Reject:
        return
    for expr in reversed(post_order(body)[:-1]):
        value = known.get(id(expr))
        if isinstance(expr, Call | TupleGetItem | If | Let) and value is not None and value.is_tensor:
            name = Var(f"n{len(inputs)}_{len(post_order(body))}", expr.checked_type)
            yield _graph(substitute(body, {id(expr): name}), inputs, [(name, np.asarray(value.base))])


def _passed_over(graph: Graph) -> Iterator[Graph]:
    """A call replaced by an argument of its type."""
    body = graph[0].body
    for expr in reversed(post_order(body)):
        for arg in expr.args if isinstance(expr, Call) else ():
            if not isinstance(arg.checked_type, TupleType) and arg.checked_type == expr.checked_type:
                yield _graph(substitute(body, {id(expr): arg}), graph[1])


def _plain_attributes(graph: Graph) -> Iterator[Graph]:
    """Attributes at their defaults, one at a time."""
    body = graph[0].body
    for expr in post_order(body):
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.attrs is None:
            continue
        for item in dataclasses.fields(expr.attrs):
            if item.default is dataclasses.MISSING or getattr(expr.attrs, item.name) == item.default:
                continue
            attrs = dataclasses.replace(expr.attrs, **{item.name: item.default})
            yield _graph(substitute(body, {id(expr): Call(expr.op, expr.args, attrs)}), graph[1])


def _smaller_sizes(graph: Graph) -> Iterator[Graph]:
    """One size replaced by a smaller one wherever it stands: in shapes of inputs and constants, and in attributes."""
    sizes = {s for a in _arrays(graph) for s in a.shape if s > 1}
    for size in sorted(sizes, reverse=True):
        for smaller in sorted({1, 2, size // 2, size - 1} - {0, size}):
            if smaller < size:
                yield from _resized(graph, size, smaller)


def _arrays(graph: Graph) -> list[Array]:
    return [*graph[1].values(), *(e.data for e in post_order(graph[0].body) if isinstance(e, Constant))]


def _resized(graph: Graph, old: int, new: int) -> Iterator[Graph]:
    inputs = {name: _slice(a, old, new) for name, a in graph[1].items()}

    def rule(expr: Expr) -> Expr | None:
        if isinstance(expr, Constant):
            return Constant(_slice(expr.data, old, new))
        if isinstance(expr, Var) and expr.name_hint in inputs:
            array = inputs[expr.name_hint]
            return Var(expr.name_hint, TensorType(tuple(array.shape), dtype_of(array)))
        if isinstance(expr, Call) and isinstance(expr.op, Op) and expr.attrs is not None:
            return Call(expr.op, expr.args, _renumbered(expr.attrs, old, new))
        return None

    bound = any(isinstance(e, Let | Function) for e in post_order(graph[0].body))
    if not bound:
        yield _graph(rewrite(graph[0].body, rule), inputs)


def _slice(array: Array, old: int, new: int) -> Array:
    part = array[tuple(slice(0, new) if s == old else slice(None) for s in array.shape)]
    return np.ascontiguousarray(part).reshape(part.shape)


def _renumbered(attrs: Any, old: int, new: int) -> Any:
    changes: dict[str, Any] = {}
    for item in dataclasses.fields(attrs):
        value = getattr(attrs, item.name)
        if value == old and type(value) is int:
            changes[item.name] = new
        elif isinstance(value, tuple) and old in value:
            changes[item.name] = tuple(new if v == old and type(v) is int else v for v in value)
    return dataclasses.replace(attrs, **changes) if changes else attrs


def _plain_numbers(graph: Graph) -> Iterator[Graph]:
    """Inputs of ones, or of numbers with few digits."""
    for name, array in graph[1].items():
        for plain in (np.ones_like(array), _few_digits(array)):
            if plain.tobytes() != array.tobytes():
                yield graph[0], graph[1] | {name: plain}


def _few_digits(array: Array) -> Array:
    if not is_float(array):
        return array
    return np.asarray(np.round(array.astype(np.float64), 1)).astype(array.dtype)


STEPS: tuple[Step, ...] = (
    _fewer_outputs,
    _inner_node,
    _opened,
    _cut,
    _passed_over,
    _plain_attributes,
    _smaller_sizes,
    _plain_numbers,
)


# --- findings and case files ----------------------------------------------------------------------------------------


def by_signature(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Findings that look alike, most frequent first."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["signature"], []).append(record)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def shrink_text(text: str, record: Record, levels: Sequence[int], target: str, seconds: float = SECONDS) -> str:
    """The text of a smaller graph that fails as the record says."""
    worker = Worker()

    def fails(graph: Graph) -> bool:
        reply = worker.ask({"text": to_text(*graph), "levels": list(levels), "target": target}, 60.0)
        return reply["kind"] == record["kind"] and _alike(reply["signature"], record["signature"])

    try:
        graph = from_text(text)
        return to_text(*shrink(graph, fails, seconds)) if fails(graph) else text
    finally:
        worker.close()


def _alike(a: str, b: str) -> bool:
    """Signatures without numbers: sizes change on the way."""
    return re.sub(r"\d+", "", a)[:30] == re.sub(r"\d+", "", b)[:30]


def write_case(record: Record, levels: Sequence[int], target: str, folder: Path, seconds: float = SECONDS) -> Path:
    """Shrink a finding and write it as a text case; its expected part is what a right compiler gives."""
    text = record.get("text") or _text_of_seed(record["seed"])
    small = shrink_text(text, record, levels, target, seconds)
    name = re.sub(r"[^a-z0-9]+", "-", f"{record['signature'].lower()[:40]}-{record['seed']}").strip("-")
    wanted = "\n".join(f"{target} level {level}: agrees" for level in levels)
    note = f";; seed {record['seed']}: {record['signature']}".replace("\n", " ")
    path = folder / f"{name}.case"
    head = f"relay-fuzz: {target} {' '.join(map(str, levels))}"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(f"{head}\n{note}\n[case {name}]\n{small}\n[out]\n{wanted}\n")
    temporary.rename(path)
    return path


def _text_of_seed(seed: int) -> str:
    """A crash leaves no text behind: draw the graph again, here."""
    drawn = generate(seed)
    return to_text(drawn.function, drawn.inputs)
