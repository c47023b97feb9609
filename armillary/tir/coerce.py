"""What a script may hand to the constructors of nodes in place of nodes: numbers, texts, names of dtypes, lists.

In: the class of a node and the arguments of a constructor of which at least one is no node yet. Out: the arguments to
keep; numbers take the dtype of what they stand beside, as they do behind `+`. Invariant: what is no number where one is
wanted is refused by class, field, what was got and what is wanted. The constructors (`base/node.py`) come here only
then, so nodes made of nodes pay one comparison a field.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.base.dtype import DType
from armillary.base.node import Node
from armillary.errors import TypeMismatch
from armillary.ir import as_attrs
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.build import cast, convert, match_types, sub

Given = Any  # what scripts pass: nodes, numbers, texts, lists
_PAIRS = (E.Add, E.Sub, E.Mul, E.Div, E.TruncDiv, E.TruncMod, E.FloorDiv, E.FloorMod, E.Min, E.Max, E.EQ, E.NE, E.LT)
_PAIRED = frozenset({*_PAIRS, E.LE, E.GT, E.GE})
_KINDS = {0: "serial", 1: "parallel", 2: "vectorized", 3: "unrolled", 4: "thread"}  # as the Relay era numbers them
_ITERATIONS = {E.IterVar.DataPar: "data", E.IterVar.ThreadIndex: "thread", E.IterVar.CommReduce: "reduce"}
_ITERATIONS |= dict.fromkeys((E.IterVar.Ordered, E.IterVar.DimInfo), "opaque")


def coerce(cls: type, arguments: tuple[Given, ...]) -> tuple[Given, ...]:
    """The arguments of `cls` with everything converted that can be; TypeMismatch, naming the field, otherwise."""
    names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    if cls is S.AttrStmt and isinstance(arguments[3], S.Stmt) and not isinstance(arguments[2], S.Stmt):
        node, key, value, body = arguments  # as scripts of the Relay era give them
        arguments = (key, value, body, _about(node))
    if cls in (E.Let, S.LetStmt):
        return _let(cls, *arguments)
    if cls is E.IterVar:
        arguments = _axis(*arguments)
    values = []
    for name, value in zip(names, arguments, strict=True):
        convert_field = _CONVERT.get(_annotation(cls, name))
        values.append(value if convert_field is None else convert_field(f"{cls.__name__}.{name}", value))
    if cls in _PAIRED:
        return _pair(cls, *_plain_pair(arguments, values))
    if cls in (E.And, E.Or, E.Not):
        return tuple(cast(value, "bool") for value in values)
    if cls is E.Select:
        return cast(values[0], "bool"), *match_types(*_plain_pair(arguments[1:], values[1:]))
    if cls is S.BufferStore and not isinstance(arguments[1], E.Expr):
        values[1] = cast(values[1], values[0].dtype)
    if cls is S.PrimFunc:
        return as_attrs(cls, tuple(values))
    if cls in (E.IntImm, E.FloatImm):
        _check_constant(cls, *values)
    return tuple(values)


def min_and_extent(begin: Given, end: Given) -> tuple[E.Expr, E.Expr]:
    """The fields of Range(begin, end), or of Range(length)."""
    ends = (0, begin) if end is None else (begin, end)
    low, high = match_types(
        *(_expr(f"Range.{name}", value) for name, value in zip(("begin", "end"), ends, strict=True))
    )
    return low, sub(high, low)


def refuse(cls: type, error: Exception) -> TypeMismatch:
    """Why a node has no dtype: a field holds something of another kind."""
    return TypeMismatch(f"tir.{cls.__name__}: a field is of the wrong kind: {error}", hint="see the class's fields")


def _pair(cls: type, a: Given, b: Given) -> tuple[E.Expr, E.Expr]:
    """Both sides with one dtype; only plain numbers are converted for it."""
    if isinstance(a, E.Expr) and isinstance(b, E.Expr) and a.dtype != b.dtype:
        raise TypeMismatch(
            f"tir.{cls.__name__}: the sides have {a.dtype} and {b.dtype}, wanted one dtype",
            hint="use the operators (a + b), which convert, or astype",
        )
    return match_types(a, b)


def _about(node: Given) -> Given:
    """What a note is about; texts, as old scripts give where a note is about nothing, are left out."""
    node = node.asobject() if hasattr(node, "asobject") else node
    if isinstance(node, str | E.StringImm):
        return None
    if node is not None and not isinstance(node, E.IterVar | E.Var | S.Buffer):
        raise _refused("AttrStmt.node", node, "a Buffer, a Var, an IterVar or None")
    return node


def _axis(dom: Given, var: Given, kind: Given, thread_tag: Given) -> tuple[Given, ...]:
    """An axis as the Relay era gives it: a pair of ends, the name of its variable, its kind by number."""
    if isinstance(dom, tuple | list) and len(dom) == 2:
        dom = E.Range(*dom)
    if isinstance(var, str):
        var = E.Var(var, dom.extent.dtype if isinstance(dom, E.Range) else E.INT32)
    if isinstance(kind, int) and not isinstance(kind, bool):
        if kind not in _ITERATIONS:
            raise _refused("IterVar.kind", kind, f"one of {', '.join(map(str, _ITERATIONS))}")
        kind = _ITERATIONS[kind]
    return dom, var, kind, thread_tag


def _let(cls: type, var: Given, value: Given, body: Given) -> tuple[Given, ...]:
    """A variable has the dtype of its value; a plain number takes that of the variable."""
    name, inside = cls.__name__, _CONVERT["Stmt" if cls is S.LetStmt else "Expr"]
    var, stored = _CONVERT["Var"](f"{name}.var", var), _expr(f"{name}.value", value)
    stored = stored if isinstance(value, E.Expr) else cast(stored, var.dtype)
    if stored.dtype is not var.dtype:
        message = f"tir.{name}: the variable {var.name} is {var.dtype}, its value {stored.dtype}"
        raise TypeMismatch(message, hint="cast the value: value.astype(…)")
    return var, stored, inside(f"{name}.body", body)


def _annotation(cls: type, name: str) -> str:
    return next((str(own[name]) for kind in cls.__mro__ if name in (own := inspect.get_annotations(kind))), "")


def _plain_pair(raws: tuple[Given, ...], values: list[E.Expr]) -> tuple[Given, Given]:
    """Plain numbers stay plain: they follow the dtype of the other side."""
    first, second = (_plain(raw, value) for raw, value in zip(raws, values, strict=True))
    return first, second


def _plain(raw: Given, value: E.Expr) -> Given:
    if isinstance(raw, np.generic):
        return raw.item()
    return raw if isinstance(raw, bool | int | float) else value


def _check_constant(cls: type, dtype: DType, value: float) -> None:
    if cls is E.IntImm and not (dtype.is_int or dtype.is_bool):
        raise TypeMismatch(f"tir.IntImm: the dtype is {dtype}, wanted an integer type or bool")
    if cls is E.FloatImm and dtype.code not in ("float", "bfloat"):
        raise TypeMismatch(f"tir.FloatImm: the dtype is {dtype}, wanted float16, float32, float64 or bfloat16")


def _refused(where: str, value: Given, wanted: str) -> TypeMismatch:
    return TypeMismatch(f"tir.{where}: got {type(value).__name__} {_shown(value)}, wanted {wanted}")


def _shown(value: Given) -> str:
    text = repr(value) if isinstance(value, str | bytes | int | float | None) else ""
    return text if len(text) < 60 else text[:60] + "…"


def _expr(where: str, value: Given) -> E.Expr:
    if isinstance(value, str):
        if where.startswith(("Evaluate.", "AttrStmt.")):
            return E.StringImm(value)
        raise _refused(where, value, "an expression or a number")
    try:
        return value if isinstance(value, E.Expr) else convert(value)
    except TypeMismatch:
        raise _refused(where, value, "an expression or a number") from None


def _argument(where: str, value: Given) -> E.Expr:
    return E.StringImm(value) if isinstance(value, str) else _expr(where, value)


def _exprs(where: str, value: Given) -> tuple[E.Expr, ...]:
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise _refused(where, value, "a tuple of expressions")
    one = _argument if where.startswith("Call.") else _expr
    return tuple(one(where, item) for item in value)


def _text(where: str, value: Given) -> str:
    if isinstance(value, E.StringImm | E.Callee):
        value = value.value if isinstance(value, E.StringImm) else value.name
    if isinstance(value, str):
        return str(value).removeprefix("tir.") if where == "Call.name" else str(value)
    raise _refused(where, value, "a text")


def _int(where: str, value: Given) -> int:
    try:
        return value.value if isinstance(value, E.IntImm) else operator.index(value)
    except TypeError:
        raise _refused(where, value, "an integer") from None


def _float(where: str, value: Given) -> float:
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise _refused(where, value, "a number that a float64 holds") from None


def _kind(where: str, value: Given) -> S.LoopKind:
    try:
        return S.LoopKind(_KINDS.get(value, value))
    except (TypeError, ValueError):
        raise _refused(where, value, "a LoopKind: " + ", ".join(_KINDS.values())) from None


def _node(kinds: tuple[type, ...], wanted: str) -> Callable[[str, Given], Given]:
    def check(where: str, value: Given) -> Given:
        if isinstance(value, E.IterVar) and E.Var in kinds:
            return value.var
        value = value.asobject() if S.Buffer in kinds and hasattr(value, "asobject") else value
        if not isinstance(value, kinds):
            raise _refused(where, value, wanted)
        return value

    return check


def _nodes(kinds: tuple[type, ...], wanted: str) -> Callable[[str, Given], tuple[Node, ...]]:
    one = _node(kinds, wanted)

    def check(where: str, value: Given) -> tuple[Node, ...]:
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            raise _refused(where, value, f"a tuple, each {wanted}")
        return tuple(one(where, item) for item in value)

    return check


_CONVERT: dict[str, Callable[[str, Given], Given]] = {
    "Expr": _expr,
    "Same": _expr,
    "tuple[Expr, ...]": _exprs,
    "DType": lambda where, value: DType(value),
    "str": _text,
    "int": _int,
    "float": _float,
    "LoopKind": _kind,
    "Var": _node((E.Var,), "a Var"),
    "Buffer": _node((S.Buffer,), "a Buffer (tir.decl_buffer makes one)"),
    "Stmt": _node((S.Stmt,), "a statement"),
    "Stmt | None": _node((S.Stmt, type(None)), "a statement or None"),
    "tuple[Stmt, ...]": _nodes((S.Stmt,), "a statement"),
    "tuple[Buffer | Var, ...]": _nodes((S.Buffer, E.Var), "a Buffer or a Var"),
}
