"""`python -m armillary.exec.rpc_server`: offers this machine for sessions.

In: a command line; --help lists the options. Out: an exit code.
Invariant: no logic of its own; `armillary.rpc.programs`
does the work.
"""

from __future__ import annotations

import sys

from armillary.rpc.programs import program, run_server, server_arguments


def main() -> int:
    """Run the program."""
    return program("rpc_server", "Offers this machine for sessions.", server_arguments, run_server)


if __name__ == "__main__":
    sys.exit(main())
