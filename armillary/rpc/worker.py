"""The process of a session: reads requests from its server, does them, answers.

In: a socket to the server (inherited, its number on the command line) and a folder. Out: answers. Invariant: the
process ends with the session, or with the server; core dumps are off, and files stay within the session's limit. The
server ends it at the deadline, whatever a kernel does. Who starts it: `server.py`; what it does: `session.py`.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
from pathlib import Path

from armillary.errors import RPCError
from armillary.rpc.connection import Connection
from armillary.rpc.protocol import Frame
from armillary.rpc.session import Session, safe_answer
from armillary.rpc.session_files import MAX_BYTES, SessionFiles
from armillary.runtime.native_library import native

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """Serve one session."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    folder, memory = Path(sys.argv[2]), int(sys.argv[3])
    confine(memory)
    os.chdir(folder)
    native()  # before the first request comes
    connection = Connection(sock, None, "the server")
    session = Session(SessionFiles(folder))
    while True:
        try:
            frame = connection.receive()
        except RPCError:  # the server has closed: the session is over
            return
        connection.send(Frame(*safe_answer(session, frame.header, frame.payload)))


def confine(memory: int) -> None:
    """Set what this process may use; it dies with the server."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_BYTES, MAX_BYTES))
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


if __name__ == "__main__":
    main()
