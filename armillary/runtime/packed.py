"""Calls of Python functions from compiled code.

In: what a kernel wrote on its stack: a name, letters for its arguments, slots of 64 bits (armillary_runtime.h says
which). Out: the registered function is called with numbers, texts and tensors; its number goes back. Invariant: tensors
are views of the kernel's memory, valid during the call; what a function raises stops the kernel, and is raised again
behind it, with the function's own error as its cause.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.base.functions import called
from armillary.errors import TypeMismatch
from armillary.runtime.native_library import Packed, native
from armillary.runtime.ndarray import NDArray

if TYPE_CHECKING:
    from ctypes import _Pointer

    Slots = _Pointer[ctypes.c_int64]

_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
_RAISED: list[BaseException] = []  # by the last function that failed
_LOCK = threading.Lock()


def call_by_name(name: bytes, kinds: bytes, slots: Slots, result: Slots, error: int, size: int) -> int:
    """One call out of a kernel: 0, or 1 with a line of text at `error`."""
    try:
        *letters, wanted = list(kinds.decode())
        answer = called(name.decode())(*_arguments(letters, slots))
        if answer is not None and wanted != "v":
            result[0] = _bits(answer, wanted, name.decode())
        return 0
    except BaseException as raised:  # none may go through machine code
        with _LOCK:
            _RAISED[:] = [raised]
        message = f"the function {name.decode()} raised {type(raised).__name__}: {raised}".encode()[: size - 1]
        ctypes.memmove(error, message + b"\0", len(message) + 1)
        return 1


def take_raised(message: str) -> BaseException | None:
    """What the function raised that stopped a kernel with this message."""
    with _LOCK:
        result = _RAISED[-1] if _RAISED and f" raised {type(_RAISED[-1]).__name__}" in message else None
        _RAISED.clear()
    return result


def _arguments(letters: list[str], slots: Slots) -> list[object]:  # numbers, texts, tensors
    result: list[object] = []
    place = 0
    for letter in letters:
        value, count = _READERS[letter](slots, place)
        result.append(value)
        place += count
    return result


def _float(slots: Slots, place: int) -> tuple[float, int]:
    return struct.unpack("<d", struct.pack("<q", slots[place]))[0], 1


def _text(slots: Slots, place: int) -> tuple[str, int]:
    return ctypes.string_at(slots[place]).decode(), 1


def _tensor(slots: Slots, place: int) -> tuple[NDArray, int]:
    address, rank, kind = slots[place], slots[place + 1], slots[place + 2]
    sizes = [slots[place + 3 + k] for k in range(rank)]
    steps = [slots[place + 3 + rank + k] for k in range(rank)]
    return NDArray(_view(address, sizes, steps, _dtype(kind)), _dtype(kind)), 3 + 2 * rank


def _dtype(kind: int) -> DType:
    code, bits = _CODES[kind & 255], kind >> 8 & 255
    return DType("bool" if code == "bool" else f"{code}{bits}")


def _view(address: int, sizes: list[int], steps: list[int], dtype: DType) -> Array:
    """A kernel's memory as an array; TypeMismatch for a tensor with gaps, which nothing here can hold."""
    dense = 1
    for size, step in zip(reversed(sizes), reversed(steps), strict=True):
        if step != dense and size > 1:
            message = f"a tensor of sizes {sizes} and strides {steps} has gaps"
            raise TypeMismatch(message, hint="call the function on whole tensors, or copy the part first")
        dense *= size
    bytes_ = (ctypes.c_char * (dense * dtype.bytes)).from_address(address)
    flat: Array = np.frombuffer(memoryview(bytes_), dtype.numpy, dense)
    return flat.reshape(sizes)


def _bits(result: object, wanted: str, name: str) -> int:  # what a function gave
    value = result.numpy() if isinstance(result, NDArray) else result
    if not isinstance(value, int | float | np.generic | np.ndarray) or np.size(value) != 1:
        raise TypeMismatch(f"the function {name} gave {type(result).__name__}, wanted a number, or None")
    number = np.asarray(value).item()
    return int(number) if wanted == "i" else int(struct.unpack("<q", struct.pack("<d", float(number)))[0])


_READERS: dict[str, Callable[[Slots, int], tuple[object, int]]] = {
    "i": lambda slots, place: (slots[place], 1),
    "h": lambda slots, place: (slots[place], 1),
    "f": _float,
    "s": _text,
    "t": _tensor,
}
_HANDLER = Packed(call_by_name)


@functools.cache
def supply_functions() -> None:
    """Let kernels of this process call registered functions."""
    native().arm_packed_set(_HANDLER)
