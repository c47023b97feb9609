"""One sample of the operator matrix on an OpenCL device; and, as a program, many, for tools/opencl_sweep.py.

In: the name of an operator, the number of its sample, a target, whether its float32 becomes float16. Out: nothing, or
the error that shows what is wrong. As a program: lines of JSON in, [operator, number, target, half], lines of JSON out,
[outcome, message]; the list of all samples first. Invariant: every outcome is one of OUTCOMES.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import numpy as np
import sampling

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.errors import ArmillaryError
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, Var
from armillary.relay.op import OPS

SEVERAL_DEVICES = ("annotation.on_device", "device_copy")
HALF_TOLERANCE = 1e-2  # of a result in half, where the sample allows less
# Transformed weights in half are the transform of no kernel: exact sums of them are off by 0.056.
OF_ROUNDED_TRANSFORMS = {"cpu.conv2d_winograd_NCHWc": 1e-1, "opencl.conv2d_winograd": 1e-1}
LONGEST = 600  # letters of a message


class Untyped(Exception):
    """The operator does not take float16."""


def check(name: str, number: int, target: str, *, half: bool = False) -> None:
    """Compute a sample on the device and compare it with the reference."""
    op = OPS[name]
    sample = sampling.list_samples(op)[number]
    arrays, fixed = sampling.arrays_of(sample, name), sampling.compile_time_arguments(op, sample)
    if half:
        arrays = [array if k in fixed else _halved(array) for k, array in enumerate(arrays)]
        least = OF_ROUNDED_TRANSFORMS.get(name, HALF_TOLERANCE)
        sample = dataclasses.replace(
            sample, rtol=max(HALF_TOLERANCE, sample.rtol or 0), atol=max(least, sample.atol or 0)
        )
    params: dict[str, Any] = {}
    args = tuple(_leaves(array, f"x{k}", k in fixed, params) for k, array in enumerate(arrays))
    function = Function(tuple(var for var, _ in params.values()), Call(op, args, sample.attrs))
    module = armillary.IRModule.from_expr(function)
    if half:
        _need_types(module)
    library = relay.build(module, target)
    graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
    for key, (_, value) in params.items():
        graph.set_input(key, value)
    graph.run()
    wanted = op.evaluate(sample.attrs, arrays)
    found = tuple(graph.get_output(k).numpy() for k in range(graph.get_num_outputs()))
    sampling.check_close(found if isinstance(wanted, tuple | list) else found[0], wanted, sample, name)


def _need_types(module: armillary.IRModule) -> None:
    try:
        relay.transform.InferType()(module)
    except ArmillaryError as error:
        raise Untyped(str(error)) from error


def _halved(value: Any) -> Any:  # Any: arrays, tuples of them
    if isinstance(value, tuple):
        return tuple(map(_halved, value))
    return value.astype("float16") if value.dtype == np.float32 else value


def _leaves(value: Any, name: str, is_constant: bool, params: dict[str, Any]) -> Expr:  # Any: arrays, tuples of them
    if isinstance(value, tuple):
        return Tuple(tuple(_leaves(v, f"{name}_{k}", is_constant, params) for k, v in enumerate(value)))
    if is_constant:
        return Constant(np.asarray(value))
    made = Var(name, sampling.type_of(value))
    params[name] = (made, value)
    return made


def outcome_of(name: str, number: int, target: str, half: bool) -> tuple[str, str]:
    """What came of a sample, and the message."""
    try:
        check(name, number, target, half=half)
    except AssertionError as error:
        return "wrong", str(error)[:LONGEST]
    except Untyped as error:
        return "untyped", str(error)[:LONGEST]
    except ArmillaryError as error:
        return "refused", f"{type(error).__name__}: {error}"[:LONGEST]
    except Exception as error:  # whatever it is, the sweep goes on and tells
        return "failed", f"{type(error).__name__}: {error}"[:LONGEST]
    return "passed", ""


def main() -> None:
    counts = {name: len(sampling.list_samples(op)) for name, op in OPS.items() if name not in SEVERAL_DEVICES}
    print(json.dumps([(name, k) for name, count in counts.items() for k in range(count)]), flush=True)
    for line in sys.stdin:
        print(json.dumps(outcome_of(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
