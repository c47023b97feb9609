"""infer-type: check every function and write its result type.

In: a module. Out: the module, each function annotated with the type of its body. Invariant: afterwards
`expr.checked_type` never fails. The inference: relay/infer.py.

    def @main(%x: Tensor[(2,), float32]) { nn.relu(%x) }
    ->
    def @main(%x: Tensor[(2,), float32]) -> Tensor[(2,), float32] { nn.relu(%x) }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Function, keep_device
from armillary.relay.infer import infer_type as infer
from armillary.relay.types import FuncType
from armillary.relay.walk import copy_type
from armillary.transform import define_pass


@define_pass("infer-type")
def infer_type(module: IRModule) -> IRModule:
    """Check the types of every function; raises TypeMismatch naming the operator and place."""

    def annotate(_: str, function: object) -> Function | None:
        if not isinstance(function, Function):
            return None
        ty = infer(function, module)
        if not isinstance(ty, FuncType) or function.ret_type == ty.ret_type:
            return None
        typed = Function(
            function.params, function.body, ty.ret_type, function.attrs, function.span, function.type_params
        )
        return keep_device(copy_type(typed, function), function)

    return module.map_functions(annotate)
