"""Values of a session's own, and bindings of inputs and outputs to memory, by ONNX Runtime's names.

In: numpy arrays, or addresses with types and shapes. Out: feeds of a session; outputs, written to where the caller
wants them. Invariant: everything is on the CPU; memory that a caller names must live until the run has ended.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from armillary.base.aliases import Array, NumpyDtype
from armillary.errors import ExecutionError, TypeMismatch, UnsupportedError


class _Args(Protocol):
    @property
    def name(self) -> str: ...


class _Session(Protocol):
    def get_outputs(self) -> Sequence[_Args]: ...


def _check_device(device_type: str, device_id: int) -> None:
    if device_type not in ("cpu", "CPU") or device_id != 0:
        raise UnsupportedError(f"device {device_type}:{device_id}: values of a session are on the CPU")


class OrtValue:
    """An array that sessions take and give."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: Array, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """A value over the array's own memory."""
        _check_device(device_type, device_id)
        return OrtValue(np.ascontiguousarray(numpy_obj))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: NumpyDtype, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """A value of zeros."""
        _check_device(device_type, device_id)
        return OrtValue(np.zeros(tuple(shape), element_type))

    def numpy(self) -> Array:
        """The array itself."""
        return self._array

    def shape(self) -> list[int]:
        """The sizes of the bound value."""
        return list(self._array.shape)

    def element_type(self) -> str:
        """The name of its elements' type."""
        return str(self._array.dtype)

    def device_name(self) -> str:
        """Where it lies."""
        return "cpu"

    def data_ptr(self) -> int:
        """The address of its values."""
        return int(self._array.ctypes.data)

    def update_inplace(self, np_arr: Array) -> None:
        """Copy an array of the same shape and type into the value's memory."""
        if np_arr.shape != self._array.shape or np_arr.dtype != self._array.dtype:
            message = f"{np_arr.dtype} {list(np_arr.shape)}"
            raise TypeMismatch(f"the value is {self._array.dtype} {self.shape()}, got {message}")
        self._array[...] = np_arr


class IOBinding:
    """Where the inputs of a run come from and where its outputs go."""

    def __init__(self, session: _Session) -> None:
        self._session = session
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array | None] = {}  # None: memory of their own
        self._results: dict[str, Array] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Take an input from an array."""
        self._inputs[name] = arr_on_cpu

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: NumpyDtype,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Take an input from an address."""
        _check_device(device_type, device_id)
        self._inputs[name] = _at(buffer_ptr, element_type, shape)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Take an input from a value."""
        self._inputs[name] = ortvalue.numpy()

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: NumpyDtype | None = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Write an output to an address; without one, to memory of its own."""
        _check_device(device_type, device_id)
        self._check(name)
        if buffer_ptr is not None and (element_type is None or shape is None):
            raise TypeMismatch(f"output {name!r}: an address needs element_type= and shape=")
        self._outputs[name] = None if buffer_ptr is None else _at(buffer_ptr, element_type, shape or ())

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Write an output to a value's memory."""
        self._check(name)
        self._outputs[name] = ortvalue.numpy()

    def _check(self, name: str) -> None:
        known = [arg.name for arg in self._session.get_outputs()]
        if name not in known:
            raise ExecutionError(f"the model has no output {name!r}", hint=f"outputs: {', '.join(known)}")

    def synchronize_inputs(self) -> None:
        """Nothing to wait for: everything is on the CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for: everything is on the CPU."""

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs and their values."""
        self._outputs.clear()
        self._results.clear()

    def feed(self) -> dict[str, Array]:
        """The inputs by name."""
        return dict(self._inputs)

    def take(self, outputs: Mapping[str, Array]) -> None:
        """Write the outputs of a run to where they are bound."""
        self._results = {}
        for name, place in self._outputs.items():
            value = outputs[name]
            if place is None:
                place = value
            elif place.shape != value.shape or place.dtype != value.dtype:
                message = f"bound to {place.dtype} {list(place.shape)}"
                raise TypeMismatch(f"output {name!r} is {value.dtype} {list(value.shape)}, {message}")
            else:
                place[...] = value
            self._results[name] = place

    def copy_outputs_to_cpu(self) -> list[Array]:
        """The values of the bound outputs, in the order of binding."""
        return list(self._results.values())

    def get_outputs(self) -> list[OrtValue]:
        """The bound outputs as values."""
        return [OrtValue(value) for value in self._results.values()]


def _at(address: int, element_type: NumpyDtype | None, shape: Sequence[int]) -> Array:
    dtype = np.dtype(element_type)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory: Array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
    return memory.view(dtype).reshape(tuple(shape))


__all__ = ["IOBinding", "OrtValue"]
