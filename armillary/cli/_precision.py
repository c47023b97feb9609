"""The options of `armc compile` that choose 16-bit floats for a network, and what they do to it.

In: what argparse read; a module. Out: the module in mixed precision (relay/transform/to_mixed_precision.py), with its
own types outside; itself where nothing was asked for. Invariant: names of operators and combinations of types are
checked before the model is read.
"""

from __future__ import annotations

import argparse
from typing import Any

from armillary.cli._console import note
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.lazy import late, similar
from armillary.relay.op import OPS
from armillary.target import Target
from armillary.target.cpu import cpu_model

to_mixed_precision = late("armillary.relay.transform.to_mixed_precision:to_mixed_precision")
OPERATORS = ("nn.conv2d", "nn.dense")
CALCULATION, SUMS = ("float16", "bfloat16", "float32"), ("float16", "bfloat16", "float32")
ALWAYS, QUIET = 0, 2  # a category, and what an operator without one means


def add_precision_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    switch = parser.add_argument("--mixed-precision", action="store_true")
    switch.help = "compute in 16-bit floats what gains from it; inputs and outputs keep their types"
    ops = parser.add_argument("--mixed-precision-ops", nargs="+", default=list(OPERATORS), metavar="OP")
    ops.help = f"operators that compute so whatever their inputs are (default: {' '.join(OPERATORS)})"
    kind = parser.add_argument("--mixed-precision-calculation-type", choices=CALCULATION, default="float16")
    kind.help = "bfloat16 is faster where the processor multiplies it (AMX, AVX512-BF16, Arm's bf16); default: float16"
    sums = parser.add_argument("--mixed-precision-acc-type", choices=SUMS, default="")
    sums.help = "type of their sums (default: float32 for bfloat16, else the calculation type)"


def check_precision(args: argparse.Namespace) -> None:
    """Refuse names that are no operators, sums of the other 16-bit type, and options that nothing would read."""
    kind, sums = args.mixed_precision_calculation_type, args.mixed_precision_acc_type
    if not args.mixed_precision:
        if sums or kind != "float16" or args.mixed_precision_ops != list(OPERATORS):
            raise ConfigError("--mixed-precision-… has no effect without --mixed-precision", hint="add it")
        return
    if sums not in ("", "float32", kind):
        raise ConfigError(
            f"--mixed-precision-acc-type {sums}: products of {kind} are summed in {kind} or float32",
            hint="leave the option out, or say float32",
        )
    for name in args.mixed_precision_ops:
        if name not in OPS:
            close = similar(name, OPS, 3, 0.6)
            raise ConfigError(
                f"--mixed-precision-ops: there is no operator {name!r}",
                hint=f"similar: {', '.join(close)}" if close else "docs/operators.md lists them",
            )


def in_mixed_precision(module: IRModule, args: argparse.Namespace) -> IRModule:
    """The module as the options want it."""
    kind = args.mixed_precision_calculation_type
    if not args.mixed_precision or kind == "float32":
        return module
    sums = args.mixed_precision_acc_type or ("float32" if kind == "bfloat16" else kind)
    rows: dict[str, Any] = dict.fromkeys(args.mixed_precision_ops, (ALWAYS, sums, kind))
    target = Target(args.target)
    if kind == "bfloat16" and target.kind.family == "cpu" and not cpu_model(target).multiplies_halves:
        note(f"{target}: no fast products of bfloat16, so that is the format of weights, and float32 of the arithmetic")
    made: IRModule = to_mixed_precision(
        module, mixed_precision_type=kind, missing_op_mode=QUIET, keep_orig_output_dtype=True, conversions=rows
    )
    return made
