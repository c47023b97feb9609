"""The JSON form of modules: `armillary.ir.save_json` and `load_json`.

    {"format": "armillary-ir", "version": 1, "root": 3, "spans": [[source, name, line, column], …],
     "nodes": [{"kind": "Var", "name": "x", "type": {…}}, {"kind": "Call", "op": "nn.relu", "args": [0], …}, …]}

In: an IRModule, a relay expression or a tir function. Out: one JSON object; each node names others by their position,
which is smaller than its own, so sharing is kept and nothing recurses. tir functions are held as their text, constants
as base64. Invariant: `load_json(save_json(x))` is structurally equal to `x`, spans included; a damaged or hostile text
is a ModelError, a graph that is well written but ill-typed a TypeMismatch.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.extent import Extent
from armillary.base.node import Visits, replace
from armillary.errors import ModelError, ParseError, Span, UnsupportedError
from armillary.ir import BaseFunc, GlobalVar, IRModule
from armillary.relay.adt.types import TypeKind, TypeVar
from armillary.relay.expr import Call, Constant, Expr, Function, Var
from armillary.relay.infer import check_module, infer_type
from armillary.relay.op import Op, get_op
from armillary.relay.printer import array_record
from armillary.relay.stored.metadata import read_array
from armillary.relay.types import ANY_DIM, AnyDim, FuncType, TensorType, TupleType, Type
from armillary.relay.walk import post_order
from armillary.target.target import Target
from armillary.te.stored import json_form as te_form
from armillary.text.extent import declared, parse_extent
from armillary.tir.parser import parse_module as parse_tir
from armillary.tir.printer import print_global
from armillary.tir.stmt import PrimFunc

FORMAT, VERSION = "armillary-ir", 1
TARGET_FORMAT = "armillary-target"
_DEEPEST = 64  # levels of tuples in attributes and types
_TIR_NAME = "tir_function"
Json = Any  # Any: a JSON value
# What type rules written for checked attributes raise on values of a wrong kind.
_MISFITS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, MemoryError)


@boundary("save_json", arguments=True)
def save_json(item: IRModule | Expr | BaseFunc) -> str:
    """The JSON text of a module, an expression, a function, a type or an operator's name."""
    if isinstance(item, Target):
        return json.dumps({"format": TARGET_FORMAT, "version": VERSION, "target": item.export()})
    if te_form.has_form(item):
        return te_form.save(item)
    writer = _Writer()
    root = writer.root(item)
    head = {"format": FORMAT, "version": VERSION, "root": root, "spans": list(map(list, writer.spans))}
    return json.dumps(head | {"nodes": writer.nodes}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@boundary("load_json", arguments=True)
def load_json(text: str | bytes | bytearray) -> Any:  # Any: an IRModule, Expr or PrimFunc
    """What `save_json` was given."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"not the JSON of a module: {error}") from None
    if isinstance(content, dict) and content.get("format") == TARGET_FORMAT:
        return Target(content.get("target"))
    if isinstance(content, dict) and content.get("format") == te_form.FORMAT:
        return te_form.load(content)
    return _Reader(content).load()


# --- writing --------------------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[dict[str, Json]] = []
        self.spans: dict[tuple[str, str, int, int], int] = {}
        self.ids: dict[int, int] = {}

    def root(self, item: object) -> int:  # checked here
        if isinstance(item, IRModule):
            pairs = [[self.global_var(var), self.function(f)] for var, f in item.functions.items()]
            return self._add({"kind": "IRModule", "functions": pairs})
        if isinstance(item, GlobalVar):
            return self.global_var(item)
        if isinstance(item, Type):
            return self._add({"kind": "Type", "type": _plain_type(item)})
        if isinstance(item, Op):
            return self._add({"kind": "Op", "name": item.name})
        return self.function(item)

    def function(self, item: object) -> int:  # checked here
        if isinstance(item, PrimFunc):
            return self._add({"kind": "PrimFunc", "text": print_global(_TIR_NAME, item, True)})
        if not isinstance(item, Expr):
            raise UnsupportedError(
                f"a {type(item).__name__} has no JSON form", hint="save a module, a function or a type"
            )
        for expr in post_order(item):
            if id(expr) not in self.ids:
                self.ids[id(expr)] = self._add(self._node(expr))
        return self.ids[id(item)]

    def global_var(self, var: GlobalVar) -> int:
        if id(var) not in self.ids:
            self.ids[id(var)] = self._add({"kind": "GlobalVar", "name": var.name_hint})
        return self.ids[id(var)]

    def _add(self, node: dict[str, Json]) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _node(self, expr: Expr) -> dict[str, Json]:
        node: dict[str, Json] = {"kind": type(expr).__name__, **_WRITE.get(type(expr), _Writer.parts)(self, expr)}
        span: Span | None = getattr(expr, "span", None)
        if span is not None:
            key = (span.source, span.name, span.line, span.column)
            node["span"] = self.spans.setdefault(key, len(self.spans))
        return node

    def many(self, exprs: Iterable[Expr]) -> list[int]:
        return [self.ids[id(e)] for e in exprs]

    def one(self, expr: Expr) -> int:
        return self.ids[id(expr)]

    def call(self, e: Call) -> dict[str, Json]:
        op: Json = self.global_var(e.op) if isinstance(e.op, GlobalVar) else None
        op = e.op.name if isinstance(e.op, Op) else self.one(e.op) if op is None else op
        node: dict[str, Json] = {"op": op, "args": self.many(e.args)}
        if e.attrs is not None:
            fields = dataclasses.fields(e.attrs)
            node["attrs"] = {f.name: _plain(getattr(e.attrs, f.name)) for f in fields}
        return node

    def literal(self, e: Function) -> dict[str, Json]:
        attrs = [[key, _plain(value)] for key, value in e.attrs]
        result = None if e.ret_type is None else _plain_type(e.ret_type)
        return {"params": self.many(e.params), "body": self.one(e.body), "ret_type": result, "attrs": attrs}

    def parts(self, e: Expr) -> dict[str, Json]:
        """Fields that are expressions, tuples of expressions or plain values."""
        return {name: self._field(getattr(e, name)) for name in e._fields if name != "span"}

    def _field(self, value: Any) -> Json:  # Any: field values differ by node
        if isinstance(value, Expr):
            return self.one(value)
        is_exprs = isinstance(value, tuple) and all(isinstance(v, Expr) for v in value)
        return self.many(value) if is_exprs else _plain(value)


_WRITE: Visits[_Writer, [], dict[str, Json]] = {
    Var: lambda w, e: {"name": e.name_hint} | ({"type": _plain_type(e.type_annotation)} if e.type_annotation else {}),
    Constant: lambda w, e: array_record(e.data),
    Call: _Writer.call,
    Function: _Writer.literal,
}


def _plain_type(ty: Type) -> Json:
    match ty:
        case TensorType(shape, dtype):
            return {"shape": [d if isinstance(d, int) else declared(d) for d in shape], "dtype": str(dtype)}
        case TupleType(fields):
            return {"fields": list(map(_plain_type, fields))}
        case FuncType(arg_types, ret_type, ()):
            return {"arguments": list(map(_plain_type, arg_types)), "result": _plain_type(ret_type)}
        case TypeVar(name, kind):
            return {"variable": name, "of": int(kind)}
    raise UnsupportedError(f"the type {ty} has no JSON form")


def _plain(value: object) -> Json:  # attribute values differ by operator
    """An attribute value: plain JSON where its meaning is clear, else an object with one key that names the kind."""
    match value:
        case DType():
            return {"dtype": str(value)}
        case None | bool() | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else {"float": repr(value)}
        case tuple():
            return list(map(_plain, value))
        case list():
            return {"list": list(map(_plain, value))}
        case dict():
            return {"dict": [[_plain(k), _plain(v)] for k, v in value.items()]}
        case np.ndarray() | np.generic():
            return {"array": array_record(np.asarray(value))}
        case Type():
            return {"type": _plain_type(value)}
        case Extent():
            return {"extent": declared(value)}
    raise UnsupportedError(f"an attribute of type {type(value).__name__} has no JSON form: {value!r}")


# --- reading --------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, content: Json) -> None:
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ModelError("not the JSON of a module", hint='it begins {"format": "armillary-ir", …}')
        if content.get("version") != VERSION:
            raise ModelError(f"the JSON form has version {content.get('version')!r}, this program reads {VERSION}")
        self.content = content
        self.made: list[Any] = []  # Any: Expr, GlobalVar, PrimFunc or IRModule
        self.spans = [self._span_row(row) for row in self._list(content, "spans")]

    def load(self) -> Any:  # Any: the root
        for node in self._list(self.content, "nodes"):
            try:
                self.made.append(self._node(node))
            except _MISFITS as error:
                raise self.damaged(f"is damaged: {type(error).__name__}: {error}") from None
        root = self.ref(self.content.get("root"), "root")
        self._check(root)
        return root

    def _check(self, root: object) -> None:
        """Infer types where a program says enough for it, so that nothing ill-typed gets in."""
        calls = (e for e in self.made if isinstance(e, Call))
        is_open = any(isinstance(e.op, GlobalVar) for e in calls)
        bare = any(isinstance(e, Var) and e.type_annotation is None for e in self.made)
        try:
            if isinstance(root, IRModule):
                check_module(root)
            elif isinstance(root, Expr) and not isinstance(root, Op) and not is_open and not bare:
                infer_type(root)
        except _MISFITS as error:
            raise ModelError(f"an attribute does not fit its operator: {type(error).__name__}: {error}") from None

    def _node(self, node: Json) -> Any:  # Any: as in self.nodes_read
        kind = node.get("kind") if isinstance(node, dict) else None
        read = _READ.get(kind) if isinstance(kind, str) else None
        if read is None:
            raise self.damaged(f"is of the unknown kind {kind!r}")
        result = read(self, node)
        if "span" not in node:
            return result
        at = node["span"]
        if not _is_index(at, len(self.spans)) or not isinstance(result, Expr):
            raise self.damaged(f"has the span {at!r}")
        return replace(result, span=self.spans[at])

    def damaged(self, what: str) -> ModelError:
        return ModelError(f"node {len(self.made)} of the JSON form {what}")

    def _list(self, node: dict[str, Json], key: str) -> list[Json]:
        value = node.get(key)
        if not isinstance(value, list):
            raise self.damaged(f"lacks the list {key!r}")
        return value

    def text(self, node: dict[str, Json], key: str) -> str:
        value = node.get(key)
        if not isinstance(value, str):
            raise self.damaged(f"lacks the text {key!r}")
        return value

    def _span_row(self, row: Json) -> Span:
        if not isinstance(row, list) or [type(v) for v in row] != [str, str, int, int]:
            raise ModelError(f"a span of the JSON form is {row!r}, wanted [source, name, line, column]")
        return Span(*row)

    def ref(self, index: Json, key: str) -> Any:  # Any: as in self.nodes_read
        if not _is_index(index, len(self.made)):
            raise self.damaged(f"has {index!r} as {key!r}, wanted the number of an earlier node")
        return self.made[index]

    def expr(self, node: dict[str, Json], key: str) -> Expr:
        return self._expr(node.get(key), key)

    def _expr(self, index: Json, key: str) -> Expr:
        result = self.ref(index, key)
        if not isinstance(result, Expr):
            raise self.damaged(f"has a {type(result).__name__} as {key!r}, wanted an expression")
        return result

    def exprs(self, node: dict[str, Json], key: str) -> tuple[Expr, ...]:
        return tuple(self._expr(index, key) for index in self._list(node, key))

    def var(self, expr: Expr) -> Var:
        if not isinstance(expr, Var):
            raise self.damaged(f"binds a {type(expr).__name__}, wanted a Var")
        return expr

    # --- one kind each ---

    def read_var(self, node: dict[str, Json]) -> Var:
        return Var(self.text(node, "name"), self.type(node["type"]) if "type" in node else None)

    def read_constant(self, node: dict[str, Json]) -> Constant:
        return Constant(read_array(node, f"the constant of node {len(self.made)}"))

    def read_call(self, node: dict[str, Json]) -> Call:
        name, args = node.get("op"), self.exprs(node, "args")
        if not isinstance(name, str):
            callee = self.ref(name, "op")
            if not isinstance(callee, Expr | GlobalVar):
                raise self.damaged(f"calls a {type(callee).__name__}")
            return Call(callee, args)
        op, attributes = get_op(name), node.get("attrs", {})
        if not isinstance(attributes, dict):
            raise self.damaged("has attributes that are no object")
        if op.attrs_class is None and not attributes:
            return Call(op, args)
        return Call(op, args, op.make_attrs((), {key: self.value(value) for key, value in attributes.items()}))

    def read_parts(self, node: dict[str, Json]) -> Expr:
        cls = _BY_PARTS[node["kind"]]
        rules = {name: rule for name, rule in cls.__annotations__.items() if name in cls._fields and name != "span"}
        result: Expr = cls(*(self._field(node, name, rule) for name, rule in rules.items()))
        return result

    def _field(self, node: dict[str, Json], name: str, rule: str) -> Any:  # Any: as the annotation `rule` says
        if rule == "tuple[Expr, ...]":
            return self.exprs(node, name)
        if rule not in ("int", "Known"):
            result = self.expr(node, name)
            return self.var(result) if rule == "Var" else result
        value = node.get(name)
        if rule == "Known" and isinstance(value, dict):
            return self.value(value)
        if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < 1 << 62:
            raise self.damaged(f"has {value!r} as {name!r}, wanted a number")
        return value

    def read_function(self, node: dict[str, Json]) -> Function:
        params = tuple(map(self.var, self.exprs(node, "params")))
        result = node.get("ret_type")
        attrs = tuple(self._pair(row) for row in self._list(node, "attrs"))
        return Function(params, self.expr(node, "body"), None if result is None else self.type(result), attrs)

    def _pair(self, row: Json) -> tuple[str, Any]:
        if not isinstance(row, list) or len(row) != 2 or not isinstance(row[0], str):
            raise self.damaged(f"has the attribute {row!r}, wanted [name, value]")
        return row[0], self.value(row[1])

    def read_prim_func(self, node: dict[str, Json]) -> Any:  # Any: a PrimFunc
        module = parse_tir(self.text(node, "text"), "<json>")
        if list(module) != [_TIR_NAME]:
            raise self.damaged("does not hold one tir function")
        return module[_TIR_NAME]

    def read_module(self, node: dict[str, Json]) -> IRModule:
        functions: dict[GlobalVar | str, BaseFunc] = {}
        for pair in self._list(node, "functions"):
            if not isinstance(pair, list) or len(pair) != 2:
                raise self.damaged("has an entry that is no pair")
            name, function = self.ref(pair[0], "functions"), self.ref(pair[1], "functions")
            if not isinstance(name, GlobalVar) or not isinstance(function, BaseFunc):
                raise self.damaged("has an entry that is no pair of a global name and a function")
            functions[name] = function
        if len({name.name_hint for name in functions if isinstance(name, GlobalVar)}) != len(functions):
            raise self.damaged("defines a function twice")
        return IRModule(functions)

    # --- values and types ---

    def value(self, item: Json, depth: int = 0) -> Any:  # Any: attribute values differ by operator
        if depth > _DEEPEST:
            raise self.damaged(f"has an attribute nested deeper than {_DEEPEST}")
        if isinstance(item, list):
            return tuple(self.value(v, depth + 1) for v in item)
        if not isinstance(item, dict):
            return item
        ((kind, inside),) = item.items() if len(item) == 1 else (("", None),)
        match kind, inside:
            case "dtype", str():
                return DType(inside)
            case "float", "inf" | "-inf" | "nan":
                return float(inside)
            case "list", list():
                return [self.value(v, depth + 1) for v in inside]
            case "dict", list():
                return {self.value(k, depth + 1): self.value(v, depth + 1) for k, v in inside}
            case "array", dict():
                return read_array(inside, f"an attribute of node {len(self.made)}")
            case "type", dict():
                return self.type(inside)
            case "extent", str():
                return self.dim(inside)
        raise self.damaged(f"has an attribute value of the unknown kind {kind!r}")

    def dim(self, item: Json) -> Json:  # a number as it is, to be checked
        """The dimension of a number or of its text."""
        if not isinstance(item, str):
            return item
        try:
            return ANY_DIM if item == "?" else parse_extent(item)
        except ParseError as error:
            raise self.damaged(f"has a dimension that is no size: {error.message}") from None

    def type(self, item: Json, depth: int = 0) -> Type:
        keys = sorted(item) if isinstance(item, dict) else []
        if depth <= _DEEPEST and keys == ["dtype", "shape"] and isinstance(item["shape"], list):
            shape = tuple(map(self.dim, item["shape"]))
            if all(isinstance(d, AnyDim) or _is_index(d, 1 << 62) for d in shape):
                return TensorType(shape, DType(str(item["dtype"])))
        if depth <= _DEEPEST and keys == ["fields"] and isinstance(item["fields"], list):
            return TupleType(tuple(self.type(t, depth + 1) for t in item["fields"]))
        if depth <= _DEEPEST and keys == ["arguments", "result"] and isinstance(item["arguments"], list):
            arguments = tuple(self.type(t, depth + 1) for t in item["arguments"])
            return FuncType(arguments, self.type(item["result"], depth + 1))
        if keys == ["of", "variable"] and isinstance(item["variable"], str) and item["of"] in list(TypeKind):
            return TypeVar(item["variable"], TypeKind(item["of"]))
        raise self.damaged("has a type that is damaged")


_BY_PARTS: dict[str, type[Any]] = {
    cls.__name__: cls for cls in Expr.__subclasses__() if cls is not Op and cls not in _WRITE
}
_READ: dict[str, Callable[[_Reader, dict[str, Json]], Any]] = {
    **dict.fromkeys(_BY_PARTS, _Reader.read_parts),
    "GlobalVar": lambda r, n: GlobalVar(r.text(n, "name")),
    "Type": lambda r, n: r.type(n.get("type")),
    "Op": lambda r, n: get_op(r.text(n, "name")),
    "Var": _Reader.read_var,
    "Constant": _Reader.read_constant,
    "Call": _Reader.read_call,
    "Function": _Reader.read_function,
    "PrimFunc": _Reader.read_prim_func,
    "IRModule": _Reader.read_module,
}


def _is_index(value: Json, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count
