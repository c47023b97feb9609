"""A complex tensor of a program: two real tensors of one shape.

In: real tensors with a last axis of 2, or numbers. Out: a `Complex`, its parts, the tensor that holds both. Invariant:
no operator of Relay sees a complex number. Rules on them: rules/complex.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from armillary.base.extent import Known
from armillary.base.record import record
from armillary.errors import Span
from armillary.frontend.folding.fold import Folder
from armillary.frontend.pytorch.tensors import dtype_name
from armillary.frontend.values import Value, broadcast, cast, op, scalar, shape_of
from armillary.relay.expr import Constant, Expr, Tuple, Var
from armillary.relay.types import TensorType, tensor_type


@record(eq=False)
class Complex:
    """The real and the imaginary part."""

    real: Expr
    imag: Expr

    @staticmethod
    def split(x: Expr) -> Complex:
        """The complex tensor whose parts lie along a last axis of 2."""
        return Complex(*(op("take", x, scalar(k, "int32"), axis=len(shape_of(x)) - 1) for k in range(2)))

    def joined(self) -> Expr:
        """Both parts along a new last axis."""
        return op("stack", Tuple((self.real, self.imag)), axis=len(shape_of(self.real)))


PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}  # the dtype of parts


def is_complex(value: object) -> TypeGuard[Complex]:
    """Whether a value is a complex tensor."""
    return isinstance(value, Complex)


def real_type(shape: Sequence[Known], dtype: object) -> TensorType:
    """The type of a tensor of torch's dtype; of a complex one, that of its parts along a last axis of 2."""
    name = str(dtype).removeprefix("torch.")
    return tensor_type((*shape, 2), PARTS[name]) if name in PARTS else tensor_type(tuple(shape), dtype_name(dtype))


def complex_of(x: Var | Constant, folder: Folder) -> Complex:
    """The complex tensor that an input or weight is."""
    value = Complex.split(x)
    return Complex(*(folder.settle(part, x.span or Span("<complex>")) for part in (value.real, value.imag)))


def parts_of(value: Value, dtype: str) -> tuple[Expr, Expr]:
    """The parts of a complex or real tensor or number, in the dtype of parts."""
    if isinstance(value, Complex):
        return cast(value.real, dtype), cast(value.imag, dtype)
    if isinstance(value, complex):
        return scalar(value.real, dtype), scalar(value.imag, dtype)
    real = cast(value, dtype)
    return real, broadcast(scalar(0, dtype), shape_of(real))
