"""Neural-network functions on a device: a compiled Relay function, one launch after another.

In: as `functions/nn/compiled.py`, over `CLTensor`s. Out: the output tensor. Invariant: weights are packed once; what
lies between the kernels is one managed tensor, so functions that run one after another use the same bytes of the
device.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping

import numpy as np

from armillary import relay
from armillary.artifact import GraphNode, GraphSpec
from armillary.base.aliases import Array
from armillary.base.digest import blake2b
from armillary.base.dtype import DType
from armillary.compute.cl.kernels import CLFormulaKernel
from armillary.compute.cl.scheduler import CLScheduler
from armillary.compute.cl.tensor import ALIGNMENT, CLTensor
from armillary.compute.cl.tuner import DEFAULT_LWS, FLAT, Lws
from armillary.compute.core.compiled import Formula, Numbers, Read
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.tensor_info import DataType, TensorInfo, TensorShape
from armillary.compute.functions.nn.body import Body
from armillary.compute.runtime.memory.manager import MemoryGroup, MemoryManagerOnDemand
from armillary.driver.library import GraphLibrary
from armillary.errors import ExecutionError, TypeMismatch
from armillary.runtime.device import Device
from armillary.runtime.ndarray import DeviceArray
from armillary.tir.expr import Expr
from armillary.transform import PassContext

_NOP = "__nop"
_Place = tuple[str, int]  # ("tensor", n), ("kept", storage) or ("scratch", offset)


class CLPipeline:
    """A compiled Relay function over tensors of a device."""

    def __init__(
        self, body: Body, config: Mapping[str, object], memory_manager: MemoryManagerOnDemand | None = None
    ) -> None:
        """As `Pipeline`."""
        for tensor in (*body.inputs.values(), *body.weights.values(), body.output):
            if not isinstance(tensor, CLTensor):
                raise TypeMismatch(f"{tensor.describe()} is no CLTensor")
            if tensor.info().data_type is DataType.F16:
                raise TypeMismatch(f"{tensor.describe()}: layers of OpenCL take no F16", hint="use F32")
        self.body, self._inputs, self._module = body, body.inputs, body.module()
        self._group, self._lock, self._config = MemoryGroup(memory_manager), threading.Lock(), dict(config)
        tensors = (*body.inputs.values(), body.output)
        self._tensors = tuple(t for t in tensors if isinstance(t, CLTensor))  # all of them
        self._copies: dict[int, CLTensor] = {}  # without padding, of tensors that have some or are written too
        self._scratch: CLTensor | None = None
        self._plan: _DevicePlan | None = None
        if memory_manager is not None:
            if self.body.has_constant_weights():
                plan = self._plan = self._planned(self._present())
            else:
                shapes_of, kinds = self.body.shapes, self.body.kinds
                plan = self._planned({name: np.ones(shapes_of[name], kinds[name]) for name in self.body.weights})
            self._scratch = _scratch(plan.scratch_bytes)
            self._group.manage(self._scratch)
            self._scratch.allocator().allocate()

    def config_id(self) -> str:
        """By which a tuner knows the layer: its expression and its tensors."""
        kinds = [(name, self.body.shapes[name], self.body.kinds[name]) for name in self.body.shapes]
        return f"layer_{blake2b(repr((str(self._module), kinds, self._config)).encode()).hexdigest()[:12]}"

    def _planned(self, weights: Mapping[str, Array]) -> _DevicePlan:
        """The plan, with work-groups as the tuner says, if there is one."""
        tuner = CLScheduler.get().tuner()
        if tuner is None:
            return self._compiled(weights, DEFAULT_LWS)
        plans: dict[Lws, tuple[_DevicePlan, CLTensor]] = {}
        tensors: list[DeviceArray] = []  # of trials: the function's own need not be there yet

        def run(lws: Lws) -> None:
            if lws not in plans:
                plan = self._compiled(weights, lws)
                plans[lws] = plan, _scratch(plan.scratch_bytes)
                plans[lws][1].allocator().allocate()
            if not tensors:
                tensors.extend(_zeros(t.info()) for t in self._tensors)
            plans[lws][0].run(tensors, plans[lws][1])
            CLScheduler.get().queue().finish()

        lws = tuner.choose(self.config_id(), run, FLAT, CLScheduler.get().queue().device)
        return plans[lws][0] if lws in plans else self._compiled(weights, lws)

    def _compiled(self, weights: Mapping[str, Array], lws: Lws) -> _DevicePlan:
        with PassContext(opt_level=3, config={**self._config, "opencl.group": math.prod(lws)}):
            library: GraphLibrary = relay.build(self._module, target="opencl", params=dict(weights))
        return _DevicePlan(library, tuple(self._inputs), CLScheduler.get().use())

    def prepare(self) -> None:
        """Pack the weights; the first run does it otherwise."""
        with self._lock:
            if self._plan is not None:
                return
            plan = self._planned(self._present())
            if self._scratch is None or self._scratch.info().total_size() < plan.scratch_bytes:
                self._scratch = _scratch(plan.scratch_bytes)
                self._scratch.allocator().allocate()
            self._plan = plan

    def _present(self) -> dict[str, Array]:
        """The weights as they are now."""
        result = {}
        for name, tensor in self.body.weights.items():
            tensor.map()  # type: ignore[attr-defined]  # a CLTensor, see the constructor
            try:
                result[name] = self.body.values_of(name)
            finally:
                tensor.unmap()  # type: ignore[attr-defined]
        return result

    def kernels(self) -> tuple[IKernel, ...]:
        """Launches of a device have no windows on the host."""
        raise ExecutionError("kernels of a device are launched whole", hint="call run()")

    def run(self) -> None:
        """Enqueue the kernels; tensors with padding, and in front what is written too, are copied by kernels."""
        with self._group:
            self.prepare()
            assert self._plan is not None and self._scratch is not None, "prepare makes both"
            dense = [self._dense(n, tensor) for n, tensor in enumerate(self._tensors)]
            for tensor, copy in zip(self._tensors[:-1], dense[:-1], strict=True):
                if copy is not tensor:
                    self._copy(tensor, copy)
            self._plan.run([tensor.array_on_device() for tensor in dense], self._scratch)
            if dense[-1] is not self._tensors[-1]:
                self._copy(dense[-1], self._tensors[-1])
            CLScheduler.get().queue().count()

    def _dense(self, number: int, tensor: CLTensor) -> CLTensor:
        """A tensor, or one of the same values: without padding, and apart from the output, which kernels write."""
        is_written = number < len(self._tensors) - 1 and tensor is self._tensors[-1]
        if not tensor.info().has_padding() and not is_written:
            return tensor
        result = self._copies.get(number)
        if result is None:
            result = self._copies[number] = CLTensor()
            info = tensor.info()
            result.allocator().init(TensorInfo(info.shape, 1, info.data_type))
            result.allocator().allocate()
        return result

    def _copy(self, source: CLTensor, target: CLTensor) -> None:
        kind = source.info().data_type
        kernel = CLFormulaKernel(Formula("copy_elements", (kind,), (kind,), _same))
        kernel.configure([source], [target])
        kernel.enqueue(CLScheduler.get().queue())


def _same(read: Read, y: Expr, x: Expr, _: Numbers) -> tuple[Expr, ...]:
    """What is at the same place."""
    return (read(0, y, x),)


def _zeros(info: TensorInfo) -> DeviceArray:
    """An array of a tensor's elements, without padding."""
    shape, dtype = tuple(reversed(info.shape)), DType(info.data_type.dtype)
    result = DeviceArray(shape, dtype, CLScheduler.get().use())
    result.copyfrom(np.zeros(shape, info.data_type.dtype))
    return result


def _scratch(size: int) -> CLTensor:
    result = CLTensor()
    result.allocator().init(TensorInfo(TensorShape(max(1, size)), 1, DataType.U8))
    return result


class _DevicePlan:
    """The calls of a compiled graph on a device, with the places of what they read and write."""

    def __init__(self, library: GraphLibrary, inputs: tuple[str, ...], device: Device) -> None:
        self._library, self._device = library, device
        self.spec = GraphSpec.from_json(library.graph_json)
        self._inputs = {name: k for k, name in enumerate(inputs)}
        self._buffers_held: dict[int, DeviceArray] = {}
        self._pack()
        self._offsets = self._places()
        self._work = [(node, self._arguments(at, node)) for at, node in self._calls() if not node.is_load_time]

    def _calls(self) -> list[tuple[int, GraphNode]]:
        return [(at, n) for at, n in enumerate(self.spec.nodes) if n.op != "null" and n.func_name != _NOP]

    def _new(self, entry: int) -> DeviceArray:
        spec = self.spec
        return DeviceArray(tuple(spec.fixed_shapes[entry]), DType(spec.dltypes[entry]), self._device)

    def _pack(self) -> None:
        """Bring weights to the device, and run there what depends on them alone."""
        spec = self.spec
        for at, node in enumerate(spec.nodes):
            if node.op == "null" and node.name in self._library.params:
                retained = self._new(spec.entry(at))
                self._buffers_held[spec.storage_ids[spec.entry(at)]] = retained.copyfrom(
                    self._library.params[node.name]
                )
        for at, node in self._calls():
            if node.is_load_time:
                packed = self._new(spec.entry(at))
                inputs = [self._buffers_held[spec.storage_ids[spec.entry(i, k)]] for i, k, _ in node.inputs]
                self._library[node.func_name](*inputs, packed)
                self._buffers_held[spec.storage_ids[spec.entry(at)]] = packed

    def _places(self) -> dict[int, int]:
        """Storage between the calls to its place in the scratch memory."""
        spec = self.spec
        sizes: dict[int, int] = {}
        node, output, _ = spec.heads[0]
        outside = {spec.storage_ids[spec.entry(node, output)], *self._buffers_held}
        outside |= {spec.storage_ids[spec.entry(k)] for k, node in enumerate(spec.nodes) if node.op == "null"}
        for entry, storage in enumerate(spec.storage_ids):
            if storage not in outside:
                size = int(np.prod(spec.fixed_shapes[entry], dtype=np.int64)) * np.dtype(spec.dltypes[entry]).itemsize
                sizes[storage] = max(sizes.get(storage, 0), -(-size // ALIGNMENT) * ALIGNMENT)
        result, self.scratch_bytes = {}, 0
        for storage in sorted(sizes):
            result[storage], self.scratch_bytes = self.scratch_bytes, self.scratch_bytes + sizes[storage]
        return result

    def _arguments(self, at: int, node: GraphNode) -> list[tuple[_Place, int]]:
        spec = self.spec
        entries = [spec.entry(i, k) for i, k, _ in node.inputs]
        entries += [spec.entry(at, k) for k in range(node.num_outputs)]
        return [(self._place(spec.storage_ids[entry]), entry) for entry in entries]

    def _place(self, storage: int) -> _Place:
        spec = self.spec
        if storage in self._buffers_held:
            return "kept", storage
        if storage in self._offsets:
            return "scratch", self._offsets[storage]
        for k, node in enumerate(spec.nodes):
            if node.op == "null" and spec.storage_ids[spec.entry(k)] == storage:
                return "tensor", self._inputs[node.name]
        return "tensor", len(self._inputs)

    def run(self, tensors: list[DeviceArray], scratch: CLTensor) -> None:
        """Enqueue every call."""
        if not self._work:  # the output is the inputs one after another, in another shape
            at = tensors[-1].tensor.data
            for source in tensors[:-1]:
                sizes, dtype = (math.prod(source.shape),), DType(source.dtype)
                part = DeviceArray(sizes, dtype, self._device, at, tensors[-1])
                part.copyfrom(DeviceArray(sizes, dtype, self._device, source.tensor.data, source))
                at += sizes[0] * dtype.bits // 8
        for node, arguments in self._work:
            arrays = [self._array(place, entry, tensors, scratch) for place, entry in arguments]
            self._library[node.func_name](*arrays)

    def _array(self, place: _Place, entry: int, tensors: list[DeviceArray], scratch: CLTensor) -> DeviceArray:
        kind, number = place
        shape, dtype = tuple(self.spec.fixed_shapes[entry]), DType(self.spec.dltypes[entry])
        if kind == "kept":
            return self._buffers_held[number]
        whole = tensors[number] if kind == "tensor" else scratch.array_on_device()
        offset = 0 if kind == "tensor" else number
        return DeviceArray(shape, dtype, self._device, whole.tensor.data + offset, whole)
