"""`tvmc …` in a process: the commands of `armc`.

In: the words behind the program's name. Out: an exit code. Invariant: nothing is decided here; what it does:
cli/main.py.
"""

from armillary.cli.main import main

_main = main

__all__ = ["_main", "main"]
