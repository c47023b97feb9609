"""Random numbers of topi, from keys: `topi.random.uniform` and its kin, with the arguments that scripts pass.

In: a key as a tensor of ten words, sizes, bounds. Out: the next key and the numbers, as TE tensors. Invariant: the
numbers are those of `relay.random` (`ops/misc/random.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from armillary import relay, te
from armillary.errors import TypeMismatch
from armillary.topi.expression import of_function
from armillary.topi.operators import compute
from armillary.topi.utils import get_const_tuple

Tensor = te.Tensor
Result: TypeAlias = object  # a tensor, or several


def threefry_generate(gen: Tensor, out_shape: Sequence[int]) -> list[Tensor]:
    """The next key, and 64-bit numbers."""
    return list(of_function(relay.random.threefry_generate, [gen, get_const_tuple(out_shape)], {}))


def threefry_split(gen: Tensor) -> list[Tensor]:
    """Two keys of random numbers from one."""
    return list(of_function(relay.random.threefry_split, [gen], {}))


def threefry_test_wrapping(target: object, device: object) -> bool:
    """Whether unsigned sums wrap around: they do for every target."""
    del target, device
    return True


def _drawn(function: Callable[..., object]) -> Callable[..., list[Tensor]]:
    def draw(gen: Tensor, low: Tensor, high: Tensor, out_shape: Sequence[int], out_dtype: str) -> list[Tensor]:
        return list(of_function(function, [gen, get_const_tuple(out_shape), out_dtype, low, high], {}))

    draw.__doc__ = "The next key, and numbers drawn by two parameters, which are tensors."
    return draw


def multinomial(gen: Tensor, probs: Tensor, num_samples: int) -> list[Tensor]:
    """The next key, and positions drawn by weights along the last axis."""
    return list(of_function(relay.random.multinomial, [gen, probs, num_samples], {}))


def reinterpret(x: Tensor, dtype: str) -> Result:
    """The same bits as another dtype."""
    return compute("reinterpret", [x], (), {"dtype": dtype})


def fifo_buffer(data: Tensor, buffer: Tensor, axis: int) -> Tensor:
    """The newest elements along an axis: as many as the buffer holds, with `data` last."""
    place = axis % buffer.ndim
    retained, fresh = (get_const_tuple(t.shape)[place] for t in (buffer, data))
    if data.ndim != buffer.ndim or fresh > retained:
        raise TypeMismatch(f"topi.nn.fifo_buffer: {fresh} new elements along axis {axis} of a buffer of {retained}")
    joined = compute("concatenate", [(buffer, data)], (), {"axis": place})
    cut = {"begin": (fresh,), "end": (retained + fresh,), "strides": (1,), "axes": (place,)}
    result: Tensor = compute("strided_slice", [joined], (), cut)
    return result


FUNCTIONS: dict[str, Callable[..., Result]] = {
    "multinomial": multinomial,
    "nn.fifo_buffer": fifo_buffer,
    "normal": _drawn(relay.random.normal),
    "reinterpret": reinterpret,
    "threefry_generate": threefry_generate,
    "threefry_split": threefry_split,
    "threefry_test_wrapping": threefry_test_wrapping,
    "uniform": _drawn(relay.random.uniform),
}
