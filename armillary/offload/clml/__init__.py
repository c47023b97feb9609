"""Offloading to OpenCLML, the library of Qualcomm's Adreno GPUs: which operators, and how they are written down.

`convolution.py`, `products.py`, `single.py` hold the rows of the table: pattern, predicate, node of the JSON;
`prepare.py` makes more of a graph fit. In: partitioned functions. Out: JSON of kind "clml". Invariant: neighbouring
calls share one function, as values stay in the library's own layouts between them; the functions run on the OpenCL
device of the graph, in its context and queue. Nothing here knows the library's header, which its users have of its
vendor. The interface of old scripts: relay/op/contrib/clml.py.
"""

from __future__ import annotations

from armillary.errors import InternalError
from armillary.offload.clml import convolution, prepare, products, single
from armillary.offload.contract import JsonModule, Offload, PatternRow, register_offload
from armillary.offload.graph_json import Kernel, as_json
from armillary.offload.rows import Composite
from armillary.relay.expr import Call, Function
from armillary.relay.transform.layout.use_layouts import use_layouts
from armillary.relay.transform.simplify.fold_constant import fold_constant

NAME = "clml"
COMPOSITES: tuple[Composite, ...] = (*convolution.COMPOSITES, *products.COMPOSITES, *single.COMPOSITES)
_POOLS = {f"nn.{kind}_pool2d": ["NCHW"] for kind in ("max", "avg", "global_max", "global_avg")}
LAYOUTS = {"nn.conv2d": ["NCHW", "OIHW"], "nn.conv2d_transpose": ["NCHW", "default"], **_POOLS}
PREPARE = (
    prepare.REMOVE_DROPOUT,
    prepare.CHANNELS_FIRST,
    use_layouts.bind(desired_layouts=LAYOUTS),
    prepare.CANCEL_LAYOUTS,
    fold_constant.bind(),
    prepare.FOLD_BATCH_NORM,
    prepare.BROADCAST_OPERANDS,
    fold_constant.bind(),
)


def _kernel(call: Call) -> Kernel:
    composite = str(call.op.get_attr("Composite", "")) if isinstance(call.op, Function) else ""
    kernel = next((row.kernel for row in COMPOSITES if f"{NAME}.{row.name}" == composite), None)
    if kernel is None:
        raise InternalError(f"{NAME} was given {composite or call.op}, which it has no row for", span=call.span)
    return kernel(call)


def generate(function: Function) -> JsonModule:
    """The JSON of a partitioned function."""
    code = as_json(function, _kernel, constants=f"{NAME}_")
    return JsonModule(code.source, code.constants, device="opencl")


OFFLOAD = register_offload(
    Offload(
        name=NAME,
        codegen=generate,
        patterns=tuple(PatternRow(row.name, row.pattern, row.check) for row in COMPOSITES),
        prepare=PREPARE,
        merges_regions=True,
        disabled=("reshape",),
        writes_rows_only=True,
    )
)
