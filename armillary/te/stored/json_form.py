"""The JSON form of tensors, operations, schedules and loop expressions.

    {"format": "armillary-te", "version": 1, "root": 5, "nodes": [
     {"node": "Var", "name": "i", "dtype": {"dtype": "int32"}}, {"node": "Add", "a": {"ref": 0}, "b": {"ref": 1}}, …,
     {"node": "Tensor", "op": {"ref": 4}, "index": 0}]}

In: a te.Tensor, an operation, a schedule, or a node of tir/expr.py or tir/stmt.py. Out: one JSON object; a node names
others by their position, which is smaller than its own, so sharing is kept. A schedule is its outputs and what it was
told, which is repeated. Invariant: what is loaded prints and computes as what was saved; a damaged text is a
ModelError. Modules and functions: `relay/stored/json_form.py`, which hands over to this.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeGuard, cast

from armillary.base.dtype import DType
from armillary.base.node import Node
from armillary.errors import ModelError, UnsupportedError
from armillary.te.directives import apply_directives
from armillary.te.directives import from_json as directives_from_json
from armillary.te.directives import to_json as directives_to_json
from armillary.te.operation import ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp
from armillary.te.schedule import Schedule
from armillary.te.tensor import Tensor
from armillary.tir import expr as E
from armillary.tir import stmt as S

FORMAT, VERSION = "armillary-te", 1
Saved: TypeAlias = Node | Tensor | Operation | Schedule
Json: TypeAlias = object  # a JSON value
_NODES: dict[str, Callable[..., Saved]] = {
    name: kind
    for module in (E, S)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Node) and kind._fields and kind is not S.PrimFunc
}
_MISFITS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)


def has_form(item: object) -> TypeGuard[Saved]:
    """Whether `save` takes it."""
    return isinstance(item, Tensor | Operation | Schedule) or _is_node(item)


def _is_node(item: object) -> bool:
    """Whether it is a node of loop programs; graphs have classes of the same names."""
    return _NODES.get(type(item).__name__) is type(item)


def save(item: Saved) -> str:
    """The JSON text; UnsupportedError for what has none: tensor intrinsics, functions."""
    writer = _Writer()
    root = writer.position(item)
    head = {"format": FORMAT, "version": VERSION, "root": root, "nodes": writer.nodes}
    return json.dumps(head, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read_schedule(text: str) -> Schedule:
    """The schedule of a pickle."""
    result = load(json.loads(text))
    assert isinstance(result, Schedule), "a pickle holds what was pickled"
    return result


def load(content: Json) -> Saved:
    """What `save` wrote, from the JSON value; ModelError where it is damaged."""
    if not isinstance(content, dict) or content.get("version") != VERSION or not isinstance(content.get("nodes"), list):
        raise ModelError("not the JSON of tensors", hint=f"this program reads {FORMAT}, version {VERSION}")
    reader = _Reader()
    for place, row in enumerate(content["nodes"]):
        try:
            reader.nodes_read.append(reader.node(row))
        except _MISFITS as error:
            raise ModelError(f"node {place} of the JSON is damaged: {type(error).__name__}: {error}") from None
    return reader.at(content.get("root"))


# --- writing --------------------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[dict[str, Json]] = []
        self.places: dict[int, int] = {}
        self.retained: list[object] = []  # their ids are keys

    def position(self, root: Saved) -> int:
        """Where an object stands in the list, after all that it holds."""
        stack = [(root, False)]
        while stack:
            item, is_ready = stack.pop()
            if id(item) in self.places:
                continue
            fields = _fields(item)
            if is_ready:
                self.nodes.append({"node": type(item).__name__, **{k: self._plain(v) for k, v in fields.items()}})
                self.places[id(item)] = len(self.nodes) - 1
                self.retained.append(item)
            else:
                stack.append((item, True))
                stack.extend((part, False) for part in reversed(list(_inside(fields.values()))))
        return self.places[id(root)]

    def _plain(self, value: object) -> Json:
        match value:
            case DType():
                return {"dtype": str(value)}
            case None | bool() | str() | int():
                return value
            case float():
                return value if math.isfinite(value) else {"float": repr(value)}
            case tuple() | list():
                return [self._plain(part) for part in value]
            case dict():
                return {"dict": [[str(key), self._plain(part)] for key, part in value.items()]}
            case S.LoopKind():
                return {"loop": value.value}
        return {"ref": self.places[id(value)]}


def _fields(item: object) -> dict[str, object]:
    """What an object is made of, by name."""
    match item:
        case Tensor():
            return {"op": item.op, "index": item.value_index}
        case PlaceholderOp():
            return {"name": item.name, "shape": item.shape, "dtype": item.dtype, "tag": item.tag, "attrs": item.attrs}
        case ComputeOp(intrinsic=None):
            return {"name": item.name, "axis": item.axis, "body": item.body, "tag": item.tag, "attrs": item.attrs}
        case ExternOp() | ScanOp():
            names = _OF_EXTERN if isinstance(item, ExternOp) else _OF_SCAN
            return {name: getattr(item, name) for name in names}
        case Schedule():
            if any(note.intrinsic is not None for stage in item.stages for note in stage.notes.values()):
                raise UnsupportedError(
                    "a schedule with tensor intrinsics has no JSON form", hint="tensorize after loading"
                )
            return {"outputs": item.outputs, "told": directives_to_json(item.directives())}
        case Node() if _is_node(item):
            return {name: getattr(item, name) for name in item._fields}
    raise UnsupportedError(
        f"a {type(item).__name__} has no JSON form", hint="save a tensor, an operation or a schedule"
    )


def _inside(values: Iterable[object]) -> Iterable[Saved]:  # what has a place of its own
    for value in values:
        if isinstance(value, tuple | list):
            yield from _inside(value)
        elif isinstance(value, dict):
            yield from _inside(value.values())
        elif not isinstance(value, str | int | float | S.LoopKind | None):
            yield cast(Saved, value)


_OF_EXTERN = ("name", "inputs", "input_placeholders", "output_placeholders", "body", "tag", "attrs")
_OF_SCAN = ("name", "scan_axis", "init", "update", "state", "inputs", "tag", "attrs")


# --- reading --------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self) -> None:
        self.nodes_read: list[Saved] = []

    def node(self, row: dict[str, Json]) -> Saved:
        fields = {key: self.value(value) for key, value in row.items() if key != "node"}
        kind = str(row["node"])
        result: Saved = _MAKERS[kind](**fields) if kind in _MAKERS else _NODES[kind](**fields)
        return result

    def at(self, place: Json) -> Saved:
        if type(place) is not int or not 0 <= place < len(self.nodes_read):
            raise ModelError(f"the JSON names the node {place!r}, there are {len(self.nodes_read)} before")
        return self.nodes_read[place]

    def value(self, value: Json) -> object:  # what a field holds
        if isinstance(value, list):
            return tuple(self.value(part) for part in value)
        if not isinstance(value, dict):
            return value
        ((key, inside),) = value.items()
        return self.at(inside) if key == "ref" else _VALUES[key](self, inside)


_VALUES: dict[str, Callable[[_Reader, Json], object]] = {
    "dtype": lambda reader, text: DType(cast(str, text)),
    "float": lambda reader, text: float(cast(str, text)),
    "loop": lambda reader, text: S.LoopKind(text),
    "dict": lambda reader, pairs: {key: reader.value(part) for key, part in cast(list[tuple[str, Json]], pairs)},
}
_MAKERS: dict[str, Callable[..., Saved]] = {
    "Range": lambda min, extent: E.Range.from_min_extent(min, extent),
    "Tensor": lambda op, index: op.output(index),
    "PlaceholderOp": PlaceholderOp,
    "ComputeOp": ComputeOp,
    "ExternOp": ExternOp,
    "ScanOp": ScanOp,
    # the names are those of the fields in files
    "Schedule": lambda outputs, told: apply_directives(Schedule(outputs), directives_from_json(told)),
}
