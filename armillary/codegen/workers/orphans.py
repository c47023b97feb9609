"""A worker's end with its parent's, whatever it is doing and however the parent died.

In: the parent's process id, from whoever started this process as the leader of a session of its own. Out: nothing; a
thread looks. Invariant: within a second of the parent's death, or of its closing our input while a request is worked
on, this process is gone, with every process that it started (a C compiler). A death signal (PR_SET_PDEATHSIG) would
not do: the system sends it when the thread ends that started us. Imports nothing that takes long, so that the time in
which the rest is imported is covered, too.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time

LOOK_MS = 100
GRACE_SECONDS = 0.4  # in which the main thread removes its temporary files; code of LLVM does not listen


def end_with_parent(parent: int) -> None:
    """Start looking; to be called by the main thread, before it does anything else."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    poll = select.poll()
    poll.register(0, 0)  # tells of a hang-up alone
    while os.getppid() == parent and not poll.poll(LOOK_MS):
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(0)
