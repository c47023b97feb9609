"""change-batch: another size of the batch, along the axes that a script names.

In: a module; for variables of main the axis that is their batch. Out: the same program with that size there. Invariant:
types are found anew, so an operator whose attributes hold the old size refuses. Of {"x": 0}, with a batch of 8:

    def @main(%x: Tensor[(1, 4), float32]) { exp(%x) }
    ->
    def @main(%x: Tensor[(8, 4), float32]) { exp(%x) }
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
def change_batch(module: IRModule, data: Mapping[Var | str, int], *, batch_size: int = 16) -> IRModule:
    """Give the parameters in `data` (variable of main or its name: axis) `batch_size` elements along that axis."""
    main = module["main"]
    if not isinstance(main, Function):
        raise TypeMismatch(f"change-batch: main is a {type(main).__name__}, wanted a graph function")
    named: dict[Var | str, Var] = {p.name_hint: p for p in main.params}
    axes = {id(named.get(var, var)): axis for var, axis in data.items()}
    strangers = [v for v in data if not any(named.get(v, v) is p for p in main.params)]
    if strangers:
        names = ", ".join(v if isinstance(v, str) else v.name_hint for v in strangers)
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
