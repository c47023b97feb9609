"""An algorithm of the CPU in one file, as its folder would have it: operator, pass, space, tasks, schedule, manifest.

In: nothing. Out: `MANIFEST`, an operator and a pass named `sample_pointwise`, once this module is imported.
Invariant: the package names none of it: a line of backends/cpu/select.py would be all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.manifest import Manifest, TunedOperator
from armillary.backends.cpu.space import Algorithm, Config, Weighed, chosen
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Array, Kind, Op, is_call
from armillary.relay.transform._rules import rewrite_module, tensor
from armillary.relay.types import TensorType
from armillary.target import Target
from armillary.target.choice import Choice, Cost
from armillary.target.cpu import CpuModel
from armillary.te.schedule import AutoInlineInjective
from armillary.transform import define_pass


@dataclass(frozen=True)
class PointwiseAttrs:
    choice: str = ""


pointwise = Op("cpu.sample_pointwise", kind=Kind.CONTRACTION, inputs=("data", "weight"))
pointwise.attrs(PointwiseAttrs)


@pointwise.infer
def _infer(attrs: PointwiseAttrs, data: TensorType, weight: TensorType) -> TensorType:
    return TensorType((data.shape[0], weight.shape[0], *data.shape[2:4], weight.shape[5]), data.dtype)


@pointwise.reference
def _reference(attrs: PointwiseAttrs, data: Array, weight: Array) -> Array:
    return np.einsum("nihwc,oiklcb->nohwb", data, weight)


@pointwise.compute
def _compute(attrs: PointwiseAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    batch, chunks, height, width, inner = te.static_shape(data)
    k, c = te.reduce_axis((0, chunks), name="k"), te.reduce_axis((0, inner), name="c")
    shape = (batch, int(weight.shape[0]), height, width, int(weight.shape[5]))
    return te.compute(
        shape,
        lambda n, o, y, x, b: te.sum(data[n, k, y, x, c] * weight[o, k, 0, 0, c, b], axis=[k, c]),
        name="pointwise",
    )


@define_pass("sample-pointwise", opt_level=3)
def sample_pointwise(module: IRModule, *, target: Target | None = None) -> IRModule:
    """Convolutions of one tap without padding are the operator's.

    nn.contrib_conv2d_NCHWc(x, w)  ->  cpu.sample_pointwise(x, w)
    """
    return rewrite_module(module, _pointwise)


def _pointwise(expr: Expr) -> Expr | None:
    if not is_call(expr, "nn.contrib_conv2d_NCHWc") or not isinstance(expr, Call):
        return None
    weight, attrs = tensor(expr.args[1]), expr.attrs
    plain = attrs.groups == 1 and set(attrs.strides) == {1} and set(attrs.padding) == {0}
    if not plain or weight is None or weight.shape[2:4] != (1, 1):
        return None
    return Call(pointwise, expr.args, PointwiseAttrs(), expr.span)


def _space(workload: Workload, cpu: CpuModel) -> list[Config]:
    return [(("width", n),) for n in (1, 2, 4)]


def _default(workload: Workload, cpu: CpuModel, given: Config = ()) -> Config:
    return given or (("width", 2),)


ALGORITHM = Algorithm(
    "conv2d.sample_pointwise",
    _space,
    _default,
    lambda workload, cpu, choice: Weighed(Cost(1000.0 * choice.knob("width"))),
    lambda workload, cpu, config: "a sum for each pixel",
    lambda workload, cpu: {},
)


@implement("sample_pointwise", family="cpu")
def schedule_pointwise(schedule: te.Schedule, fused: Fused) -> None:
    """Pixels in groups of as many as the choice says."""
    AutoInlineInjective(schedule)
    choice: Choice = chosen(fused.workload, ALGORITHM)
    (product,) = fused.anchor
    schedule[product].split(product.op.axis[3], factor=choice.knob("width"))


MANIFEST = Manifest(
    (Candidate("cpu.sample_pointwise", "sample_pointwise", algorithm=ALGORITHM),),
    tuned=(TunedOperator("cpu.sample_pointwise", "sample_pointwise.cpu", ALGORITHM, ("width",)),),
    layouts=lambda target: [sample_pointwise.bind(target=target)],
)
