"""`python -m armillary.driver.tvmc …` is `armc …`."""

import sys

from armillary.base.lazy import late

if __name__ == "__main__":
    sys.exit(late("armillary.cli.main:command")())
