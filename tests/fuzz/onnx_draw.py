"""The random ONNX graph of a seed: operators from the table of those that are imported, one after the other.

In: a seed, or a seed and an operator. Out: a `Drawn`. Invariant: the operators are those of
armillary/frontend/onnx/table.py, so a new one is drawn without being listed here: by its recipe, from a test of the
standard, or from its schema alone. Names are hostile now and then, also names that differ in case only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import onnx
import onnx_recipes_contrib  # noqa: F401 - registers its recipes
import onnx_recipes_ml  # noqa: F401
import onnx_recipes_more  # noqa: F401
import onnx_recipes_nn  # noqa: F401
from onnx import NodeProto
from onnx_generic import generic
from onnx_kit import HOSTILE, Draw, Drawn, Unfit, make_model, rename, value_info
from onnx_motifs import MOTIFS
from onnx_recipes import RECIPES
from onnx_samples import sampled
from onnx_windows import window_graph

from armillary.frontend.onnx.table import contributed, rows

Key = tuple[str, str]


NOT_DRAWN = {
    ("ai.onnx.ml", "ZipMap"): "gives dictionaries: tests/frontend/test_onnx_classical.py",
    ("ai.onnx.ml", "TreeEnsemble"): "of another version of its domain: tests/frontend/test_onnx_trees.py",
}


@functools.cache
def operators() -> tuple[Key, ...]:
    """(domain, name) of every operator that can be imported."""
    listed = ((r.domain, r.name) for r in rows() if r.state != "refused")
    return (*(key for key in listed if key not in NOT_DRAWN), *contributed())


def add_operator(d: Draw, key: Key) -> None:
    """Add a node of this operator, in one of the ways to draw it; Unfit if none gives a valid one."""
    domain, op = key
    ways: list[Callable[[Draw], object]] = list(RECIPES.get(key, ()))
    from_schema, from_test = (lambda d: generic(d, op, domain)), (lambda d: sampled(d, op, domain))
    if not ways:
        ways = [from_schema, from_schema, from_test]
    elif not d.nodes and d.chance(0.25):
        ways = [from_test]
    elif d.chance(0.1):
        ways = [from_schema]
    before = (len(d.nodes), len(d.pool), dict(d.inputs), dict(d.weights), d.opset)
    try:
        d.one(ways)(d)
    except (Unfit, IndexError, ValueError):
        nodes, pool, d.inputs, d.weights, d.opset = before
        del d.nodes[nodes:], d.pool[pool:]
        raise Unfit(op) from None


def finish(d: Draw) -> Drawn | None:
    """The model: outputs are what nothing reads, and some of the rest."""
    read = {name for node in d.nodes for name in _reads(node)}
    made = {name for node in d.nodes for name in node.output if node.op_type != "Constant"}
    outputs = [v for v in d.pool if v.name in made and (v.name not in read or d.chance(0.15))]
    if not outputs:
        return None
    outputs = outputs[-6:]
    inputs = {n: a for n, a in d.inputs.items() if n in read}
    weights = {n: a for n, a in d.weights.items() if n in read}
    infos = [value_info(v.name, v.array) for v in outputs]
    model = make_model(d.nodes, inputs, infos, weights, d.opset)
    names = _hostile_names(d, [*inputs, *weights, *(v.name for v in outputs)]) if d.chance(0.2) else {}
    if names:
        rename(model.graph, names)
    return Drawn(model, {names.get(n, n): a for n, a in inputs.items()})


def _reads(node: NodeProto) -> set[str]:
    found = set(node.input)
    for item in node.attribute:
        if item.HasField("g"):
            found |= {name for inner in item.g.node for name in _reads(inner)}
    return found


def _hostile_names(d: Draw, names: Sequence[str]) -> dict[str, str]:
    chosen = d.random.sample(HOSTILE, min(len(HOSTILE), len(names)))
    return {old: new for old, new in zip(names, chosen) if d.chance(0.8)}


def generate(seed: int, key: Key | None = None) -> Drawn:
    """The graph of a seed: 1 to 6 operators, or one operator alone."""
    return _drawn(seed, lambda d: _random_graph(d) if key is None else add_operator(d, key))


def run_of(seed: int, runs: Sequence[Callable[[Draw], object]]) -> Drawn:
    """The graph of a seed, of one run of nodes."""
    return _drawn(seed, lambda d: d.one(runs)(d))


def generate_window(seed: int) -> Drawn:
    """The convolution or pooling of a seed."""
    return _drawn(seed, window_graph)


def _random_graph(d: Draw) -> None:
    steps, tries = d.one((1, 1, 2, 2, 3, 4, 6)), 0
    while steps and tries < 40:
        tries += 1
        steps -= _motif(d) if d.chance(0.2) else _operator(d)


def _operator(d: Draw) -> bool:
    try:
        add_operator(d, d.one(operators()))
    except Unfit:
        return False
    return True


def _motif(d: Draw) -> bool:
    """A run of nodes; where one does not fit, those before it stay."""
    try:
        d.one(MOTIFS)(d)
    except (Unfit, IndexError, ValueError):
        return False
    return True


def _drawn(seed: int, fill: Callable[[Draw], object]) -> Drawn:
    for attempt in range(60):
        d = Draw(seed + attempt * 1_000_003)
        try:
            fill(d)
            drawn = finish(d)
            if drawn is not None:
                onnx.checker.check_model(drawn.model)
                return drawn
        except (Unfit, IndexError, ValueError, onnx.checker.ValidationError):
            continue
    raise Unfit(f"seed {seed} gives no graph")


def opened(drawn: Drawn, apart: bool = False) -> Drawn:
    """The same graph over open axes: the sizes of its inputs have names, equal ones the same; those of 1 stay.

    `apart`: each has a name of its own, so that they meet only in operators.
    """
    model = type(drawn.model)()
    model.CopyFrom(drawn.model)
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_value > 1:
                dim.dim_param = f"{value.name}_{axis}" if apart else f"size_{dim.dim_value}"
    return Drawn(model, drawn.inputs)
