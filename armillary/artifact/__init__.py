"""The package: the only thing compiler and runtime share.

In: rows describing compiled functions, a graph over them, named parameters. Out: the descriptor JSON, the Relay-era
graph JSON and params blob - and all of them back. The tar that holds them with the library: `artifact/package.py`.
Invariant: what was written reads back equal; damaged or hostile input raises ArtifactError, before any allocation.
Parsing helpers are in `artifact/json_form.py`; the C twins of these readers in `runtime/native`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, field, replace
from typing import Literal

from armillary.artifact.json_form import Reader, dump, parse
from armillary.artifact.launches import LaunchRow, read_launch
from armillary.artifact.outputs import ModelOutputs, read_outputs
from armillary.artifact.params import MAX_BYTES as MAX_BYTES
from armillary.artifact.params import MAX_NDIM as MAX_NDIM
from armillary.artifact.params import load_params as load_params
from armillary.artifact.params import params_size as params_size
from armillary.artifact.params import save_params as save_params
from armillary.artifact.params import tensor_bytes as tensor_bytes
from armillary.artifact.params import type_code as type_code
from armillary.artifact.params import write_params as write_params
from armillary.base.dtype import DType
from armillary.base.extent import LARGEST, sizes_of
from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.errors import ArtifactError, ParseError, TypeMismatch

with deferred():  # most packages have no sizes
    from armillary.text.extent import parse_extent

ABI_VERSION = 1
MAX_NODES = 1 << 20
MAX_SIZES = 1024
MAX_JSON = 1 << 28


# ---------------------------------------------------------------------------------------------------- descriptor


@record(slots=True)
class ArgRow:
    """A tensor argument: a dimension is an int, the name of a var, bound from the actual tensor, or an expression."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    role: Literal["in", "out"] = "in"


@record(slots=True)
class VarRow:
    """A scalar argument or symbolic dimension; passed as int64 (floats as the bits of a double)."""

    name: str
    dtype: str = "int64"


@record(slots=True)
class PhaseRow:
    """One parallel loop: its C symbol and its extent (an int, or the symbol of a function of `vars`)."""

    symbol: str
    extent: int | str


@record(slots=True)
class ExternalRow:
    """Who computes an offloaded function: the library's kind, the source it is given; its last inputs are constants.

    `device`: where, "" for the CPU. `own_graph`: graph JSON of our own kernels for the same, or ""; its inputs are the
    function's, then `own_constants` parameters, which come behind the library's constants.
    """

    kind: str
    source: str
    constants: int = 0
    device: str = ""
    own_graph: str = ""
    own_constants: int = 0


RETURNED = "(returned)"  # the last argument of a function that returns a value: a tensor of one element, for that


@record(slots=True)
class FunctionRow:
    """How to call one compiled function; `asserts[k - 1]` is the message of return code k.

    An offloaded function has no phases but `external`, one of a device `launches`.
    """

    name: str
    args: tuple[ArgRow, ...]
    phases: tuple[PhaseRow, ...]
    vars: tuple[VarRow, ...] = ()
    workspace: int | str = 0  # bytes, or an expression over `vars`
    thread_workspace: int | str = 0
    asserts: tuple[str, ...] = ()
    external: ExternalRow | None = None
    launches: tuple[LaunchRow, ...] = ()
    may_overlap: bool = False  # what it writes may lie over its other arguments

    @property
    def scratch(self) -> tuple[int, int]:
        """Bytes of workspace, and of each thread's own, of a function of fixed sizes."""
        if isinstance(self.workspace, str) or isinstance(self.thread_workspace, str):
            raise TypeMismatch(f"{self.name}: its workspace depends on sizes", hint="run it in a graph")
        return self.workspace, self.thread_workspace

    @property
    def symbols(self) -> tuple[str, ...]:
        """Every symbol that the library must define for this function."""
        extents = [phase.extent for phase in self.phases if isinstance(phase.extent, str)]
        return (*(phase.symbol for phase in self.phases), *extents)


@record(slots=True)
class Descriptor:
    """What a compiled library holds: the target text it was built for and a row per function.

    `needs`: features of the processor, as LLVM spells them, without which the code meets unknown instructions.
    `device_code`: the source of all kernels, by the kind of device they run on.
    """

    target: str
    functions: Mapping[str, FunctionRow] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    abi: int = ABI_VERSION
    device_code: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The text exported as `armillary_descriptor`."""
        rows = {name: _function_to_json(row) for name, row in self.functions.items()}
        more = {"device_code": dict(self.device_code)} if self.device_code else {}
        return dump({"abi": self.abi, "target": self.target, "needs": list(self.needs), **more, "functions": rows})

    @staticmethod
    def from_json(text: str | bytes) -> Descriptor:
        """Read and validate a descriptor; ArtifactError if anything is off."""
        root = Reader(parse(text, "descriptor", MAX_JSON), "descriptor")
        abi = root.get("abi").integer(0, 1 << 30)
        if abi != ABI_VERSION:
            raise ArtifactError(f"descriptor: kernel ABI {abi} is not supported; this runtime knows {ABI_VERSION}")
        rows = root.get("functions").items()
        functions = {name: _read_function(name, r) for name, r in rows}
        needs = tuple(r.string() for r in root.get("needs").elements()) if root.has("needs") else ()
        code = {kind: r.string() for kind, r in root.get("device_code").items()} if root.has("device_code") else {}
        return Descriptor(root.get("target").string(), functions, needs, abi, code)


def _function_to_json(row: FunctionRow) -> dict[str, object]:
    external = row.external
    more: dict[str, object] = {}
    if external is not None:
        where: dict[str, object] = {"device": external.device} if external.device else {}
        if external.own_graph:
            where["own"] = {"graph": external.own_graph, "constants": external.own_constants}
        more = {
            "external": {"kind": external.kind, "constants": external.constants, "source": external.source, **where}
        }
    if row.launches:
        more = {**more, "launches": [launch.to_json() for launch in row.launches]}
    if row.may_overlap:
        more = {**more, "may_overlap": 1}
    return {
        "args": [{"name": a.name, "shape": list(a.shape), "dtype": str(a.dtype), "role": a.role} for a in row.args],
        "vars": [{"name": v.name, "dtype": str(v.dtype)} for v in row.vars],
        "workspace": row.workspace,
        "thread_workspace": row.thread_workspace,
        "asserts": list(row.asserts),
        "phases": [
            {"symbol": p.symbol, "extent": p.extent if isinstance(p.extent, int) else {"symbol": p.extent}}
            for p in row.phases
        ],
        **more,
    }


def _read_function(name: str, reader: Reader) -> FunctionRow:
    rows = reader.get("vars").elements()
    variables = tuple(VarRow(v.get("name").string(), _read_dtype(v.get("dtype"))) for v in rows)
    names = {v.name for v in variables}
    return FunctionRow(
        name=name,
        args=tuple(_read_arg(a, names) for a in reader.get("args").elements()),
        phases=tuple(_read_phase(p) for p in reader.get("phases").elements()),
        vars=variables,
        workspace=_read_extent(reader.get("workspace"), names),
        thread_workspace=_read_extent(reader.get("thread_workspace"), names),
        asserts=tuple(a.string() for a in reader.get("asserts").elements()),
        external=_read_external(reader.get("external")) if reader.has("external") else None,
        launches=tuple(read_launch(r) for r in reader.get("launches").elements()) if reader.has("launches") else (),
        may_overlap=reader.has("may_overlap") and reader.get("may_overlap").integer(0, 1) == 1,
    )


def _read_external(reader: Reader) -> ExternalRow:
    constants = reader.get("constants").integer(0, MAX_NODES)
    device = reader.get("device").string() if reader.has("device") else ""
    result = ExternalRow(reader.get("kind").string(), reader.get("source").string(), constants, device)
    if not reader.has("own"):
        return result
    own = reader.get("own")
    return replace(
        result, own_graph=own.get("graph").string(), own_constants=own.get("constants").integer(0, MAX_NODES)
    )


def _read_arg(reader: Reader, names: set[str]) -> ArgRow:
    shape: list[int | str] = []
    for entry in reader.get("shape").elements(MAX_NDIM):
        if isinstance(entry.value, str):
            shape.append(_read_extent(entry, names))
        else:
            shape.append(entry.integer(0, MAX_BYTES))
    role = reader.get("role")
    if role.value == "in":
        return ArgRow(reader.get("name").string(), tuple(shape), _read_dtype(reader.get("dtype")), "in")
    if role.value == "out":
        return ArgRow(reader.get("name").string(), tuple(shape), _read_dtype(reader.get("dtype")), "out")
    raise role.error('must be "in" or "out"')


def _read_extent(reader: Reader, names: Collection[str]) -> int | str:
    """A number, or the text of an expression over names that are known."""
    if not isinstance(reader.value, str):
        return reader.integer(0, MAX_BYTES)
    if reader.value in names:
        return reader.value
    try:
        unknown = set(sizes_of([parse_extent(reader.value)])) - set(names)
    except ParseError as error:
        raise reader.error(f"{reader.value[:80]!r} is no extent: {error.message}") from None
    if unknown:
        raise reader.error(f"{reader.value[:80]!r} reads {', '.join(sorted(unknown))}, which is not declared")
    return reader.value


def _read_phase(reader: Reader) -> PhaseRow:
    extent = reader.get("extent")
    if isinstance(extent.value, dict):
        return PhaseRow(reader.get("symbol").identifier(), extent.get("symbol").identifier())
    return PhaseRow(reader.get("symbol").identifier(), extent.integer(0, MAX_BYTES))


def _read_dtype(reader: Reader) -> str:
    name = reader.string()
    try:
        dtype = DType(name)
        dtype.numpy  # noqa: B018 - raises for types that have no array form
    except (TypeMismatch, TypeError) as error:
        raise reader.error(f"unusable dtype {name[:40]!r}") from error
    return dtype


# --------------------------------------------------------------------------------------------------------- graph


@record(slots=True)
class GraphNode:
    """An input or parameter (`op` is "null") or a call of a compiled function (`op` is "tvm_op").

    `inputs` are (node id, output index, version). A call whose `func_name` is `__nop` lays its inputs one after another
    (with one input: renames its storage); what the memory plan put in place already is not copied. `__copy` moves its
    input to another device.
    """

    op: str
    name: str
    inputs: tuple[tuple[int, int, int], ...] = ()
    func_name: str = ""
    num_outputs: int = 1
    attrs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_load_time(self) -> bool:
        """Whether it runs once, when parameters are set."""
        return self.attrs.get("load_time") == "1"

    @property
    def is_size_time(self) -> bool:
        """Whether it runs when sizes are bound to other values."""
        return self.attrs.get("size_time") == "1"


@record(slots=True)
class VariantRow:
    """What runs for some shapes of inputs: nodes [begin, end), positions in `arg_nodes`, and heads [first, count]."""

    nodes: tuple[int, int]
    inputs: tuple[int, ...]
    heads: tuple[int, int]

    def to_json(self) -> dict[str, object]:
        """A row of the graph's `variants`."""
        return {"nodes": list(self.nodes), "inputs": list(self.inputs), "heads": list(self.heads)}

    def check(self, nodes: int, inputs: int, heads: int) -> None:
        """Refuse what is not a part of the graph."""
        inside = 0 <= self.nodes[0] <= self.nodes[1] <= nodes and 0 <= sum(self.heads) <= heads
        if not inside or any(index >= inputs for index in self.inputs):
            raise ArtifactError(f"graph.variants: {self} is not a part of the graph")


def _read_variant(reader: Reader) -> VariantRow:
    inputs = tuple(i.integer(0, MAX_NODES) for i in reader.get("inputs").elements())
    return VariantRow(_read_pair(reader.get("nodes")), inputs, _read_pair(reader.get("heads")))


def _read_pair(reader: Reader) -> tuple[int, int]:
    values = tuple(v.integer(0, MAX_NODES) for v in reader.elements())
    if len(values) != 2:
        raise reader.error("must be two numbers")
    return values[0], values[1]


@record(slots=True)
class SizeRow:
    """A named size, whose value the inputs give: its bounds, both included, and a number that divides it."""

    name: str
    low: int
    high: int
    step: int = 1
    typical: int = 0  # what kernels were chosen for; 0: not said


def _read_size(reader: Reader) -> SizeRow:
    low = reader.get("low").integer(0, LARGEST)
    return SizeRow(
        reader.get("name").identifier(),
        low,
        reader.get("high").integer(low, LARGEST),
        reader.get("step").integer(1, LARGEST),
        reader.get("typical").integer(0, LARGEST) if reader.has("typical") else 0,
    )


@record(slots=True)
class GraphSpec:
    """A graph of compiled functions with its memory plan.

    Node outputs are numbered consecutively (*entries*); `shapes`, `dltypes` and `storage_ids` have one row per entry.
    `arena_offsets` has one row per storage id: a byte offset in the arena, or -1 for storage that owns its memory.
    `image_widths` has one, too, where some are images: their widths in pixels, or 0; `storage_scopes` one per entry.
    """

    nodes: tuple[GraphNode, ...]
    arg_nodes: tuple[int, ...]
    heads: tuple[tuple[int, int, int], ...]
    shapes: tuple[tuple[int | str, ...], ...]  # a text: an expression over `sizes`
    dltypes: tuple[str, ...]
    storage_ids: tuple[int, ...]
    arena_offsets: tuple[int, ...] = ()
    variants: tuple[VariantRow, ...] = ()
    image_widths: tuple[int, ...] = ()
    storage_scopes: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()  # by entry: DLPack's number of the device it lies on; empty: all are on one
    outputs: ModelOutputs = ModelOutputs()
    sizes: tuple[SizeRow, ...] = ()
    states: tuple[int, ...] = ()  # of `arg_nodes`, those that a run writes
    lifetimes: tuple[int, ...] = ()  # with sizes, in place of offsets: first and last step of each storage, or -1, -1

    @property
    def node_row_ptr(self) -> tuple[int, ...]:
        """First entry of each node, and the number of entries."""
        rows = [0]
        for node in self.nodes:
            rows.append(rows[-1] + node.num_outputs)
        return tuple(rows)

    @property
    def fixed_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes as numbers; TypeMismatch where they depend on sizes."""
        fixed = tuple(tuple(d for d in shape if isinstance(d, int)) for shape in self.shapes)
        if any(len(numbers) != len(shape) for numbers, shape in zip(fixed, self.shapes)):
            raise TypeMismatch("the graph's shapes depend on sizes", hint="compile it for fixed shapes: shape=")
        return fixed

    def entry(self, node: int, output: int = 0) -> int:
        """Number of the entry for output `output` of node `node`."""
        return self.node_row_ptr[node] + output

    def to_json(self) -> str:
        """The Relay-era graph JSON (plus the attribute `arena_offset`)."""
        attrs: dict[str, object] = {
            "shape": ["list_shape", [list(shape) for shape in self.shapes]],
            "dltype": ["list_str", [str(dtype) for dtype in self.dltypes]],
            "storage_id": ["list_int", list(self.storage_ids)],
        }
        if self.arena_offsets:
            attrs["arena_offset"] = ["list_int", list(self.arena_offsets)]
        if self.image_widths:
            attrs["image_width"] = ["list_int", list(self.image_widths)]
            attrs["storage_scope"] = ["list_str", list(self.storage_scopes)]
        if self.devices:
            attrs["device_index"] = ["list_int", list(self.devices)]
        if self.states:
            attrs["state"] = ["list_int", list(self.states)]
        if self.lifetimes:
            attrs["lifetime"] = ["list_int", list(self.lifetimes)]
        more: dict[str, object] = {"variants": [row.to_json() for row in self.variants]} if self.variants else {}
        if self.sizes:
            more["sizes"] = [asdict(row) for row in self.sizes]
        return dump(
            {
                "nodes": [_node_to_json(node) for node in self.nodes],
                "arg_nodes": list(self.arg_nodes),
                "heads": [list(head) for head in self.heads],
                "attrs": attrs,
                "node_row_ptr": list(self.node_row_ptr),
                **more,
                **self.outputs.to_json(),
            }
        )

    @staticmethod
    def from_json(text: str | bytes) -> GraphSpec:
        """Read and validate graph JSON; ArtifactError if anything is off."""
        root = Reader(parse(text, "graph", MAX_JSON), "graph")
        attrs = root.get("attrs")
        sizes = tuple(map(_read_size, root.get("sizes").elements(MAX_SIZES))) if root.has("sizes") else ()
        names = frozenset(row.name for row in sizes)
        spec = GraphSpec(
            nodes=tuple(_read_node(n) for n in root.get("nodes").elements(MAX_NODES)),
            arg_nodes=tuple(a.integer(0, MAX_NODES) for a in root.get("arg_nodes").elements()),
            heads=tuple(_read_edge(h) for h in root.get("heads").elements()),
            shapes=tuple(
                tuple(_read_extent(d, names) for d in s.elements(MAX_NDIM))
                for s in attrs.tagged("shape", "list_shape").elements()
            ),
            dltypes=tuple(_read_dtype(d) for d in attrs.tagged("dltype", "list_str").elements()),
            storage_ids=tuple(s.integer(0, MAX_NODES) for s in attrs.tagged("storage_id", "list_int").elements()),
            arena_offsets=tuple(a.integer(-1, MAX_BYTES) for a in attrs.tagged("arena_offset", "list_int").elements())
            if attrs.has("arena_offset")
            else (),
            image_widths=tuple(w.integer(0, MAX_NODES) for w in attrs.tagged("image_width", "list_int").elements())
            if attrs.has("image_width")
            else (),
            storage_scopes=tuple(s.string() for s in attrs.tagged("storage_scope", "list_str").elements())
            if attrs.has("storage_scope")
            else (),
            devices=tuple(d.integer(1, 255) for d in attrs.tagged("device_index", "list_int").elements())
            if attrs.has("device_index")
            else (),
            variants=tuple(map(_read_variant, root.get("variants").elements())) if root.has("variants") else (),
            outputs=read_outputs(root),
            sizes=sizes,
            states=tuple(s.integer(0, MAX_NODES) for s in attrs.tagged("state", "list_int").elements())
            if attrs.has("state")
            else (),
            lifetimes=tuple(step.integer(-1, MAX_NODES) for step in attrs.tagged("lifetime", "list_int").elements())
            if attrs.has("lifetime")
            else (),
        )
        spec.validate()
        rows = tuple(r.integer(0, 1 << 40) for r in root.get("node_row_ptr").elements())
        if rows != spec.node_row_ptr:
            raise ArtifactError("graph.node_row_ptr does not agree with the nodes' num_outputs")
        return spec

    def validate(self) -> None:
        """Refuse ids out of range, edges that point forward, wrong counts and absurd sizes."""
        rows = self.node_row_ptr
        entries = rows[-1]
        lengths = (len(self.shapes), len(self.dltypes), len(self.storage_ids))
        if lengths != (entries,) * 3:
            raise ArtifactError(f"graph.attrs: {entries} entries, but shape, dltype, storage_id have {lengths} rows")
        if self.devices and len(self.devices) != entries:
            raise ArtifactError(f"graph.attrs.device_index has {len(self.devices)} rows for {entries} entries")
        for index, node in enumerate(self.nodes):
            _check_edges(self, node.inputs, index, f"graph.nodes[{index}] ({node.name!r})")
        _check_edges(self, self.heads, len(self.nodes), "graph.heads")
        nulls = tuple(i for i, node in enumerate(self.nodes) if node.op == "null")
        if tuple(sorted(self.arg_nodes)) != nulls:
            raise ArtifactError('graph.arg_nodes must list exactly the nodes whose op is "null"')
        storages = max(self.storage_ids, default=-1) + 1
        if self.arena_offsets and len(self.arena_offsets) < storages:
            got = len(self.arena_offsets)
            raise ArtifactError(f"graph.attrs.arena_offset has {got} rows for {storages} storage ids")
        if self.image_widths and (len(self.image_widths), len(self.storage_scopes)) != (storages, entries):
            raise ArtifactError(f"graph.attrs.image_width has {len(self.image_widths)} rows for {storages} storage ids")
        self.outputs.check(self.variants[0].heads[1] if self.variants else len(self.heads))
        if not set(self.states) <= set(self.arg_nodes):
            raise ArtifactError("graph.attrs.state: a row is no input of the graph")
        if self.sizes and len(self.lifetimes) != 2 * storages:
            raise ArtifactError(f"graph.attrs.lifetime has {len(self.lifetimes)} numbers for {storages} storage ids")
        for row in self.variants:
            row.check(len(self.nodes), len(self.arg_nodes), len(self.heads))
        fixed = (tuple(d for d in shape if isinstance(d, int)) for shape in self.shapes)
        total = sum(tensor_bytes(shape, dtype) for shape, dtype in zip(fixed, self.dltypes))
        if total > MAX_BYTES:
            raise ArtifactError(f"graph: its tensors take {total} bytes; the limit is {MAX_BYTES}")


def _node_to_json(node: GraphNode) -> dict[str, object]:
    result: dict[str, object] = {"op": node.op, "name": node.name, "inputs": [list(edge) for edge in node.inputs]}
    if node.op != "null":
        result["attrs"] = {
            **node.attrs,
            "func_name": node.func_name,
            "flatten_data": "0",
            "num_inputs": str(len(node.inputs)),
            "num_outputs": str(node.num_outputs),
        }
    return result


def _read_node(reader: Reader) -> GraphNode:
    op = reader.get("op")
    inputs = tuple(_read_edge(edge) for edge in reader.get("inputs").elements(MAX_NODES))
    name = reader.get("name").string()
    if op.value == "null":
        if inputs:
            raise reader.error("an input node cannot have inputs")
        return GraphNode("null", name)
    if op.value != "tvm_op":
        raise op.error('must be "null" or "tvm_op"')
    attrs = reader.get("attrs")
    known = ("func_name", "flatten_data", "num_inputs", "num_outputs")
    func_name = attrs.get("func_name").string()
    if attrs.get("num_inputs").decimal(MAX_NODES) != len(inputs):
        raise attrs.error(f"num_inputs does not agree with the {len(inputs)} inputs")
    outputs = attrs.get("num_outputs").decimal(MAX_NODES)
    if func_name == "__nop" and (len(inputs) < 1 or outputs != 1):
        raise reader.error("a __nop has inputs and one output")
    rest = {key: value.string() for key, value in attrs.items() if key not in known and isinstance(value.value, str)}
    return GraphNode("tvm_op", name, inputs, func_name, outputs, rest)


def _read_edge(reader: Reader) -> tuple[int, int, int]:
    numbers = [entry.integer(0, MAX_NODES) for entry in reader.elements(3)]
    if len(numbers) < 2:
        raise reader.error("an edge is [node, output] or [node, output, version]")
    return (numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 0)


def _check_edges(spec: GraphSpec, edges: tuple[tuple[int, int, int], ...], limit: int, where: str) -> None:
    for node, output, _ in edges:
        if node >= limit:
            raise ArtifactError(f"{where}: refers to node {node}, but only nodes below {limit} come before")
        if output >= spec.nodes[node].num_outputs:
            raise ArtifactError(f"{where}: node {node} has {spec.nodes[node].num_outputs} outputs; got index {output}")
