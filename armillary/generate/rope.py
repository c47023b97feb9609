"""Rotary positions: the angle of each position and pair of features, with the scalings that configurations name.

In: an entry of a configuration (`rope_type`, `factor`, …), features that turn, the base, how many positions. Out:
cosines and sines (positions, features / 2). Invariant: a scaling that depends on how long the text is so far (dynamic,
longrope) is taken within the length it was trained with, where it does not; beyond, it is refused.
"""

from __future__ import annotations

import math

import numpy as np

from armillary.base.aliases import Array
from armillary.errors import ConfigError, ModelError, UnsupportedError
from armillary.generate.safetensors import Json


def angles(size: int, base: float, capacity: int, scaling: Json, trained: int) -> tuple[Array, Array]:
    """Cosines and sines, (capacity, size / 2); `trained`: positions that the model was trained with, 0: not known."""
    kind = str(scaling.get("rope_type", scaling.get("type", "default")))
    plain = 1 / base ** (np.arange(0, size, 2) / size)
    if kind not in _KINDS:
        raise UnsupportedError(f"rotary positions of type {kind!r} are not supported", hint=", ".join(sorted(_KINDS)))
    try:
        frequencies, factor = _KINDS[kind](plain, base, capacity, scaling, trained)
    except KeyError as error:
        raise ModelError(f"rotary positions of type {kind!r} lack {error.args[0]!r}") from None
    turns = np.arange(capacity)[:, None] * frequencies[None]
    return (np.cos(turns) * factor).astype(np.float32), (np.sin(turns) * factor).astype(np.float32)


def _default(plain: Array, base: float, capacity: int, scaling: Json, trained: int) -> tuple[Array, float]:
    """As they are; `divisors`, one per pair, come from a file's rope_freqs."""
    return plain / np.asarray(scaling.get("divisors", 1.0), np.float64), 1.0


def _linear(plain: Array, base: float, capacity: int, scaling: Json, trained: int) -> tuple[Array, float]:
    """Positions over a factor."""
    return plain / float(scaling["factor"]), 1.0


def _dynamic(plain: Array, base: float, capacity: int, scaling: Json, trained: int) -> tuple[Array, float]:
    """The base grows with the length, once it exceeds the trained one."""
    _within(capacity, int(scaling.get("original_max_position_embeddings") or trained), "dynamic")
    return plain, 1.0


def _within(capacity: int, trained: int, kind: str) -> None:
    if capacity > trained:
        message = f"rotary positions of type {kind!r} change beyond {trained} positions, and the capacity is {capacity}"
        raise ConfigError(message, hint=f"a capacity of at most {trained}")


def _llama3(plain: Array, base: float, capacity: int, scaling: Json, trained: int) -> tuple[Array, float]:
    """Long waves are slowed by the factor, short ones stay, those between are blended."""
    factor, low, high = (float(scaling[n]) for n in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = float(scaling["original_max_position_embeddings"]) * plain / (2 * math.pi)  # within the trained length
    share = np.clip((turns - low) / (high - low), 0, 1)
    return plain * (share + (1 - share) / factor), 1.0


def _yarn(plain: Array, base: float, capacity: int, scaling: Json, trained: int) -> tuple[Array, float]:
    """As llama3, blended along the number of the pair; scores grow by the square of a factor."""
    factor, size = float(scaling["factor"]), 2 * len(plain)
    original = float(scaling.get("original_max_position_embeddings") or trained)

    def pair(turns: float) -> float:
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = (pair(float(scaling.get(n) or d)) for n, d in (("beta_fast", 32), ("beta_slow", 1)))
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    slowed = np.clip((np.arange(len(plain)) - first) / max(last - first, 1e-3), 0, 1)
    return plain * (1 - slowed + slowed / factor), _yarn_attention(scaling, factor)


def _yarn_attention(scaling: Json, factor: float) -> float:
    def scale(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1 if factor > 1 else 1.0

    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    one, all_ = (float(scaling.get(n) or 0) for n in ("mscale", "mscale_all_dim"))
    return scale(one) / scale(all_) if one and all_ else scale(1)


def _longrope(plain: Array, base: float, capacity: int, scaling: Json, trained: int) -> tuple[Array, float]:
    """A divisor per pair, of short texts and of long ones; short ones here."""
    original = int(scaling.get("original_max_position_embeddings") or trained)
    _within(capacity, original, "longrope")
    factor = float(scaling.get("factor") or trained / original)
    attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    attention_factor = scaling.get("attention_factor")
    return plain / np.asarray(scaling["short_factor"], np.float64), attention if attention_factor is None else float(
        attention_factor
    )


_KINDS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,
}
