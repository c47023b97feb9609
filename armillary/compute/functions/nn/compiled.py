"""Functions as pipelines of kernels that our compiler makes.

In: a Relay function over the tensors of a function, which of them are weights. Out: `Pipeline`: kernels with windows,
in order, run by the scheduler in place; temporaries that a memory group may share with other functions. Invariant:
weights are packed once, at the first run (or `prepare`); later runs read packed ones. Memory between kernels is one
managed tensor, so functions that run one after another use the same bytes. Kernels: `core/loop_kernel.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from armillary.artifact import GraphNode, GraphSpec
from armillary.base.aliases import Array
from armillary.base.aligned import aligned, aligned_empty
from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.loop_kernel import CompiledLoops, LoopKernel, Program
from armillary.compute.core.stored_loops import layer_of
from armillary.compute.core.switches import kernel_config
from armillary.compute.core.tensor_info import DataType, TensorInfo, TensorShape
from armillary.compute.core.window import Window
from armillary.compute.functions.nn.body import Body
from armillary.compute.runtime.memory.manager import MemoryGroup, MemoryManagerOnDemand
from armillary.compute.runtime.scheduler import Scheduler
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import ExecutionError

with deferred():
    from armillary.driver.library import GraphLibrary

_NOP = "__nop"
_MOST_BOUND = 64  # sets of addresses whose kernels are kept


class Pipeline:
    """A compiled Relay function over tensors."""

    def __init__(
        self, body: Body, config: Mapping[str, object], memory_manager: MemoryManagerOnDemand | None = None
    ) -> None:
        """`config`: options of the passes that compile the body."""
        self.body, self._inputs, self._output, self._config = body, body.inputs, body.output, dict(config)
        self._module = body.module()
        self._group = MemoryGroup(memory_manager)
        self._plan: _Plan | None = None
        self._lock = threading.Lock()
        self._scratch: Tensor | None = None
        self._tensors = (*body.inputs.values(), body.output)
        self._apart: dict[tuple[int, ...], bool] = {}
        if memory_manager is not None:
            self._reserve()

    def _reserve(self) -> None:
        """Say to the memory manager how much lies between the kernels; weights of any value need the same."""
        if self.body.has_constant_weights():
            plan = self._plan = self._planned()
        else:
            plan = _Plan(self._compiled(self._drawn()), tuple(self._inputs))
        self._scratch = _bytes(max(1, plan.scratch_bytes()))
        self._group.manage(self._scratch)
        self._scratch.allocator().allocate()

    def _drawn(self) -> dict[str, Array]:
        rng = np.random.default_rng(0)
        values = {}
        for name in self.body.weights:
            shape, kind = self.body.shapes[name], self.body.kinds[name]
            drawn = rng.integers(1, 100, shape) if "int" in kind else rng.random(shape) + 0.5
            values[name] = drawn.astype(kind)
        return values

    def _compiled(self, weights: Mapping[str, Array]) -> GraphLibrary:
        return layer_of(self._module, weights, self._config | kernel_config())

    def _planned(self) -> _Plan:
        """The plan for the weights as they are now."""
        weights = {name: self.body.values_of(name) for name in self.body.weights}
        return _Plan(self._compiled(weights), tuple(self._inputs))

    def prepare(self) -> None:
        """Pack the weights; the first run does it otherwise."""
        with self._lock:
            if self._plan is not None:
                return
            plan = self._planned()
            wanted = max(1, plan.scratch_bytes())
            if self._scratch is None or self._scratch.info().total_size() < wanted:
                self._scratch = _bytes(wanted)
                self._scratch.allocator().allocate()
            self._plan = plan

    def kernels(self) -> tuple[IKernel, ...]:
        """What a run does, in order; weights are packed by then."""
        plan, scratch, values = self._ready()
        for tensor, value in zip((*self._inputs.values(), self._output), values, strict=True):
            if not np.shares_memory(tensor.buffer(), value):
                message = (
                    f"{tensor.describe()} has padding or is input and output, so that kernels work on a copy of it"
                )
                raise ExecutionError(message, hint="call run()")
        return plan.bound(scratch, [v.ctypes.data for v in values])

    def _ready(self) -> tuple[_Plan, int, list[Array]]:
        """The plan, the address of its scratch memory, and each tensor's values without padding."""
        self.prepare()
        assert self._plan is not None and self._scratch is not None, "prepare makes both"
        values = [np.ascontiguousarray(t.array()) for t in (*self._inputs.values(), self._output)]
        for k, value in enumerate(values[:-1]):  # kernels may read what they wrote: their last vector overlaps
            if np.shares_memory(value, values[-1]):
                values[k] = value.copy()
        return self._plan, _up(self._scratch.buffer().ctypes.data), values

    def run(self) -> None:
        """Compute the output; tensors with padding are copied in and out."""
        with self._group:
            at_once, places = Scheduler.runner(), self._places()
            if at_once is not None and places is not None:
                if self._plan is None:
                    self.prepare()
                assert self._plan is not None and self._scratch is not None, "prepare makes both"
                self._check_threads(self._plan)
                if not self._plan.is_copy:
                    at_once(self._plan.program(_up(self._scratch.address()), places))
                    return
            self._run_copies()

    def _places(self) -> tuple[int, ...] | None:
        """Where inputs and output lie, unless one has padding or an input is the output."""
        places = tuple([t.dense_address() for t in self._tensors])
        apart = self._apart.get(places)
        if apart is None:
            if len(self._apart) >= _MOST_BOUND:
                self._apart.clear()
            ends = [at + t.info().total_size() for at, t in zip(places, self._tensors, strict=True)]
            inputs = zip(places[:-1], ends[:-1], strict=True)
            are_apart = all(at >= ends[-1] or end <= places[-1] for at, end in inputs)
            apart = self._apart[places] = are_apart and all(places)
        return places if apart else None

    def _check_threads(self, plan: _Plan) -> None:
        threads = Scheduler.get().num_threads()
        if threads > plan.threads and plan.thread_workspace:
            message = f"configured for {plan.threads} threads, but the scheduler has {threads} now"
            raise ExecutionError(message, hint="set_num_threads before the first run")

    def _run_copies(self) -> None:
        """Kernel by kernel, over copies where tensors have padding."""
        plan, scratch, values = self._ready()
        self._check_threads(plan)
        scheduler = Scheduler.get()
        for kernel in plan.bound(scratch, [v.ctypes.data for v in values]):
            scheduler.schedule(kernel, Window.DimX)
        target = self._output.array()
        if plan.is_copy:
            target[...] = np.concatenate([v.ravel() for v in values[:-1]]).reshape(target.shape)
        elif not np.shares_memory(target, values[-1]):
            target[...] = values[-1]


def _bytes(size: int) -> Tensor:
    result = Tensor()
    result.allocator().init(TensorInfo(TensorShape(size), 1, DataType.U8))
    return result


@record(slots=True)
class _Slot:
    """Where an argument lies: at an address of its own, in scratch memory, or in tensor number `tensor`."""

    address: int = 0
    offset: int = -1
    tensor: int = -1

    def find(self, scratch: int, tensors: Sequence[int]) -> int:
        """The address, with those of the scratch memory and of the tensors."""
        return tensors[self.tensor] if self.tensor >= 0 else scratch + self.offset if self.offset >= 0 else self.address


class _Plan:
    """The calls of a compiled graph with their places: inputs and output, packed weights, scratch memory."""

    def __init__(self, library: GraphLibrary, inputs: Sequence[str]) -> None:
        self.spec = GraphSpec.from_json(library.graph_json)
        loaded = library.loaded()
        self._loops = {name: CompiledLoops(loaded, row) for name, row in library.descriptor.functions.items()}
        self._params = {name: aligned(np.ascontiguousarray(value)) for name, value in library.params.items()}
        self._inputs = {name: k for k, name in enumerate(inputs)}
        self.threads = max(1, Scheduler.get().num_threads())
        rows = [self._loops[node.func_name].row for _, node in self._calls()]
        self.workspace = max((_up(row.scratch[0]) for row in rows), default=0)
        self.thread_workspace = max((row.scratch[1] for row in rows), default=0)
        self._packed = self._pack()
        self._offsets = self._places()
        work = [(node, self._slots(at, node)) for at, node in self._calls() if not node.is_load_time]
        self.is_copy = not work  # the inputs, one after another, are the output
        self._work = [(self._loops[node.func_name], slots) for node, slots in work]
        self._bound: dict[tuple[int, ...], tuple[LoopKernel, ...]] = {}
        self._programs: dict[tuple[int, ...], Program] = {}

    def _calls(self) -> list[tuple[int, GraphNode]]:
        return [(at, n) for at, n in enumerate(self.spec.nodes) if n.op != "null" and n.func_name != _NOP]

    def _pack(self) -> dict[int, Array]:
        """Run what depends on weights alone; storage to values."""
        spec, packed = self.spec, {}
        for at, node in enumerate(spec.nodes):
            if node.op == "null" and node.name in self._params:
                packed[spec.storage_ids[spec.entry(at)]] = self._params[node.name]
        for at, node in self._calls():
            if not node.is_load_time:
                continue
            output = spec.entry(at)
            made = aligned_empty(spec.fixed_shapes[output], np.dtype(spec.dltypes[output]))
            packed[spec.storage_ids[output]] = made
            loops = self._loops[node.func_name]
            scratch = np.zeros(loops.row.scratch[0] + loops.row.scratch[1] + 128, np.uint8)
            base = _up(scratch.ctypes.data)
            data = [packed[spec.storage_ids[spec.entry(i, k)]].ctypes.data for i, k, _ in node.inputs]
            for phase in range(len(loops.row.phases)):
                loop = loops.bind(phase, [*data, made.ctypes.data, base, base + _up(loops.row.scratch[0])], ())
                loop.run(0, loop.extent, 0)
        return packed

    def _places(self) -> dict[int, int]:
        """Storage between the calls to its place in the scratch memory: the compiler's plan."""
        spec, result = self.spec, {}
        ids = spec.storage_ids
        outside = {ids[self._head()], *self._packed}
        outside |= {ids[spec.entry(k)] for k, node in enumerate(spec.nodes) if node.op == "null"}
        sizes: dict[int, int] = {}
        for entry, storage in enumerate(ids):
            size = int(np.prod(spec.fixed_shapes[entry], dtype=np.int64)) * np.dtype(spec.dltypes[entry]).itemsize
            sizes[storage] = max(sizes.get(storage, 0), _up(size))
        inner = sorted(set(ids) - outside)
        planned = {s: spec.arena_offsets[s] for s in inner if spec.arena_offsets and spec.arena_offsets[s] >= 0}
        self.arena = max((at + sizes[s] for s, at in planned.items()), default=0)
        result.update(planned)
        for storage in inner:
            if storage not in result:
                result[storage], self.arena = self.arena, self.arena + sizes[storage]
        return result

    def _head(self) -> int:
        node, output, _ = self.spec.heads[0]
        return self.spec.entry(node, output)

    def scratch_bytes(self) -> int:
        """Bytes between kernels, and of the kernels for themselves: `thread_workspace` for each thread."""
        return self.arena + self.workspace + self.thread_workspace * self.threads + 64

    def _slots(self, at: int, node: GraphNode) -> list[_Slot]:
        spec = self.spec
        entries = [spec.entry(i, k) for i, k, _ in node.inputs]
        entries += [spec.entry(at, k) for k in range(node.num_outputs)]
        slots = [self._slot(spec.storage_ids[entry]) for entry in entries]
        return [*slots, _Slot(offset=self.arena), _Slot(offset=self.arena + self.workspace)]

    def _slot(self, storage: int) -> _Slot:
        spec = self.spec
        if storage in self._packed:
            return _Slot(address=self._packed[storage].ctypes.data)
        if storage in self._offsets:
            return _Slot(offset=self._offsets[storage])
        for k, node in enumerate(spec.nodes):
            if node.op == "null" and spec.storage_ids[spec.entry(k)] == storage:
                return _Slot(tensor=self._inputs[node.name])
        return _Slot(tensor=len(self._inputs))

    def bound(self, scratch: int, tensors: Sequence[int]) -> tuple[LoopKernel, ...]:
        """One kernel for each loop of each call, over tensors at these addresses."""
        key = (scratch, *tensors)
        result = self._bound.get(key)
        if result is None:
            if len(self._bound) >= _MOST_BOUND:
                self._bound.clear()
            result = self._bound[key] = tuple(self._bind(scratch, tensors))
        return result

    def program(self, scratch: int, tensors: Sequence[int]) -> Program:
        """All loops over tensors at these addresses, as one call runs them."""
        key = (scratch, *tensors)
        result = self._programs.get(key)
        if result is None:
            if len(self._programs) >= _MOST_BOUND:
                self._programs.clear()
            loops = [loop for kernel in self.bound(scratch, tensors) for loop in kernel.native_loops()]
            result = self._programs[key] = Program(loops, self.threads)
        return result

    def _bind(self, scratch: int, tensors: Sequence[int]) -> Iterator[LoopKernel]:
        for loops, slots in self._work:
            data = [s.find(scratch, tensors) for s in slots]
            for phase in range(len(loops.row.phases)):
                yield LoopKernel(loops.row.phases[phase].symbol, loops.bind(phase, data, ()))


def _up(size: int) -> int:
    return -(-size // 64) * 64
