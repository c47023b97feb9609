"""The boundary of the package: what Python or the system raises becomes an ArmillaryError with the call and its cause.

In: a public function and what it is called in messages. Out: the same function. Invariant: errors of this package pass
unchanged; of the others MemoryError (numpy's too, whatever its class), RecursionError, OSError, OverflowError,
UnicodeError and what Python says of numbers with thousands of digits always become the user's kind of error, TypeError
and ValueError where the function says that they can only come from its arguments. The original is the `__cause__`. A
call that does not fit the signature stays Python's TypeError.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Callable
from ctypes import ArgumentError
from typing import ParamSpec, TypeVar

from armillary.base.record import translate_by
from armillary.errors import (
    ArmillaryError,
    ArtifactError,
    ConfigError,
    ExecutionError,
    Span,
    TypeMismatch,
    UnsupportedError,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")
_ALWAYS = (MemoryError, RecursionError, OSError, OverflowError, UnicodeError)
_OF_ARGUMENTS = (TypeError, ValueError, AttributeError, LookupError, BufferError, struct.error, ArgumentError)
_SHOWN = 60  # characters of an argument


def boundary(what: str, arguments: bool = False, first: int = 0) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Errors of other kinds that leave the function become ours; `arguments`: TypeErrors are about these.

    Messages show the arguments from number `first` on.
    """
    caught: tuple[type[Exception], ...] = (*_ALWAYS, *_OF_ARGUMENTS) if arguments else _ALWAYS

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                return function(*args, **kwargs)
            except ArmillaryError:
                raise
            except Exception as error:
                if not isinstance(error, caught) and not _is_too_large(error) and not is_of_digits(error):
                    raise
                trace = error.__traceback__
                if isinstance(error, TypeError) and trace is not None and trace.tb_next is None:
                    raise  # the call does not fit the signature
                raise translated(what, error, (*args[first:], *kwargs.values())) from error

        return guarded

    return decorate


def _is_too_large(error: Exception) -> bool:
    """Whether numpy says in its own words that there is no memory for so large an array."""
    return isinstance(error, ValueError) and str(error).startswith(("array is too big", "Maximum allowed "))


def is_of_digits(error: Exception) -> bool:
    """Whether Python says that a whole number has more digits than it reads or writes."""
    return isinstance(error, ValueError) and str(error).startswith("Exceeds the limit (")


def bounded(cls: type[_R]) -> type[_R]:
    """Class decorator: what goes wrong in the constructor, on its arguments, leaves it as one of our errors."""
    name = "__init__" if "__init__" in vars(cls) else "__new__"
    guarded = boundary(cls.__name__, arguments=True, first=1)(getattr(cls, name))
    setattr(cls, name, staticmethod(guarded) if name == "__new__" else guarded)
    return cls


def bounded_methods(*names: str) -> Callable[[type[_R]], type[_R]]:
    """Class decorator: what goes wrong in these methods, on their arguments, leaves them as one of our errors."""

    def decorate(cls: type[_R]) -> type[_R]:
        for name in names:
            setattr(cls, name, boundary(f"{cls.__name__}.{name}", arguments=True, first=1)(vars(cls)[name]))
        return cls

    return decorate


def translated(what: str, error: Exception, arguments: tuple[object, ...] = ()) -> ArmillaryError:
    """What to raise in place of an error of Python or the system."""
    message = str(error) or type(error).__name__
    match error:
        case _ if isinstance(error, MemoryError) or _is_too_large(error):
            return ExecutionError(
                f"{what}: out of memory: {message}", hint="ulimit -v and the cgroup limit what there is"
            )
        case _ if is_of_digits(error):
            return TypeMismatch(f"{what}: a number has too many digits: {message.partition(';')[0]}")
        case RecursionError():
            return UnsupportedError(f"{what}: the structure is nested too deeply: {message}", hint="flatten it")
        case OSError():
            path = error.filename if error.filename is not None else _path_of(arguments)
            span = Span(_short(path)) if path is not None else None
            return ArtifactError(f"{what}: {error.strerror or message}", span=span, hint="name a file that can be used")
        case UnicodeError():
            return ConfigError(f"{what}: a text is not valid UTF-8: {message}{_argument_texts(arguments)}")
        case OverflowError():
            return TypeMismatch(f"{what}: a number is too large: {message}{_argument_texts(arguments)}")
    return TypeMismatch(f"{what}: {message}{_argument_texts(arguments)}")


def _path_of(arguments: tuple[object, ...]) -> object:
    return next((item for item in arguments if isinstance(item, str | os.PathLike)), None)


def _argument_texts(arguments: tuple[object, ...]) -> str:
    texts = [f"{type(item).__name__} {_short(item)}" for item in arguments]
    return f" (got {', '.join(texts)})" if texts else ""


def _short(item: object) -> str:
    if not isinstance(item, str | bytes | int | float | tuple | os.PathLike | None):
        return ""
    try:
        text = str(item) if isinstance(item, os.PathLike | str) else repr(item)
    except ValueError:  # a number of more digits than Python writes
        return "of too many digits"
    text = text.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


translate_by(translated)
