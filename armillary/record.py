"""`@record`: frozen classes of plain values, compared by value; what `dataclass(frozen=True)` makes, five times sooner.

In: a class with annotated fields, some with defaults. Out: the same class as a dataclass: constructor, equality, hash,
text, `fields` and `replace` as usual. Invariant: two classes whose fields are called alike share the compiled code of
their constructor. Operators have a hundred such classes, and compiling five methods for each took a third of the time
that importing them takes. Nodes of programs, which are compared by identity: `node.py`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # part of typing from Python 3.11 on; it does nothing when programs run

    def dataclass_transform(**_):
        return lambda decorator: decorator


T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass."""
    if not cls.__doc__:
        rows = inspect.get_annotations(cls).items()
        cls.__doc__ = f"{cls.__name__}({', '.join(f'{name}: {kind}' for name, kind in rows)})"
    made = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    is_plain = all(f.init and f.default_factory is dataclasses.MISSING for f in fields)
    assert is_plain and not hasattr(cls, "__post_init__"), f"{cls.__name__}: a record has plain fields only"
    defaults = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
    names = tuple(f.name for f in fields)
    values = _getter(names)

    def is_equal(self: T, other: object) -> Any:  # Any: bool, or NotImplemented
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: T) -> int:
        return hash(values(self))

    methods = {
        "__init__": _constructor(names, defaults), "__repr__": _text, "__eq__": is_equal, "__hash__": hashed,
        "__setattr__": _refuse_change, "__delattr__": _refuse_change,
    }  # fmt: skip
    for name, method in methods.items():
        if name == "__init__" or name not in cls.__dict__:
            setattr(made, name, method)
    return made


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of the named attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda item: tuple(getattr(item, name) for name in names)


def _constructor(names: tuple[str, ...], defaults: dict[str, Any]) -> Callable[..., None]:
    scope: dict[str, Any] = {f"_default_{name}": value for name, value in defaults.items()}
    exec(_constructor_code(names, frozenset(defaults)), scope)
    made: Callable[..., None] = scope["__init__"]
    return made


@cache
def _constructor_code(names: tuple[str, ...], optional: frozenset[str]) -> CodeType:
    arguments = ", ".join(("self", *(f"{n}=_default_{n}" if n in optional else n for n in names)))
    stores = "".join(f"\n    own[{name!r}] = {name}" for name in names)
    return compile(f"def __init__({arguments}):\n    own = self.__dict__{stores}\n", "<record>", "exec")


def _text(self: Any) -> str:
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).__dataclass_fields__)
    return f"{type(self).__qualname__}({inside})"


def _refuse_change(self: object, name: str, *value: object) -> NoReturn:
    what = "assign to" if value else "delete"
    raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
