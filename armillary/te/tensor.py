"""Tensors of the tensor-expression language.

In: an operation and the number of one of its outputs. Out: a `Tensor`, whose elements are read with `t[i, j]`, `t(i,
j)` or `t[i][j]`, giving a `ProducerLoad`. Invariant: a tensor is a name for `op.output(value_index)`; it is never
walked into by expression walks, and compares by identity. Operations: `te/operation.py`. Constructors: `te/api.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, overload

from armillary.base import slots
from armillary.base.boundary import boundary, bounded
from armillary.base.dtype import DType
from armillary.base.extent import Known
from armillary.base.lazy import lazy_names
from armillary.errors import TypeMismatch
from armillary.tir import build as T
from armillary.tir.expr import Expr, ExprLike, IntImm, IterVar, ProducerLoad
from armillary.tir.extents import from_expr

if TYPE_CHECKING:
    from armillary.te.operation import Operation

_OPERATIONS = ("ComputeOp", "ExternOp", "Operation", "PlaceholderOp", "ScanOp")
__getattr__, __dir__ = lazy_names(__name__, {name: f"armillary.te.operation:{name}" for name in _OPERATIONS})

Combined: TypeAlias = Any  # Any: an expression of elements, a tensor of tensors: the ranks decide
Build: TypeAlias = Callable[[ExprLike, ExprLike], Expr]
Method: TypeAlias = "Callable[[Tensor, ExprLike], Combined]"
Element: TypeAlias = Any  # Any: an expression; a TensorSlice where the tensor has more axes than there are indices


def _of_elements(build: Build) -> tuple[Callable[[_Scalar, ExprLike], Expr], Callable[[_Scalar, ExprLike], Expr]]:
    """The methods of an operator of elements, the second where the left side is a number."""
    return lambda self, other: build(self, other), lambda self, other: build(other, self)


def _of_tensors(name: str, build: Build) -> tuple[Method, Method]:
    """The same of an operator whose operands may have axes: then it is the operator of that name on whole tensors."""

    def forward(self: Tensor, other: ExprLike) -> Combined:
        return slots.combine(name, self, other) if self._is_tensor(other) else build(self, other)

    def reflected(self: Tensor, other: ExprLike) -> Combined:
        return slots.combine(name, other, self) if self._is_tensor(other) else build(other, self)

    return forward, reflected


class _Scalar:
    """Arithmetic on things that may stand for one element: they become expressions first."""

    __slots__ = ()

    def as_expr(self) -> Expr:
        raise TypeMismatch(f"{type(self).__name__} is not a scalar")

    __add__, __radd__ = _of_elements(T.add)
    __sub__, __rsub__ = _of_elements(T.sub)
    __mul__, __rmul__ = _of_elements(T.mul)
    __truediv__, __rtruediv__ = _of_elements(T.div)
    __floordiv__, __mod__ = _of_elements(T.floordiv)[0], _of_elements(T.floormod)[0]
    __lt__, __le__ = _of_elements(T.less)[0], _of_elements(T.less_equal)[0]
    __gt__, __ge__ = _of_elements(T.greater)[0], _of_elements(T.greater_equal)[0]

    def __neg__(self) -> Expr:
        return T.neg(self)

    def astype(self, dtype: str) -> Expr:
        """The element converted to another dtype."""
        return T.cast(self, dtype)


class Tensor(_Scalar):
    """One output of an operation. `shape` is a tuple of expressions."""

    __slots__ = ("__weakref__", "dtype", "op", "shape", "value_index")

    def __init__(self, op: Operation, value_index: int, shape: tuple[Expr, ...], dtype: DType) -> None:
        self.op = op
        self.value_index = value_index
        self.shape = shape
        self.dtype = dtype

    __add__, __radd__ = _of_tensors("add", T.add)
    __sub__, __rsub__ = _of_tensors("subtract", T.sub)
    __mul__, __rmul__ = _of_tensors("multiply", T.mul)
    __truediv__, __rtruediv__ = _of_tensors("divide", T.div)
    __floordiv__, __mod__ = _of_tensors("floor_divide", T.floordiv)[0], _of_tensors("floor_mod", T.floormod)[0]

    def __neg__(self) -> Combined:
        return slots.unary("negative", self) if self.shape else super().__neg__()

    def astype(self, dtype: str) -> Combined:
        """The tensor, or the element, converted to another dtype."""
        return slots.convert_tensor(self, dtype) if self.shape else super().astype(dtype)

    def _is_tensor(self, other: object) -> bool:
        """Whether an operation with `other` is one of whole tensors: an operand has axes."""
        return bool(self.shape) or (isinstance(other, Tensor) and bool(other.shape))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def name(self) -> str:
        """The operation's name, with `.v1`, `.v2`… for its further outputs."""
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}.v{self.value_index}"

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The data axes of the operation that computes this tensor."""
        return self.op.axis

    def __call__(self, *indices: ExprLike) -> Expr:
        """The element at `indices`, one per dimension."""
        if len(indices) == 1 and isinstance(indices[0], tuple | list):
            indices = tuple(indices[0])
        if len(indices) != len(self.shape):
            raise TypeMismatch(
                f"tensor {self.name} has {len(self.shape)} dimensions, but was read with {len(indices)} indices",
                hint=f"its shape is {shape_text(self.shape)}",
            )
        return ProducerLoad(self, tuple(_index(self, i) for i in indices))

    @overload
    def __getitem__(self, indices: tuple[ExprLike, ...]) -> Expr: ...

    @overload
    def __getitem__(self, indices: ExprLike) -> Element: ...

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Element:
        places = indices if isinstance(indices, tuple) else (indices,)
        is_element = len(places) == len(self.shape) and not any(isinstance(i, slice) for i in places)
        return self(*places) if is_element else TensorSlice(self, places)

    def as_expr(self) -> Expr:
        """The only element of a rank-0 tensor."""
        if self.shape:
            raise TypeMismatch(
                f"tensor {self.name} of shape {shape_text(self.shape)} is used where a scalar is wanted",
                hint="read an element with t[i, j], inside te.compute",
            )
        return ProducerLoad(self, ())

    def __iter__(self) -> NoReturn:
        raise TypeMismatch(f"tensor {self.name} cannot be iterated over", hint="read its elements inside te.compute")

    def __len__(self) -> int:
        raise TypeMismatch(f"tensor {self.name} has no Python length", hint="use .shape or .ndim")

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Tensor(name={self.name}, shape={shape_text(self.shape)}, dtype={self.dtype})"


@bounded
class TensorSlice(_Scalar):
    """A tensor with only some of its leading indices given: `t[i]` of a matrix."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: tuple[ExprLike, ...]) -> None:
        if len(indices) > tensor.ndim:
            tensor(*indices)
        self.tensor = tensor
        self.indices = indices

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Element:
        return self.tensor[(*self.indices, *(indices if isinstance(indices, tuple) else (indices,)))]

    def as_expr(self) -> Expr:
        """The element, when all indices are there."""
        return self.tensor(*self.indices)


def _index(tensor: Tensor, value: ExprLike) -> Expr:
    index = T.convert(value)
    if not index.dtype.is_int:
        if index.dtype.is_bool:
            return T.cast(index, "int32")
        raise TypeMismatch(f"tensor {tensor.name} is indexed with a {index.dtype}", hint="indices are integers")
    return index


def shape_text(shape: tuple[Expr, ...]) -> str:
    """A shape for messages: (1, n, 16)."""
    texts = [str(s.value) if isinstance(s, IntImm) else str(getattr(s, "name", "?")) for s in shape]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


@boundary("te.extents", arguments=True)
def extents(tensor: Tensor) -> tuple[Known, ...]:
    """The shape: ints, and extents over named sizes where dimensions are symbolic."""
    return tuple(map(from_expr, tensor.shape))


@boundary("te.static_shape", arguments=True)
def static_shape(tensor: Tensor, leading: int | None = None) -> tuple[int, ...]:
    """The shape as ints, or its first `leading` dimensions; TypeMismatch when one of them is symbolic."""
    result = []
    for extent in tensor.shape[:leading]:
        if not isinstance(extent, IntImm):
            raise TypeMismatch(f"tensor {tensor.name} has the symbolic shape {shape_text(tensor.shape)}")
        result.append(extent.value)
    return tuple(result)
