"""nn.attention and nn.masked_attention: products of queries and keys, rows of their softmax, products with values.

In: the stages of a fused function anchored at an attention (ops/nn/attention.py). Out: its loops: one kernel
(streaming.py); for few queries, or features that it does not take, three, whose scores are in memory. Whatever order of
axes the operands and the result have, they are read and stored where they lie. Invariant: what follows the attention,
if it is not computed from it in place, is a kernel of its own, by elements.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.opencl.attention.streaming import (
    BUSY,
    BUSY_ADRENO,
    StreamingKernel,
    plan_of,
    streaming_products,
)
from armillary.backends.opencl.extents import product, shape_of, unravel
from armillary.backends.opencl.gemm.contraction import contraction_of, count
from armillary.backends.opencl.gemm.kernel import Emit, ProductKernel
from armillary.backends.opencl.gemm.tile import SHARED_BYTES, Size, choose_tile
from armillary.backends.opencl.graph.apply_records import has_textures
from armillary.backends.opencl.rows.analysis import rows_of
from armillary.backends.opencl.rows.kernel import RowKernel
from armillary.backends.opencl.schedules.default import group_items, schedule_default
from armillary.backends.opencl.tiles import FLOATS
from armillary.backends.opencl.written.elements import Elements, Index, computed_between, is_in_place
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.base.extent import ceil_div, divides, typical
from armillary.base.node import post_order
from armillary.relay.types import tensor_fields
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.extents import to_expr


def _objection(workload: Workload) -> str | None:
    fields = [field for ty in workload.types for field in tensor_fields(ty)]
    return None if all(str(f.dtype) in FLOATS for f in fields) else "it is in neither float32 nor float16"


def attention(schedule: te.Schedule, fused: Fused) -> S.PrimFunc | None:
    """Three kernels, and a fourth for what follows elsewhere."""
    loops = _Attention(fused).loops() if len(fused.outputs) == 1 else None
    if loops is None:
        schedule_default(schedule, fused)
    return loops


for _name in ("nn.attention", "nn.masked_attention"):
    implement(Candidate(_name, "attention", _objection, sizes="any"), family="opencl")(attention)


class _Attention:
    """The kernels of one function."""

    def __init__(self, fused: Fused) -> None:
        self.fused, self.elements = fused, Elements(fused)
        self.stages = _stages(fused.anchor[0])
        self.memory: dict[te.Tensor, S.Buffer] = {}

    def loops(self) -> S.PrimFunc | None:
        """All kernels, in order; None where a stage is not as expected."""
        anchor, output = self.fused.anchor[0], self.fused.outputs[0]
        scores, mix, powers, total = (self.stages.get(f"attention_{n}") for n in ("scores", "mix", "exp", "sum"))
        if scores is None or mix is None or powers is None or total is None:
            return None
        rows = rows_of([powers, total], frozenset([scores.op]))
        order, source = _order(anchor, mix), anchor.op
        assert isinstance(source, te.ComputeOp), "attention is computed"
        if rows is None or order is None or not _is_plain(output, scores, source):
            return None
        is_last = is_in_place(output.op, source, shape_of(anchor))
        emit = self._emit(mix, output if is_last else anchor, order)
        streaming = self._streaming(emit)
        kernels = [streaming] if streaming is not None else []
        if not kernels:
            kernels.append(self._product(scores, lambda indices, value: self._keep(scores, indices, value)))
            self._hold(scores)
            kernels.append(RowKernel(self.elements, rows).body(self._keep))
            self.elements.held.clear()
            self._hold(powers)
            self._hold(total)
            kernels.append(self._product(mix, emit))
        if not is_last:
            self._hold(anchor)
            kernels.append(by_elements(self.elements, output))
        body = S.seq(*kernels)
        for buffer in self.memory.values():
            body = S.Allocate(buffer, body)
        return self.elements.function(body)

    def _streaming(self, emit: Emit) -> S.Stmt | None:
        """One kernel that keeps no scores; None where it does not pay or fit."""
        works = streaming_products(self.stages)
        if works is None:
            return None
        scores, mix = works
        shared = max(self.fused.workload.target.max_shared_memory_per_block, SHARED_BYTES)
        busy = BUSY_ADRENO if has_textures(self.fused.workload.target) else BUSY
        plan = plan_of(typical(count(scores.batch)), typical(count(scores.rows)), count(mix.columns), shared, busy)
        if plan is None:
            return None
        kernel = StreamingKernel(self.elements, self.stages, works, plan).loops(emit)
        self.elements.held.clear()
        return kernel

    def _product(self, tensor: te.Tensor, emit: Emit) -> S.Stmt:
        work = contraction_of(tensor.op)
        assert work is not None, "scores and mix are sums of products"
        return ProductKernel(self.elements, tensor, work, choose_tile(Size(*map(typical, work.sizes)))).loops(emit)

    def _emit(self, mix: te.Tensor, result: te.Tensor, order: tuple[int, ...]) -> Emit:
        """Store what becomes of a sum of values, in the order of axes of the result."""

        def emit(indices: Index, value: E.Expr) -> S.Stmt:
            self.elements.held[mix] = lambda _: value
            self.elements.forget()
            where = tuple(indices[n] for n in order)
            element = self.elements.at(result, where)
            is_output = result in self.elements.buffers
            return (self.elements.store if is_output else self._keep)(result, where, element)

        return emit

    def _keep(self, tensor: te.Tensor, indices: Index, value: E.Expr) -> S.Stmt:
        """Store an element in the workspace."""
        return S.BufferStore(self._memory_of(tensor), value, (self.elements.place(tensor, indices),))

    def _hold(self, tensor: te.Tensor) -> None:
        """Read a tensor from the workspace from now on."""
        buffer = self._memory_of(tensor)
        self.elements.held[tensor] = lambda indices: E.BufferLoad(buffer, (self.elements.place(tensor, indices),))
        self.elements.forget()

    def _memory_of(self, tensor: te.Tensor) -> S.Buffer:
        if tensor not in self.memory:
            size = to_expr(product(shape_of(tensor)))
            self.memory[tensor] = S.Buffer(tensor.name, (size,), tensor.dtype)
        return self.memory[tensor]


def _stages(anchor: te.Tensor) -> dict[str, te.Tensor]:
    """The stages of an attention by their names."""
    stages: dict[str, te.Tensor] = {}
    stack = [anchor]
    while stack:
        tensor = stack.pop()
        if tensor.op.name not in stages:
            stages[tensor.op.name] = tensor
            stack += getattr(tensor.op, "input_tensors", ())
    return stages


def _order(anchor: te.Tensor, mix: te.Tensor) -> tuple[int, ...] | None:
    """For each axis of the result, which axis of the mix it is; None where the mix is read otherwise."""
    op = anchor.op
    assert isinstance(op, te.ComputeOp), "attention is computed"
    loads = [n for n in post_order(op.body[0]) if isinstance(n, E.ProducerLoad) and n.producer is mix]
    places = {index: n for load in loads for n, index in enumerate(load.indices)}
    if len(loads) != 1 or any(axis.var not in places for axis in op.axis):
        return None
    return tuple(places[axis.var] for axis in op.axis)


def _is_plain(output: te.Tensor, scores: te.Tensor, source: te.ComputeOp) -> bool:
    """Whether operands, and what follows, are computed element by element."""
    operands = [t for t in scores.op.input_tensors if not isinstance(t.op, te.PlaceholderOp)]
    before, after = computed_between(operands, frozenset()), computed_between([output], frozenset([source]))
    return before is not None and after is not None


def by_elements(elements: Elements, output: te.Tensor) -> S.Stmt:
    """A kernel for each element of an output."""
    shape = shape_of(output)
    total, items = product(shape), group_items()
    group, item = E.Var("group", E.INT32), E.Var("item", E.INT32)
    place = T.add(T.mul(group, items), item)
    indices = tuple(unravel(place, shape))
    store = elements.store(output, indices, elements.at(output, indices))
    body: S.Stmt = store if divides(items, total) else S.IfThenElse(T.less(place, to_expr(total)), store)
    inside = S.For(item, T.const(0), T.const(items), S.LoopKind.THREAD, body, "threadIdx.x")
    return S.For(group, T.const(0), to_expr(ceil_div(total, items)), S.LoopKind.THREAD, inside, "blockIdx.x")
