"""`target.features.has_sve`: what code for a target may use, under the names of Relay-era scripts.

In: a target of a CPU. Out: whether its processor has a feature, from the same table as the compiler's (`cpu_table.py`).
Invariant: targets that are no CPU have none of them; a name that never existed is an AttributeError that lists them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base.lazy import deferred

if TYPE_CHECKING:
    from armillary.target.target import Target

with deferred():
    from armillary.target.cpu import architecture as _architecture
    from armillary.target.cpu import cpu_model as _cpu_model
    from armillary.target.cpu import triple_of as _triple_of

_FEATURES = {
    "has_asimd": "neon",
    "has_dotprod": "dotprod",
    "has_dsp": "dsp",
    "has_fp16_simd": "fullfp16",
    "has_matmul_i8": "i8mm",
    "has_mve": "mve",
    "has_sme": "sme",
    "has_sve": "sve",
}


class TargetFeatures:
    """The features of one target."""

    def __init__(self, target: Target) -> None:
        self._target = target

    @property
    def is_aarch64(self) -> bool:
        """Whether code is for 64-bit Arm."""
        return self._is_cpu() and str(_architecture(str(_triple_of(self._target)))) == "aarch64"

    def _is_cpu(self) -> bool:
        return self._target.kind.name in ("llvm", "c")

    def __getattr__(self, name: str) -> bool:
        if name not in _FEATURES:
            raise AttributeError(f"a target has no feature {name!r}; it has: is_aarch64, {', '.join(_FEATURES)}")
        return self._is_cpu() and bool(_cpu_model(self._target).has(_FEATURES[name]))
