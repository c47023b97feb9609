"""Executors of one network that any number of threads share.

In: a function that makes an executor, and feeds. Out: outputs that belong to the caller. Invariant: an executor is used
by one thread at a time; there are at most four for each CPU, each made when the first run needs it, and a caller for
whom none is free waits. With one for each CPU threads would hand them over after every run, which takes two CPUs a
tenth of runs of 0.8 ms; the system's turns are longer.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from armillary.base.aliases import Array
from armillary.base.files import write_atomic
from armillary.errors import UnsupportedError
from armillary.runtime.executor import GraphExecutor
from armillary.runtime.node_times import Span
from armillary.runtime.threads import computing, num_threads

_FOR_EACH_CPU = 4


class Profile:
    """When each thread was in which kernel, run after run; written as a trace that Chrome and Perfetto show."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._events: list[dict[str, object]] = []
        self._lock = threading.Lock()

    def add(self, executor: GraphExecutor, began: float, seconds: float, spans: list[Span]) -> None:
        """Note a run that began at `began` by the performance counter."""
        at, caller = began - self._start, threading.get_ident() % 1_000_000
        rows = [_event("model_run", "Session", at, seconds, caller)]
        for span in spans:
            if span.thread >= 0:
                name, function = executor.node(span.node)
                row = _event(name, "Node", at + span.begin, span.end - span.begin, caller * 1000 + span.thread)
                rows.append({**row, "args": {"function": function}})
        with self._lock:
            self._events += rows

    def write(self, path: str) -> None:
        """Write the trace."""
        write_atomic(path, json.dumps(self._events).encode())


def _event(name: str, category: str, at: float, seconds: float, thread: int) -> dict[str, object]:
    times = {"ts": round(at * 1e6, 3), "dur": round(seconds * 1e6, 3)}
    return {"name": name, "cat": category, "ph": "X", "pid": os.getpid(), "tid": thread, **times}


class ExecutorPool:
    """Lends executors of one network to threads."""

    def __init__(self, make: Callable[[], GraphExecutor]) -> None:
        self._make, self._most = make, _FOR_EACH_CPU * num_threads()
        self._count = 0
        self._free: list[GraphExecutor] = []
        self._change = threading.Condition()

    @contextmanager
    def executor(self) -> Iterator[GraphExecutor]:
        """An executor for this thread alone, until the block ends."""
        executor = self._take()
        try:
            yield executor
        finally:
            with self._change:
                self._free.append(executor)
                self._change.notify()

    def _take(self) -> GraphExecutor:
        with self._change:
            while not self._free and self._count >= self._most:
                self._change.wait()
            if self._free:
                return self._free.pop()  # the one used last: its memory is in the caches
            self._count += 1
        try:
            result = self._make()
            if result.state_names:
                hint = "contrib.graph_executor.GraphModule runs it: one for each user"
                raise UnsupportedError(f"a session has no states, the network has {result.state_names[0]}", hint=hint)
            return result
        except BaseException:
            with self._change:
                self._count -= 1
                self._change.notify()
            raise

    def run(self, feed: Mapping[str, object], profile: Profile | None = None) -> list[Array]:
        """Outputs for these inputs, copied out of the executor."""
        # a feed that is refused leaves no turn behind
        with computing(), self.executor() as executor, executor.turn.whole():
            for name, value in feed.items():
                if not executor.fill(name, value):
                    executor.set_input(name, value)
            if profile is None:
                executor.run()
            else:
                began = time.perf_counter()
                profile.add(executor, began, *executor.trace())
            return [executor.output_array(i) for i in range(executor.get_num_outputs())]
