"""Reading and checking an ONNX model before anything is imported.

In: a path, bytes or a ModelProto. Out: a `Model` (proto, source name for spans, the file if it is one, opsets), and
`ordered_nodes(graph)`: the nodes in an order where each follows what it reads. Invariant: a graph that passes has one
producer per name, no missing name and no cycle; anything else was a ModelError naming file, node and name.
The walk over the nodes is in onnx/walk.py.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsInt

from armillary.base.aliases import Array
from armillary.base.aligned import Deferred
from armillary.base.files import MOST_MODEL_BYTES, read_regular
from armillary.base.record import record
from armillary.base.stored import Aside, FilePart, HeldFile
from armillary.errors import ModelError, Span, UnsupportedError
from armillary.frontend.formats import refuse_file
from armillary.frontend.onnx.plain import PlainModel, plain_model
from armillary.frontend.onnx.proto import onnx, plain_domain, protobuf
from armillary.frontend.onnx.signature import newest_opset
from armillary.frontend.onnx.split import split_model

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

_MAX_NESTING = 32
Importable = Callable[[str, str, int], bool]  # domain, operator, version


@record
class Model:
    """A parsed model: `source` is what errors call it, `opsets` maps domains ("" for ONNX's own) to versions.

    `proto` is a ModelProto, or a PlainModel, which looks like one.

    `large` has the bytes of initialisers of the main graph, by number, that `proto` lacks. `aside` takes large weights
    of a message or file that somebody may change, so that they are not in memory while others are packed. `read` keeps
    initialisers of the main graph for the next variant, `held` files of external data that are read when needed.
    """

    proto: ModelProto
    source: str
    file: Path | None
    opsets: dict[str, int]
    large: Mapping[int, FilePart] = dataclasses.field(default_factory=dict)
    aside: Aside | None = None
    read: dict[int, Array | Deferred] = dataclasses.field(default_factory=dict)
    held: dict[Path, HeldFile] = dataclasses.field(default_factory=dict)


def load_model(
    model: object, opset: int | None = None, *, importable: Importable | None = None, waits: bool = False
) -> Model:
    """Read a model from a path, its bytes, or a ModelProto; one that was read already stays.

    `opset` overrides the version the model declares.

    With `importable` the bytes of large initialisers may be in `Model.large` alone (onnx/split.py), and a file whose
    operators it accepts may be read without the onnx package (onnx/plain.py). With `waits` too, the large initialisers
    of a file are read when they are needed.
    """
    if not (opset is None or isinstance(opset, SupportsInt)):
        raise ModelError(f"opset= is {opset!r}, wanted a whole number")
    if isinstance(model, Model):
        return model
    if isinstance(model, bytes | bytearray | memoryview):
        checked = _checked(_parse(bytes(model), "<bytes>"), "<bytes>", None, opset)
        return dataclasses.replace(checked, aside=Aside())
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        refuse_file(str(path))
        try:
            if path.exists() and not path.is_file() and not path.is_dir():
                raise ModelError("the model is not a regular file", span=Span(str(path)), hint="copy it to a file")
            parts = split_model(path) if importable is not None else None
            data = read_regular(path, MOST_MODEL_BYTES) if parts is None else parts.proto
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ModelError(f"cannot read the model: {reason}", span=Span(str(path))) from None
        proto: Any = _plain(data, opset, importable) if importable is not None else None
        checked = _checked(proto or _parse(data, str(path)), str(path), path, opset)
        large = {} if parts is None else parts.large
        return dataclasses.replace(checked, large=large, aside=None if waits else Aside())
    if isinstance(model, onnx.ModelProto):
        checked = _checked(model, model.graph.name or "<model>", None, opset)
        return dataclasses.replace(checked, aside=Aside())
    raise ModelError(f"a model is a path, bytes or an onnx.ModelProto, got {type(model).__name__}")


def _plain(data: bytes, opset: int | None, importable: Importable) -> PlainModel | None:
    """The model if it is plain, and its operators are imported one by one: functions need onnx's messages."""
    model = plain_model(data)
    if model is None:
        return None
    versions = {plain_domain(entry.domain): entry.version for entry in model.opset_import}
    if opset is not None:
        versions[""] = int(opset)
    kinds = {(plain_domain(node.domain), node.op_type) for node in model.graph.node}
    return model if all(importable(d, name, versions.get(d, 1)) for d, name in kinds) else None


def _parse(data: bytes, source: str) -> ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (protobuf.DecodeError, ValueError, RuntimeError) as error:
        what, hint = _looks_like(data)
        message = f"{what}, not an ONNX model" if what else f"not a readable ONNX file ({len(data)} bytes): {error}"
        raise ModelError(message, span=Span(source), hint=hint) from None
    return proto


def _looks_like(data: bytes) -> tuple[str, str]:
    """What a file is that was meant to be a model, "" if that is not known; and what to do."""
    start = data[:512].lstrip().lower()
    if start.startswith(b"version https://git-lfs"):
        return "a pointer of Git LFS", "run `git lfs pull` where it was cloned"
    if start.startswith((b"<!doctype html", b"<html")):
        return "a page of HTML", "the download gave a page instead of the file: take the address of the file itself"
    if data.startswith(b"PK\x03\x04"):
        return "a zip archive", "unpack it; a .pt file of PyTorch goes through torch.export or torch.onnx.export"
    if data.startswith(b"\x89HDF"):
        return "an HDF5 file", "name it .h5 if it is a model of Keras"
    return "", "the file is damaged, cut short, or of another format"


def _checked(proto: ModelProto, source: str, file: Path | None, opset: int | None) -> Model:
    span = Span(source)
    if not proto.HasField("graph"):
        raise ModelError("the file holds no graph", span=span, hint="it is not an ONNX model, or it is empty")
    if not proto.graph.output:
        raise ModelError("the graph has no output", span=span)
    opsets = opset_versions(proto.opset_import, source)
    if opset is not None:
        opsets[""] = int(opset)
    if not isinstance(proto, PlainModel):
        refuse_names(proto.graph, source)
    if "" not in opsets:
        if proto.ir_version >= 3 and (not opsets or any(not plain_domain(n.domain) for n in proto.graph.node)):
            hint = "name it in the model's opset_import, or pass opset= to from_onnx"
            raise ModelError("the model does not say which operator set it uses", span=span, hint=hint)
        opsets[""] = 1
    newest = newest_opset()
    if opsets[""] > newest:
        newest = max(newest, onnx.defs.onnx_opset_version())
    if not 1 <= opsets[""] <= newest:
        raise UnsupportedError(f"operator set {opsets['']} is not known (1 to {newest} are)", span=span)
    return Model(proto, source, file, opsets)


def refuse_names(graph: GraphProto, source: str) -> None:
    """Raise ModelError for a name of a graph, or of a graph in it, that is no text: protobuf hands over its bytes."""
    graphs = [graph]
    for part in graphs:
        named = (entry.name for group in (part.input, part.output, part.initializer, part.node) for entry in group)
        values = (name for node in part.node for names in (node.input, node.output) for name in names)
        attributes = (a.name for node in part.node for a in node.attribute)
        wrong = next((name for name in chain(named, values, attributes) if not isinstance(name, str)), None)
        if wrong is not None:
            raise ModelError(f"the name {wrong!r} in the model is not valid UTF-8", span=Span(source))
        graphs.extend(inner for node in part.node for inner in subgraphs(node))


def opset_versions(imports: Any, source: str) -> dict[str, int]:  # Any: repeated OperatorSetIdProto
    """Versions by domain, with "ai.onnx" written as ""."""
    versions: dict[str, int] = {}
    for entry in imports:
        domain = plain_domain(entry.domain)
        if versions.setdefault(domain, entry.version) != entry.version:
            name = domain or "ai.onnx"
            raise ModelError(f"the model imports two versions of operator set {name!r}", span=Span(source))
    return versions


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def reads(node: NodeProto, depth: int = 0) -> list[str]:
    """Names a node needs: its inputs, and what its sub-graphs take from outside."""
    names = [name for name in node.input if name]
    if depth > _MAX_NESTING:
        raise ModelError(f"sub-graphs are nested more than {_MAX_NESTING} deep", span=Span("", node.name))
    for graph in subgraphs(node):
        names += outer_names(graph, depth)
    return names


def outer_names(graph: GraphProto, depth: int = 0) -> list[str]:
    """Names that a sub-graph takes from outside."""
    inside = {value.name for value in graph.input} | {t.name for t in graph.initializer}
    inside.update(t.values.name for t in graph.sparse_initializer)
    inside.update(name for inner in graph.node for name in inner.output)
    used = [name for inner in graph.node for name in reads(inner, depth + 1)]
    used += [value.name for value in graph.output]
    return [name for name in used if name not in inside]


def ordered_nodes(graph: GraphProto, outer: Collection[str], source: str) -> list[NodeProto]:
    """The nodes that the outputs need, each after what it reads. `outer` holds names defined around the graph."""
    producers = _producers(graph, source)
    known = {value.name for value in graph.input} | {t.name for t in graph.initializer} | set(outer)
    known.update(t.values.name for t in graph.sparse_initializer)
    wanted = [value.name for value in graph.output]
    missing = [name for name in wanted if name not in producers and name not in known]
    if missing:
        raise ModelError(f"graph output {missing[0]!r} is produced by no node", span=Span(source))
    needed = _needed(graph, producers, known, wanted, source)
    return _sorted(graph, producers, needed, source)


def _producers(graph: GraphProto, source: str) -> dict[str, int]:
    names = [value.name for value in graph.input]
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    weights = [t.name for t in graph.initializer] + [t.values.name for t in graph.sparse_initializer]
    duplicates += [name for name, count in Counter(weights).items() if count > 1]
    if duplicates:
        raise ModelError(f"the name {duplicates[0]!r} is defined twice as an input or initialiser", span=Span(source))
    taken, producers = {*names, *weights}, dict[str, int]()
    for index, node in enumerate(graph.node):
        for name in node.output:
            if name and (name in producers or name in taken):
                raise ModelError(f"the name {name!r} is produced twice", span=node_span(source, node))
            if name:
                producers[name] = index
    return producers


def _needed(graph: GraphProto, producers: dict[str, int], known: set[str], wanted: list[str], source: str) -> set[int]:
    """Indices of the nodes the outputs depend on; every name they read must exist."""
    needed: set[int] = set()
    stack = [producers[name] for name in wanted if name in producers]
    while stack:
        index = stack.pop()
        if index in needed:
            continue
        needed.add(index)
        node = graph.node[index]
        for name in reads(node):
            if name in producers:
                stack.append(producers[name])
            elif name not in known:
                raise ModelError(
                    f"{node.op_type} reads {name!r}, which is no input, initialiser or output of a node",
                    span=node_span(source, node),
                )
    return needed


def _sorted(graph: GraphProto, producers: dict[str, int], needed: set[int], source: str) -> list[NodeProto]:
    """Kahn's algorithm, first come first served: a graph already in order keeps it."""
    waiting: dict[int, int] = {}
    readers: dict[int, list[int]] = {index: [] for index in needed}
    for index in sorted(needed):
        sources = {producers[name] for name in reads(graph.node[index]) if name in producers}
        waiting[index] = len(sources)
        for other in sources:
            readers[other].append(index)
    if all(max((producers[n] for n in reads(graph.node[i]) if n in producers), default=-1) < i for i in needed):
        return [graph.node[index] for index in sorted(needed)]
    ready = deque(index for index, count in waiting.items() if count == 0)
    order: list[int] = []
    while ready:
        index = ready.popleft()
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    if len(order) < len(needed):
        stuck = [graph.node[i] for i in sorted(needed - set(order))]
        names = ", ".join(repr(n.name or n.op_type) for n in stuck[:5])
        raise ModelError(f"the graph has a cycle through {names}", span=node_span(source, stuck[0]))
    return [graph.node[index] for index in order]


def node_span(source: str, node: NodeProto) -> Span:
    """Where a node is: its name, or its operator and first output when it has none."""
    return Span(source, node.name or f"{node.op_type} -> {node.output[0] if node.output else ''}")


def bind_attributes(node: NodeProto, values: dict[str, AttributeProto]) -> NodeProto:
    """A function-body node with `ref_attr_name` attributes replaced by the caller's values (or left out)."""
    bound = onnx.NodeProto()
    bound.CopyFrom(node)
    del bound.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in values:
                copy = bound.attribute.add()
                copy.CopyFrom(values[attribute.ref_attr_name])
                copy.name = attribute.name
            continue
        copy = bound.attribute.add()
        copy.CopyFrom(attribute)
        for inner in [copy.g] if copy.HasField("g") else list(copy.graphs):
            fresh = [bind_attributes(child, values) for child in inner.node]
            del inner.node[:]
            inner.node.extend(fresh)
    return bound
