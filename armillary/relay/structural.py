"""Comparing programs: `ir.structural_equal`, `ir.assert_structural_equal`, `ir.structural_hash`.

In: modules, Relay expressions and types, TIR functions, statements and expressions. Out: whether they are the same
program, or the first line where their texts differ. Invariant: bound variables match up to renaming; free ones only if
they are the same objects, unless `map_free_vars` is set. Equal programs have equal hashes.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from armillary.base.boundary import boundary
from armillary.base.digest import blake2b
from armillary.base.dtype import DType
from armillary.base.node import Node
from armillary.base.node import structural_equal as same_nodes
from armillary.errors import ArmillaryError
from armillary.ir import Attrs, IRModule
from armillary.relay import analysis
from armillary.relay.expr import Call, Expr, Function, Var
from armillary.relay.infer import check_module, infer_type
from armillary.relay.op import Op
from armillary.relay.types import IncompleteType

_INFERRED = ("ret_type", "type_annotation")
_OF_THE_WEIGHT = ("channels", "kernel_size", "units")
_TYPE = re.compile(r"(: | -> )\(?(Tensor\[[^]]*\](, )?)+\)?|\s")  # in the head of a function
Program = Any  # Any: a module, node, type, or a sequence or mapping of those


class StructuralMismatch(ArmillaryError, ValueError):
    """Two programs that should be the same are not."""


@boundary("structural_equal", arguments=True)
def structural_equal(lhs: Program, rhs: Program, map_free_vars: bool = False) -> bool:
    """Whether two programs are the same up to the names of bound variables (of all variables, if `map_free_vars`)."""
    if isinstance(lhs, IRModule) and isinstance(rhs, IRModule):
        _infer_all(lhs)
        _infer_all(rhs)
        names = sorted(lhs)
        same_types = sorted(map(str, lhs.type_definitions.values())) == sorted(map(str, rhs.type_definitions.values()))
        return (
            same_types and names == sorted(rhs) and all(structural_equal(lhs[n], rhs[n], map_free_vars) for n in names)
        )
    if isinstance(lhs, list | tuple) and isinstance(rhs, list | tuple):
        pairs = zip(lhs, rhs, strict=False)
        return len(lhs) == len(rhs) and all(structural_equal(a, b, map_free_vars) for a, b in pairs)
    if isinstance(lhs, dict) and isinstance(rhs, dict):
        return lhs.keys() == rhs.keys() and all(structural_equal(lhs[k], rhs[k], map_free_vars) for k in lhs)
    for side in (lhs, rhs):
        if isinstance(side, Expr) and not isinstance(side, Op):
            with suppress(ArmillaryError):
                infer_type(side)
    if not (isinstance(lhs, Node) and isinstance(rhs, Node)):
        return type(lhs) is type(rhs) and bool(lhs == rhs)
    if not same_nodes(lhs, rhs, _read):
        return False
    return map_free_vars or _free(lhs) == _free(rhs)


def _infer_all(module: IRModule) -> None:
    """Type a module's functions, which may call each other, as far as they can be typed."""
    with suppress(ArmillaryError):
        check_module(module)


def _read(node: Any, name: str) -> Any:  # Any: a node and what is compared as its field
    """A field of a node: types that would be inferred count as written, attributes have no order, floats 6 digits.

    A program says the same whether the result of a function is written or inferred.
    """
    value = getattr(node, name)
    if (value is None or isinstance(value, IncompleteType)) and name in _INFERRED and isinstance(node, Var | Function):
        return _inferred(node)
    if name == "attrs" and isinstance(value, Attrs):
        return dict(value)
    if name == "attrs" and dataclasses.is_dataclass(value):
        message = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)} | {"": type(value)}
        if message.get("out_dtype") == "" and isinstance(node, Call):
            message["out_dtype"] = str(getattr(getattr(node, "_type", None), "dtype", ""))
        return {key: message[key] for key in message if key not in _follows(node)}
    return value


def _follows(node: Call) -> tuple[str, ...]:
    """Attributes that the type of the weight, and that of the result, say as well."""
    inputs = node.op.inputs if isinstance(node.op, Op) else ()
    return _OF_THE_WEIGHT if "weight" in inputs else ()


def _inferred(node: Var | Function) -> Any:  # Any: a type, or None
    if isinstance(node, Var):
        return getattr(node, "_type", None)
    try:
        ty: Any = node.checked_type
    except ArmillaryError:
        return None
    return ty.ret_type


def _plain(value: object) -> object:
    """Floats to 6 digits: 1e-5 that went through float32 is 1e-5; names of dtypes as text."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return str(value) if isinstance(value, DType) else value


def _free(item: Node) -> list[int]:
    free: Iterable[Var] = analysis.free_vars(item) if isinstance(item, Expr) and not isinstance(item, Var) else ()
    return [id(v) for v in free]


@boundary("assert_structural_equal", arguments=True)
def assert_structural_equal(lhs: Program, rhs: Program, map_free_vars: bool = False) -> None:
    """Raise StructuralMismatch (a ValueError) with the first lines that differ, unless the programs are the same."""
    if structural_equal(lhs, rhs, map_free_vars):
        return
    left, right = str(lhs).splitlines(), str(rhs).splitlines()
    pairs = enumerate(itertools.zip_longest(left, right, fillvalue="(nothing)"), 1)
    where = next(((n, a, b) for n, (a, b) in pairs if _TYPE.sub("", a) != _TYPE.sub("", b)), None)
    message = "their texts are equal, but not the variables or constants" if where is None else ""
    if where is not None:
        message = f"line {where[0]}:\n  {where[1].strip()}\n  {where[2].strip()}"
    raise StructuralMismatch(f"the programs differ: {message}")


def _own(node: Expr, numbers: dict[int, int]) -> bytes:
    """What a node adds to its hash: what `_read` compares, but for types, which follow from the rest."""
    if isinstance(node, Var):
        return str(numbers[id(node)]).encode()
    if isinstance(node, Function):
        return repr(sorted(node.attrs, key=str)).encode()
    if isinstance(node, Call):
        name = getattr(node.op, "name", None) or getattr(node.op, "name_hint", "")
        attrs = _read(node, "attrs")
        message = {k: v for k, v in attrs.items() if k} if isinstance(attrs, dict) else attrs
        return f"{name}:{message!r}".encode()
    return analysis.own_digest(node, numbers)


@boundary("structural_hash", arguments=True)
def structural_hash(node: Program, map_free_vars: bool = False) -> int:
    """A number that equal programs share: of structure and constants, not of names."""
    del map_free_vars  # names never count
    if isinstance(node, IRModule):
        text = ";".join(f"{name}:{structural_hash(node[name])}" for name in sorted(node))
    elif isinstance(node, Expr):
        text = analysis.structural_hash(node, _own)
    elif isinstance(node, list | tuple):
        text = ",".join(str(structural_hash(item)) for item in node)
    else:
        text = f"{type(node).__name__}:{node}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)
