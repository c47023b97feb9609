"""flexible-shape-dispatch: one program for several sizes of an axis, each compiled as if it were the only one.

In: a module whose shapes are known, an axis of some inputs, the sizes (buckets) it shall take. Out: a main function
whose inputs have an unknown size there, and which calls the function of the bucket that the size is; with `auto_pad`
smaller inputs are padded to the next bucket, and results cut to the size they had. Invariant: the function of a bucket
is the old main with other types. A size that no bucket takes goes to the largest one, whose types refuse it when it is
compiled. Run it by "vm", "debug" or `relay.vm.compile`, which know the sizes when they are called.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ir import GlobalVar, IRModule
from armillary.ops.elementwise.broadcast import equal, less, multiply, subtract
from armillary.ops.nn.pad import pad
from armillary.ops.shape.creation import shape_of
from armillary.ops.shape.indexing import take
from armillary.ops.shape.shape import reshape
from armillary.ops.shape.slice import strided_slice
from armillary.relay.binding import with_types
from armillary.relay.expr import Call, Expr, Function, If, Tuple, TupleGetItem, Var, const
from armillary.relay.infer import infer_type
from armillary.relay.types import ANY_DIM, Dim, FuncType, TensorType, TupleType, Type
from armillary.transform import define_pass

NAME = "flexible-shape-dispatch"


@define_pass(NAME)
def flexible_shape_dispatch(
    module: IRModule,
    *,
    buckets: Sequence[int],
    axis: int = 0,
    auto_pad: bool = False,
    pad_value: float = 0,
    input_indices: Sequence[int] | None = None,
    output_indices: Sequence[int] | None = None,
    affects_output: bool = True,
) -> IRModule:
    """Dispatch main over `buckets` of one axis of the inputs `input_indices` (the first); results follow, or do not."""
    main = module["main"]
    if not isinstance(main, Function):
        raise TypeMismatch(f"{NAME}: main is a {type(main).__name__}, wanted a graph function")
    infer_type(main, module)
    axes = _Axes(axis, tuple(input_indices or (0,)), None if output_indices is None else tuple(output_indices))
    sizes = sorted({int(size) for size in buckets})
    if not sizes or sizes[0] < 1:
        raise TypeMismatch(f"{NAME}: buckets are {buckets}, wanted sizes of at least 1")
    params = tuple(Var(p.name_hint, ty) for p, ty in zip(main.params, axes.types(main, ANY_DIM), strict=True))
    size = take(shape_of(params[axes.inputs[0]], dtype="int32"), const(axis, "int32"), axis=0)
    result = module.copy()
    branch: Expr | None = None
    for bucket in reversed(sizes):
        name = GlobalVar(f"main_{bucket}")
        result[name] = bucket_function = with_types(main, axes.types(main, bucket))
        checked = infer_type(bucket_function, result)
        assert isinstance(checked, FuncType), "a function has a function's type"
        result_type = checked.ret_type

        def called(args: Sequence[Expr], name: GlobalVar = name, result_type: Type = result_type) -> Expr:
            value = Call(name, tuple(args))
            return axes.cut(value, result_type, size) if affects_output else value

        exact = called(params)
        if auto_pad:
            padded = called(axes.padded(params, bucket, size, float(pad_value)))
            beyond = exact if branch is None else branch
            below = If(less(size, const(bucket, "int32")), padded, beyond)
            branch = If(equal(size, const(bucket, "int32")), exact, below)
        else:
            branch = exact if branch is None else If(equal(size, const(bucket, "int32")), exact, branch)
    assert branch is not None, "there is a bucket"
    result["main"] = Function(params, branch, None, main.attrs)
    infer_type(result["main"], result)
    return result


@record
class _Axes:
    """The axis that varies, of which inputs, and of which results (None: all)."""

    axis: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...] | None

    def types(self, main: Function, size: Dim) -> list[Type]:
        """The types of main's parameters with `size` along the axis."""
        types = [p.checked_type for p in main.params]
        for k in self.inputs:
            if not 0 <= k < len(types):
                raise TypeMismatch(f"{NAME}: input_indices has {k}, main has {len(types)} parameters")
            types[k] = self._with(types[k], size, main.params[k].name_hint)
        return types

    def _with(self, ty: Type, size: Dim, name: str) -> TensorType:
        if not isinstance(ty, TensorType) or not 0 <= self.axis < ty.ndim:
            raise TypeMismatch(f"{NAME}: %{name} is {ty}, which has no axis {self.axis}")
        return TensorType((*ty.shape[: self.axis], size, *ty.shape[self.axis + 1 :]), ty.dtype)

    def padded(self, params: Sequence[Expr], bucket: int, size: Expr, value: float) -> list[Expr]:
        """The inputs with `value` behind them along the axis, up to the bucket."""
        missing = subtract(const(bucket, "int32"), size)
        args = list(params)
        for k in self.inputs:
            ty = params[k].checked_type
            assert isinstance(ty, TensorType), "types() refused all else"
            behind = np.zeros((ty.ndim, 2), np.int32)
            behind[self.axis, 1] = 1
            args[k] = pad(params[k], pad_width=multiply(const(behind), missing), pad_value=value)
        return args

    def cut(self, value: Expr, ty: Type, size: Expr) -> Expr:
        """The results that follow the axis, as long as the inputs were."""
        if not isinstance(ty, TupleType):
            return self._cut_one(value, size)
        fields: list[Expr] = [TupleGetItem(value, k) for k in range(len(ty.fields))]
        follow = range(len(fields)) if self.outputs is None else self.outputs
        return Tuple(tuple(self._cut_one(field, size) if k in follow else field for k, field in enumerate(fields)))

    def _cut_one(self, value: Expr, size: Expr) -> Expr:
        end = reshape(size, newshape=(1,))
        return strided_slice(value, begin=(0,), end=end, strides=(1,), axes=(self.axis,))
