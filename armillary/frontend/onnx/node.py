"""ONNX nodes as import rules see them, and the table of the rules.

In: `@from_onnx("Softmax", since=13)` in a file of rules/. Out: the rule of a node's operator and opset (`onnx_rule`).
Invariant: a rule sees no onnx types: only Python values, numpy arrays and expressions. The walk over a model: walk.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.base.extent import Extent
from armillary.base.record import record
from armillary.budgets import FOLDED_BYTES
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.relay.expr import Expr, Tuple
from armillary.relay.lazy_registry import LazyRegistry
from armillary.relay.op import Array
from armillary.relay.types import TensorType

Index = int  # OnnxNode has methods called int and float
Number = float
ONNX_DTYPES = (
    None,
    "float32",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    None,
    "bool",
    "float16",
    "float64",
    "uint32",
    "uint64",
    None,
    None,
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "uint4",
    "int4",
    "float4_e2m1fn",
    "float8_e8m0fnu",
    "uint2",
    "int2",
)


@record(frozen=False)
class OnnxNode:
    """One ONNX node as an import rule sees it: no onnx types, only Python values, numpy arrays and expressions.

    `inputs` holds an expression, or None for an omitted optional input. `constants` holds the array of each input
    whose value is known at import (initialisers, and whatever folds from them), else None. `opset` is the version of
    the node's domain. Attribute tensors are numpy arrays; strings are str; sub-graphs are opaque.
    """

    op_type: str
    name: str
    domain: str
    opset: int
    inputs: list[Expr | None]
    constants: list[Array | None]
    attributes: dict[str, Any]
    outputs: list[str]

    def _attribute(self, name: str, default: object) -> Any:
        value = self.attributes.get(name, default)
        if value is REQUIRED:
            raise TypeMismatch(f"{self.op_type} node {self.name!r} lacks the required attribute {name!r}")
        return value

    def int(self, name: str, default: Any = None) -> Any:
        return self._attribute(name, default)

    ints = floats = string = tensor = int

    def float(self, name: str, default: Any = None) -> Any:
        """A number. The standard holds defaults in float32 as well as what is given, whatever the type of the data."""
        value = self._attribute(name, default)
        is_present = name in self.attributes or not isinstance(value, Number)
        return value if is_present else Number(np.float32(value))

    def flag(self, name: str, default: bool) -> bool:
        """An attribute that is 0 or 1. Raises TypeMismatch for another number: engines read those differently."""
        value = self._attribute(name, int(default))
        if value not in (0, 1):
            raise TypeMismatch(f"{self.op_type} node {self.name!r}: attribute {name!r} is {value!r}, wanted 0 or 1")
        return bool(value)

    def check_elements(self, elements: Index) -> None:
        """Refuse a constant of more elements than an import may compute."""
        FOLDED_BYTES.check(8 * elements, f"{self.op_type} node {self.name!r}")

    def const(self, index: Index, what: str) -> Array:
        """The value of input `index`, which must be known when compiling; `what` names it in the error."""
        value = self.constants[index] if index < len(self.constants) else None
        if value is None:
            raise UnsupportedError(
                f"{self.op_type} node {self.name!r}: its {what} (input {index}) is computed at run time",
                hint="make it an initialiser, or pass its value in static_inputs= when importing",
            )
        return value

    def sizes(self, index: Index, what: str, low: Index = 0) -> tuple[Extent | Index, ...]:
        """The value of input `index` as ints and extents over named sizes; what is computed is a size from `low` on."""
        known = getattr(self.constants, "sizes", None)  # of the importer's, not of a list that a test gives
        value = known(index, self.op_type, low) if known is not None and index < len(self.constants) else None
        flat = (self.const(index, what) if value is None else value).reshape(-1)
        return tuple(v if isinstance(v, Extent) else int(v) for v in flat)

    def optional_const(self, index: Index, what: str) -> Array | None:
        """Like const, but None when the input is omitted."""
        return None if self.missing(index) else self.const(index, what)

    def missing(self, index: Index) -> bool:
        return index >= len(self.inputs) or self.inputs[index] is None

    def input(self, index: Index) -> Expr:
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise TypeMismatch(f"{self.op_type} node {self.name!r} lacks input {index}")
        return value

    def type_of(self, index: Index) -> TensorType:
        ty = self.input(index).checked_type
        if not isinstance(ty, TensorType):
            raise UnsupportedError(f"{self.op_type} node {self.name!r}: input {index} is not a tensor but {ty}")
        return ty

    @property
    def present(self) -> list[Expr]:
        """The inputs that are given."""
        return [x for x in self.inputs if x is not None]


def _spelled(key: tuple[str, str]) -> str:
    """How the list spells an ONNX operator: `onnx:Conv`, `com.microsoft:Attention`."""
    return f"{key[0] or 'onnx'}:{key[1]}"


NOTHING = Tuple(())  # an optional that holds nothing, told from an empty sequence by identity
REQUIRED = object()  # passed as a default to say "there is none"
OnnxRule = Callable[[OnnxNode], Any]  # Any: an Expr (Tuple-typed for several outputs) or a list of Exprs
ONNX_RULES: LazyRegistry[tuple[str, str], list[tuple[int, OnnxRule]]] = LazyRegistry(_spelled)


def from_onnx(*op_types: str, since: int = 1, domain: str = "") -> Callable[[OnnxRule], OnnxRule]:
    """Register an import rule for ONNX operators from opset `since` on (until a later rule takes over)."""

    def register(rule: OnnxRule) -> OnnxRule:
        for op_type in op_types:
            rules = [*(ONNX_RULES.registered((domain, op_type)) or ()), (since, rule)]
            ONNX_RULES[domain, op_type] = sorted(rules, key=lambda row: row[0], reverse=True)
        return rule

    return register


def onnx_rule(domain: str, op_type: str, opset: int) -> OnnxRule | None:
    """The rule for a node, or None."""
    return next((rule for since, rule in ONNX_RULES.get((domain, op_type), ()) if opset >= since), None)


def onnx_dtype(node: OnnxNode, code: int) -> str:
    """The dtype an ONNX element type number stands for."""
    name = ONNX_DTYPES[code] if 0 <= code < len(ONNX_DTYPES) else None
    if name is None:
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: element type {code} (string, complex or unknown)")
    return name
