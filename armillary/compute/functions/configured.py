"""Functions whose `configure` refuses what `validate` refuses, and which take no argument for another one.

In: a class with these methods. Out: the same, where what arguments make go wrong is one of our errors. Invariant:
`configure` begins with `validate` of its tensors' information; the error names the method that refuses; an argument of
an enumeration is a member of it (a text would be taken for its last one), a list is a list and a number a number; a
`constant_border_value` is a pixel of the image, whatever the border's mode. Users: the bases of `nn` and `vision`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol, runtime_checkable

import numpy as np

from armillary.base.boundary import boundary
from armillary.compute.core.compiled import is_held
from armillary.compute.core.kernel import Status
from armillary.compute.core.switches import log
from armillary.compute.core.tensor_info import DataType, TensorInfo
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import TypeMismatch

_CONSTANT = "constant_border_value"
_Method = Callable[..., object]
_NUMBERS = (int, float, np.integer, np.floating, np.bool_)
_PLAIN: dict[str, type] = {"int": float, "float": float, "bool": bool}
_WORDS: dict[type, str] = {list: "a list", float: "a number", bool: "True or False"}
_TAKEN: dict[type, tuple[type, ...]] = {float: _NUMBERS, bool: _NUMBERS}


@runtime_checkable
class HasInfo(Protocol):
    """What has a `TensorInfo`: a tensor of any kind."""

    def info(self) -> TensorInfo:
        """What it is."""


class ConfiguredFunction:
    """A base of functions that are configured once and run often."""

    def __init_subclass__(cls) -> None:
        """What goes wrong in methods on their arguments leaves them as one of our errors, with the method's name."""
        super().__init_subclass__()
        configure, validate = getattr(cls, "configure", None), getattr(cls, "validate", None)
        if configure is None or cls.__name__.startswith("_"):
            return  # a base of functions; what it set would hide what its neighbours have
        own = getattr(configure, "__wrapped__", configure)
        cls.configure = _checked(f"{cls.__name__}.configure", own, _refusing(own, validate))  # type: ignore[attr-defined]  # subclasses have it
        if validate is not None:
            own = getattr(validate, "__func__", validate)
            kind = staticmethod if own is validate else classmethod
            own = getattr(own, "__wrapped__", own)
            cls.validate = kind(_checked(f"{cls.__name__}.validate", own, own))  # type: ignore[attr-defined]  # as above


def _refusing(configure: _Method, validate: _Method | None) -> _Method:
    """`configure` behind `validate`, where the latter's arguments are among its own."""
    signature = inspect.signature(configure)
    wanted = inspect.signature(validate).parameters if validate is not None else {}
    if not wanted or not set(wanted) <= set(signature.parameters):
        return configure
    optional = {name: "None" in str(each.annotation) for name, each in wanted.items()}

    @functools.wraps(configure)
    def refusing(*args: object, **kwargs: object) -> object:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return configure(*args, **kwargs)  # which says in Python's words what does not fit
        bound.apply_defaults()
        infos = {name: _info_of(bound.arguments[name], has_none) for name, has_none in optional.items()}
        method = type(args[0]).validate  # type: ignore[attr-defined]  # has it; called without its guard
        status: Status = method.__func__.__wrapped__(type(args[0]), **infos)
        if not status:
            raise TypeMismatch(status.error_description)
        return configure(*args, **kwargs)

    return refusing


def _info_of(argument: object, has_none: bool) -> object:
    """What a tensor is, None of one that is to get information; of tensors a list; others as they are."""
    if isinstance(argument, Tensor):
        return argument.info() if argument.has_info() or not has_none else None
    if isinstance(argument, list | tuple) and argument and all(isinstance(each, Tensor) for each in argument):
        return [each.info() for each in argument]
    return argument


def _checked(message: str, own: _Method, method: _Method) -> _Method:
    """The method behind a look at the arguments of its own form, its errors ours."""
    guarded = boundary(message, arguments=True, first=1)(method)
    names = [*inspect.signature(own).parameters.values()]
    kinds = {p.name: _kind_of(p.annotation, own.__globals__) for p in names if isinstance(p.annotation, str)}
    wanted = {name: kind for name, kind in kinds.items() if kind is not None}
    looked_at = [(k, p.name) for k, p in enumerate(names) if p.name in wanted or p.name == _CONSTANT]
    looked_at.sort(key=lambda at: at[1] != _CONSTANT and wanted[at[1]] in _WORDS)  # the most telling first
    if not looked_at and not message.endswith(".configure"):
        return guarded

    @functools.wraps(own)
    def checked(*args: object, **kwargs: object) -> object:
        for place, name in looked_at:
            if place >= len(args) and name not in kwargs:
                continue
            value = args[place] if place < len(args) else kwargs[name]
            if name == _CONSTANT:
                image = args[1] if len(args) > 1 else kwargs.get(names[1].name)
                objection = objection_to_constant(value, _type_of(image))
            else:
                objection = _objection_to_kind(name, value, wanted[name])
            if objection:
                raise TypeMismatch(f"{message}: {objection}")
        log("%s(%s)", message, _Arguments(args[1:]))
        return guarded(*args, **kwargs)

    return checked


class _Arguments(tuple[object, ...]):
    """Arguments, as a line of a log has them: tensors by what they are."""

    def __str__(self) -> str:
        return ", ".join(str(each.info()) if isinstance(each, HasInfo) else str(each) for each in self)


def _kind_of(annotation: str, names: Mapping[str, object]) -> type | None:
    """The type that an argument is looked at for: information, an enumeration, a list, a number; None for others."""
    if annotation.startswith("list[") and "|" not in annotation:
        return list
    kind = _PLAIN.get(annotation) or names.get(annotation)
    is_known = isinstance(kind, type) and issubclass(kind, Enum | TensorInfo | float | bool)
    return kind if is_known else None  # type: ignore[return-value]  # a type


def _objection_to_kind(name: str, value: object, kind: type) -> str:
    """What is wrong with an argument that is information, a list, a number or one of an enumeration, or nothing."""
    if isinstance(value, _TAKEN.get(kind, kind)) and (kind is not bool or value in (0, 1)):
        return ""
    members = [_WORDS.get(kind, kind.__name__)]
    if issubclass(kind, Enum):
        members = [f"{kind.__name__}.{member.name}" for member in kind]
    return f"{name} is {value!r:.60}, wanted {' or '.join(members)}"


def _type_of(image: object) -> DataType:
    """The type of a tensor; of a pyramid of them, as of anything else, U8."""
    info = getattr(image, "info", None)
    result = getattr(info(), "data_type", None) if callable(info) and not isinstance(image, type) else None
    return result if isinstance(result, DataType) else DataType.U8


def objection_to_constant(constant: object, kind: DataType) -> str:
    """What is wrong with a constant of a border of an image of this type, or nothing."""
    if not isinstance(constant, int | float | np.integer | np.floating):
        return f"{_CONSTANT} is a number, got {constant!r:.60}"
    if is_held(constant, kind.dtype):
        return ""
    is_real = "float" in kind.dtype
    wanted = "" if is_real else f": wanted a whole number from {np.iinfo(kind.dtype).min} to {np.iinfo(kind.dtype).max}"
    return f"{_CONSTANT} is {constant!r:.60}, which {kind.name} does not hold{wanted}"
