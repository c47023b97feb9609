"""Offloading to Arm Compute Library: which operators, and how they are written down.

`conv2d.py`, `dense.py`, `pool.py`, `elementwise.py` hold the rows of the table: pattern, predicate, node of the JSON;
`native/acl_runtime.cpp` makes the library's functions of the nodes. In: partitioned functions. Out: JSON. Invariant: an
operator is one row here and one in the runtime. The interface of old scripts: relay/op/contrib/arm_compute_lib.py.
"""

from __future__ import annotations

from armillary.errors import InternalError
from armillary.offload.acl import conv2d, dense, elementwise, pool
from armillary.offload.contract import JsonModule, Offload, PatternRow, register_offload
from armillary.offload.graph_json import Kernel, as_json
from armillary.offload.rows import Composite, Simple
from armillary.relay.expr import Call, Function
from armillary.relay.transform.layout.use_layouts import use_layouts
from armillary.relay.transform.quantize.fake_quantization_to_integer import fake_quantization_to_integer
from armillary.relay.transform.simplify.fold_constant import fold_constant
from armillary.relay.transform.simplify.fold_scale_axis import fold_scale_axis
from armillary.relay.transform.simplify.simplify_inference import simplify_inference

NAME = "arm_compute_lib"
COMPOSITES: tuple[Composite, ...] = (
    *conv2d.COMPOSITES,
    *dense.COMPOSITES,
    *pool.COMPOSITES,
    *elementwise.COMPOSITES,
)
SIMPLE: tuple[Simple, ...] = (*pool.SIMPLE, *elementwise.SIMPLE)
_POOLS = {f"nn.{kind}_pool2d": ["NHWC"] for kind in ("max", "avg", "global_max", "global_avg")}
_QUANTIZED_POOLS = {"qnn.avg_pool2d": ["NHWC"]}
# Integers where a model says quantize and dequantize; normalisations in the weights; channels last.
_PREPARE = (
    pool.GLOBAL_MEANS_AS_WINDOWS,
    fake_quantization_to_integer.bind(use_qat=True, optional_qnn_ops=("nn.avg_pool2d",)),
    simplify_inference.bind(),
    fold_constant.bind(),
    fold_scale_axis.bind(),
    fold_constant.bind(),
)
_LAYOUTS = {"nn.conv2d": ["NHWC", "default"], "qnn.conv2d": ["NHWC", "default"], **_POOLS, **_QUANTIZED_POOLS}


def _kernel(call: Call) -> Kernel:
    if isinstance(call.op, Function):
        composite = str(call.op.get_attr("Composite", ""))
        kernel = next((row.kernel for row in COMPOSITES if f"{NAME}.{row.name}" == composite), None)
    else:
        composite = call.op.name
        kernel = next((row.kernel for row in SIMPLE if row.operator == composite), None)
    if kernel is None:
        raise InternalError(f"{NAME} was given {composite}, which it has no row for", span=call.span)
    return kernel(call)


def generate(function: Function) -> JsonModule:
    """The JSON of a partitioned function."""
    return as_json(function, _kernel)


OFFLOAD = register_offload(
    Offload(
        name=NAME,
        codegen=generate,
        patterns=tuple(PatternRow(row.name, row.pattern, row.check) for row in COMPOSITES),
        operators={row.operator: row.check for row in SIMPLE},
        prepare=(*_PREPARE, use_layouts.bind(desired_layouts=_LAYOUTS), fold_constant.bind()),
        disabled=("concatenate",),
        aliases=("compute-library",),
        writes_rows_only=True,
    )
)
