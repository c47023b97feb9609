"""The framing between `pool.py` and `worker.py`.

In: nothing. Out: two packed headers. Invariant: a request is LENGTH then JSON; a reply is REPLY (status, length) then
bytes.
"""

from __future__ import annotations

import struct

LENGTH = struct.Struct("<Q")
IDLE_SECONDS = 10.0  # after so long without a request a worker ends
REPLY = struct.Struct("<BQ")
