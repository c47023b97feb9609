"""`python -m armillary.exec.query_rpc_tracker`: shows the devices and the queue of a tracker.

In: a command line; --help lists the options. Out: an exit code.
Invariant: no logic of its own; `armillary.rpc.programs`
does the work.
"""

from __future__ import annotations

import sys

from armillary.rpc.programs import program, query_arguments, run_query


def main() -> int:
    """Run the program."""
    return program("query_rpc_tracker", "Shows the devices and the queue of a tracker.", query_arguments, run_query)


if __name__ == "__main__":
    sys.exit(main())
