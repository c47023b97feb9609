"""`python -m armillary.cli`, and the script `armc`.

In: the command line. Out: the exit code of `main.command`. Invariant: an interrupt while modules are still being
imported ends as quietly as a later one.
"""

from __future__ import annotations

import sys

from armillary.base.lazy import deferred

with deferred():
    from armillary.cli.main import command as _command

INTERRUPTED = 130


def command() -> int:
    """Run `armc`."""
    try:
        return int(_command())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(command())
