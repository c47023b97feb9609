"""`topi.nn.simulated_quantize` and `simulated_dequantize`: quantisation in float, to a type that is a value.

In: float data, a number that says the type (`SQNN_DTYPE_TO_CODE`), scales and zero points, one or one for each place
along an axis. Out: what `qnn.quantize` and `qnn.dequantize` give, held in the data's type. Invariant: the code
"disable" leaves data as they are, so one compiled function serves every type.
"""

from __future__ import annotations

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
    found: te.Expr = dtype()
    return found


def _element(name: str, values: Tensor | None, otherwise: float, index: te.Expr, dtype: str) -> te.Expr:
    """The scale or zero point of an index along the axis; where there is one for all, that."""
    if values is None:
        one: te.Expr = tir.const(otherwise, dtype)
        return one
    if values.ndim > 1:
        raise TypeMismatch(f"topi.nn.{name}: scales and zero points have one axis, got {values.ndim}")
    place = () if values.ndim == 0 else (tir.floormod(index, values.shape[0]),)
    found: te.Expr = values(*place)
    made: te.Expr = found.astype(dtype)
    return made


def simulated_quantize(
    data: Tensor,
    out_dtype: Tensor | te.Expr | int,
    output_scale: Tensor | None = None,
    output_zero_point: Tensor | None = None,
    axis: int = -1,
) -> Tensor:
    """round(data / scale) + zero point, cut to the type's range, in the data's type."""
    name, kind = "simulated_quantize", str(data.dtype)
    code, at = _code(name, out_dtype), axis % data.ndim

    def element(*where: te.Expr) -> te.Expr:
        value = data(*where)
        scale = _element(name, output_scale, 1.0, where[at], kind)
        moved = te.round(value / scale) + _element(name, output_zero_point, 0.0, where[at], kind)
        made: te.Expr = value
        for dtype in _KINDS:
            ends = (bound(dtype).astype(kind) for bound in (te.min_value, te.max_value))
            low, high = ends
            cut = te.max(te.min(moved, high), low)
            made = tir.Select(code.equal(SQNN_DTYPE_TO_CODE[dtype]), cut, made)
        return made

    return te.compute(data.shape, element, name=name, tag="injective")


def simulated_dequantize(
    data: Tensor,
    in_dtype: Tensor | te.Expr | int,
    input_scale: Tensor | None = None,
    input_zero_point: Tensor | None = None,
    axis: int = -1,
) -> Tensor:
    """(data - zero point) * scale of integers held in a float type."""
    name, kind = "simulated_dequantize", str(data.dtype)
    code, at = _code(name, in_dtype), axis % data.ndim

    def element(*where: te.Expr) -> te.Expr:
        value = data(*where)
        scale = _element(name, input_scale, 1.0, where[at], kind)
        moved = (value - _element(name, input_zero_point, 0.0, where[at], kind)) * scale
        made: te.Expr = tir.Select(code.equal(SQNN_DTYPE_TO_CODE["disable"]), value, moved)
        return made

    return te.compute(data.shape, element, name=name, tag="injective")


FUNCTIONS = {"nn.simulated_quantize": simulated_quantize, "nn.simulated_dequantize": simulated_dequantize}
