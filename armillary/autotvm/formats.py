"""Small helpers that scripts of tuning import: `format_si_prefix`, constants out of shapes.

In: numbers, expressions. Out: numbers. Invariant: nothing here decides anything.
"""

from __future__ import annotations

from armillary.errors import ConfigError
from armillary.topi.utils import get_const_int, get_const_tuple

__all__ = ["format_si_prefix", "get_const_int", "get_const_tuple"]
_PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def format_si_prefix(x: float, si_prefix: str) -> float:
    """The number in units of a prefix: format_si_prefix(2e9, "G") is 2.0."""
    if si_prefix not in _PREFIXES:
        raise ConfigError(f"{si_prefix!r} is no prefix", hint=f"one of {', '.join(map(repr, _PREFIXES))}")
    return x / _PREFIXES[si_prefix]
