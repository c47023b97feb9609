"""`python -m armillary.cli` is `armc`.

In: the command line. Out: the exit code of `main.main`. Invariant: nothing else happens here.
"""

from __future__ import annotations

import sys

from armillary.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
