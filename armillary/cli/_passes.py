"""The options of `armc compile` and `armc opt` that steer passes.

In: what argparse read. Out: a PassContext with its instruments. Invariant: both commands spell them alike; texts of
modules go to stdout, or to files in --dump-passes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from armillary.cli._console import output
from armillary.cli._model import comma_list, pass_config
from armillary.instrument import DumpIR, PassTimingInstrument, PrintAfter, PrintBefore, PrintChanges, VerifyIR
from armillary.transform import MAX_LEVEL, PassContext, PassInstrument, find_pass

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
