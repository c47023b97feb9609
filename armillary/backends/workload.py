"""What a choice of algorithm may depend on: one operator call, by attributes and types, on a target.

In: a call's operator, attributes and types. Out: a `Workload`. Invariant: plain data; no tensor expression and no
schedule is imported for it, so graph passes, models of costs and schedules name the same thing. Who chooses:
backends/registry.py; what is chosen: target/choice.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from armillary.base.extent import Extent, sizes_of
from armillary.errors import InternalError
from armillary.relay.analysis.bind_sizes import attr_sizes, bind_attrs, bind_type
from armillary.relay.op import Op
from armillary.relay.types import TensorType, Type, tensor_fields
from armillary.target import Target

Reason = str | None


@dataclass(frozen=True)
class Workload:
    """What a choice may depend on: one operator call, by attributes and types, on a target.

    `inner`: the contractions that its kernel computes first, of which it reads the results.
    """

    op: Op
    attrs: Any  # Any: each Op has its own attrs class
    types: tuple[Type, ...]
    target: Target
    inner: tuple[Workload, ...] = ()
    named: frozenset[int] = frozenset()  # axes of the first tensor that have named sizes, where those are typical

    @property
    def name(self) -> str:
        """The operators, as `implement` names them: in the order they are computed, with plus signs between."""
        return " + ".join((*(w.op.name for w in self.inner), self.op.name))

    def tensor(self, index: int) -> TensorType:
        """The type of an argument that is a tensor."""
        return _tensor(self.types[index])

    @property
    def is_sized(self) -> bool:
        """Whether some of its shapes are known only when the program runs."""
        dims = (d for ty in self.types for t in tensor_fields(ty) for d in t.shape)
        return any(isinstance(d, Extent) for d in dims) or any(w.is_sized for w in self.inner)

    @property
    def typical(self) -> Workload:
        """The workload at the values that its sizes typically have: what costs and tiles are chosen for."""
        if not self.is_sized:
            return self
        values = {name: size.typical for name, size in sizes_of(self._dims()).items()}
        types = tuple(bind_type(ty, values) for ty in self.types)
        attrs, inner = bind_attrs(self.attrs, values), tuple(w.typical for w in self.inner)
        shape = next((t.shape for ty in self.types for t in tensor_fields(ty)), ())
        named = frozenset(axis for axis, dim in enumerate(shape) if isinstance(dim, Extent))
        return replace(self, attrs=attrs, types=types, inner=inner, named=named)

    def _dims(self) -> Iterator[object]:
        for ty in self.types:
            for t in tensor_fields(ty):
                yield from t.shape
        yield from attr_sizes(self.attrs)

    @property
    def result(self) -> TensorType:
        """The type of the result, which is a tensor."""
        return _tensor(self.op.infer_type(self.attrs, self.types))


def _tensor(ty: Type) -> TensorType:
    if not isinstance(ty, TensorType):
        raise InternalError(f"a workload has a {ty} where inference has found a tensor")
    return ty
