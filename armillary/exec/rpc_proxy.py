"""`python -m armillary.exec.rpc_proxy`: lets clients reach servers that they cannot connect to.

In: a command line; --help lists the options. Out: an exit code.
Invariant: no logic of its own; `armillary.rpc.programs`
does the work.
"""

from __future__ import annotations

import sys

from armillary.rpc.programs import program, proxy_arguments, run_proxy


def main() -> int:
    """Run the program."""
    return program("rpc_proxy", "Lets clients reach servers that they cannot connect to.", proxy_arguments, run_proxy)


if __name__ == "__main__":
    sys.exit(main())
