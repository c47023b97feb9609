"""Schedules by target for scripts that check a computed tensor: `get_injective_schedule(target)(outs)`.

In: a target. Out: the function that schedules for it, which is one (`topi/schedules.py`). Invariant: `dispatch` prefers
a target's own entry to the one named "generic".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from armillary import build, nd, te, testing
from armillary.base.aliases import AnyFunction, Array
from armillary.errors import TypeMismatch
from armillary.runtime import Device
from armillary.target import Target, as_target
from armillary.topi import nn
from armillary.topi.schedules import schedule
from armillary.topi.utils import get_const_tuple

Entry = TypeVar("Entry")


def dispatch(target: str | Target, dispatch_map: Mapping[str, Entry]) -> Entry:
    """The entry of the first of a target's keys that has one, else "generic".

    Raises TypeMismatch where neither is there.
    """
    target_of_scope = as_target(target)
    for key in (*target_of_scope.keys, "generic"):
        if key in dispatch_map:
            return dispatch_map[key]
    raise TypeMismatch(
        f"dispatch: none of {sorted(dispatch_map)} is for {target_of_scope}", hint="add an entry 'generic'"
    )


def _schedule_for(target: str | Target) -> AnyFunction:
    """The schedule of a target."""
    as_target(target)
    return schedule


def get_conv2d_nchw_implement(target: str | Target) -> tuple[AnyFunction, AnyFunction]:
    """A convolution and its schedule."""
    as_target(target)
    return nn.conv2d_nchw, schedule


def compare_numpy_tvm(
    inputs: Sequence[Array],
    output: Array,
    target: str | Target,
    device: Device,
    compute: AnyFunction,
    schedule: Callable[[object], te.Schedule],
) -> None:
    """Fail unless what `compute` makes of tensors, built and run, is `output` (to 1e-5)."""
    tensors = [te.placeholder(a.shape, str(a.dtype), name=f"input{k}") for k, a in enumerate(inputs)]
    tensors_out = compute(*tensors)
    with as_target(target):
        function = build(schedule([tensors_out]), [*tensors, tensors_out], target)
    result = nd.array(np.zeros(get_const_tuple(tensors_out.shape), output.dtype), device)
    function(*(nd.array(a, device) for a in inputs), result)
    testing.assert_allclose(result.numpy(), output, rtol=1e-5, atol=1e-5)


FUNCTIONS: dict[str, AnyFunction] = {
    "dispatch": dispatch,
    "get_conv2d_nchw_implement": get_conv2d_nchw_implement,
    "compare_numpy_tvm": compare_numpy_tvm,
    **{f"get_{kind}_schedule": _schedule_for for kind in ("broadcast", "elemwise", "injective", "reduce")},
}
