"""Whose turn it is on an executor that several threads may hold.

In: what threads do: set inputs, run, read outputs. Out: nothing, or an ExecutionError for a thread that comes between.
A turn begins with the first input that is set, or a run, and ends when its thread reads an output behind a run, or is
gone. A call (`whole`) is a turn in one step: other threads wait for its end. Invariant: a thread reads what its own
inputs gave, or gets an error. As long as one thread alone has come (`only`), it says what it does in `step`, takes no
lock, and looks behind that whether it is still alone; the first other one says first that it came, and then looks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident

from armillary.errors import ExecutionError

NONE, SET, RAN, READ = range(4)  # steps of a turn
_SEVERAL = -1
_MOST_THREADS = 64  # that are remembered before those that are gone are forgotten
_HINT = (
    "network(x=array) sets inputs, runs and copies the outputs in one step, from any thread; "
    "or give each thread an executor of its own: lib['default'](device)"
)


class Turn:
    """The turns of one executor; `leave` is called before another thread than the last one has its turn."""

    __slots__ = ("_last", "_leave", "_number", "_numbers", "_owner", "_step", "lock", "only", "step")

    def __init__(self, leave: Callable[[], None] = lambda: None) -> None:
        self.only, self.step = 0, NONE
        self.lock = threading.RLock()
        self._leave, self._last = leave, 0
        self._owner, self._step = 0, NONE  # of several threads: whose turn it is, and how far that has come
        self._number = 0
        self._numbers: dict[int, int] = {}  # by thread: its last turn in which it ran, or could have

    def begin(self, what: str, fills: Callable[[], bool] = lambda: False) -> None:
        """Take the turn. `fills`: it sets an input that nobody has set, so that no other thread can mean to run."""
        me = get_ident()
        if self.only == me:
            self.step = SET
        if self.only == me:
            return
        with self.lock:
            if self._is_alone(me):
                self.step = SET
                return
            is_setup = fills()
            if not is_setup:
                self._check_free(what)
            if what == "run":
                self._check_last(what)
            if self._last != me:
                self._leave()
            self._last, self._number = me, self._number + 1
            self._owner, self._step = me, SET
            if not is_setup:
                self._remember(me)

    def ran(self) -> None:
        """Behind a run: its thread may read."""
        me = get_ident()
        if self.only == me:
            self.step = RAN
        if self.only == me:
            return
        with self.lock:
            if self._owner == me:
                self._step = RAN
                self._remember(me)

    def read(self) -> None:
        """Before an output is read, under the lock: ends the turn of a thread that has run."""
        me = get_ident()
        if self._is_alone(me):
            self.step = READ if self.step == RAN else self.step
            return
        self._check_free("get_output")
        self._check_last("get_output")
        if self._owner == me and self._step == RAN:
            self._owner = 0

    @contextmanager
    def whole(self, fills: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """A call: other threads wait. One that has run and not read its outputs gets an error when it reads them."""
        with self.lock:
            if not self._is_alone(get_ident()):
                if self._step != RAN and not fills():
                    self._check_free("a call")
                self._owner = 0
            try:
                yield
            finally:
                self.end()

    def end(self) -> None:
        """End the turn of this thread, if it has one."""
        if self.only == get_ident():
            self.step = READ
        elif self._owner == get_ident():
            self._owner = 0

    def _is_alone(self, me: int) -> bool:
        """Whether no other thread than this one has come that is still there; if so, it need not ask again."""
        if self.only in (0, me):
            self.only = me
            return True
        if self.only == _SEVERAL:
            return False
        first, self.only = self.only, _SEVERAL
        self._last, self._step = first, self.step
        if first not in _threads():
            self.only, self.step = me, NONE
            self._leave()
            return True
        self._owner = first if self._step in (SET, RAN) else 0
        if self._step in (RAN, READ):
            self._remember(first)
        return False

    def _remember(self, thread: int) -> None:
        self._numbers[thread] = self._number
        if len(self._numbers) > _MOST_THREADS:
            there = _threads()
            self._numbers = {t: number for t, number in self._numbers.items() if t in there}

    def _check_free(self, what: str) -> None:
        if self._owner in (0, get_ident()):
            return
        name = _threads().get(self._owner)
        if name is not None:
            done = "run and not read its outputs" if self._step == RAN else "set inputs and not read what they give"
            raise ExecutionError(f"{what}: another thread, {name}, has {done}", hint=_HINT)
        self._owner = 0

    def _check_last(self, what: str) -> None:
        if self._numbers.get(get_ident(), self._number) != self._number:
            message = f"{what}: another thread has set inputs or run the network since this one did"
            raise ExecutionError(message, hint=_HINT)


def _threads() -> dict[int | None, str]:
    """The threads that are there: number and name."""
    return {thread.ident: thread.name for thread in threading.enumerate()}
