"""Random tensors for loop programs: `random.uniform(0, 1, size=(n, m))`.

In: a distribution and a size. Out: a tensor whose numbers are drawn each time the program runs. Invariant: numpy draws
them, in a call out of the kernel, so what is exported needs Python where it runs; `seed` begins the sequence again.
Numbers that a network draws from keys, in kernels: `relay.random`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary import te, tir
from armillary.base.boundary import boundary
from armillary.base.functions import FUNCTIONS
from armillary.errors import TypeMismatch
from armillary.runtime.ndarray import NDArray
from armillary.te.tensor import Tensor

_PREFIX = "armillary.contrib.random"
_STATE = {"generator": np.random.default_rng()}


@boundary("random.seed", arguments=True)
def seed(number: int) -> None:
    """Draw the numbers of a seed from now on."""
    _STATE["generator"] = np.random.default_rng(number)


@boundary("random.randint", arguments=True)
def randint(low: int, high: int, size: Sequence[int] | int, dtype: str = "int32") -> Tensor:
    """Whole numbers of [low, high), each as likely as another; `dtype` int32 or uint32."""
    if dtype not in ("int32", "uint32"):
        raise TypeMismatch(f"random.randint: numbers of {dtype}, wanted int32 or uint32")
    if not low < high:
        raise TypeMismatch(f"random.randint: there is no number in [{low}, {high})")
    return _drawn("randint", (int(low), int(high)), size, dtype)


@boundary("random.uniform", arguments=True)
def uniform(low: float, high: float, size: Sequence[int] | int) -> Tensor:
    """float32 numbers of [low, high), each as likely as another."""
    return _drawn("uniform", (float(low), float(high)), size, "float32")


@boundary("random.normal", arguments=True)
def normal(loc: float, scale: float, size: Sequence[int] | int) -> Tensor:
    """float32 numbers of the normal distribution of this mean and standard deviation."""
    if scale < 0:
        raise TypeMismatch(f"random.normal: a standard deviation of {scale}, wanted at least 0")
    return _drawn("normal", (float(loc), float(scale)), size, "float32")


def _drawn(name: str, numbers: tuple[float, float], size: Sequence[int] | int, dtype: str) -> Tensor:
    shape = (size,) if isinstance(size, int) else tuple(size)
    result: Tensor = te.extern(
        shape,
        [],
        lambda ins, outs: tir.call_packed(f"{_PREFIX}.{name}", *map(tir.const, numbers), outs[0]),
        name=name,
        dtype=dtype,
    )
    return result


def _uniform(low: float, high: float, out: NDArray) -> None:
    out.copyfrom(_STATE["generator"].uniform(low, high, out.shape).astype(out.dtype))


def _normal(loc: float, scale: float, out: NDArray) -> None:
    out.copyfrom(_STATE["generator"].normal(loc, scale, out.shape).astype(out.dtype))


def _randint(low: int, high: int, out: NDArray) -> None:
    out.copyfrom(_STATE["generator"].integers(low, high, out.shape).astype(out.dtype))


for _name, _function in (("uniform", _uniform), ("normal", _normal), ("randint", _randint)):
    for _owner in ("armillary", "tvm"):
        FUNCTIONS.setdefault(f"{_owner}.contrib.random.{_name}", _function)
