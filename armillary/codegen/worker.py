"""A compile worker: a process that turns LLVM IR into objects until its input ends.

In: on stdin, requests: 8 bytes of length, then JSON of `pool.Request`. Out: on stdout, replies: one
byte (0 fine, 1 refused), 8 bytes of length, then the object or the reason. Invariant: imports only llvmlite through
`machine.py`; ends when the pipe closes, so no worker outlives its parent. The other side: `pool.py`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, BinaryIO

from armillary.codegen.machine import compile_ir
from armillary.codegen.wire import LENGTH, REPLY


def main() -> int:
    """Serve requests on stdin and stdout."""
    incoming = sys.stdin.buffer
    outgoing = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not mix with replies
    while (header := incoming.read(LENGTH.size)) and len(header) == LENGTH.size:
        _serve(json.loads(incoming.read(LENGTH.unpack(header)[0])), outgoing)
    return 0


def _serve(request: dict[str, Any], outgoing: BinaryIO) -> None:  # Any: the fields of `pool.Request`
    try:
        status, payload = 0, compile_ir(**request)
    except ValueError as error:
        status, payload = 1, str(error).encode()
    outgoing.write(REPLY.pack(status, len(payload)))
    outgoing.write(payload)
    outgoing.flush()
