"""The types, under the module name of Relay-era scripts.

In: a name. Out: what `relay/types.py` has under its own. Invariant: no logic here.
"""

from armillary.base.lazy import lazy_names
from armillary.relay.types import FuncType, TensorType, TupleType, Type, scalar_type

__all__ = ["FuncType", "TensorType", "TupleType", "Type", "scalar_type"]
_ADT = ("GlobalTypeVar", "RefType", "TypeCall", "TypeData", "TypeKind", "TypeVar")
__getattr__, __dir__ = lazy_names(
    __name__,
    {name: f"armillary.relay.adt.types:{name}" for name in _ADT}
    | {"IncompleteType": "armillary.relay.types:IncompleteType", "RelayRefType": "armillary.relay.adt.types:RefType"},
)
