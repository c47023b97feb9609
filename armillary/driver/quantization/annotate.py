"""Where a network is quantised: `relay.quantize.annotate()`.

In: a module of float operators, simplified. Out: the module with a simulated_quantize around data and weights of each
convolution and product that the settings do not skip; the scales are variables until calibrate gives them.
Invariant: a value that several products read is quantised once; what a call computes is its inputs' rounding away from
what it was.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from armillary.base.dtype import DType
from armillary.driver.quantization.config import QConfig, current_qconfig
from armillary.ir import IRModule
from armillary.ops.nn.conv import conv2d
from armillary.ops.nn.dense import batch_matmul, dense
from armillary.ops.qnn.simulate import simulated_quantize
from armillary.relay.expr import Call, Constant, Expr, Function, Var
from armillary.relay.transform._rules import on_functions, tensor
from armillary.relay.types import TensorType
from armillary.relay.walk import map_children, not_primitive, post_order
from armillary.transform import Pass, PassContext, module_pass


class QAnnotateKind(enum.IntEnum):
    """What a quantised value is to the call that reads it."""

    IDENTITY = 0
    INPUT = 1
    WEIGHT = 2
    BIAS = 3
    ACTIVATION = 4


def attach_simulated_quantize(
    data: Expr, kind: int = QAnnotateKind.INPUT, sign: bool = True, rounding: str | None = None
) -> Call:
    """A value as quantising it would leave it, at a scale that is not known yet."""
    number = TensorType((), DType("float32"))
    parts = [Var(name, number) for name in ("dom_scale", "clip_min", "clip_max")]
    message = {} if rounding is None else {"rounding": rounding}
    result: Call = simulated_quantize(data, *parts, kind=int(kind), sign=sign, **message)
    return result


def annotate() -> Pass:
    """The pass that says where integers go, by the settings in force when it runs."""
    result: Pass = module_pass(_annotate, name="QuantizeAnnotate")
    return result


def _annotate(module: IRModule, context: PassContext) -> IRModule:
    del context
    return on_functions(module, lambda function: _Annotation(current_qconfig()).run(function))


class _Annotation:
    """One walk over one function."""

    def __init__(self, config: QConfig) -> None:
        self.config, self.convolutions = config, 0
        self.new: dict[int, Expr] = {}
        self.attached: dict[tuple[int, int], Expr] = {}

    def run(self, function: Function) -> Expr:
        for expr in post_order(function, not_primitive):
            rebuilt = map_children(expr, lambda child: self.new.get(id(child), child))
            if isinstance(rebuilt, Call) and isinstance(expr, Call) and self._is_quantised(expr):
                rebuilt = Call(rebuilt.op, self._inputs(expr, rebuilt.args), rebuilt.attrs, rebuilt.span)
            self.new[id(expr)] = rebuilt
        return self.new[id(function)]

    def _inputs(self, was: Call, args: Sequence[Expr]) -> tuple[Expr, ...]:
        kinds = (
            QAnnotateKind.INPUT,
            QAnnotateKind.WEIGHT if isinstance(was.args[1], Constant) else QAnnotateKind.INPUT,
        )
        return tuple(self._attach(arg, kind) for arg, kind in zip(args, kinds, strict=True))

    def _attach(self, arg: Expr, kind: QAnnotateKind) -> Expr:
        key = (id(arg), int(kind))
        if key not in self.attached:
            self.attached[key] = attach_simulated_quantize(arg, kind)
        return self.attached[key]

    def _is_quantised(self, expr: Call) -> bool:
        is_chosen = expr.op in (dense, batch_matmul) and not self.config.skip_dense_layer
        if expr.op is conv2d:
            number, self.convolutions = self.convolutions, self.convolutions + 1
            is_chosen = number not in (self.config.skip_conv_layers or ())
        types = [tensor(arg) for arg in expr.args]
        return is_chosen and all(ty is not None and ty.dtype == "float32" for ty in types)
