"""`topi.nn.simulated_quantize` and `simulated_dequantize`: quantisation in float, to a type that is a value.

In: float data, a number that says the type (`SQNN_DTYPE_TO_CODE`), scales and zero points, one or one for each place
along an axis. Out: what `qnn.quantize` and `qnn.dequantize` give, held in the data's type. Invariant: the code
"disable" leaves data as they are, so one compiled function serves every type.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary import te, tir
from armillary.errors import TypeMismatch

Tensor = te.Tensor
SQNN_DTYPE_TO_CODE = {"disable": 0, "int8": 1, "uint8": 2, "int32": 3}
SQNN_CODE_TO_DTYPE = {code: name for name, code in SQNN_DTYPE_TO_CODE.items()}
_KINDS = ("int8", "uint8", "int32")


def _code(name: str, dtype: Tensor | te.Expr | int) -> te.Expr:
    """The number that says the type."""
    if not isinstance(dtype, Tensor):
        return tir.const(dtype, "int32") if isinstance(dtype, int) else dtype
    if dtype.ndim != 0:
        raise TypeMismatch(f"topi.nn.{name}: the type is a tensor of {dtype.ndim} axes, wanted one number")
    result: te.Expr = dtype()
    return result


Parameter = Callable[[Tensor | None, float], te.Expr]  # a scale or zero point of an element, or what it is for none
Rule = Callable[[te.Expr, te.Expr, Parameter], te.Expr]  # of an element, the code of its type, and its parameters


def _simulated(name: str, data: Tensor, dtype: Tensor | te.Expr | int, axis: int, rule: Rule) -> Tensor:
    """`rule` of each element; its parameters are those of its place along the axis, where there is not one for all."""
    kind, code, at = str(data.dtype), _code(name, dtype), axis % data.ndim

    def element(*where: te.Expr) -> te.Expr:
        def parameter(values: Tensor | None, otherwise: float) -> te.Expr:
            if values is None:
                one: te.Expr = tir.const(otherwise, kind)
                return one
            if values.ndim > 1:
                raise TypeMismatch(f"topi.nn.{name}: scales and zero points have one axis, got {values.ndim}")
            simulated: te.Expr = values(*(() if values.ndim == 0 else (tir.floormod(where[at], values.shape[0]),)))
            result: te.Expr = simulated.astype(kind)
            return result

        return rule(data(*where), code, parameter)

    return te.compute(data.shape, element, name=name, tag="injective")


def simulated_quantize(
    data: Tensor,
    out_dtype: Tensor | te.Expr | int,
    output_scale: Tensor | None = None,
    output_zero_point: Tensor | None = None,
    axis: int = -1,
) -> Tensor:
    """round(data / scale) + zero point, cut to the type's range, in the data's type."""

    def rule(value: te.Expr, code: te.Expr, parameter: Parameter) -> te.Expr:
        moved = te.round(value / parameter(output_scale, 1.0)) + parameter(output_zero_point, 0.0)
        result: te.Expr = value
        for dtype in _KINDS:
            low, high = (bound(dtype).astype(str(data.dtype)) for bound in (te.min_value, te.max_value))
            result = tir.Select(code.equal(SQNN_DTYPE_TO_CODE[dtype]), te.max(te.min(moved, high), low), result)
        return result

    return _simulated("simulated_quantize", data, out_dtype, axis, rule)


def simulated_dequantize(
    data: Tensor,
    in_dtype: Tensor | te.Expr | int,
    input_scale: Tensor | None = None,
    input_zero_point: Tensor | None = None,
    axis: int = -1,
) -> Tensor:
    """(data - zero point) * scale of integers held in a float type."""

    def rule(value: te.Expr, code: te.Expr, parameter: Parameter) -> te.Expr:
        moved = (value - parameter(input_zero_point, 0.0)) * parameter(input_scale, 1.0)
        result: te.Expr = tir.Select(code.equal(SQNN_DTYPE_TO_CODE["disable"]), value, moved)
        return result

    return _simulated("simulated_dequantize", data, in_dtype, axis, rule)


FUNCTIONS = {"nn.simulated_quantize": simulated_quantize, "nn.simulated_dequantize": simulated_dequantize}
