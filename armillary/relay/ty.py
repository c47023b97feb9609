"""The types, under the module name of Relay-era scripts."""

from armillary.relay.types import FuncType, TensorType, TupleType, Type, scalar_type

__all__ = ["FuncType", "TensorType", "TupleType", "Type", "scalar_type"]
