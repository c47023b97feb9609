"""`relay.visualize`: the graph of a function as a picture, or two of them side by side.

In: a module, function or expression; with `after=`, a second one. Out: a `Picture` (SVG; it shows itself in notebooks).
A kernel is one box that lists its operators; constants and weights are written into the box that reads them; edges
carry shapes; the colour says the kind of operator; pointing at a box shows its text. Invariant: nothing is fetched and
no program is started; the picture is self-contained. Layout: layout.py. Drawing: svg.py.
"""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.base.boundary import boundary
from armillary.base.files import write_atomic
from armillary.base.node import Visits
from armillary.errors import TypeMismatch
from armillary.ir import GlobalVar, IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from armillary.relay.infer import infer_type
from armillary.relay.op import Kind, Op, is_primitive
from armillary.relay.printer import astext, attribute_text, literal_text
from armillary.relay.types import TensorType, TupleType, Type, tensor_fields
from armillary.relay.visualization.svg import Box, Edge, Graph, Row, draw
from armillary.relay.walk import children, not_primitive, post_order

_LONGEST_TEXT = 42  # letters of attributes in a box
_MANY_PARAMETERS = 4  # with more of them, those that no operator reads first are taken for weights
_TOOLTIP = 1500  # letters
_TOLD_BY_SHAPES = frozenset({"channels", "kernel_size", "units", "out_dtype"})


class Picture:
    """A drawn graph: `svg` is its text, `save` writes .svg or .html."""

    def __init__(self, svg: str, title: str) -> None:
        self.svg, self.title = svg, title

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<picture of {self.title}, {len(self.svg)} bytes of SVG>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture: the SVG itself, or, for .html, a page that holds it."""
        file = Path(path)
        text = self.svg
        if file.suffix.lower() in (".html", ".htm"):
            head = f'<!doctype html><meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            text = f"{head}<body style='margin:0'>{self.svg}</body>"
        elif file.suffix.lower() != ".svg":
            raise TypeMismatch(f"a picture is saved as .svg or .html, not {file.suffix!r}")
        write_atomic(file, text.encode())


@boundary("visualize", arguments=True)
def visualize(
    item: IRModule | Expr,
    path: str | os.PathLike[str] | None = None,
    *,
    after: IRModule | Expr | None = None,
    name: str = "main",
) -> Picture:
    """Draw a function (of a module: the one called `name`), beside it the graph `after`; save it where `path` says."""
    graphs = [_graph(item, name, "before" if after is not None else "")]
    if after is not None:
        graphs.append(_graph(after, name, "after"))
    picture = Picture(draw(graphs), f"@{name}")
    if path is not None:
        picture.save(path)
    return picture


def _graph(item: IRModule | Expr, name: str, title: str) -> Graph:
    root, module = (item[name], item) if isinstance(item, IRModule) else (item, None)
    if not isinstance(root, Expr):
        raise TypeMismatch(f"visualize draws relay functions, got {type(root).__name__}")
    infer_type(root, module)
    return _Builder(root, title).build()


@dataclass
class _Builder:
    """Turns expressions into boxes; `sources` says which boxes the value of an expression comes from."""

    root: Expr
    title: str
    boxes: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    sources: dict[int, list[tuple[int, Type]]] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)  # of variables and constants that are not drawn
    lets: dict[int, Expr] = field(default_factory=dict)  # values of bound variables

    def build(self) -> Graph:
        """The boxes in an order in which each comes after what it reads, then the outputs."""
        body = self.body
        order = post_order(body, not_primitive)
        parameters = self.root.params if isinstance(self.root, Function) else ()
        folded = _weights(parameters, order)
        self.lets = {id(e.var): e.value for e in order if isinstance(e, Let)}
        for parameter in parameters:
            if id(parameter) not in folded:
                self._input(parameter)
        for expr in order:
            _VISIT.get(type(expr), _Builder.other)(self, expr)
        self._outputs(body)
        return Graph(self.title, self.boxes, self.edges)

    @property
    def body(self) -> Expr:
        """What is drawn: the body of a function."""
        return self.root.body if isinstance(self.root, Function) else self.root

    def _box(self, box: Box, reads: Sequence[tuple[int, Type]], result_type: Type) -> list[tuple[int, Type]]:
        number = len(self.boxes)
        self.boxes.append(box)
        self.edges += [Edge(source, number, shape_text(ty)) for source, ty in reads]
        return [(number, result_type)]

    def _input(self, var: Var) -> None:
        row = Row(f"%{var.name_hint}", "", shape_text(var.checked_type))
        self.sources[id(var)] = self._box(Box("input", [row], str(var.checked_type)), [], var.checked_type)

    def _outputs(self, body: Expr) -> None:
        reads = self._read(body)
        for k, (source, ty) in enumerate(reads):
            text = "output" if len(reads) == 1 else f"output {k}"
            self._box(Box("output", [Row(text)], str(ty)), [(source, ty)], ty)
        if not reads:
            self._box(Box("output", [Row("output"), Row(self.notes.get(id(body), ""))], ""), [], body.checked_type)

    def _read(self, expr: Expr) -> list[tuple[int, Type]]:
        return self.sources.get(id(expr), [])

    # --- one kind of expression each ---

    def constant(self, expr: Constant) -> None:
        text = str(expr.data.item()) if expr.data.size == 1 else shape_text(expr.checked_type)
        self.notes[id(expr)] = text[:24]

    def variable(self, expr: Var) -> None:
        if id(expr) in self.lets:  # its value was visited before it
            self.sources[id(expr)] = self._read(self.lets[id(expr)])
        elif id(expr) not in self.sources:
            self.notes[id(expr)] = f"%{expr.name_hint} {shape_text(expr.checked_type)}"

    def tuple(self, expr: Tuple) -> None:
        self.sources[id(expr)] = [source for f in expr.fields for source in self._read(f)]
        self.notes[id(expr)] = ", ".join(self.notes[id(f)] for f in expr.fields if id(f) in self.notes)

    def item(self, expr: TupleGetItem) -> None:
        if isinstance(expr.tuple_value, Tuple):
            self.sources[id(expr)] = self._read(expr.tuple_value.fields[expr.index])
        else:
            self.sources[id(expr)] = [(source, expr.checked_type) for source, _ in self._read(expr.tuple_value)[:1]]

    def let(self, expr: Let) -> None:
        self.sources[id(expr)] = self._read(expr.body)

    def call(self, expr: Call) -> None:
        rows, kind = _call_rows(expr)
        reads = [source for a in expr.args for source in self._read(a)]
        folded = [(k, self.notes[id(a)]) for k, a in enumerate(expr.args) if self.notes.get(id(a))]
        if not reads and folded and expr is not self.body:  # computed once, from weights
            short = rows[0].text.rpartition(".")[2].removeprefix("contrib_").removeprefix("conv2d_")
            self.notes[id(expr)] = f"{short}({', '.join(text for _, text in folded)})"
            return
        names = expr.op.inputs if isinstance(expr.op, Op) else ()
        labels: dict[str, list[str]] = {}
        for k, text in folded:
            label = names[k].lstrip("*") if k < len(names) and not text.startswith("%") else ""
            labels.setdefault(text, []).append(label)
        notes = (_shortened(f"{' '.join(labels_of)} {text}".strip()) for text, labels_of in labels.items())
        rows += [Row("", "", note, is_note=True) for note in notes]
        self.sources[id(expr)] = self._box(Box(kind, rows, _tooltip(expr)), reads, expr.checked_type)

    def other(self, expr: Expr) -> None:
        """Branches, loops and functions as values: a box that reads all its parts."""
        reads = [source for child in children(expr) for source in self._read(child)]
        self.sources[id(expr)] = self._box(
            Box("control", [Row(type(expr).__name__.lower())], _tooltip(expr)), reads, expr.checked_type
        )


_VISIT: Visits[_Builder, [], None] = {
    Constant: _Builder.constant,
    Var: _Builder.variable,
    Tuple: _Builder.tuple,
    TupleGetItem: _Builder.item,
    Let: _Builder.let,
    Call: _Builder.call,
    Function: lambda builder, expr: None if is_primitive(expr) else builder.other(expr),
}


def _weights(parameters: Sequence[Var], order: Sequence[Expr]) -> set[int]:
    """Parameters that are written into boxes instead of drawn: none unless there are many."""
    if len(parameters) <= _MANY_PARAMETERS:
        return set()
    first = {id(f) for e in order if isinstance(e, Call) and e.args for f in _first(e.args[0])}
    return {id(p) for p in parameters} - first


def _first(expr: Expr) -> Sequence[Expr]:
    return expr.fields if isinstance(expr, Tuple) else (expr,)


def _call_rows(call: Call) -> tuple[list[Row], str]:
    """The lines of a call's box, and the kind that colours it."""
    op = call.op
    if isinstance(op, Op):
        text = _brief_attributes(call.attrs)
        rows = [Row(op.name, kind_name(op))]
        return rows + ([Row("", "", _shortened(text), is_note=True)] if text else []), kind_name(op)
    if isinstance(op, GlobalVar):
        return [Row(f"@{op.name_hint}")], "control"
    if not isinstance(op, Function):
        return [Row("call")], "control"
    inside = [e.op for e in post_order(op.body) if isinstance(e, Call) and isinstance(e.op, Op)]
    label = op.get_attr("Composite") or op.get_attr("Compiler") or ""
    rows = [Row(str(label))] if label else []
    for inner in inside:
        if rows and rows[-1].text == inner.name:
            rows[-1].times += 1
        else:
            rows.append(Row(inner.name, kind_name(inner)))
    computing = [e for e in inside if e.kind <= Kind.CONTRACTION]
    strongest = max(computing, key=lambda e: e.kind, default=None)
    return rows or [Row("identity")], kind_name(strongest) if strongest is not None else "opaque"


def _brief_attributes(attrs: Any) -> str:  # Any: each operator has its own class
    """Attributes that differ from their defaults, `[2, 2]` as 2, without those that a weight's shape tells."""
    if attrs is None:
        return ""
    fields = (f for f in dataclasses.fields(attrs) if f.name not in _TOLD_BY_SHAPES)
    shown = ((f.name, _brief(getattr(attrs, f.name)), f.default) for f in fields)
    return ", ".join(f"{name}={text}" for name, text, default in shown if text != _brief(default))


def _brief(value: object) -> str:  # attribute values differ by operator
    if isinstance(value, tuple) and value and all(v == value[0] for v in value):
        value = value[0]
    return f"{value:.4g}" if isinstance(value, float) else literal_text(value)


def kind_name(op: Op) -> str:
    """The kind of an operator in lower case."""
    return op.kind.name.lower()


def shape_text(ty: Type) -> str:
    """1×64×56×56, with the element type unless it is float32."""
    if isinstance(ty, TupleType):
        return f"{len(ty.fields)} values"
    if not isinstance(ty, TensorType):
        return "function"
    dims = "×".join(map(str, ty.shape)) or "scalar"
    return dims if ty.dtype == "float32" else f"{dims} {ty.dtype}"


def _shortened(text: str, longest: int = _LONGEST_TEXT) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _tooltip(expr: Expr) -> str:
    """The type and the text of an expression, its arguments as variables."""
    lines = [str(expr.checked_type)]
    span = getattr(expr, "span", None)
    if span is not None and span.name:
        lines.append(f"from {span.name}")
    if isinstance(expr, Call) and isinstance(expr.op, Op):
        types = [str(t) for a in expr.args for t in tensor_fields(a.checked_type)]
        lines.append(f"{expr.op.name}({', '.join([*types, *attribute_text(expr.attrs)])})")
    elif isinstance(expr, Call) and isinstance(expr.op, Function):
        lines.append(astext(expr.op, show_meta_data=False))
    return _shortened("\n".join(lines), _TOOLTIP)
