"""`python -m armillary.driver.tvmc …` is `armc …`.

In: the command line. Out: an exit code. Invariant: nothing is decided here; what it does: cli/main.py.
"""

import sys

from armillary.base.lazy import late

if __name__ == "__main__":
    sys.exit(late("armillary.cli.main:command")())
