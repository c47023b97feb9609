"""A thread that answers requests by continuous batching, and its front door for asynchronous code.

In: requests (batching.py), from any thread. Out: for each, its steps, told to a listener on the engine's thread; an
error ends it as well. Invariant: the thread alone touches the batcher; a request that is cancelled, done or failed has
no slot; more than `slots + most_waiting` open requests are refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from armillary.errors import ArmillaryError
from armillary.generate.batching import Batcher, Request, Step
from armillary.generate.guesses import Guesser
from armillary.generate.slots import Slots

Listener: TypeAlias = "Callable[[Step | ArmillaryError], None]"


class FullError(ArmillaryError):
    """Every slot is taken and enough requests wait."""


class Engine:
    """`start`, then `submit` requests; `close` ends the thread and what is open."""

    def __init__(self, slots: Slots, most_waiting: int = 32, guesser: Guesser | None = None) -> None:
        self.batcher, self.most = Batcher(slots, guesser), slots.count + most_waiting
        self._open: dict[Request, Listener] = {}
        self._new, self._gone = list[Request](), list[Request]()
        self._changed, self._closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._work, name="armillary-engine", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Answer no more; the thread has ended when this returns."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def count(self) -> int:
        """How many requests are open."""
        return len(self._open)

    def submit(self, request: Request, listener: Listener) -> None:
        """Answer a request; a FullError where too many are open, an ExecutionError where no slot can hold it."""
        self.batcher.check(request)
        with self._changed:
            if len(self._open) >= self.most:
                message = f"{len(self._open)} requests are open, {self.batcher.slots.count} of them are being answered"
                raise FullError(message, hint="ask again later, or serve with more slots or a longer queue")
            self._open[request] = listener
            self._new.append(request)
            self._changed.notify()

    def cancel(self, request: Request) -> None:
        """Forget a request, whose listener hears no more; one that is done already is no error."""
        with self._changed:
            if self._open.pop(request, None) is not None:
                self._gone.append(request)
                self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._new or self._gone or not self.batcher.is_idle)
                if self._closed:
                    return
                new, gone, self._new, self._gone = self._new, self._gone, [], []
            for request in new:
                self.batcher.add(request)
            for request in gone:
                self.batcher.drop(request)
            self._round()

    def _round(self) -> None:
        try:
            steps = self.batcher.advance()
        except ArmillaryError as error:  # those that were being answered are told, the others go on
            for request in list(self.batcher.active.values()):
                self.batcher.drop(request)
                self._tell(request, error, True)
            return
        for request, step in steps:
            self._tell(request, step, bool(step.finish))

    def _tell(self, request: Request, what: Step | ArmillaryError, is_last: bool) -> None:
        with self._changed:
            listener = self._open.pop(request, None) if is_last else self._open.get(request)
        if listener is not None:
            listener(what)
