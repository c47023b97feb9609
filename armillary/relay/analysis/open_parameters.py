"""Named sizes for the axes of parameters that a script leaves open (`relay.Any()`, `te.var`): one build for all.

In: a module. Out: the module with a `Size` on each open axis of main's parameters, those that must be equal being one
(meeting_sizes.py); None where its types do not hold at all sizes. Invariant: sizes of the result are independent, which
is asked of the type rules at numbers that differ. That 1 broadcasts to a size is not seen so: whoever calls compares
what types say at the sizes of a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from armillary.base.extent import Known, as_size, is_known, size, sizes_of
from armillary.base.names import identifier
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.relay.analysis.bind_sizes import bind_sizes, sizes_in
from armillary.relay.analysis.meeting_sizes import with_meeting_sizes
from armillary.relay.binding import with_own_names, with_types
from armillary.relay.expr import Function
from armillary.relay.infer import infer_type
from armillary.relay.types import Dim, TensorType, TupleType, Type, tensor_fields

_APART = 101  # and on: odd numbers, longer than windows, that differ


def with_open_parameters(module: IRModule) -> IRModule | None:
    """The module with named sizes of main's open axes; None where it has none, or one shape's types decide others'."""
    main = _named(with_own_names(module["main"]))
    names = sizes_of(d for p in main.params for field in tensor_fields(p.checked_type) for d in field.shape)
    if not names or len(names) != len(sizes_in(main)):
        return None
    result = module.copy()
    result["main"] = main
    try:
        result = with_meeting_sizes(result)
    except TypeMismatch:
        return None
    return result if _are_free(result["main"], result) else None


def sizes_given(parameters: Iterable[Type], arguments: Iterable[Type]) -> dict[str, int] | None:
    """The sizes of parameters that arguments of these types give, by name; None where one has two values, or 0."""
    values: dict[str, int] = {}
    for wanted, got in zip(parameters, arguments, strict=True):
        for one, other in zip(tensor_fields(wanted), tensor_fields(got), strict=True):
            for dim, value in zip(one.shape, other.static, strict=True):
                named = as_size(dim)
                expected = dim if named is None else values.setdefault(named.name, value)
                if value < 1 or expected != value:
                    return None
    return values


def _named(main: Function) -> Function:
    """Main with a size of its own for each unknown dimension of a parameter."""
    taken = set(sizes_in(main))

    def name_of(hint: str) -> str:
        name, count = hint, 0
        while name in taken:
            name, count = f"{hint}_{count}", count + 1
        taken.add(name)
        return name

    def dim_of(hint: str, axis: int, dim: Dim) -> Dim:
        return dim if is_known(dim) else size(name_of(f"{hint}_{axis}"), 1)

    def named(hint: str, ty: Type) -> Type:
        if isinstance(ty, TupleType):
            return TupleType(tuple(named(f"{hint}_{k}", field) for k, field in enumerate(ty.fields)))
        if not isinstance(ty, TensorType):
            return ty
        return TensorType(tuple(dim_of(hint, axis, dim) for axis, dim in enumerate(ty.shape)), ty.dtype)

    return with_types(main, [named(identifier(p.name_hint), p.checked_type) for p in main.params])


def _are_free(main: Function, module: IRModule) -> bool:
    """Whether types hold where sizes differ, whichever of them is the larger: else operators relate them otherwise."""
    order = sorted(sizes_in(main))
    rows = (order, order[::-1])
    return all(_has_types(main, {name: _APART + 2 * k for k, name in enumerate(row)}, module) for row in rows)


def _has_types(main: Function, values: Mapping[str, Known], module: IRModule) -> bool:
    """Whether main has a type at these sizes."""
    try:
        infer_type(bind_sizes(main, values), module)
    except TypeMismatch:
        return False
    return True
