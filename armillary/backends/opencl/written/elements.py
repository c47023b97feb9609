"""Elements of a fused function's tensors as expressions over flat buffers, for kernels whose loops are written.

In: a fused function. Out: for a tensor and indices the expression that gives the element: what is computed element by
element is put in where it is read, down to the function's inputs and to tensors that the kernel holds itself (the sums
of a product, a row in registers). Invariant: buffers have one dimension; indices of global memory are simplified, so
that neighbours can be seen. Who asks: gemm/, rows/, attention/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from armillary import te
from armillary.backends.opencl.extents import product, shape_of
from armillary.backends.registry import Fused
from armillary.base.extent import Known, most
from armillary.base.names import Names
from armillary.base.node import post_order
from armillary.te.inline import rewriter
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.bounds import Interval
from armillary.tir.extents import to_expr
from armillary.tir.simplify import simplify

Index = tuple[E.Expr, ...]
Read = Callable[[Index], E.Expr]
Ranges = Mapping[E.Var, Interval]


class Elements:
    """The elements of one function's tensors; `held` has those that the kernel keeps."""

    def __init__(self, fused: Fused) -> None:
        names = Names()
        self.fused = fused
        self.buffers = {t: flat_buffer(t, names) for t in (*fused.inputs, *fused.outputs)}
        self.held: dict[te.Tensor, Read] = {}
        self.ranges: dict[E.Var, Interval] = {}
        self._memo: dict[tuple[te.Tensor, tuple[int, ...]], tuple[Index, E.Expr]] = {}

    def at(self, tensor: te.Tensor, indices: Index) -> E.Expr:
        """One element."""
        key = (tensor, tuple(id(i) for i in indices))
        known = self._memo.get(key)
        if known is None:
            known = self._memo[key] = (indices, self._read(tensor, indices))  # ids are keys: indices stay alive
        return known[1]

    def forget(self) -> None:
        """Elements that are held differ from now on: nothing that was read before is read again."""
        self._memo.clear()

    def with_ranges(self, ranges: Ranges, make: Callable[[], E.Expr]) -> E.Expr:
        """An expression over variables whose ranges are known, to look at."""
        before, self.ranges = self.ranges, {**self.ranges, **ranges}
        self.forget()
        expr = make()
        self.ranges = before
        self.forget()
        return expr

    def inside(self, item: E.Expr, variables: Mapping[E.Var, E.Expr]) -> E.Expr:
        """An expression of a stage with its axes replaced."""
        return rewriter(variables, self.at)(item)

    def place(self, tensor: te.Tensor, indices: Index) -> E.Expr:
        """Where an element lies in its flat buffer."""
        flat: E.Expr = T.const(0)
        for extent, index in zip(tensor.shape, indices, strict=True):
            flat = T.add(T.mul(flat, extent), index)
        return simplify(flat, self.ranges)

    def store(self, tensor: te.Tensor, indices: Index, value: E.Expr) -> S.Stmt:
        """Store an element of an output."""
        return S.BufferStore(self.buffers[tensor], value, (self.place(tensor, indices),))

    def function(self, body: S.Stmt) -> S.PrimFunc:
        """The whole function, whose parameters are as callers see them."""
        tensors = (*self.fused.inputs, *self.fused.outputs)
        shapes = tuple(t.shape for t in tensors)
        attrs = (("noalias", True), ("tensor_shapes", shapes))
        return S.PrimFunc(tuple(self.buffers[t] for t in tensors), body, attrs)

    def _read(self, tensor: te.Tensor, indices: Index) -> E.Expr:
        if tensor in self.held:
            return self.held[tensor](indices)
        op = tensor.op
        if isinstance(op, te.ComputeOp):
            variables = {axis.var: index for axis, index in zip(op.axis, indices, strict=True)}
            return self.inside(op.body[tensor.value_index], variables)
        return E.BufferLoad(self.buffers[tensor], (self.place(tensor, indices),))


def flat_buffer(tensor: te.Tensor, names: Names) -> S.Buffer:
    """The buffer of a tensor, of one dimension."""
    size = most(1, product(shape_of(tensor)))
    return S.Buffer(names.fresh(tensor.name), (to_expr(size),), tensor.dtype)


def computed_between(outputs: Sequence[te.Tensor], stop: frozenset[te.Operation]) -> list[te.ComputeOp] | None:
    """The stages that outputs are made of, down to inputs and `stop`; None if one is no plain formula."""
    stages: dict[te.Operation, None] = {}
    stack = [t.op for t in outputs]
    while stack:
        op = stack.pop()
        if op in stages or op in stop or isinstance(op, te.PlaceholderOp):
            continue
        if not isinstance(op, te.ComputeOp) or isinstance(op.body[0], E.Reduce):
            return None
        stages[op] = None
        stack += [t.op for t in op.input_tensors]
    return [op for op in stages if isinstance(op, te.ComputeOp)]


def reaches(op: te.Operation, source: te.Operation) -> bool:
    """Whether a stage reads another, also by way of others."""
    stack, seen = [op], set[te.Operation]()
    while stack:
        top = stack.pop()
        if top is source:
            return True
        if top not in seen:
            seen.add(top)
            stack += [t.op for t in getattr(top, "input_tensors", ())]
    return False


def is_in_place(op: te.Operation, source: te.ComputeOp, extents: tuple[Known, ...]) -> bool:
    """Whether a formula reads elements of `source`, also by way of others, for its own place only."""
    if op is source:
        return True
    if not isinstance(op, te.ComputeOp) or shape_of(op.output(0)) != extents or isinstance(op.body[0], E.Reduce):
        return False
    for load in (n for b in op.body for n in post_order(b) if isinstance(n, E.ProducerLoad)):
        producer = load.producer.op
        if not reaches(producer, source):
            continue
        own = all(i is a.var or n == 1 for i, a, n in zip(load.indices, op.axis, extents, strict=False))
        if not own or not is_in_place(producer, source, extents):
            return False
    return True
