"""Kernels: configured once, run over a window by any thread.

In: tensors' information when configured; a sub-window and a `ThreadInfo` when run. Out: the elements of the window.
Invariant: `run` starts no thread and allocates nothing; a window that is no sub-window of the kernel's is refused.
"""

from __future__ import annotations

from enum import Enum

from armillary.base.record import record
from armillary.compute.core.tensor_info import BorderSize
from armillary.compute.core.window import Window
from armillary.errors import ExecutionError


@record(slots=True)
class CPUInfo:
    """The processor that kernels run on."""

    model: str = ""
    num_cores: int = 1

    def get_cpu_model(self) -> str:
        """Its name, as the compiler knows it."""
        return self.model

    def get_cpu_num(self) -> int:
        """Cores that this process may use."""
        return self.num_cores


@record(slots=True)
class ThreadInfo:
    """Which thread runs a part, of how many, on what."""

    thread_id: int = 0
    num_threads: int = 1
    cpu_info: CPUInfo = CPUInfo()


class ErrorCode(Enum):
    """What a `Status` says, without its text."""

    OK, RUNTIME_ERROR = "ok", "runtime_error"


@record(slots=True)
class Status:
    """Whether a configuration is possible, and if not, why not; false where it is not."""

    error_description: str = ""

    @property
    def error_code(self) -> ErrorCode:
        """OK, or RUNTIME_ERROR where there is a description."""
        return ErrorCode.RUNTIME_ERROR if self.error_description else ErrorCode.OK

    def __bool__(self) -> bool:
        return not self.error_description


class IKernel:
    """Base of kernels; a subclass configures, sets its window, and runs parts of it."""

    def __init__(self) -> None:
        self._window: Window | None = None

    def window(self) -> Window:
        """All of the work."""
        if self._window is None:
            raise ExecutionError(f"{type(self).__name__} is not configured", hint="call configure first")
        return self._window

    def configure_window(self, window: Window) -> None:
        """Set all of the work; a kernel's `configure` ends with it."""
        self._window = window

    def is_parallelisable(self) -> bool:
        """Whether parts may run at once."""
        return True

    def border_size(self) -> BorderSize:
        """What is read beside the window."""
        return BorderSize()

    def run(self, window: Window, info: ThreadInfo | None = None) -> None:
        """Do the work of a sub-window."""
        self.window().validate(window)
        self._run(window, info or ThreadInfo())

    def _run(self, window: Window, info: ThreadInfo) -> None:
        raise ExecutionError(f"{type(self).__name__} has no work to run")
