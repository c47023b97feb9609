"""The scheduler of OpenCL: a device, its command queue, events.

In: the number of a device, or nothing. Out: `CLScheduler.get()` with `queue`, `context`, `target`, `sync`. Invariant:
all functions of a process use one device and one queue, in order; the device stays once tensors or kernels exist
there. Source: the architecture text, "OpenCL Scheduler and kernel library". Kernels: `kernels.py`.
"""

from __future__ import annotations

from armillary.base.boundary import bounded
from armillary.base.once import once
from armillary.base.record import record
from armillary.compute.cl.tuner import CLTuner
from armillary.errors import ConfigError, ExecutionError, TypeMismatch
from armillary.runtime.device import Device, cl, require


@record(slots=True)
class Context:
    """What the memory and the programs of a device belong to."""

    device: Device


class CommandQueue:
    """The one in-order queue of a device."""

    def __init__(self, device: Device) -> None:
        self._device, self._enqueued, self._finished = device, 0, 0

    @property
    def device(self) -> Device:
        """Where it is."""
        return self._device

    def count(self) -> int:
        """Say that something was enqueued; its number."""
        self._enqueued += 1
        return self._enqueued

    def last(self) -> int:
        """The number of what was enqueued last."""
        return self._enqueued

    def is_finished(self, number: int) -> bool:
        """Whether something is known to have finished."""
        return number <= self._finished

    def finish(self) -> None:
        """Wait until everything has finished."""
        self._device.sync()
        self._finished = self._enqueued


@bounded
class Event:
    """A place in a queue that one can wait for."""

    def __init__(self, queue: CommandQueue) -> None:
        self._queue, self._number = queue, queue.last()

    def wait(self) -> None:
        """Until everything that was enqueued before has finished."""
        if not self._queue.is_finished(self._number):
            self._queue.finish()


class CLScheduler:
    """`CLScheduler.get().default_init()` first, then tensors and functions."""

    def __init__(self) -> None:
        self._queue: CommandQueue | None = None
        self._tuner: CLTuner | None = None
        self._is_used = False

    @classmethod
    @once
    def get(cls) -> CLScheduler:
        """The one of this process."""
        return cls()

    def is_initialised(self) -> bool:
        """Whether there is a device."""
        return self._queue is not None

    def default_init(self, cl_tuner: CLTuner | None = None) -> None:
        """Take the first device (GPUs come first), unless there is one; a tuner, if given, is asked from now on."""
        if self._queue is None:
            self._queue = CommandQueue(require(cl(0)))
        if cl_tuner is not None:
            self._tuner = cl_tuner

    def init(self, context: Context, queue: CommandQueue | None = None, cl_tuner: CLTuner | None = None) -> None:
        """Take a device; another one than before is refused once tensors or functions exist there."""
        device = require(context.device)
        if queue is not None and queue.device != device:
            raise ConfigError(f"the queue is of {queue.device}, the context of {device}")
        if self._is_used and self._queue is not None and self._queue.device != device:
            message = f"tensors or kernels of {self._queue.device} exist, the context is of {device}"
            raise ConfigError(
                message, hint="call init before anything is configured: objects of one context are no other's"
            )
        self._queue = queue or CommandQueue(device)
        if cl_tuner is not None:
            self._tuner = cl_tuner

    def use(self) -> Device:
        """The device, for something that will live there."""
        self._is_used = True
        return self.queue().device

    def queue(self) -> CommandQueue:
        """The command queue."""
        if self._queue is None:
            raise ExecutionError("CLScheduler has no device", hint="call CLScheduler.get().default_init() first")
        return self._queue

    def context(self) -> Context:
        """The context."""
        return Context(self.queue().device)

    def target(self) -> str:
        """The device's name, as its driver tells it."""
        return self.queue().device.facts().get("name", "unknown")

    def tuner(self) -> CLTuner | None:
        """Who chooses sizes of work-groups."""
        return self._tuner

    def set_tuner(self, cl_tuner: CLTuner | None) -> None:
        """Ask another one, or nobody."""
        if not isinstance(cl_tuner, CLTuner | None):
            raise TypeMismatch(f"a tuner is a CLTuner or None, got {type(cl_tuner).__name__}")
        self._tuner = cl_tuner

    def sync(self) -> None:
        """Wait until everything that was enqueued has finished."""
        self.queue().finish()

    def enqueue_sync_event(self) -> Event:
        """An event behind everything that was enqueued."""
        return Event(self.queue())
