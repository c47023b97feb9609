"""Trackers and servers that a script starts for itself, each as a process.

In: what the programs take. Out: `Tracker` and `Server`, with `host`, `port` and `terminate()`. Invariant: the process
ends with the object, or with this process. What runs in it: `programs.py`.
"""

from __future__ import annotations

import contextlib
import queue
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence

from armillary.base.arguments import Arguments
from armillary.errors import RPCError
from armillary.rpc.connection import check_address

_START_SECONDS = 30.0
_KEPT_LINES = 200


class Launched:
    """A running program that says where it listens."""

    def __init__(
        self, module: str, *options: str, says: str = r"bind to (\S+):(\d+)", command: Sequence[str] = ()
    ) -> None:
        """Start a program of `armillary.exec`, or the `command`, and wait for the line that says where it listens."""
        words = [*command] or [sys.executable, "-m", f"armillary.exec.{module}"]
        self.process = subprocess.Popen(
            [*words, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self.lines: list[str] = []
        self._addresses: queue.SimpleQueue[tuple[str, int] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(says,), daemon=True).start()
        self._end = weakref.finalize(self, _end, self.process)
        try:
            address = self._addresses.get(timeout=_START_SECONDS)
        except queue.Empty:
            address = None
        if address is None:
            self.terminate()
            raise RPCError(f"{module} did not start: {' '.join(self.lines[-8:]) or 'no word from it'}")
        self.host, self.port = address

    def _read(self, says: str) -> None:
        stream = self.process.stderr
        assert stream is not None, "it is a pipe"
        is_ready = False
        for line in stream:
            self.lines = [*self.lines[-_KEPT_LINES:], line.rstrip()]
            match = None if is_ready else re.search(says, line)
            if match:
                is_ready = True
                self._addresses.put((match[1], int(match[2])) if match.lastindex else ("", 0))
        self._addresses.put(None)

    def terminate(self) -> None:
        """End the process."""
        self._end()


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    if process.poll() is None:
        process.kill()
        process.wait(5)


def _check_place(what: str, host: object, port: object, port_end: object) -> None:
    arguments = Arguments(what, RPCError)
    arguments.text("host", host, is_empty_allowed=False)
    arguments.whole("port", port, 0, 65535)
    arguments.whole("port_end", port_end, 0, 65535)


class Tracker(Launched):
    """A tracker of this script."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, port_end: int = 0, silent: bool = False) -> None:
        del silent  # what it says is read here
        _check_place("rpc.Tracker", host, port, port_end)
        super().__init__("rpc_tracker", f"--host={host}", f"--port={port}", f"--port-end={port_end}")


class Server(Launched):
    """A server of this script; with `tracker_addr` it registers there under `key`."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        port_end: int = 0,
        key: str = "",
        tracker_addr: tuple[str, int] | None = None,
        custom_addr: str = "",
        silent: bool = False,
        options: tuple[str, ...] = (),
    ) -> None:
        del silent  # what it says is read here
        _check_place("rpc.Server", host, port, port_end)
        arguments = Arguments("rpc.Server", RPCError)
        arguments.text("key", key)
        arguments.text("custom_addr", custom_addr)
        arguments.kind("options", options, (list, tuple), "options of the program")
        for option in options:
            arguments.text("options", option)
        if tracker_addr is not None:
            if not isinstance(tracker_addr, list | tuple) or len(tracker_addr) != 2:
                arguments.refuse("tracker_addr", tracker_addr, "a pair of host and port")
            check_address(*tracker_addr)
        tracker = (f"--tracker={tracker_addr[0]}:{tracker_addr[1]}",) if tracker_addr else ()
        super().__init__(
            "rpc_server",
            f"--host={host}",
            f"--port={port}",
            f"--port-end={port_end}",
            f"--key={key}",
            f"--custom-addr={custom_addr}",
            *tracker,
            *options,
        )
