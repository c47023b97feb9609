"""change-datatype: every value of one dtype is of another.

In: a module, its parameters not bound. Out: the same with variables, constants and attributes of dtype `src` in `dst`;
constants are cast where they stand, and the module has no types until infer-type runs. Invariant: nothing else changes:
results are of the new dtype, too. It is how a network comes to a type of a script's own (`target.datatype`).

    def @main(%x: Tensor[(2,), float32]) { multiply(%x, 2f) }
    ->
    def @main(%x: Tensor[(2,), float16]) {
      %0 = cast(2f, dtype="float16");
      multiply(%x, %0)
    }
"""

from __future__ import annotations

import dataclasses

from armillary.base.boundary import boundary
from armillary.base.dtype import DType, dtype_of
from armillary.ir import BaseFunc, IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, Var
from armillary.relay.types import TensorType, TupleType, Type
from armillary.relay.walk import post_order, rewrite, substitute
from armillary.transform import Pass, define_pass


@define_pass("change-datatype")
def change_datatype(module: IRModule, *, src: str = "float32", dst: str = "float16") -> IRModule:
    """Put one dtype in the place of another, everywhere."""

    def visit(_: str, function: BaseFunc) -> BaseFunc | None:
        return _changed(function, DType(src), DType(dst)) if isinstance(function, Function) else None

    return module.map_functions(visit)


@boundary("relay.frontend.ChangeDatatype", arguments=True)
def ChangeDatatype(src: str, dst: str) -> Pass:  # noqa: N802  (the name scripts use)
    """The pass from one dtype to another; infer-type comes next."""
    return change_datatype.bind(src=str(DType(src)), dst=str(DType(dst)))


def _changed(function: Function, src: DType, dst: DType) -> Function:
    variables = [item for item in post_order(function) if isinstance(item, Var)]
    renewed: dict[int, Expr] = {id(v): Var(v.name_hint, _type(v.type_annotation, src, dst), v.span) for v in variables}

    def rule(expr: Expr) -> Expr | None:
        if isinstance(expr, Constant) and dtype_of(expr.held) is src:
            return expr.astype(str(dst))
        if not isinstance(expr, Call):
            return None
        names = [name for name in getattr(expr.attrs, "__dataclass_fields__", ()) if "dtype" in name]
        changed = {name: str(dst) for name in names if getattr(expr.attrs, name) == src}
        return Call(expr.op, expr.args, dataclasses.replace(expr.attrs, **changed), expr.span) if changed else None

    body = rewrite(substitute(function.body, renewed), rule)
    params = tuple(p for p in (renewed.get(id(p), p) for p in function.params) if isinstance(p, Var))
    return Function(params, body, None, function.attrs, function.span)


def _type(ty: Type | None, src: DType, dst: DType) -> Type | None:
    if isinstance(ty, TensorType):
        return TensorType(ty.shape, dst) if ty.dtype is src else ty
    if isinstance(ty, TupleType):
        return TupleType(tuple(_type(field, src, dst) for field in ty.fields))  # type: ignore[misc]
    return ty
