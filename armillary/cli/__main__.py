"""`python -m armillary.cli` is `armc`.

In: the command line. Out: the exit code of `main.command`. Invariant: nothing else happens here.
"""

from __future__ import annotations

import sys

from armillary.cli.main import command

if __name__ == "__main__":
    sys.exit(command())
