"""Find the first node of a model that computes wrong values.

Compiles the model and runs it beside ONNX Runtime (or the reference interpreter), compares the outputs and then every
value on the way, names the first node whose value differs although what it reads agrees, and writes both values as .npy
files. A fault that shows only inside a fused kernel is found by building the network up to one value, again and again.
All opt levels are checked, unless -O names one. Exit code: 0 all agree, 2 something differs.

examples:
  armc verify resnet18.onnx
  armc verify model.onnx --input-shapes "ids:[1,128]" --inputs batch.npz --rtol 1e-2
  armc verify model.onnx -O 0 --reference interpreter
  armc verify model.onnx --disabled-pass FuseOps,AlterOpLayout --dump-dir fault --all
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.table import Table

from armillary.cli._console import output, stages
from armillary.cli.options.models import comma_list, count, fraction, input_shapes, load_model, pass_config
from armillary.cli.run import read_npz
from armillary.driver.doctor import Comparison, Diagnosis, Tolerance, diagnose, dump
from armillary.driver.doctor_subject import (
    Arrays,
    Subject,
    checked_inputs,
    onnx_subject,
    reference_values,
    relay_subject,
)
from armillary.transform import MAX_LEVEL, PassContext

DIFFERENT = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc verify`."""
    parser.add_argument("FILE", help="the model: .onnx, .relay, or - for Relay text on stdin")
    parser.add_argument("--target", default="llvm -mcpu=native", help='default: "llvm -mcpu=native"')
    parser.add_argument(
        "-O",
        "--opt-level",
        type=int,
        choices=range(MAX_LEVEL + 1),
        metavar="LEVEL",
        help=f"one level of 0 to {MAX_LEVEL} (default: every one)",
    )
    parser.add_argument("--input-shapes", default="", metavar="SHAPES", help='"data:[1,3,224,224] mask:[1,224]"')
    parser.add_argument("-i", "--inputs", metavar="NPZ", help="input arrays by name (default: seeded random numbers)")
    parser.add_argument("--seed", type=count, default=0, help="for the inputs that are not given (default: 0)")
    parser.add_argument(
        "--reference",
        choices=("auto", "ort", "interpreter"),
        default="auto",
        help="what tells the truth (default: ONNX Runtime if it is installed)",
    )
    parser.add_argument("--rtol", type=fraction, help="part of each element (float32: 1e-3)")
    parser.add_argument("--atol", type=fraction, help="the same for all elements (float32: 1e-4 of the largest)")
    parser.add_argument("--dump-dir", metavar="DIR", help="where both values go (default: verify-<model>)")
    parser.add_argument("--pass-config", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--disabled-pass", default="", metavar="PASSES", help="passes not to run, comma separated")
    parser.add_argument("--all", action="store_true", help="list every value with its error")


def run(args: argparse.Namespace) -> int:
    """Compare, report, dump."""
    with stages() as progress:
        progress.start(f"reading {args.FILE}")
        subject = _subject(args)
        given = read_npz(args.inputs) if args.inputs else {}
        inputs = checked_inputs(subject.network, given, args.seed)
        disabled, config = comma_list(args.disabled_pass), pass_config(args.pass_config)
        tolerance = Tolerance(args.rtol, args.atol)
        progress.start("computing the truth")
        known = reference_values(subject, inputs, args.reference)
        by_level = {}
        for level in range(MAX_LEVEL + 1) if args.opt_level is None else (args.opt_level,):
            with PassContext(level, None, disabled, [progress], config):
                found = diagnose(subject, inputs, args.target, args.reference, tolerance, progress.start, known)
            by_level[level] = found
    for level, found in by_level.items():
        _print_summary(args, level, found)
        if args.all:
            output.print(_all_values(subject, found), highlight=False)
    first = next((found for found in by_level.values() if found.first is not None), None)
    if first is not None:
        _print_first(args, first, subject, inputs)
    return 0 if all(found.agrees for found in by_level.values()) else DIFFERENT


def _subject(args: argparse.Namespace) -> Subject:
    shapes = input_shapes(args.input_shapes)
    if Path(args.FILE).suffix.lower() == ".onnx":
        return onnx_subject(args.FILE, shapes)
    module, params = load_model(args.FILE, shapes)
    return relay_subject(module, args.FILE, params)


def _say(text: str) -> None:
    output.print(text, markup=False, highlight=False)


def _print_summary(args: argparse.Namespace, level: int, found: Diagnosis) -> None:
    wrong = [c for c in found.outputs if c.differs]
    worst = max((c.max_rel for c in found.outputs), default=0.0)
    _say(f"{args.FILE}: {args.target}, level {level}, compared with {found.truth}")
    state = f"{len(wrong)} of {len(found.outputs)} differ" if wrong else f"all {len(found.outputs)} agree"
    _say(f"outputs: {state} (largest error {worst:.1e} of the largest element)")
    wrong = [c for c in found.values if c.differs]
    state = f"{len(wrong)} of {len(found.values)} differ" if wrong else f"all {len(found.values)} agree"
    _say(f"values:  {state} (network compiled with every value kept)")


def _print_first(args: argparse.Namespace, found: Diagnosis, subject: Subject, inputs: Arrays) -> None:
    value, seen = found.first, found.comparison
    assert value is not None and seen is not None and found.want is not None, "the caller looked"
    _say(f"\nfirst node that differs: {value.node} ({value.op}), {found.stage}")
    _say(f"  value    {value.name!r}, {found.want.dtype} {list(found.want.shape)}")
    for line in _error_lines(seen):
        _say(f"  {line}")
    for read in found.reads:
        _say(f"  reads    {read.name!r}: agrees, largest error {read.max_abs:.1e}")
    for kernel in found.kernels:
        _say(f"  kernel   {kernel}")
    name = "stdin" if args.FILE == "-" else Path(args.FILE).stem
    for path in dump(found, inputs, Path(args.dump_dir or f"verify-{name}")):
        _say(f"  written  {path}")


def _error_lines(seen: Comparison) -> list[str]:
    if seen.problem:
        return [f"error    {seen.problem}"]
    return [
        f"error    max abs {seen.max_abs:.3g}, {seen.max_rel:.3g} of the largest element; "
        f"{seen.beyond} of {seen.size} elements are beyond tolerance",
        f"worst    at {list(seen.where)}: got {seen.got:.9g}, wanted {seen.want:.9g}",
    ]


def _all_values(subject: Subject, found: Diagnosis) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "value", "operator", "max abs", "of largest", "beyond"):
        table.add_column(heading, justify="right" if heading in ("max abs", "of largest", "beyond") else "left")
    for value, seen in zip(subject.values, found.values, strict=True):
        numbers = (f"{seen.max_abs:.1e}", f"{seen.max_rel:.1e}", str(seen.beyond))
        table.add_row("differs" if seen.differs else "", value.name, value.op, *numbers)
    return table
