"""Compilation in worker processes, and what it made before.

pool (starts and feeds processes), worker (one of them), orphans (no worker outlives its parent), cache (compiled
kernels on disk). In: nothing. Out: the framing between pool and worker, below. Invariant: a request is LENGTH, then
JSON; a reply is REPLY (status, length), then bytes.
"""

import struct

LENGTH = struct.Struct("<Q")
REPLY = struct.Struct("<BQ")
IDLE_SECONDS = 10.0  # after so long without a request a worker ends
