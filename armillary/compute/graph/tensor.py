"""Tensors of a graph: what they are, which target has them, who fills or reads them.

In: information, an accessor, or both. Out: a tensor of the target that the graph decides on. Invariant: a tensor is
pinned to one target; an accessor sees the host's view, a device's tensor mapped around the call.
"""

from __future__ import annotations

from armillary.base.boundary import bounded, bounded_methods
from armillary.compute.cl.tensor import CLTensor
from armillary.compute.core.tensor_info import TensorInfo
from armillary.compute.graph.accessors import ITensorAccessor
from armillary.compute.graph.hints import Target
from armillary.compute.runtime.tensor import Tensor as ComputeTensor
from armillary.errors import ExecutionError, TypeMismatch


@bounded
@bounded_methods("set_target")
class Tensor:
    """`Tensor(info, accessor)` where a graph begins, `Tensor(accessor)` where it ends."""

    def __init__(self, *given: TensorInfo | ITensorAccessor) -> None:
        infos = [g for g in given if isinstance(g, TensorInfo)]
        accessors = [g for g in given if not isinstance(g, TensorInfo)]
        if len(infos) > 1 or len(accessors) > 1 or any(not hasattr(a, "access_tensor") for a in accessors):
            message = f"a graph's Tensor takes information and an accessor, got {[type(g).__name__ for g in given]}"
            raise TypeMismatch(message)
        self._info = infos[0] if infos else None
        self._accessor = accessors[0] if accessors else None
        self._tensor: ComputeTensor | None = None
        self._target: Target | None = None

    def has_info(self) -> bool:
        """Whether it is known what the tensor is."""
        return self._info is not None or (self._tensor is not None and self._tensor.has_info())

    def info(self) -> TensorInfo:
        """What the tensor is."""
        if self._tensor is not None:
            return self._tensor.info()
        if self._info is None:
            raise ExecutionError("the graph's tensor has no information", hint="Tensor(TensorInfo(…), accessor)")
        return self._info

    def set_info(self, info: TensorInfo) -> None:
        """Set what the tensor is."""
        self._info = info

    def has_accessor(self) -> bool:
        """Whether somebody fills or reads it."""
        return self._accessor is not None

    def set_target(self, target: Target) -> ComputeTensor:
        """Pin the tensor to a target; the tensor there."""
        if self._target not in (None, target):
            raise ExecutionError(f"the tensor is pinned to {self._target}, not {target}")
        if self._tensor is None:
            self._tensor, self._target = new_tensor(target), target
            if self._info is not None:
                self._tensor.allocator().init(self._info)
        return self._tensor

    def target(self) -> Target | None:
        """Where it is, once that is decided."""
        return self._target

    def tensor(self) -> ComputeTensor:
        """The tensor of its target."""
        if self._tensor is None:
            raise ExecutionError("the tensor has no target yet", hint="Graph.configure() decides; run() calls it")
        return self._tensor

    def allocate(self) -> None:
        """Give it memory."""
        if not self.tensor().is_allocated():
            self.tensor().allocator().allocate()

    def call_accessor(self) -> bool:
        """Let the accessor fill or read the tensor; whether it says to go on."""
        if self._accessor is None:
            return False
        return accessed(self.tensor(), self._accessor)


def new_tensor(target: Target) -> ComputeTensor:
    """A tensor of a target, without information."""
    return CLTensor() if target is Target.CL else ComputeTensor()


def accessed(tensor: ComputeTensor, accessor: ITensorAccessor) -> bool:
    """Call an accessor, with a device's tensor mapped."""
    if not isinstance(tensor, CLTensor):
        return accessor.access_tensor(tensor)
    tensor.map()
    try:
        return accessor.access_tensor(tensor)
    finally:
        tensor.unmap()
