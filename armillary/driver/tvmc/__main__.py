"""`python -m armillary.driver.tvmc …` is `armc …`.

In: the command line. Out: an exit code. Invariant: nothing is decided here; what it does: cli/main.py.
"""

import sys

from armillary.base.lazy import deferred

with deferred():
    from armillary.cli.main import command

if __name__ == "__main__":
    sys.exit(command())
