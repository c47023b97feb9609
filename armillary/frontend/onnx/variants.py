"""Variants of an ONNX model: the numbers that its symbolic dimensions take in each.

In: a model's inputs, shapes that may name dimensions, and for each variant either shapes by input or numbers by
dimension. Out: for each variant the shapes of all inputs that it says something about. Invariant: a shape that comes
out has numbers only; a name that is neither an input nor a dimension is refused, and told which there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from armillary.errors import ModelError, TypeMismatch

if TYPE_CHECKING:
    from onnx import ValueInfoProto

Shapes = dict[str, Any]  # Any: numbers, or for sequences lists of shapes


def variant_shapes(
    inputs: Sequence[ValueInfoProto], shape: Mapping[str, Any], variants: Sequence[Mapping[str, object]]
) -> list[Shapes]:
    """The `shape=` of each variant."""
    if not variants:
        raise TypeMismatch("variants= is empty", hint='variants=[{"batch": 1}, {"batch": 4}]')
    dims = {value.name: _declared(value) for value in inputs}
    dims.update(
        {name: tuple(numbers) if isinstance(numbers, tuple | list) else numbers for name, numbers in shape.items()}
    )
    return [_resolved(dims, set(shape), dict(variant)) for variant in variants]


def _declared(value: ValueInfoProto) -> tuple[object, ...] | None:
    """Numbers and names of an input's dimensions, None for one without either."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim)


def _resolved(dims: Mapping[str, object], names: set[str], variant: dict[str, Any]) -> Shapes:
    symbols = {d for shape in dims.values() if isinstance(shape, tuple) for d in shape if isinstance(d, str)}
    unknown = sorted(set(variant) - set(dims) - symbols)
    if unknown:
        have = ", ".join([*dims, *sorted(symbols)]) or "none"
        raise ModelError(f"a variant names {unknown[0]!r}, which is no input or dimension", hint=f"there are: {have}")
    result: Shapes = {}
    for name, declared in dims.items():
        if name in variant:
            result[name] = tuple(variant[name])
        elif isinstance(declared, tuple) and any(isinstance(d, str) and d in variant for d in declared):
            result[name] = tuple(variant.get(d, d) if isinstance(d, str) else d for d in declared)
        elif name in names:
            result[name] = declared
    for name, shape in result.items():
        free = [d for d in shape if not isinstance(d, int | list | tuple)] if isinstance(shape, tuple) else []
        if free:
            hint = f"give {free[0]!r} a number" if free[0] else "give its whole shape"
            raise TypeMismatch(f"a variant leaves a dimension of input {name!r} open: {shape}", hint=hint)
    return result
