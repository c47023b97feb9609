"""Named sizes for the axes of parameters that a script leaves open (`relay.Any()`, `te.var`): one build for all.

In: a module. Out: the module with a `Size` on each open axis of main's parameters, those that must be equal being one
size; None where its types do not hold at all sizes. Invariant: what must be equal is found by asking the type rules at
numbers that differ, so that no operator says it twice. That 1 broadcasts to a size is not seen so: whoever calls
compares what types say at the sizes of a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

from armillary.base.extent import Known, as_size, is_known, size, sizes_of
from armillary.base.names import identifier
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.relay.analysis.bind_sizes import bind_sizes, sizes_in
from armillary.relay.binding import with_own_names, with_types
from armillary.relay.expr import Function
from armillary.relay.infer import infer_type
from armillary.relay.types import Dim, TensorType, TupleType, Type, tensor_fields

_VALUE, _OTHER = 101, 103  # primes: no window is longer, and neither divides a number that a script writes
_MOST = 8  # sizes: sets of them are tried


def with_open_parameters(module: IRModule) -> IRModule | None:
    """The module with named sizes of main's open axes; None where it has none, or one shape's types decide others'."""
    main = _named(with_own_names(module["main"]))
    names = list(sizes_of(d for p in main.params for field in tensor_fields(p.checked_type) for d in field.shape))
    if not 0 < len(names) <= _MOST or len(names) != len(sizes_in(main)):
        return None
    tied = _tied(main, names, module)
    if tied is None:
        return None
    result = module.copy()
    result["main"] = bind_sizes(main, {name: size(first, 1) for name, first in tied.items()})
    return result


def sizes_given(parameters: Iterable[Type], given: Iterable[Type]) -> dict[str, int] | None:
    """The sizes of parameters that arguments of these types give, by name; None where one has two values, or 0."""
    values: dict[str, int] = {}
    for wanted, got in zip(parameters, given, strict=True):
        for one, other in zip(tensor_fields(wanted), tensor_fields(got), strict=True):
            for dim, value in zip(one.shape, other.static, strict=True):
                named = as_size(dim)
                if named is not None and (value < 1 or values.setdefault(named.name, value) != value):
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


def _tied(main: Function, names: list[str], module: IRModule) -> dict[str, str] | None:
    """For each size the first of those that it always equals; None where types decide otherwise than by equality."""

    def holds(others: set[str]) -> bool:
        return _has_types(main, {name: _OTHER if name in others else _VALUE for name in names}, module)

    def are_free(first: dict[str, str]) -> bool:
        """Whether types hold where these differ, whichever of them is the larger."""
        order = sorted(set(first.values()))
        rows = (order, order[::-1])
        return all(_has_types(main, {n: _VALUE + 2 * row.index(f) for n, f in first.items()}, module) for row in rows)

    alone = {name: name for name in names}
    if are_free(alone):
        return alone
    if not holds(set()):
        return None
    first: dict[str, str] = {}
    for name in names:
        if name in first:
            continue
        rest = [other for other in names if other not in first and other != name]
        sets = ({name, *more} for count in range(len(rest) + 1) for more in combinations(rest, count))
        found: set[str] = next((tried for tried in sets if holds(tried)), set())
        first.update(dict.fromkeys(found, name))
    return first if len(first) == len(names) and are_free(first) else None


def _has_types(main: Function, values: Mapping[str, Known], module: IRModule) -> bool:
    """Whether main has a type at these sizes."""
    try:
        infer_type(bind_sizes(main, values), module)
    except TypeMismatch:
        return False
    return True
