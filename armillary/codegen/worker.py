"""A compile worker: a process that turns LLVM IR into objects until its input ends.

In: on stdin, requests: 8 bytes of length, then JSON of `pool.Request`. Out: on stdout, replies: one
byte (0 fine, 1 refused), 8 bytes of length, then the object or the reason. Invariant: imports only llvmlite through
`machine.py`; ends when the pipe closes, so no worker outlives its parent, and after IDLE_SECONDS without a request, so
that its 100 MB do not stay while networks run. The other side: `pool.py`.
"""

from __future__ import annotations

import io
import json
import os
import select
from typing import Any, BinaryIO

from armillary.codegen.machine import compile_ir
from armillary.codegen.wire import IDLE_SECONDS, LENGTH, REPLY


def main() -> int:
    """Serve requests on stdin and stdout."""
    incoming = os.fdopen(os.dup(0), "rb", buffering=0)  # unbuffered: select must see what is there
    outgoing = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not mix with replies
    while select.select([incoming], [], [], IDLE_SECONDS)[0]:
        header = _exactly(incoming, LENGTH.size)
        if not header:
            break
        _serve(json.loads(_exactly(incoming, LENGTH.unpack(header)[0])), outgoing)
    return 0


def _exactly(incoming: BinaryIO | io.FileIO, size: int) -> bytes:
    """`size` bytes, or none if the pipe closes before."""
    parts: list[bytes] = []
    while size > 0:
        part = incoming.read(size)
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _serve(request: dict[str, Any], outgoing: BinaryIO) -> None:  # Any: the fields of `pool.Request`
    try:
        status, payload = 0, compile_ir(**request)
    except ValueError as error:
        status, payload = 1, str(error).encode()
    outgoing.write(REPLY.pack(status, len(payload)))
    outgoing.write(payload)
    outgoing.flush()
