"""A library to offload to: relu(x * constant), of any number of such steps. Its runtime: scale_runtime.c."""

from __future__ import annotations

from armillary.offload.contract import Offload, PatternRow, register_offload
from armillary.offload.graph_json import as_json
from armillary.relay.expr import Call, Expr
from armillary.relay.pattern import is_constant, is_op, wildcard


def only_float(match: Expr) -> str | None:
    dtype = str(match.checked_type.dtype)  # type: ignore[attr-defined]
    return None if dtype == "float32" else f"only float32, not {dtype}"


def takes(call: Call) -> str | None:
    return only_float(call)


SCALE = PatternRow("scale", lambda: is_op("nn.relu")(is_op("multiply")(wildcard(), is_constant())), only_float)
LIBRARY = register_offload(Offload("scale", as_json, (SCALE,), {"negative": takes}, aliases=("scaler",)))
