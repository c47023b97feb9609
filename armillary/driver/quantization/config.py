"""What a quantisation is to be: `with relay.quantize.qconfig(calibrate_mode="kl_divergence"):`.

In: settings by name. Out: a `QConfig`, in force while its context lasts. Invariant: values that cannot be used are
refused when they are given; names that mean nothing here are told of by a warning, and have no effect.

- nbit_input, nbit_weight: bits of data and weights, at most 8
- calibrate_mode: "global_scale", "kl_divergence" or "percentile"; the latter two need a dataset
- global_scale: the largest value of data, for the first of them
- weight_scale: "power2" (the least power of two not below the largest weight), "max", or "channel_max", which has one
  scale for each output channel and loses least
- skip_conv_layers: numbers of convolutions that stay float, in the order in which they are computed; None: none
- skip_dense_layer: whether dense layers and products of batches stay float
- do_simulation: stop before integers; calibrate_chunk_by: values whose samples one pass over the dataset collects
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

from armillary.base.record import record
from armillary.errors import ConfigError

_CHOICES = {
    "calibrate_mode": "global_scale, kl_divergence, percentile",
    "weight_scale": "power2, max, channel_max",
    "partition_conversions": "disabled, enabled, fully_integral",
}
_MOST_BITS = 8


@record
class QConfig:
    """Settings of a quantisation. dtype_activation, round_for_shift, rounding, debug_enabled_ops: Relay's, unused."""

    nbit_input: int = 8
    nbit_weight: int = 8
    nbit_activation: int = 32
    dtype_input: str = "int8"
    dtype_weight: str = "int8"
    dtype_activation: str = "int32"
    calibrate_mode: str = "global_scale"
    global_scale: float = 8.0
    weight_scale: str = "power2"
    skip_dense_layer: bool = True
    skip_conv_layers: Sequence[int] | None = (0,)
    do_simulation: bool = False
    round_for_shift: bool = True
    debug_enabled_ops: Sequence[str] | None = None
    rounding: str = "UPWARD"
    calibrate_chunk_by: int = -1
    partition_conversions: str = "disabled"

    def __enter__(self) -> QConfig:
        _Stack.held.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _Stack.held.pop()


class _Stack:
    held: ClassVar[list[QConfig]] = [QConfig()]


def _config(settings: dict[str, Any]) -> QConfig:  # Any: each setting has its type
    return dataclasses.replace(QConfig(), **settings)


def current_qconfig() -> QConfig:
    """The settings in force."""
    return _Stack.held[-1]


def qconfig(**settings: object) -> QConfig:
    """Settings, the others as they are by default."""
    known = {f.name for f in dataclasses.fields(QConfig)}
    for name in sorted(set(settings) - known):
        warnings.warn(f"qconfig: there is no setting {name!r}; it has no effect", stacklevel=2)
    result = _config({k: v for k, v in settings.items() if k in known})
    for name, choices in _CHOICES.items():
        if getattr(result, name) not in choices.split(", "):
            raise ConfigError(f"qconfig: {name} is {getattr(result, name)!r}", hint=f"choose of {choices}")
    for name in ("nbit_input", "nbit_weight"):
        bits = getattr(result, name)
        if not isinstance(bits, int) or not 2 <= bits <= _MOST_BITS:
            raise ConfigError(f"qconfig: {name} is {bits!r}", hint=f"2 to {_MOST_BITS}")
    for name in ("dtype_input", "dtype_weight"):
        if getattr(result, name) != "int8":
            raise ConfigError(f"qconfig: {name} is {getattr(result, name)!r}", hint="int8")
    if (
        isinstance(result.global_scale, bool)
        or not isinstance(result.global_scale, int | float)
        or result.global_scale <= 0
    ):
        raise ConfigError(
            f"qconfig: global_scale is {result.global_scale!r}", hint="the largest value of data, above 0"
        )
    return result
