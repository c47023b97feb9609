"""Graph inputs: their types, the shapes a user binds, and the values a user fixes.

In: the graph's inputs, `shape=`, `dtype=` and `static_inputs=`. Out: by name, a typed Var or (for a fixed input) a
Constant. Invariant: every dimension is a number or an extent over named sizes (open_sizes.py); one symbolic name means
one of them in the whole model; an input that cannot be typed is refused by name, with what to pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.dtype import DType, dtype_of
from armillary.base.extent import Known
from armillary.errors import ModelError, Span, TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import NOTHING
from armillary.frontend.onnx.tensor import checked_shape, elem_dtype
from armillary.relay.expr import Constant, Expr, Tuple, Var
from armillary.relay.types import TensorType

if TYPE_CHECKING:
    from onnx import ValueInfoProto

    from armillary.frontend.onnx.open_sizes import OpenSizes


class InputBinder:
    """Types the inputs of one model."""

    def __init__(
        self,
        source: str,
        shapes: Mapping[str, Any],
        dtype: str | Mapping[str, str],
        values: Mapping[str, object],
        open_sizes: OpenSizes | None = None,
    ) -> None:
        if not isinstance(shapes, Mapping):
            raise TypeMismatch(
                f"shape= is {type(shapes).__name__} {shapes!r}", hint='give shapes by name: {"data": (1, 3, 224, 224)}'
            )
        self.source = source
        self.sequences = {n: None if s is None else [_as_shape(n, d) for d in s] for n, s in shapes.items() if _many(s)}
        self.shapes = {name: _as_shape(name, shape) for name, shape in shapes.items() if name not in self.sequences}
        self.dtypes = {n: _as_dtype(d) for n, d in dtype.items()} if isinstance(dtype, Mapping) else {}
        self.dtype = DType("float32") if isinstance(dtype, Mapping) else _as_dtype(dtype)
        self.values = {name: np.asarray(_plain(value)) for name, value in values.items()}
        self.symbols: dict[str, int] = {}
        self.open_sizes = open_sizes

    def bind(self, inputs: Sequence[ValueInfoProto]) -> dict[str, Expr]:
        """A Var or Constant for each input, in order."""
        names = [value.name for value in inputs]
        shapes = self.shapes | self.sequences
        settings: dict[str, Mapping[str, object]] = {"shape": shapes, "value": self.values, "dtype": self.dtypes}
        for what, by_name in settings.items():
            unknown = sorted(set(by_name) - set(names))
            if unknown:
                raise ModelError(
                    f"a {what} is given for {unknown[0]!r}, which is no input of the model",
                    span=Span(self.source),
                    hint=f"its inputs are: {', '.join(names) or 'none'}",
                )
        for value in inputs:
            self._learn_symbols(value)
        return {value.name: self._bound(value) for value in inputs}

    def _learn_symbols(self, value: ValueInfoProto) -> None:
        """Numbers for the symbolic dimensions of an input whose shape is given."""
        shape = self.values[value.name].shape if value.name in self.values else self.shapes.get(value.name)
        declared = value.type.tensor_type.shape.dim
        if shape is None or not value.type.tensor_type.HasField("shape"):
            return
        span = Span(self.source, value.name)
        if len(shape) != len(declared):
            what = f"input {value.name!r} has {len(declared)} dimensions"
            raise TypeMismatch(f"{what}, the shape given is {list(shape)}", span=span)
        for dim, size in zip(declared, shape, strict=True):
            if dim.dim_param and self.symbols.setdefault(dim.dim_param, size) != size:
                other = self.symbols[dim.dim_param]
                raise TypeMismatch(f"dimension {dim.dim_param!r} is given as both {other} and {size}", span=span)

    def _bound(self, value: ValueInfoProto) -> Expr:
        span = Span(self.source, value.name)
        if not value.name:
            raise ModelError("a graph input has no name", span=Span(self.source))
        kind = value.type.WhichOneof("value") if value.HasField("type") else None
        if kind in ("sequence_type", "optional_type") and value.name in {**self.sequences, **self.shapes}:
            return self._parts(value, span)
        if kind not in ("tensor_type", None):
            plain = str(kind).removesuffix("_type").replace("_", " ")
            raise UnsupportedError(f"input {value.name!r} is a {plain}; only tensors are supported", span=span)
        ty = TensorType(self._shape(value, span), self._dtype(value, span))
        checked_shape(ty.typical, ty.dtype, f"input {value.name!r}", span)
        if value.name in self.values:
            return self._fixed(value.name, ty, span)
        return Var(value.name, ty, span)

    def _parts(self, value: ValueInfoProto, span: Span) -> Expr:
        """A sequence as a Tuple of variables, one per shape given; an optional as what it holds."""
        kind, what = value.type, f"input {value.name!r}"
        optional = kind.HasField("optional_type")
        kind = kind.optional_type.elem_type if optional else kind
        entry = self.sequences.get(value.name, self.shapes.get(value.name))
        if optional and entry is None:
            return NOTHING
        many = kind.HasField("sequence_type")
        if entry is None or many != isinstance(entry, list):
            raise TypeMismatch(f"{what} takes {'a list of shapes' if many else 'one shape'}", span=span)
        element = kind.sequence_type.elem_type if many else kind
        if not element.HasField("tensor_type"):
            raise UnsupportedError(f"{what} holds something other than tensors", span=span)
        dtype = elem_dtype(element.tensor_type.elem_type, what, span)
        shapes: list[tuple[int, ...]] = entry if isinstance(entry, list) else [entry]
        names = part_names(value.name, len(shapes), many)
        types = (TensorType(checked_shape(shape, dtype, what, span), dtype) for shape in shapes)
        fields = tuple(Var(name, ty, span) for name, ty in zip(names, types))
        return Tuple(fields) if many else fields[0]

    def _dtype(self, value: ValueInfoProto, span: Span) -> DType:
        code, override = value.type.tensor_type.elem_type, self.dtypes.get(value.name)
        if not code:
            return override or self.dtype
        declared = elem_dtype(code, f"input {value.name!r}", span)
        if override not in (None, declared):
            raise TypeMismatch(
                f"input {value.name!r}: dtype= says {override}, the model declares {declared}", span=span
            )
        return declared

    def _shape(self, value: ValueInfoProto, span: Span) -> tuple[Known, ...]:
        if value.name in self.values:
            return self.values[value.name].shape
        if value.name in self.shapes:
            return self.shapes[value.name]
        if not value.type.tensor_type.HasField("shape"):
            raise UnsupportedError(
                f"input {value.name!r} has no declared shape",
                span=span,
                hint=f'pass shape={{{value.name!r}: (…)}} (armc: --input-shapes "{value.name}:[…]")',
            )
        return tuple(self._dim(value, index, span) for index in range(len(value.type.tensor_type.shape.dim)))

    def _dim(self, value: ValueInfoProto, index: int, span: Span) -> Known:
        dim = value.type.tensor_type.shape.dim[index]
        if dim.HasField("dim_value"):
            if dim.dim_value < 0:
                raise ModelError(f"input {value.name!r}: dimension {index} is negative: {dim.dim_value}", span=span)
            return int(dim.dim_value)
        if dim.dim_param in self.symbols:
            return self.symbols[dim.dim_param]
        if self.open_sizes is not None:
            return self.open_sizes.extent(value.name, index, dim.dim_param, self.symbols)
        label = f"symbolic ({dim.dim_param!r})" if dim.dim_param else "unknown"
        dims = value.type.tensor_type.shape.dim
        shown = ", ".join(str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in dims)
        raise UnsupportedError(
            f"input {value.name!r}: dimension {index} is {label} in [{shown}]; shapes must be known when compiling",
            span=span,
            hint=f"pass shape={{{value.name!r}: ({shown})}} with numbers, or variants= to compile several "
            f'(armc: --input-shapes "{value.name}:[{shown}]", or compile with --variants)',
        )

    def _fixed(self, name: str, ty: TensorType, span: Span) -> Constant:
        array = self.values[name]
        if dtype_of(array) != ty.dtype:
            raise TypeMismatch(f"static_inputs[{name!r}] is {array.dtype}, the model declares {ty.dtype}", span=span)
        return Constant(np.ascontiguousarray(array).reshape(array.shape), span)


def part_names(name: str, count: int, many: bool) -> list[str]:
    """Names of the tensors that stand for an input or output: of a sequence, one per element."""
    return [f"{name}.{k}" for k in range(count)] if many else [name]


def check_declared(value: ValueInfoProto, ty: Any, span: Span) -> None:  # Any: a TensorType
    """Compare an initialiser with what the graph's inputs say of it (older models list them there)."""
    declared = value.type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else None for d in declared.shape.dim]
    wrong_dtype = declared.elem_type and elem_dtype(declared.elem_type, f"input {value.name!r}", span) != ty.dtype
    pairs = list(zip(dims, ty.shape, strict=False))
    wrong_shape = declared.HasField("shape") and (
        len(dims) != len(ty.shape) or any(want not in (None, got) for want, got in pairs)
    )
    if wrong_dtype or wrong_shape:
        raise ModelError(f"initialiser {value.name!r} is {ty}, but the graph's inputs declare it otherwise", span=span)


def _plain(value: object) -> Any:  # Any: numpy arrays, numbers, sequences and runtime arrays
    return value.numpy() if hasattr(value, "numpy") and not isinstance(value, np.ndarray) else value


def _many(shape: object) -> bool:
    """Whether `shape=` gives a list of shapes, or None for an optional that holds nothing."""
    if shape is None:
        return True
    return isinstance(shape, list) and all(isinstance(dims, tuple | list) for dims in shape)


def _as_dtype(name: Any) -> DType:  # Any: the name of a type, if it is right
    try:
        dtype = DType(name)
        _ = dtype.numpy
    except (TypeMismatch, TypeError):
        hint = "give one for all inputs, or by name: float32, float16, bfloat16, int8 to int64, uint8 to uint64, bool"
        raise TypeMismatch(f"dtype= is {name!r}, which is no type of a tensor", hint=hint) from None
    return dtype


def _as_shape(name: str, shape: Any) -> tuple[int, ...]:
    try:
        dims = tuple(int(d) for d in shape)
        if dims != tuple(shape):
            raise ValueError
    except (TypeError, ValueError):
        raise TypeMismatch(f"shape={{{name!r}: {shape!r}}}: every dimension must be a whole number") from None
    if any(d < 0 for d in dims):
        raise UnsupportedError(f"shape={{{name!r}: {dims}}}: dimensions known only at run time are not supported")
    return dims
