"""What arguments of functions are checked for: their kinds, their values, and types and shapes of tensors.

In: a row of the table, arguments of a call. Out: arguments by name (`Arguments.bound`), or our error that names the
method, the argument, what it is and what is wanted; objections to tensors' information as texts. Invariant: no argument
is taken for another one: one of an enumeration is a member of it, a list is a list, a number a number that its type
holds; a `constant_border_value` is a pixel of the image, whatever the border's mode.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum

import numpy as np

from armillary.compute.core import types
from armillary.compute.core.compiled import is_held
from armillary.compute.core.tensor_info import BorderMode, DataType, TensorInfo
from armillary.compute.functions.signature import Argument, Row
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import TypeMismatch

FLOATS = (DataType.F32, DataType.F16)
QUANTIZED = (DataType.QASYMM8, DataType.QASYMM8_SIGNED)
_GROUPS: Mapping[str, tuple[DataType, ...]] = {"F": FLOATS, "Q": QUANTIZED, "T": tuple(DataType)}
_NUMBERS = (int, float, np.integer, np.floating, np.bool_)
_PLAIN: Mapping[str, tuple[tuple[type, ...], str]] = {
    "int": (_NUMBERS, "a number"),
    "float": (_NUMBERS, "a number"),
    "bool": (_NUMBERS, "True or False"),
    "KeyPoints": ((list,), "a list"),
    "Places": ((list,), "a list"),
    "Windows": ((list,), "a list"),
    "constant": (_NUMBERS, "a number"),
}
_NAMED: Mapping[str, type] = {
    name: kind for name, kind in {**vars(types), "BorderMode": BorderMode}.items() if isinstance(kind, type)
}
_ANNOTATIONS = {
    "KeyPoints": "list[KeyPoint]",
    "Places": "list[tuple[int, int]]",
    "Points": "Sequence[KeyPoint]",
    "Sizes": "Sequence[Size2D]",
    "Windows": "list[DetectionWindow]",
    "constant": "float",
    "numbers": "Sequence[float]",
}


class Arguments:
    """The arguments of a method of a function, of tensors (`configure`) or of their information (`validate`)."""

    def __init__(self, row: Row, method: str) -> None:
        self._of_infos = method == "validate"
        self.row, self._method = row, method
        self.all = row.validated() if self._of_infos else row.arguments
        self._names = tuple(each.name for each in row.arguments)
        owner = inspect.Parameter("cls" if self._of_infos else "self", inspect.Parameter.POSITIONAL_ONLY)
        self._shown = inspect.Signature(list(map(self._parameter, self.all)))
        self.signature = self._shown.replace(parameters=[owner, *self._shown.parameters.values()])

    def _parameter(self, each: Argument) -> inspect.Parameter:
        default: object = inspect.Parameter.empty
        enumeration = _NAMED.get(each.kinds[0])
        if each.default:
            is_member = enumeration is not None and issubclass(enumeration, Enum) and each.default != "None"
            default = enumeration[each.default] if is_member else ast.literal_eval(each.default)  # type: ignore[index]  # as above
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Parameter(each.name, kind, default=default, annotation=self.annotation(each))

    def annotation(self, each: Argument) -> str:
        """The type of an argument, as Python writes it."""
        result = _ANNOTATIONS.get(each.kinds[0], each.kinds[0])
        if each.is_tensor(self._names):
            result = "TensorInfo" if self._of_infos else "Tensor"
        elif result in ("Tensors", "Picture"):
            one = "TensorInfo" if self._of_infos else "Tensor"
            result = f"Sequence[{one}]" if result == "Tensors" else f"{one} | MultiImage"
        has_none = each.may_be_none or (each.gets_information and self._of_infos)
        return f"{result} | None" if has_none else result

    def listed(self, args: Sequence[object], options: Mapping[str, object]) -> tuple[object, ...]:
        """All arguments in order; Python's TypeError where a call does not fit."""
        bound = self._shown.bind(*args, **options)
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def checked(self, name: str, args: Sequence[object]) -> dict[str, object]:
        """The arguments (`listed`) by name, each of its kind; `name` is the function's."""
        values = dict(zip(self._shown.parameters, args, strict=True))
        # The most telling objection first: numbers and lists are often only in another's place.
        for each in sorted(self.all, key=lambda one: one.kinds[0] in _PLAIN and one.kinds[0] != "constant"):
            wrong = self._objection(each, values[each.name], values)
            if wrong:
                raise TypeMismatch(f"{name}.{self._method}: {wrong}")
        return values

    def _objection(self, each: Argument, value: object, others: Mapping[str, object]) -> str:
        """What is wrong with the kind of an argument, or nothing."""
        kind = each.kinds[0]
        if value is None and (each.may_be_none or (each.gets_information and self._of_infos)):
            return ""
        if kind == "constant":
            image = others[self._names[0]]
            return objection_to_constant(value, _type_of(image))
        if each.is_tensor(self._names):
            wanted: type = TensorInfo if self._of_infos else Tensor
            return "" if isinstance(value, wanted) else f"{each.name} is {value!r:.60}, wanted a {wanted.__name__}"
        if kind in _PLAIN:
            types_of, word = _PLAIN[kind]
            is_right = isinstance(value, types_of) and (kind != "bool" or value in (0, 1))
            return "" if is_right else f"{each.name} is {value!r:.60}, wanted {word}"
        known = _NAMED.get(kind)
        if known is None or isinstance(value, known):
            return ""
        members = [f"{kind}.{member.name}" for member in known] if issubclass(known, Enum) else [f"a {kind}"]
        return f"{each.name} is {value!r:.60}, wanted {' or '.join(members)}"

    def objections(self, values: Mapping[str, object]) -> Iterator[str]:
        """What is wrong with values, and with types and shapes of tensors."""
        for each in self.row.validated():
            value = values[each.name]
            if isinstance(value, TensorInfo) and each.is_tensor(self._names):
                yield wrong_type(each.label(), value, self._kinds(each, values))
            elif each.values and value is not None:
                yield _wrong_value(each, value)
        for each in self.row.validated():
            value, other = values[each.name], values.get(each.shaped_as)
            if isinstance(value, TensorInfo) and isinstance(other, TensorInfo):
                yield wrong_shape(each.label(), value, other.shape)

    def _kinds(self, each: Argument, values: Mapping[str, object]) -> Iterator[DataType]:
        for kind in each.kinds:
            if kind in self._names:
                other = values[kind]
                assert isinstance(other, TensorInfo), f"{each.name} has the type of a tensor"
                yield other.data_type
            else:
                yield from _GROUPS.get(kind) or (DataType[kind],)


def _wrong_value(each: Argument, value: object) -> str:
    """An objection to a number out of its range, or to one or a member that is none of those that are taken."""
    number = value.name if isinstance(value, Enum) else value
    low, dots, high = each.values.partition("..")
    if each.kinds[0] == "int" and not (
        isinstance(number, _NUMBERS) and math.isfinite(number) and number == int(number)
    ):
        return f"{each.name} is {value!r:.60}, wanted a whole number"
    if not dots and each.values[0] != ">":
        members = each.values.split(",")
        is_right = str(number) in members or (each.kinds[0] == "int" and str(int(number)) in members)  # type: ignore[call-overload]  # a number
        return "" if is_right else f"{each.name} is {number}, wanted {' or '.join(members)}"
    assert isinstance(number, _NUMBERS), "ranges are of numbers"
    if not dots:
        return "" if number > float(each.values[1:]) else f"{each.name} is {number}, wanted above {each.values[1:]}"
    is_within = number >= float(low) and (not high or number <= float(high))
    return "" if is_within else f"{each.name} is {number}, wanted {f'{low} to {high}' if high else f'at least {low}'}"


def _type_of(image: object) -> DataType:
    """The type of a tensor; of a pyramid of them, as of anything else, U8."""
    return image.info().data_type if isinstance(image, Tensor) else DataType.U8


def objection_to_constant(constant: object, kind: DataType) -> str:
    """What is wrong with a constant of a border of an image of this type, or nothing."""
    if not isinstance(constant, int | float | np.integer | np.floating):
        return f"constant_border_value is a number, got {constant!r:.60}"
    if is_held(constant, kind.dtype):
        return ""
    is_real = "float" in kind.dtype
    wanted = "" if is_real else f": wanted a whole number from {np.iinfo(kind.dtype).min} to {np.iinfo(kind.dtype).max}"
    return f"constant_border_value is {constant!r:.60}, which {kind.name} does not hold{wanted}"


def wrong_type(what: str, info: TensorInfo, wanted: Iterable[DataType]) -> str:
    """An objection to a type."""
    kinds = tuple(dict.fromkeys(wanted))
    if info.data_type in kinds:
        return ""
    return f"{what} is {info.data_type.name}, wanted {' or '.join(kind.name for kind in kinds)}"


def wrong_shape(what: str, info: TensorInfo | None, wanted: Iterable[int]) -> str:
    """An objection to a shape; trailing ones do not count."""
    if info is None:
        return ""
    have, want = _trimmed(info.shape), _trimmed(wanted)
    return "" if have == want else f"{what} is {'x'.join(map(str, have))}, wanted {'x'.join(map(str, want))}"


def _trimmed(shape: Iterable[int]) -> tuple[int, ...]:
    sizes = list(shape)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return tuple(sizes)
