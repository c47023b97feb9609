"""The options of `armc compile` that choose 16-bit floats for a network, and what they do to it.

In: what argparse read; a module. Out: the module in mixed precision (quantize/to_mixed_precision.py), with its
own types outside; itself where nothing was asked for. Invariant: names of operators and combinations of types are
checked before the model is read.
"""

from __future__ import annotations

import argparse

from armillary.base.lazy import deferred
from armillary.cli._console import note
from armillary.driver.build import target_with_host
from armillary.driver.libraries import split_libraries
from armillary.errors import ConfigError, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import Op, get_op
from armillary.relay.walk import post_order
from armillary.target.cpu import cpu_model

with deferred():
    from armillary.relay.transform.quantize.to_mixed_precision import to_mixed_precision
OPERATORS = ("nn.conv2d", "nn.dense")
TYPES = ("float16", "bfloat16", "float32")
ALWAYS, QUIET = 0, 2  # a category, and what an operator without one means


def add_precision_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    switch = parser.add_argument("--mixed-precision", action="store_true")
    switch.help = "compute in 16-bit floats what gains from it; inputs and outputs keep their types"
    ops = parser.add_argument("--mixed-precision-ops", nargs="+", default=OPERATORS, metavar="OP")
    ops.help = f"operators that compute so whatever their inputs are (default: {' '.join(OPERATORS)})"
    kind = parser.add_argument("--mixed-precision-calculation-type", choices=TYPES, default="")
    kind.help = (
        "default: what the target multiplies: bfloat16 on processors with AMX, AVX512-BF16 or Arm's bf16, else float16"
    )
    sums = parser.add_argument("--mixed-precision-acc-type", choices=TYPES, default="")
    sums.help = "type of their sums (default: float32 for bfloat16, else the calculation type)"


def check_precision(args: argparse.Namespace) -> None:
    """Refuse names that are no operators, sums of the other 16-bit type, and options that nothing would read."""
    kind, sums = args.mixed_precision_calculation_type, args.mixed_precision_acc_type
    if not args.mixed_precision:
        given = {"calculation-type": kind, "acc-type": sums, "ops": args.mixed_precision_ops != OPERATORS}
        for name in filter(given.get, given):
            raise ConfigError(f"--mixed-precision-{name} has no effect without --mixed-precision", hint="add it")
        return
    kind = kind or _multiplied(args.target)
    if sums not in ("", "float32", kind):
        raise ConfigError(
            f"--mixed-precision-acc-type {sums}: products of {kind} are summed in {kind} or float32",
            hint="leave the option out, or say float32",
        )
    for name in args.mixed_precision_ops:
        try:
            get_op(name)
        except UnsupportedError as error:
            raise ConfigError(f"--mixed-precision-ops: {error.message}", hint=error.hint) from None


def _multiplied(text: str) -> str:
    """The 16-bit floats that the target multiplies; of those that multiply neither, what keeps more digits."""
    target = target_with_host(split_libraries(text)[1])
    return "bfloat16" if target.kind.family == "cpu" and cpu_model(target).multiplies_bfloat16 else "float16"


def _is_quantized(expr: Expr) -> bool:
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name.startswith("qnn.")


def in_mixed_precision(module: IRModule, args: argparse.Namespace) -> IRModule:
    """The module as the options want it."""
    kind = args.mixed_precision_calculation_type or _multiplied(args.target)
    if not args.mixed_precision or kind == "float32":
        return module
    sums = args.mixed_precision_acc_type or ("float32" if kind == "bfloat16" else kind)
    rows = dict.fromkeys(args.mixed_precision_ops, (ALWAYS, sums, kind))
    target = target_with_host(split_libraries(args.target)[1])
    if target.kind.family == "cpu" and (kind == "float16" or not cpu_model(target).multiplies_bfloat16):
        note(f"{target}: no fast products of {kind}, so that is the format of weights, and float32 of the arithmetic")
    functions = (function for function in module.functions.values() if isinstance(function, Function))
    if any(_is_quantized(expr) for function in functions for expr in post_order(function)):
        note("the quantised parts of the network stay in integers")
    made: IRModule = to_mixed_precision(
        module, mixed_precision_type=kind, missing_op_mode=QUIET, keep_orig_output_dtype=True, conversions=rows
    )
    return made
