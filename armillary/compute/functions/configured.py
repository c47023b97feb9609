"""Functions that are configured once and run often: `configure` and `validate`, made of a row of the table.

In: a class with `_bind`, which sets what a run needs, and `_wrong`, which names what the table cannot say; each takes
the arguments that its parameters name (`border` has mode and constant). Out: `configure` and `validate` with the
table's arguments. Invariant: `configure` begins with `validate` of its tensors' information and refuses in the same
words; what arguments make go wrong is one of our errors, which names the method. Rows: `signatures.py`; classes:
`compute/classes.py`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from armillary.base.boundary import boundary
from armillary.compute.core.kernel import Status
from armillary.compute.core.switches import log
from armillary.compute.core.tensor_info import BorderMode, TensorInfo
from armillary.compute.functions.arguments import Arguments
from armillary.compute.functions.signature import Row
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import TypeMismatch

_Wrong = Callable[..., Iterable[str]]


class Border(NamedTuple):
    """What lies beside an image."""

    mode: BorderMode = BorderMode.UNDEFINED
    constant: float = 0

    def is_undefined(self) -> bool:
        """Whether nothing is known of it."""
        return self.mode is BorderMode.UNDEFINED


@runtime_checkable
class HasInfo(Protocol):
    """What has a `TensorInfo`: a tensor of any kind."""

    def info(self) -> TensorInfo:
        """What it is."""


def _nothing() -> Iterable[str]:
    return ()


class ConfiguredFunction:
    """A base of functions; `row`, where a class has one, gives it `configure` and `validate`.

    `class_of` finds another function's class by its name.
    """

    row: ClassVar[Row | None] = None
    setting: ClassVar[str] = ""
    configure: Callable[..., None]
    validate: ClassVar[Callable[..., Status]]
    _bind: Callable[..., None]
    _wrong: ClassVar[_Wrong] = staticmethod(_nothing)
    run: Callable[[], None]
    class_of: Callable[[str], type[ConfiguredFunction]]

    def __init_subclass__(cls) -> None:
        """Make the methods of a class that has a row."""
        super().__init_subclass__()
        row = cls.__dict__.get("row")
        if row is None:
            return
        tensors, infos = Arguments(row, "configure"), Arguments(row, "validate")
        bind, wrong = _taking(cls._bind), _taking(cls._wrong)

        def status_of(values: Mapping[str, object]) -> Status:
            text = next(filter(None, infos.objections(values)), "") or next(filter(None, wrong(cls._wrong, values)), "")
            return Status(f"{cls.__name__}: {text}" if text else "")

        def configure(self: ConfiguredFunction, *args: object) -> None:
            """Set the tensors and options."""
            values = tensors.checked(cls.__name__, args)
            log("%s.configure(%s)", cls.__name__, _Shown(values.values()))
            optional = {each.name: each.gets_information for each in row.arguments}
            status = status_of({name: _info_of(value, optional[name]) for name, value in values.items()})
            if not status:
                raise TypeMismatch(status.error_description)
            bind(self._bind, values)

        def validate(cls: type[ConfiguredFunction], *args: object) -> Status:
            """Whether tensors of this information can be configured."""
            return status_of(infos.checked(cls.__name__, args))

        for method, arguments in ((configure, tensors), (validate, infos)):
            checked = _method(cls, method, arguments)
            setattr(cls, method.__name__, classmethod(checked) if method is validate else checked)


def _method(cls: type, function: Callable[..., object], arguments: Arguments) -> Callable[..., object]:
    """A method of a class; its errors are ours, with the method's name."""
    function.__qualname__ = f"{cls.__name__}.{function.__name__}"
    function.__module__ = cls.__module__
    guarded = boundary(function.__qualname__, arguments=True, first=1)(function)

    @functools.wraps(function)
    def method(owner: object, *args: object, **options: object) -> object:
        return guarded(owner, *arguments.listed(args, options))

    method.__signature__ = arguments.signature  # type: ignore[attr-defined]  # inspect reads it
    return method


def _taking(method: Callable[..., object]) -> Callable[..., Iterable[str]]:
    """Calls a method with those of the arguments that its parameters name."""
    names = [name for name in inspect.signature(method).parameters if name not in ("self", "cls")]

    def call(bound: Callable[..., Iterable[str]], values: Mapping[str, object]) -> Iterable[str]:
        border = {"border": Border(values["border_mode"], values["constant_border_value"])} if "border" in names else {}  # type: ignore[arg-type]  # checked
        return bound(**{name: values[name] for name in names if name not in border}, **border)

    return call


def _info_of(argument: object, may_lack: bool) -> object:
    """What a tensor is, None of one that is to get information; of tensors a list; others as they are."""
    if isinstance(argument, Tensor):
        return argument.info() if argument.has_info() or not may_lack else None
    if isinstance(argument, list | tuple) and argument and all(isinstance(each, Tensor) for each in argument):
        return [each.info() for each in argument]
    return argument


class _Shown(tuple[object, ...]):
    """Arguments, as a line of a log has them: tensors by what they are."""

    def __str__(self) -> str:
        return ", ".join(str(each.info()) if isinstance(each, HasInfo) else str(each) for each in self)
