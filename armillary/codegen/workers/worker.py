"""A compile worker: a process that answers requests until its input ends.

In: on stdin, requests: 8 bytes of length, then JSON. Out: on stdout, replies: one byte (0 fine, 1 refused), 8 bytes of
length, then the answer or the reason. Invariant: ends when the pipe closes (while it computes: `orphans.py`), and after
IDLE_SECONDS without a request, so that its 100 MB do not stay while networks run. Here `main` turns LLVM IR
(`pool.Request`) into objects, and nothing but llvmlite is imported; `driver/kernel_worker.py` is the other kind of
worker. The other side: `pool.py`.
"""

from __future__ import annotations

import io
import json
import os
import select
from collections.abc import Callable
from typing import BinaryIO

from armillary.base.json_types import JsonObject
from armillary.codegen.llvm.machine import compile_ir
from armillary.codegen.workers import IDLE_SECONDS, LENGTH, REPLY

Answer = Callable[[JsonObject], bytes]  # Any: JSON; raises ValueError with the reason for a refusal


def main() -> int:
    """Compile LLVM IR."""
    return serve(lambda request: compile_ir(**request))


def serve(answer: Answer) -> int:
    """Serve requests on stdin and stdout."""
    incoming = os.fdopen(os.dup(0), "rb", buffering=0)  # unbuffered: select must see what is there
    outgoing = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not mix with replies
    while select.select([incoming], [], [], IDLE_SECONDS)[0]:
        header = _exactly(incoming, LENGTH.size)
        if not header:
            break
        _reply(answer, json.loads(_exactly(incoming, LENGTH.unpack(header)[0])), outgoing)
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


def _reply(answer: Answer, request: JsonObject, outgoing: BinaryIO) -> None:  # Any: JSON
    try:
        status, payload = 0, answer(request)
    except ValueError as error:
        status, payload = 1, str(error).encode()
    outgoing.write(REPLY.pack(status, len(payload)))
    outgoing.write(payload)
    outgoing.flush()
