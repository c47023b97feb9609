"""change-batch: another size of the batch, along the axes that a script names.

In: a module; for variables of main the axis that is their batch. Out: the same program with that size there. Invariant:
types are found anew, so an operator whose attributes hold the old size refuses.
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.relay.binding import with_types
from armillary.relay.expr import Function, Var
from armillary.relay.infer import infer_type
from armillary.relay.types import TensorType, Type
from armillary.transform import define_pass


@define_pass("change-batch")
def change_batch(module: IRModule, data: Mapping[Var, int], *, batch_size: int = 16) -> IRModule:
    """Give the parameters in `data` (variable: axis) `batch_size` elements along that axis."""
    main = module["main"]
    if not isinstance(main, Function):
        raise TypeMismatch(f"change-batch: main is a {type(main).__name__}, wanted a graph function")
    axes = {id(var): axis for var, axis in data.items()}
    strangers = set(axes) - {id(p) for p in main.params}
    if strangers:
        names = ", ".join(v.name_hint for v in data if id(v) in strangers)
        raise TypeMismatch(f"change-batch: {names} is no parameter of main", hint='take it from mod["main"].params')
    result = module.copy()
    result["main"] = with_types(main, [_resized(p, axes.get(id(p)), batch_size) for p in main.params])
    infer_type(result["main"], result)
    return result


def _resized(param: Var, axis: int | None, size: int) -> Type:
    ty = param.checked_type
    if axis is None:
        return ty
    if not isinstance(ty, TensorType) or not 0 <= axis < ty.ndim:
        raise TypeMismatch(f"change-batch: %{param.name_hint} is {ty}, which has no axis {axis}")
    return TensorType((*ty.shape[:axis], size, *ty.shape[axis + 1 :]), ty.dtype)
