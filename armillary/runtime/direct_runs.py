"""Runs of an executor over memory that the caller names by addresses, for callers that hold it in tensors of their own.

In: an executor that nobody else uses, and for each run the address and the shape of every input and output. Out: what
the run writes there. Invariant: nothing is copied and no array is made: a run costs a native call for each input and
output (0.7 us) and one for itself. Memory must be on the host, in order, and must live until the call returns; shapes
are checked by the native side where they may differ from call to call, and by it once where they are fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ctypes import POINTER, byref, c_int64, c_size_t, c_void_p, cast

from armillary.base.dtype import DType
from armillary.errors import ExecutionError, TypeMismatch
from armillary.runtime.dlpack import type_of
from armillary.runtime.executor import GraphExecutor
from armillary.runtime.native_library import CDevice, CTensor, ErrorText, native

Place = tuple[int, Sequence[int]]  # an address and a shape


class DirectRuns:
    """An executor and a native tensor for each of its inputs and outputs, whose addresses change from run to run."""

    def __init__(
        self, executor: GraphExecutor, inputs: Sequence[tuple[int, DType]], outputs: Sequence[tuple[int, DType]]
    ) -> None:
        """`inputs` and `outputs` have the number of axes and the dtype of each."""
        executor.finish_loading()
        self.executor = executor
        self._inputs = [_Slot(k, ndim, dtype) for k, (ndim, dtype) in enumerate(inputs)]
        self._outputs = [_Slot(k, ndim, dtype) for k, (ndim, dtype) in enumerate(outputs)]
        self._graph = c_void_p(executor.handle.pointer)
        self._error = ErrorText()
        self._arguments = self._graph, c_void_p(self._error.args[0]), c_size_t(self._error.args[1])
        library = native()
        self._set_input, self._set_output = (
            library.arm_graph_set_input_zero_copy,
            library.arm_graph_set_output_zero_copy,
        )
        self._run = library.arm_graph_run

    def run(self, inputs: Iterable[Place], outputs: Iterable[Place]) -> None:
        """Read the inputs and write the outputs. Raises TypeMismatch for a shape that the graph does not take."""
        graph, error = self._graph, self._error.args
        with self.executor.turn.lock:
            for slot, place in zip(self._inputs, inputs, strict=True):
                if self._set_input(graph, slot.number, slot.at(*place), *error):
                    self._error.check(-1, TypeMismatch)
            for slot, place in zip(self._outputs, outputs, strict=True):
                if self._set_output(graph, slot.number, slot.at(*place), *error):
                    self._error.check(-1, TypeMismatch)
            if self._run(*self._arguments):
                self._error.check(-1, ExecutionError)


class _Slot:
    """The native tensor of one input or output."""

    def __init__(self, number: int, ndim: int, dtype: DType) -> None:
        self.number, self.shape = number, (c_int64 * (ndim or 1))()
        self.known: Sequence[int] = ()
        shape = cast(self.shape, POINTER(c_int64))
        self.tensor = CTensor(None, CDevice(1, 0), ndim, type_of(dtype), shape, None, 0)
        self.reference = byref(self.tensor)

    def at(self, address: int, shape: Sequence[int]) -> object:
        """A reference to the tensor at an address."""
        if shape != self.known:
            self.shape[: len(shape)], self.known = list(shape), tuple(shape)
        self.tensor.data = address
        return self.reference
