"""`python -m armillary.exec.rpc_tracker`: lends the devices that register with it.

In: a command line; --help lists the options. Out: an exit code.
Invariant: no logic of its own; `armillary.rpc.programs`
does the work.
"""

from __future__ import annotations

import sys

from armillary.rpc.programs import program, run_tracker, tracker_arguments


def main() -> int:
    """Run the program."""
    return program("rpc_tracker", "Lends the devices that register with it.", tracker_arguments, run_tracker)


if __name__ == "__main__":
    sys.exit(main())
