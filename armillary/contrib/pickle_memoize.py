"""`contrib.pickle_memoize.memoize`: a decorator of old scripts that kept results in files.

In: a key. Out: a decorator. Invariant: nothing is written to a file or read from one, whatever `save_at_exit` says:
what old scripts stored as pickles is computed each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from armillary.base.aliases import AnyFunction

F = TypeVar("F", bound=AnyFunction)  # Any: any function


def memoize(key: str, save_at_exit: bool = False) -> Callable[[F], F]:
    """The function as it is; `key` and `save_at_exit` are accepted and have no effect."""
    del key, save_at_exit
    return lambda function: function
