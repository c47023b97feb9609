"""A session's process as its server holds it: started ahead of need, spoken to by frames, killed at the end.

In: a limit of memory. Out: `WorkerProcess` with a peer. Invariant: after `end()` no process of its group lives and its
folder is gone. What runs in it: `worker.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from armillary.base.files import scratch_folder
from armillary.errors import RPCError
from armillary.rpc.serving import Peer
from armillary.rpc.waiting import within

_END_SECONDS = 5.0


class WorkerProcess:
    """A process that waits for the requests of one session."""

    def __init__(self, process: subprocess.Popen[bytes], peer: Peer, folder: contextlib.ExitStack) -> None:
        self._process, self.peer, self._folder = process, peer, folder

    @classmethod
    async def start(cls, memory_bytes: int = 0) -> WorkerProcess:
        """Start one; it loads the runtime meanwhile."""
        stack = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            folder: Path = undo.enter_context(scratch_folder())
            ours, theirs = socket.socketpair()
            with theirs:
                command = [sys.executable, "-m", "armillary.rpc.worker", str(theirs.fileno()), str(folder)]
                try:
                    process = subprocess.Popen(
                        [*command, str(memory_bytes)],
                        pass_fds=(theirs.fileno(),),
                        stdin=subprocess.DEVNULL,
                        stdout=sys.stderr.fileno(),
                        start_new_session=True,
                    )
                except OSError as error:
                    ours.close()
                    raise RPCError(f"a process for the session cannot be started: {error}") from None
            reader, writer = await asyncio.open_connection(sock=ours)
            stack = undo.pop_all()
        return cls(process, Peer(reader, writer), stack)

    async def end(self) -> None:
        """Kill the process with all that it started, and remove its folder."""
        await self.kill()
        await self.clear()

    async def kill(self) -> None:
        """Kill the process with all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.peer.close()
        with contextlib.suppress(TimeoutError):
            await within(_END_SECONDS, asyncio.to_thread(self._process.wait))

    async def clear(self) -> None:
        """Remove its folder, which may hold much."""
        await asyncio.to_thread(self._folder.close)

    async def epitaph(self) -> str:
        """How the process ended, in words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, _END_SECONDS)
        code = self._process.returncode
        if code is None:
            return "the session's process has stopped answering"
        if code >= 0:
            return f"the session's process ended with code {code}"
        known = {int(s): s.name for s in signal.Signals}
        return f"the session's process was killed by {known.get(-code, f'signal {-code}')}: the kernel is at fault"
