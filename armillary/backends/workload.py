"""What a choice of algorithm may depend on: one operator call, by attributes and types, on a target.

In: a call's operator, attributes and types. Out: a `Workload`. Invariant: plain data; no tensor expression and no
schedule is imported for it, so graph passes, models of costs and schedules name the same thing. Who chooses:
backends/registry.py; what is chosen: target/choice.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary.errors import InternalError
from armillary.relay.op import Op
from armillary.relay.types import TensorType, Type
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

    @property
    def name(self) -> str:
        """The operators, as `implement` names them: in the order they are computed, with plus signs between."""
        return " + ".join((*(w.op.name for w in self.inner), self.op.name))

    def tensor(self, index: int) -> TensorType:
        """The type of an argument that is a tensor."""
        return _tensor(self.types[index])

    @property
    def result(self) -> TensorType:
        """The type of the result, which is a tensor."""
        return _tensor(self.op.infer_type(self.attrs, self.types))


def _tensor(ty: Type) -> TensorType:
    if not isinstance(ty, TensorType):
        raise InternalError(f"a workload has a {ty} where inference has found a tensor")
    return ty
