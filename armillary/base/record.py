"""`@record`: classes of values; what `dataclass(frozen=True)` makes, five times sooner and in a tenth of the memory.

In: a class with annotated fields, some with defaults. Out: the same class as a dataclass: constructor, `__post_init__`,
equality, hash, text, `fields` and `replace` as usual. Invariant: a constructor is compiled when it is first called, and
classes whose fields are called alike share its code. A compile from the cache meets two hundred such classes and makes
instances of a third; compiling five methods for each took a sixth of its time. Nodes of programs, which are compared by
identity: `node.py`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # part of typing from Python 3.11 on; it does nothing when programs run

    def dataclass_transform(**_):
        return lambda decorator: decorator


T = TypeVar("T")


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def record(cls: type[T], /) -> type[T]: ...


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def record(*, frozen: bool = True, slots: bool = False, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


def record(cls: Any = None, *, frozen: bool = True, slots: bool = False, eq: bool = True) -> Any:  # Any: see above
    """Make `cls` a dataclass; the options are those of `dataclass`."""
    return (
        _record_class(cls, frozen, slots, eq) if cls is not None else lambda cls: _record_class(cls, frozen, slots, eq)
    )


def _record_class(cls: type[T], frozen: bool, slots: bool, eq: bool) -> type[T]:
    if not cls.__doc__:
        rows = inspect.get_annotations(cls).items()
        cls.__doc__ = f"{cls.__name__}({', '.join(f'{name}: {kind}' for name, kind in rows)})"
    result = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    values = _getter(tuple(f.name for f in dataclasses.fields(result)))  # type: ignore[arg-type]

    def initial(self: T, *args: object, **named: object) -> None:
        constructor = _constructor(result, slots)
        setattr(result, "__init__", constructor)  # noqa: B010  (mypy allows no assignment)
        constructor(self, *args, **named)

    methods: dict[str, object] = {"__repr__": _text}  # methods, and None for no hash
    if eq:
        methods |= _comparison(values) if frozen else _comparison(values) | {"__hash__": None}
    if frozen:
        methods |= {"__setattr__": _refuse_change, "__delattr__": _refuse_change}
    if frozen and slots:
        methods["__reduce__"] = lambda self: (result, values(self))  # pickling would assign to fields
    setattr(result, "__init__", initial)  # noqa: B010
    for name, method in methods.items():
        if name not in cls.__dict__ or (name == "__hash__" and "__hash__" not in _written(cls)):
            setattr(result, name, method)
    return result


def _written(cls: type) -> frozenset[str]:
    """Methods that the class states itself: one with `__eq__` alone has a `__hash__` of None."""
    return frozenset(name for name, value in vars(cls).items() if value is not None)


def _comparison(values: Callable[[object], tuple[object, ...]]) -> dict[str, object]:
    def is_equal(self: object, other: object) -> bool:  # bool, or NotImplemented
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": is_equal, "__hash__": lambda self: hash(values(self))}


def _getter(names: tuple[str, ...]) -> Callable[[object], tuple[object, ...]]:
    """The values of the named attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda item: tuple(getattr(item, name) for name in names)


def _constructor(cls: type, slots: bool) -> Callable[..., None]:
    fields = dataclasses.fields(cls)  # Field[Any]
    scope: dict[str, Any] = {"_translated": _TRANSLATED}
    for f in fields:
        if f.default is not dataclasses.MISSING:
            scope[f"_default_{f.name}"] = f.default
        elif f.default_factory is not dataclasses.MISSING:
            scope |= {f"_default_{f.name}": _UNSET, f"_make_{f.name}": f.default_factory, "_unset": _UNSET}
        if slots:
            scope[f"_set_{f.name}"] = getattr(cls, f.name).__set__
    names = tuple(f.name for f in fields)
    optional, factories = frozenset(scope), frozenset(n for n in names if f"_make_{n}" in scope)
    exec(_constructor_code(names, optional, factories, slots, hasattr(cls, "__post_init__")), scope)
    built: Callable[..., None] = scope["__init__"]
    return built


def translate_by(translated: Callable[[str, Exception], Exception]) -> None:
    """What makes the package's error of one that a `__post_init__` meets; `boundary.py`, whose errors are records."""
    _TRANSLATED.append(translated)


_TRANSLATED: list[Callable[[str, Exception], Exception]] = []
_UNSET = object()
_OF_ARGUMENTS = "(AttributeError, LookupError, TypeError, OverflowError)"  # a ValueError is raised on purpose


@cache
def _constructor_code(
    names: tuple[str, ...], optional: frozenset[str], converted: frozenset[str], slots: bool, is_checked: bool
) -> CodeType:
    arguments = ", ".join(("self", *(f"{n}=_default_{n}" if f"_default_{n}" in optional else n for n in names)))
    lines = [] if slots else ["_own = self.__dict__"]
    for name in names:
        value = f"_make_{name}() if {name} is _unset else {name}" if name in converted else name
        lines.append(f"_set_{name}(self, {value})" if slots else f"_own[{name!r}] = {value}")
    checked = ["try:", "    self.__post_init__()", f"except {_OF_ARGUMENTS} as error:"]
    checked += ["    raise _translated[-1](self.__class__.__name__, error) from error"]
    lines += checked if is_checked else []
    body = "\n    ".join(lines or ["pass"])
    return compile(f"def __init__({arguments}):\n    {body}\n", "<record>", "exec")


def _text(self: Any) -> str:
    inside = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self))
    return f"{type(self).__qualname__}({inside})"


def _refuse_change(self: object, name: str, *value: object) -> NoReturn:
    what = "assign to" if value else "delete"
    raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
