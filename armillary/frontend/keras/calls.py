"""What a layer of a Functional model reads, as Keras 2 and Keras 3 write it.

In: JSON of `inbound_nodes`. Out: for each call of the layer the tensors it reads and its keywords. Invariant: what is
no tensor among the keywords stays what it is (`use_causal_mask`).
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.base.record import record


@record
class Tensor:
    """A result: of which call of which layer, and which of its results."""

    layer: str
    node: int
    index: int


@record
class Call:
    """A call of a layer: the number by which others name it, what it reads, its keywords: tensors and others."""

    number: int
    reads: list[Tensor]
    tensors: dict[str, list[Tensor]]
    keywords: dict[str, object]  # JSON of Keras
    numbers: dict[int, float]  # among what an operator of keras.ops reads, by place


def calls_of(nodes: object, name: str) -> list[Call]:  # JSON of Keras
    """The calls of a layer."""
    rows = list(nodes.values()) if isinstance(nodes, Mapping) else nodes if isinstance(nodes, list) else []
    return [_call(number, row) for number, row in enumerate(rows)]


def _call(number: int, row: object) -> Call:
    keywords = {name: value for name, value in _keywords(row).items() if value is not None}
    tensors = {name: tensors_in(value) for name, value in keywords.items()}
    plain = {name: value for name, value in keywords.items() if not tensors[name]}
    args = row.get("args", []) if isinstance(row, Mapping) else []
    numbers = {k: value for k, value in enumerate(args) if isinstance(value, int | float)}
    return Call(number, tensors_in(row), {name: ts for name, ts in tensors.items() if ts}, plain, numbers)


def tensors_in(node: object) -> list[Tensor]:  # JSON of Keras
    """Tensors: [name, node, index, …] of Keras 2, keras_history of Keras 3, nested as they like."""
    if isinstance(node, Mapping):
        tensors = _tensor(node)
        return [tensors] if tensors is not None else tensors_in(node.get("args", []))
    tensors = _tensor(node)
    if tensors is not None:
        return [tensors]
    return [tensor for part in node for tensor in tensors_in(part)] if isinstance(node, list | tuple) else []


def _tensor(node: object) -> Tensor | None:
    if isinstance(node, Mapping):
        config = node.get("config")
        node = config.get("keras_history") if isinstance(config, Mapping) else None
    is_one = isinstance(node, list | tuple) and len(node) >= 3 and isinstance(node[0], str)
    if not is_one or not all(isinstance(n, int) for n in node[1:3]):  # type: ignore[index]  # as just looked
        return None
    return Tensor(node[0], node[1], node[2])  # type: ignore[index]


def _keywords(node: object) -> dict[str, object]:
    rows: dict[str, object] = {}
    if isinstance(node, Mapping):
        rows = dict(node.get("kwargs") or {})
    elif isinstance(node, list):
        for part in node:  # of Keras 2: [name, node, index, keywords]
            if isinstance(part, list) and len(part) > 3 and isinstance(part[3], Mapping):
                rows |= part[3]
    return rows
