"""`target.features.has_sve`: what code for a target may use, under the names of Relay-era scripts.

In: a target of a CPU. Out: whether its processor has a feature, from the same table as the compiler's (`cpu_table.py`).
Invariant: targets that are no CPU have none of them; a name that never existed is an AttributeError that lists them.
"""

from __future__ import annotations

from armillary.target.cpu import architecture, cpu_model, triple_of
from armillary.target.target import Target, register_features

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
_CONTROLLERS = {  # Arm's Cortex-M, by Arm's datasheets; attributes that begin with no take a feature away
    **dict.fromkeys(("cortex-m4", "cortex-m7", "cortex-m33", "cortex-m35p"), frozenset({"dsp"})),
    **dict.fromkeys(("cortex-m52", "cortex-m55", "cortex-m85"), frozenset({"dsp", "mve"})),
    **dict.fromkeys(("cortex-m0", "cortex-m0plus", "cortex-m1", "cortex-m3", "cortex-m23"), frozenset[str]()),
}


class TargetFeatures:
    """The features of one target."""

    def __init__(self, target: Target) -> None:
        self._target = target

    @property
    def is_aarch64(self) -> bool:
        """Whether code is for 64-bit Arm."""
        return self._is_cpu() and str(architecture(str(triple_of(self._target)))) == "aarch64"

    def _is_cpu(self) -> bool:
        return self._target.kind.name in ("llvm", "c")

    def __getattr__(self, name: str) -> bool:
        if name not in _FEATURES:
            raise AttributeError(f"a target has no feature {name!r}; it has: is_aarch64, {', '.join(_FEATURES)}")
        controller = _CONTROLLERS.get(str(self._target.attrs.get("mcpu", "")))
        if controller is not None and self._is_cpu():
            features = self._target.attrs.get("mattr", ())
            message = {str(one) for one in (features if isinstance(features, tuple | list) else ())}
            feature = _FEATURES[name]
            taken = {f"+no{feature}", f"-{feature}"} | ({"+nodsp", "-dsp"} if feature == "mve" else set())
            return (feature in controller or f"+{feature}" in message) and not message & taken
        return self._is_cpu() and bool(cpu_model(self._target).has(_FEATURES[name]))


register_features(TargetFeatures)
