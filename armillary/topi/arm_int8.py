"""`topi.arm_cpu.conv2d_int8`: whether a target multiplies bytes by vectors.

In: dtypes of data and weights, and the target in force. Out: a bool. Invariant: it says what the machine can do, by
what is known of its CPU (`target/cpu.py`); kernels are chosen by `backends/cpu`, not here.
"""

from __future__ import annotations

from armillary.errors import TargetError
from armillary.target import Target
from armillary.target.cpu import cpu_model


def is_int8_hw_support(data_dtype: str, kernel_dtype: str) -> bool:
    """Whether data and weights are bytes of one kind and the target's CPU is an Arm with NEON or dot products.

    Raises TargetError where no target is in force (`with Target(…):`).
    """
    target = Target.current()
    if target is None:
        raise TargetError("is_int8_hw_support: no target is in force", hint="with armillary.target.Target(…):")
    model = cpu_model(target)
    return data_dtype == kernel_dtype and "int8" in data_dtype and bool(model.features & {"neon", "dotprod"})
