"""From tensor expressions to a function of blocks: `te.create_prim_func([A, B, C])`.

In: tensors (and variables) in the order of the function's parameters. Out: a `PrimFunc` in which each compute is a
block in loops over its axes, plain, unscheduled. Invariant: the function's parameters are these tensors; what lies
between is allocated by the block "root". Blocks: `tir/blocks/block.py`. A reduction whose length depends on
another axis has a block for its start. Scans have no block form: `create_prim_func` makes plain loops of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.node import replace
from armillary.errors import TypeMismatch
from armillary.te.inline import rewriter
from armillary.te.lower import lower_schedule
from armillary.te.operation import ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp
from armillary.te.schedule import create_schedule
from armillary.te.tensor import Tensor
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import uses_any
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.blocks.regions import block_regions
from armillary.tir.simplify import Simplifier
from armillary.tir.substitute import rename_buffers

_FREE = "layout_free_placeholders"
_TRUE = E.IntImm(E.BOOL, 1)


@boundary("create_prim_func", arguments=True)
def create_prim_func(ops: Sequence[Tensor | E.Var], index_dtype_override: str | None = None) -> S.PrimFunc:
    """The function that computes `ops` (inputs, outputs, variables: its parameters, in order), block by block.

    With `index_dtype_override` loops, axes and shapes have that type.
    """
    outputs = [t for t in ops if isinstance(t, Tensor) and not isinstance(t.op, PlaceholderOp)]
    if not outputs:
        raise TypeMismatch("create_prim_func: no tensor is computed", hint="list outputs behind the inputs")
    schedule = create_schedule([t.op for t in outputs])
    order = [stage.op for stage in schedule.in_order()]
    if any(isinstance(op, ScanOp) for op in order):
        return lower_schedule(schedule, list(ops))
    return _Maker(ops, DType(index_dtype_override) if index_dtype_override else None).function(order)


def _is_ragged(op: ComputeOp) -> bool:
    """Whether the length of a reduction depends on another axis: it may be 0 then."""
    axes = {a.var for a in (*op.axis, *op.reduce_axis)}
    return any(uses_any(_extent(a), axes) for a in op.reduce_axis)


class _Maker:
    def __init__(self, params: Sequence[Tensor | E.Var], index: DType | None) -> None:
        self.index = index
        self.sizes: dict[E.Var, E.Expr] = {}
        self.buffers: dict[Tensor, S.Buffer] = {}
        self.own: list[S.Buffer] = []
        self.names: dict[str, int] = {}
        self.free: list[int] = []
        self.params = tuple(self._param(p) for p in params)

    def _param(self, item: Tensor | E.Var) -> S.Buffer | E.Var:
        if isinstance(item, Tensor):
            if item in self.buffers:
                raise TypeMismatch(f"create_prim_func: tensor {item.name} is given twice")
            return self._buffer(item)
        result = self.whole(item)
        if not isinstance(result, E.Var):
            raise TypeMismatch(f"create_prim_func: parameter {item!r} is neither a tensor nor a variable")
        return result

    def _buffer(self, tensor: Tensor) -> S.Buffer:
        name = tensor.name if tensor.op.num_outputs == 1 else f"{tensor.name}_v{tensor.value_index}"
        result = S.Buffer(name, tuple(self.whole(e) for e in tensor.shape), tensor.dtype)
        self.buffers[tensor] = result
        return result

    def whole(self, item: E.Expr) -> E.Expr:
        """A size in the type of indices."""
        if self.index is None or item.dtype == self.index or not item.dtype.is_int:
            return item
        if isinstance(item, E.IntImm):
            return T.const(item.value, self.index)
        if isinstance(item, E.Var):
            return self.sizes.setdefault(item, E.Var(item.name, self.index))
        return T.cast(rewriter({v: self.whole(v) for v in _variables(item)})(item), self.index)

    def function(self, order: Sequence[Operation]) -> S.PrimFunc:
        count = len(self.buffers)
        body = S.seq(*(self.operation(op) for op in order if not isinstance(op, PlaceholderOp)))
        self.own = list(self.buffers.values())[count:]
        if self.own or not (isinstance(body, BlockRealize) and not body.iter_values):
            body = BlockRealize((), _TRUE, Block((), (), (), "root", body, None, tuple(self.own)))
        attrs: dict[str, object] = {"global_symbol": "main", "noalias": True}
        if self.free:
            attrs["layout_free_buffers"] = tuple(self.free)
        return S.PrimFunc(self.params, body, tuple(attrs.items()))

    def operation(self, op: Operation) -> S.Stmt:
        buffers = [self.buffers.get(t) or self._buffer(t) for t in op.outputs]
        if isinstance(op, ExternOp):
            places = dict(zip(op.input_placeholders, (self.buffers[t] for t in op.inputs), strict=True))
            places |= dict(zip(op.output_placeholders, buffers, strict=True))
            return BlockRealize((), _TRUE, Block((), (), (), self.name(op.name), rename_buffers(op.body, places)))
        assert isinstance(op, ComputeOp), "create_prim_func looks"
        return self.compute(op, buffers)

    def name(self, wanted: str) -> str:
        """A name that no other block has."""
        count = self.names[wanted] = self.names.get(wanted, 0) + 1
        return wanted if count == 1 else f"{wanted}_{count - 1}"

    def compute(self, op: ComputeOp, buffers: list[S.Buffer]) -> S.Stmt:
        """Loops over the axes of a compute, around its block; each of several outputs, if no reduction, has its own."""
        axes = (*op.axis, *op.reduce_axis)
        loops = [E.Var(a.var.name, self.whole(_extent(a)).dtype) for a in axes]
        data = len(op.axis)
        if not op.is_reduction and len(op.body) > 1:
            parts = [self.block(op, f"{self.name(op.name)}.v{k}", loops, [k], buffers) for k in range(len(op.body))]
            return self.nest(op, loops, 0, S.seq(*parts))
        every, name = list(range(len(op.body))), self.name(op.name)
        block = self.block(op, name, loops, every, buffers)
        if not _is_ragged(op):
            return self.nest(op, loops, 0, block)
        assert block.block.init is not None, "a reduction has a start"
        reads, writes = block_regions(replace(block.block, init=None, body=block.block.init))
        axes_of_start = block.block.iter_vars[:data]
        start = Block(axes_of_start, reads, writes, f"{name}_init", block.block.init)
        first = BlockRealize(block.iter_values[:data], _TRUE, start)
        rest = self.nest(op, loops, data, replace(block, block=replace(block.block, init=None)))
        return self.nest(op, loops[:data], 0, S.seq(first, rest))

    def nest(self, op: ComputeOp, loops: list[E.Var], begin: int, block: S.Stmt) -> S.Stmt:
        """The loops from number `begin` on around a statement."""
        axes = (*op.axis, *op.reduce_axis)
        put = rewriter({**self.sizes, **{a.var: v for a, v in zip(axes, loops, strict=False)}})
        for var, axis in reversed(list(zip(loops, axes, strict=False))[begin:]):
            low = put(self.whole(axis.dom.min)) if axis.dom is not None else T.const(0, var.dtype)
            block = S.For(var, low, put(self.whole(_extent(axis))), S.LoopKind.SERIAL, block)
        return block

    def block(
        self, op: ComputeOp, name: str, loops: list[E.Var], outputs: list[int], buffers: list[S.Buffer]
    ) -> BlockRealize:
        own: list[E.IterVar] = []
        values = list[E.Expr](loops)
        for axis, loop in zip((*op.axis, *op.reduce_axis), loops, strict=True):
            assert axis.dom is not None, "axes of a compute have a range"
            put = rewriter(
                {**self.sizes, **{a.var: o.var for a, o in zip((*op.axis, *op.reduce_axis), own, strict=False)}}
            )
            dom = E.Range.from_min_extent(put(self.whole(axis.dom.min)), put(self.whole(axis.dom.extent)))
            kind = "reduce" if axis.kind == "reduce" else "data"
            own.append(E.IterVar(dom, E.Var(f"v_{axis.var.name}", loop.dtype), kind))
        if not own:
            own, values = [E.IterVar(E.Range(1), E.Var("vi"))], [T.int32(0)]
        mapping = {a.var: o.var for a, o in zip((*op.axis, *op.reduce_axis), own, strict=False)}
        plain, known = rewriter({**self.sizes, **mapping}, self.load), Simplifier()
        for axis in own:
            low, extent = (
                (T.as_int(e) for e in (axis.dom.min, axis.dom.extent)) if axis.dom is not None else (None, None)
            )
            if low is not None and extent is not None and extent > 0:
                known.bind(axis.var, (low, low + extent - 1))
        self._plain, self._known = plain, known
        place = tuple(o.var for o in own[: len(op.axis)])
        init, body = self.stores(op, [(k, buffers[k]) for k in outputs], place)
        result = Block(tuple(own), (), (), name, body, init, annotations=self.notes(op))
        reads, writes = block_regions(result)
        return BlockRealize(tuple(values), _TRUE, replace(result, reads=reads, writes=writes))

    def mapped(self, item: E.Expr) -> E.Expr:
        """An expression of the compute over the axes of the block."""
        return self._known(self._plain(item))

    def load(self, tensor: Tensor, indices: tuple[E.Expr, ...]) -> E.Expr:
        return E.BufferLoad(self.buffers[tensor], indices)

    def stores(
        self, op: ComputeOp, outputs: list[tuple[int, S.Buffer]], place: tuple[E.Expr, ...]
    ) -> tuple[S.Stmt | None, S.Stmt]:
        """What the block starts with, where it is a reduction, and what it does."""
        first = op.body[0]
        if not isinstance(first, E.Reduce):
            return None, S.seq(*(S.BufferStore(buffer, self.mapped(op.body[k]), place) for k, buffer in outputs))
        combiner = first.combiner
        identity = [self.mapped(i) for i in combiner.identity]
        source = [self.mapped(s) for s in first.source]
        condition = self.mapped(first.condition)
        if T.as_int(condition) != 1:
            source = [T.if_then_else(condition, s, i) for s, i in zip(source, identity, strict=True)]
        held: dict[E.Var, E.Expr] = {
            **{v: E.BufferLoad(b, place) for v, (_, b) in zip(combiner.lhs, outputs, strict=True)},
            **dict(zip(combiner.rhs, source, strict=True)),
        }
        combine = rewriter(held)
        results = [self.mapped(combine(r)) for r in combiner.result]
        init = S.seq(*(S.BufferStore(b, i, place) for (_, b), i in zip(outputs, identity, strict=True)))
        if len(outputs) == 1:
            return init, S.BufferStore(outputs[0][1], results[0], place)
        names = [E.Var(f"v_{b.name}", r.dtype) for (_, b), r in zip(outputs, results, strict=True)]
        body = S.seq(*(S.BufferStore(b, v, place) for (_, b), v in zip(outputs, names, strict=True)))
        for var, result in reversed(list(zip(names, results, strict=True))):
            body = S.LetStmt(var, result, body)
        return init, body

    def notes(self, op: ComputeOp) -> tuple[tuple[str, object], ...]:
        """The attributes of a compute as annotations; inputs whose layout is free are told by the function."""
        result: list[tuple[str, object]] = []
        for key, value in op.attrs.items():
            tensors = [t for t in value if isinstance(t, Tensor)] if key == _FREE else []
            if not tensors:
                result.append((key, value))
                continue
            held = [self.buffers[t] for t in tensors]
            self.free += [self.params.index(b) for b in held if b in self.params]
            inner = [b for b in held if b not in self.params]
            result += [(key, tuple(inner))] if inner else []
        return tuple(result)


def _extent(axis: E.IterVar) -> E.Expr:
    assert axis.dom is not None, "axes of a compute have a range"
    return axis.dom.extent


def _variables(item: E.Expr) -> list[E.Var]:
    result: list[E.Var] = []
    stack: list[E.Expr] = [item]
    while stack:
        one = stack.pop()
        if isinstance(one, E.Var):
            result.append(one)
        stack += [part for part in one._values(one) if isinstance(part, E.Expr)]
    return result
