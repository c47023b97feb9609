"""Containers of Relay-era scripts, as Python's own: `Array`, `Map`, `String`, `ShapeTuple`, `ADT`; and `PackedFunc`.

In: sequences, mappings, texts, functions. Out: lists, dictionaries, strings, the functions. Invariant: nothing here is
more than the Python type of the same meaning; scripts that test `isinstance` find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from armillary.artifact import load_params, save_params
from armillary.base.aliases import Array as Values
from armillary.base.aligned import Deferred
from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary
from armillary.base.files import MOST_MODEL_BYTES, read_regular, write_atomic
from armillary.runtime.device import device
from armillary.runtime.ndarray import NDArray, array

Array, Map, String, ShapeTuple, ADT = list, dict, str, tuple, list
_KINDS = ("llvm", "c", "cpu", "cl", "opencl", "cuda", "vulkan", "metal", "rocm", "hexagon")


def tuple_object(fields: Iterable[object] | None = None) -> tuple[object, ...]:
    """Several values as one."""
    return tuple(fields or ())


class _Callables(type):
    """What can be called is an instance."""

    def __instancecheck__(cls, item: object) -> bool:
        return callable(item) and not isinstance(item, type)


class PackedFunc(metaclass=_Callables):
    """Functions by name: Python's own, and compiled ones. For `isinstance`; a call gives the function back."""

    def __new__(cls, function: PackedFunc) -> PackedFunc:
        return function


@boundary("save_param_dict", arguments=True)
def save_param_dict(params: Mapping[str, Values | Deferred]) -> bytearray:
    """Parameters as bytes that `load_param_dict` reads, in an array of bytes as scripts of the Relay era have them."""
    return bytearray(save_params(params))


@boundary("load_param_dict", arguments=True)
def load_param_dict(param_bytes: bytes | bytearray) -> dict[str, NDArray]:
    """Parameters by name of what `save_param_dict` gave; ArtifactError where the bytes are damaged."""
    return {name: array(value) for name, value in load_params(param_bytes).items()}


@boundary("save_param_dict_to_file", arguments=True)
def save_param_dict_to_file(params: Mapping[str, Values | Deferred], path: str | Path) -> None:
    """Write parameters to a file, whole or not at all."""
    write_atomic(path, save_params(params))


@boundary("load_param_dict_from_file", arguments=True)
def load_param_dict_from_file(path: str | Path) -> dict[str, NDArray]:
    """The parameters of a file, by name; ArtifactError where it is damaged."""
    return load_param_dict(read_regular(path, MOST_MODEL_BYTES))


def enabled(target: str) -> bool:
    """Whether code for a target string can run in this process: a CPU always, others where their device is there."""
    Arguments("enabled").text("target", target)
    kind = target.split()[0] if target.split() else ""
    return kind in _KINDS and device(kind).exist
