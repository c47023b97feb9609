"""The types, under the module name of Relay-era scripts.

In: a name. Out: what `relay/types.py` has under its own. Invariant: no logic here.
"""

from armillary.relay.types import FuncType, TensorType, TupleType, Type, scalar_type

__all__ = ["FuncType", "TensorType", "TupleType", "Type", "scalar_type"]
