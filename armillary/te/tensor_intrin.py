"""Tensor intrinsics: statements that do the work of a small te.compute, for Stage.tensorize.

In: an operation that says what the intrinsic computes, and a function `fcompute(ins, outs)` giving statements over
buffers. Out: a `TensorIntrin`. Invariant: `body` computes the operation whole; with a reduction, `reset` stores the
identity and `update` adds one step. Use: `te/tensorize.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from armillary.base.boundary import bounded
from armillary.errors import ScheduleError, TypeMismatch
from armillary.te.operation import ComputeOp, Operation
from armillary.te.tensor import Tensor
from armillary.tir.expr import BufferLoad, Expr
from armillary.tir.stmt import Buffer, BufferStore, Evaluate, Stmt
from armillary.tir.substitute import ExprMapper, map_stmt


@bounded
class TensorIntrin:
    """What an intrinsic computes (`op`) and how (`body`, `reset`, `update`)."""

    def __init__(
        self,
        name: str,
        op: ComputeOp,
        buffers: Mapping[Tensor, Buffer],
        body: Stmt,
        reset: Stmt | None,
        update: Stmt | None,
    ) -> None:
        self.name, self.op, self.buffers = name, op, dict(buffers)
        self.body, self.reset, self.update = body, reset, update

    def emit(self, part: str, place: Mapping[Buffer, tuple[Buffer, Callable[..., tuple[Expr, ...]]]]) -> Stmt:
        """One part with its buffers put in their places; ScheduleError when the intrinsic has no such part."""
        found = getattr(self, part)
        if found is None:
            raise ScheduleError(
                f"tensor intrinsic {self.name} has no {part}, which reduction loops outside it need",
                hint="return (body, reset, update) from its function",
            )

        def redirect(e: Expr) -> Expr | None:
            if type(e) is BufferLoad and e.buffer in place:
                buffer, indices = place[e.buffer]
                return BufferLoad(buffer, indices(e.indices))
            return None

        mapper = ExprMapper(redirect)

        def visit(s: Stmt) -> Stmt:
            mapped = map_stmt(s, mapper, visit)
            if type(mapped) is BufferStore and mapped.buffer in place:
                buffer, indices = place[mapped.buffer]
                return BufferStore(buffer, mapped.value, indices(mapped.indices))
            return mapped

        return visit(found)

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name})"


def decl_tensor_intrin(
    op: Operation,
    fcompute: Callable[[list[Buffer], list[Buffer]], object],
    name: str = "tensor_intrin",
    binds: Mapping[Tensor, Buffer] | None = None,
    scalar_params: object = None,
    default_buffer_params: object = None,
) -> TensorIntrin:
    """Declare an intrinsic: `fcompute(ins, outs)` gives a statement, or (body, reset, update)."""
    if not isinstance(op, ComputeOp):
        raise TypeMismatch(f"tensor intrinsic {name}: got {op!r}, wanted the operation of a te.compute")
    if scalar_params is not None:
        raise TypeMismatch(f"tensor intrinsic {name}: scalar parameters are not supported")
    buffers = dict(binds or {})
    for tensor in (*op.input_tensors, *op.outputs):
        buffers.setdefault(tensor, Buffer(tensor.name, tensor.shape, tensor.dtype))
    given = fcompute([buffers[t] for t in op.input_tensors], [buffers[t] for t in op.outputs])
    parts = [_statement(name, p) for p in (given if isinstance(given, tuple | list) else [given])]
    if len(parts) not in (1, 2, 3) or parts[0] is None:
        raise TypeMismatch(f"tensor intrinsic {name}: the function gave {len(parts)} parts, wanted 1 or 3")
    reset = parts[1] if len(parts) > 1 else None
    update = parts[2] if len(parts) > 2 else (parts[0] if len(parts) == 2 else None)
    return TensorIntrin(name, op, buffers, parts[0], reset, update)


def _statement(name: str, part: object) -> Stmt | None:
    if part is None or isinstance(part, Stmt):
        return part
    if isinstance(part, Expr):
        return Evaluate(part)
    raise TypeMismatch(f"tensor intrinsic {name}: the function gave {part!r}, wanted a statement")
