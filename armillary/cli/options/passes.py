"""Options of the command line that choose passes, levels and 16-bit floats, and what the latter do to a network.

In: what argparse read; a module. Out: a PassContext; the module in mixed precision (quantize/to_mixed_precision.py),
with its own types outside, itself where nothing was asked for. Invariant: names of passes, operators and combinations
of types are checked before the model is read.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from armillary.base.lazy import deferred
from armillary.cli._console import note, output
from armillary.cli.options.models import comma_list, pass_config
from armillary.driver.libraries import split_libraries
from armillary.errors import ConfigError, UnsupportedError
from armillary.instrument import DumpIR, PassTimingInstrument, PrintAfter, PrintBefore, PrintChanges, VerifyIR
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import Op, get_op
from armillary.relay.walk import post_order
from armillary.target.cpu import cpu_model
from armillary.target.target import target_with_host
from armillary.transform import MAX_LEVEL, PassContext, PassInstrument, find_pass

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
        settings = {"calculation-type": kind, "acc-type": sums, "ops": args.mixed_precision_ops != OPERATORS}
        for name in filter(settings.get, settings):
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
    result: IRModule = to_mixed_precision(
        module, mixed_precision_type=kind, missing_op_mode=QUIET, keep_orig_output_dtype=True, conversions=rows
    )
    return result


ALL = "all"


def add_pass_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    level = parser.add_argument("-O", "--opt-level", type=int, choices=range(MAX_LEVEL + 1), default=3, metavar="LEVEL")
    level.help = f"0 to {MAX_LEVEL} (default: 3); {MAX_LEVEL} adds passes that change the last digits"
    parser.add_argument("--pass-config", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--disabled-pass", default="", metavar="PASSES", help="passes not to run, comma separated")
    parser.add_argument("--required-pass", default="", metavar="PASSES", help="passes to run whatever the level")
    parser.add_argument("--print-before", default="", metavar="PASSES", help="the text before these passes, or all")
    parser.add_argument("--print-after", default="", metavar="PASSES", help="the text after these passes, or all")
    parser.add_argument("--print-changes", action="store_true", help="the text after each pass that changed it")
    parser.add_argument("--dump-passes", default="", metavar="FOLDER", help="write the text after each pass to a file")
    parser.add_argument("--verify-passes", action="store_true", help="check after each pass that all is well formed")
    parser.add_argument("--print-pass-times", action="store_true", help="a table of passes, slowest first")


def pass_context(
    args: argparse.Namespace, timing: PassTimingInstrument, more: Sequence[PassInstrument] = ()
) -> PassContext:
    """The context that the options ask for."""
    instruments: list[PassInstrument] = [*more, *([timing] if args.print_pass_times else [])]
    if args.print_before:
        instruments.append(PrintBefore(_sink("before"), _chosen(args.print_before)))
    if args.print_after:
        instruments.append(PrintAfter(_sink("after"), _chosen(args.print_after)))
    if args.print_changes:
        instruments.append(PrintChanges(_sink("after")))
    if args.dump_passes:
        instruments.append(DumpIR(args.dump_passes, refresh=True))
    if args.verify_passes:
        instruments.append(VerifyIR())
    required, disabled = comma_list(args.required_pass), comma_list(args.disabled_pass)
    return PassContext(args.opt_level, required, disabled, instruments, pass_config(args.pass_config))


def print_times(args: argparse.Namespace, timing: PassTimingInstrument) -> None:
    """The table, if asked for."""
    if args.print_pass_times:
        output.print(timing.render(), markup=False, highlight=False)


def _chosen(text: str) -> list[str]:
    """Names of passes, which must exist; none means all."""
    names = comma_list(text)
    if ALL in names:
        return []
    return [find_pass(name).info.name for name in names]


def _sink(when: str) -> Callable[[str, str], None]:
    return lambda name, text: print(f"# {when} {name}\n{text}")
