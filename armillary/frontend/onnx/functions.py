"""Operators that are functions of other operators: the model's own, and those of the ONNX standard.

In: a node without an import rule, the opset, and the types of its inputs. Out: the FunctionProto to import in its
place, or None. Invariant: nothing is expanded here; onnx/walk.py imports the body with the caller's values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.frontend.onnx.proto import onnx, plain_domain, protobuf
from armillary.frontend.onnx.tensor import ELEM_TYPES
from armillary.relay.expr import Expr
from armillary.relay.types import TensorType

if TYPE_CHECKING:
    from onnx import FunctionProto, NodeProto, TypeProto
    from onnx.defs import OpSchema


def function_key(function: FunctionProto) -> tuple[str, str, str]:
    """What a node must say to call this function: domain, name, overload."""
    return plain_domain(function.domain), function.name, function.overload


def schema_of(op_type: str, domain: str, version: int) -> Any:  # Any: onnx.defs.OpSchema or None
    """The standard's description of an operator, or None."""
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: the name is not valid UTF-8
        return None


def history_of(op_type: str, domain: str) -> list[OpSchema]:
    """The standard's descriptions of an operator, of all versions."""
    schemas = onnx.defs.get_all_schemas_with_history()
    return [schema for schema in schemas if (schema.name, schema.domain) == (op_type, domain)]


def call_types(inputs: Sequence[Expr | None]) -> list[bytes]:
    """The types of a call's inputs as the standard's function builders want them."""
    return [_type_proto(value).SerializeToString() for value in inputs]


def _type_proto(value: Expr | None) -> TypeProto:
    ty = value.checked_type if value is not None else None
    if not isinstance(ty, TensorType):
        return onnx.TypeProto()
    result: TypeProto = onnx.helper.make_tensor_type_proto(ELEM_TYPES[str(ty.dtype)], ty.static)
    return result


def schema_function(node: NodeProto, domain: str, version: int, types: list[bytes] | None) -> FunctionProto | None:
    """The standard's function body for this node, or None. Without `types`, one that depends on them comes empty."""
    schema = schema_of(node.op_type, domain, version)
    if schema is None or any(kind.startswith("seq(") for formal in schema.inputs for kind in formal.types):
        return None  # sequences are refused; the builders of their functions do not check what they are given
    if types is None and not schema.has_function and schema.has_context_dependent_function:
        return onnx.FunctionProto(name=node.op_type)
    body = onnx.FunctionProto()
    try:
        if schema.has_function:
            best = _at_most(schema.function_opset_versions, version)
            body.ParseFromString(schema.get_function_with_opset_version(best))
        elif schema.has_context_dependent_function:
            best = _at_most(schema.context_dependent_function_opset_versions, version)
            data = schema.get_context_dependent_function_with_opset_version(best, node.SerializeToString(), types)
            body.ParseFromString(data)
        else:
            return None
    except (RuntimeError, ValueError, protobuf.DecodeError):
        return None
    return body if body.node else None


def _at_most(versions: list[int], version: int) -> int:
    return max((v for v in versions if v <= version), default=min(versions))
