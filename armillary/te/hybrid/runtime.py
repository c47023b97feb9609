"""The names that a hybrid script may use besides Python's: what they mean on numpy arrays.

In: nothing. Out: `HYBRID_GLOBALS`, which are lent to a script while it runs on arrays. Invariant: the parser knows the
same names (`parser.py`), so a script means the same compiled and run by Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType

import numpy as np

from armillary.base.aliases import Array

DTYPES = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
LOOPS = ("range", "serial", "parallel", "vectorize", "unroll", "const_range")
INTRINSICS: Mapping[str, Callable[..., object]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "cos": np.cos,
    "erf": math.erf,
    "exp": np.exp,
    "floor": np.floor,
    "log": np.log,
    "power": np.power,
    "round": np.round,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}


def _zeros(shape: Sequence[int] | int, dtype: str = "float32", scope: str = "global") -> Array:
    """What `output_tensor` and `allocate` give: memory that holds zeros."""
    del scope
    return np.zeros(shape, dtype)


def _popcount(x: int) -> int:
    return bin(int(x) & ((1 << (8 * np.asarray(x).itemsize)) - 1)).count("1")


def _bind(tag: str, extent: int) -> range:
    """The iterations that a GPU's threads share."""
    del tag
    return range(extent)


HYBRID_GLOBALS: dict[str, object] = {
    **dict.fromkeys((name for name in LOOPS if name != "range"), range),
    **{name: getattr(np, name) for name in DTYPES},
    **INTRINSICS,
    "bind": _bind,
    "allocate": _zeros,
    "output_tensor": _zeros,
    "popcount": _popcount,
    "likely": lambda condition: condition,
    "ceil_div": lambda a, b: -(-a // b),
    "max_num_threads": lambda allow_none=True: 1024,
}


@contextmanager
def lent(function: FunctionType) -> Iterator[None]:
    """The function's module has these names for a while, beside its own."""
    names = function.__globals__
    missing = [name for name in HYBRID_GLOBALS if name not in names]
    names.update({name: HYBRID_GLOBALS[name] for name in missing})
    try:
        yield
    finally:
        for name in missing:
            names.pop(name, None)
