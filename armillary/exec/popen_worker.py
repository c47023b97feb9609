"""`python -m armillary.exec.popen_worker READ WRITE`: calls what comes through one pipe, answers through the other.

In: numbers of two open files; messages (a length, a pickle of a function and its arguments). Out: messages (whether it
returned, the value or the error). Invariant: ends when the other side does. Who starts it: `contrib/popen_pool.py`.
"""

from __future__ import annotations

import pickle
import sys

_HEADER = 8


def answer(message: bytes) -> bytes:
    """The reply to one message."""
    try:
        function, args, kwargs = pickle.loads(message)
        return pickle.dumps((True, function(*args, **kwargs)))
    except Exception as error:
        try:
            return pickle.dumps((False, error))
        except Exception:
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def main(read_fd: int, write_fd: int) -> None:
    """Serve until the pipe ends."""
    with open(read_fd, "rb") as source, open(write_fd, "wb") as sink:
        while True:
            head = source.read(_HEADER)
            if len(head) < _HEADER:
                return
            reply = answer(source.read(int.from_bytes(head, "little")))
            sink.write(len(reply).to_bytes(_HEADER, "little") + reply)
            sink.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
