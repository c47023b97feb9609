"""Find the first node of a model that computes wrong values.

Compiles the model and runs it beside ONNX Runtime (or the reference interpreter), compares the outputs and then every
value on the way, names the first node whose value differs although what it reads agrees, and writes both values as .npy
files. A fault that shows only inside a fused kernel is found by building the network up to one value, again and again.
All opt levels are checked, unless -O names one; sizes stay open, and each combination of --sizes is run. Exit code: 0
all agree, 2 something differs.

examples:
  armc verify resnet18.onnx
  armc verify model.onnx --input-shapes "ids:[1,128]" --inputs batch.npz --rtol 1e-2
  armc verify model.onnx -O 0 --reference interpreter
  armc verify bert.onnx --sizes "seq=8,128 batch=1,3"
  armc verify model.onnx --disabled-pass FuseOps,AlterOpLayout --dump-dir fault --all
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.table import Table

from armillary.base.extent import size_values
from armillary.cli._console import Stages, output, stages
from armillary.cli.options.models import comma_list, count, fraction, input_shapes, load_model, pass_config
from armillary.cli.options.sizes import add_sizes_argument, all_sizes, note_assumed, sizes_text
from armillary.cli.run import read_npz
from armillary.driver.doctor import Builds, Comparison, Diagnosis, Tolerance, diagnose, dump
from armillary.driver.doctor_subject import (
    Arrays,
    Subject,
    checked_inputs,
    onnx_subject,
    reference_values,
    relay_subject,
    stated_sizes,
)
from armillary.relay.analysis.meeting_sizes import parameter_sizes
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
    add_sizes_argument(parser, each="a comparison")
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
        sizes = _stated_sizes(subject, given, args.sizes)
        progress.start("computing the truth")
        inputs = [checked_inputs(subject.network, given, args.seed, row) for row in sizes]
        truths = [reference_values(subject, arrays, args.reference) for arrays in inputs]
        runs = [
            (level, sizes[place], inputs[place], diagnosis)
            for level in (range(MAX_LEVEL + 1) if args.opt_level is None else (args.opt_level,))
            for place, diagnosis in enumerate(_diagnoses(args, subject, level, inputs, truths, progress))
        ]
    for level, row, _, diagnosis in runs:
        _print_summary(args, level, row, diagnosis)
        if args.all:
            output.print(_all_values(subject, diagnosis), highlight=False)
    first = next((run for run in runs if run[-1].first is not None), None)
    if first is not None:
        _print_first(args, first[-1], subject, first[-2])
    return 0 if all(diagnosis.agrees for *_, diagnosis in runs) else DIFFERENT


def _stated_sizes(subject: Subject, arrays: Arrays, text: str) -> list[dict[str, int]]:
    """Each combination of sizes with a value for all of the network's, as a note says of those that nobody stated."""
    known, rows = parameter_sizes(subject.network), []
    for row in all_sizes(text):
        stated = stated_sizes(subject.network, arrays, row)
        rows.append(size_values(known, stated))
        note_assumed(rows[-1] if len(rows) == 1 else {}, stated)
    return rows


def _diagnoses(
    args: argparse.Namespace,
    subject: Subject,
    level: int,
    inputs: Sequence[Arrays],
    truths: Sequence[tuple[str, Arrays]],
    progress: Stages,
) -> Iterator[Diagnosis]:
    """What is right and wrong at one level with each of the inputs, of the same builds."""
    builds: Builds = {}
    disabled, config = comma_list(args.disabled_pass), pass_config(args.pass_config)
    tolerance = Tolerance(args.rtol, args.atol)
    for arrays, known in zip(inputs, truths, strict=True):
        with PassContext(level, None, disabled, [progress], config):
            yield diagnose(subject, arrays, args.target, args.reference, tolerance, progress.start, known, builds)


def _subject(args: argparse.Namespace) -> Subject:
    shapes = input_shapes(args.input_shapes)
    if Path(args.FILE).suffix.lower() == ".onnx":
        return onnx_subject(args.FILE, shapes)
    module, params = load_model(args.FILE, shapes)
    return relay_subject(module, args.FILE, params)


def _say(text: str) -> None:
    output.print(text, markup=False, highlight=False)


def _print_summary(args: argparse.Namespace, level: int, sizes: Mapping[str, int], diagnosis: Diagnosis) -> None:
    wrong = [c for c in diagnosis.outputs if c.differs]
    worst = max((c.max_rel for c in diagnosis.outputs), default=0.0)
    where = ", ".join(filter(None, (f"level {level}", sizes_text(sizes))))
    _say(f"{args.FILE}: {args.target}, {where}, compared with {diagnosis.truth}")
    state = f"{len(wrong)} of {len(diagnosis.outputs)} differ" if wrong else f"all {len(diagnosis.outputs)} agree"
    _say(f"outputs: {state} (largest error {worst:.1e} of the largest element)")
    wrong = [c for c in diagnosis.values if c.differs]
    state = f"{len(wrong)} of {len(diagnosis.values)} differ" if wrong else f"all {len(diagnosis.values)} agree"
    _say(f"values:  {state} (network compiled with every value kept)")


def _print_first(args: argparse.Namespace, diagnosis: Diagnosis, subject: Subject, inputs: Arrays) -> None:
    value, seen = diagnosis.first, diagnosis.comparison
    assert value is not None and seen is not None and diagnosis.want is not None, "the caller looked"
    _say(f"\nfirst node that differs: {value.node} ({value.op}), {diagnosis.stage}")
    _say(f"  value    {value.name!r}, {diagnosis.want.dtype} {list(diagnosis.want.shape)}")
    for line in _error_lines(seen):
        _say(f"  {line}")
    for read in diagnosis.reads:
        _say(f"  reads    {read.name!r}: agrees, largest error {read.max_abs:.1e}")
    for kernel in diagnosis.kernels:
        _say(f"  kernel   {kernel}")
    name = "stdin" if args.FILE == "-" else Path(args.FILE).stem
    for path in dump(diagnosis, inputs, Path(args.dump_dir or f"verify-{name}")):
        _say(f"  written  {path}")


def _error_lines(seen: Comparison) -> list[str]:
    if seen.problem:
        return [f"error    {seen.problem}"]
    return [
        f"error    max abs {seen.max_abs:.3g}, {seen.max_rel:.3g} of the largest element; "
        f"{seen.beyond} of {seen.size} elements are beyond tolerance",
        f"worst    at {list(seen.where)}: got {seen.got:.9g}, wanted {seen.want:.9g}",
    ]


def _all_values(subject: Subject, diagnosis: Diagnosis) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "value", "operator", "max abs", "of largest", "beyond"):
        table.add_column(heading, justify="right" if heading in ("max abs", "of largest", "beyond") else "left")
    for value, seen in zip(subject.values, diagnosis.values, strict=True):
        numbers = (f"{seen.max_abs:.1e}", f"{seen.max_rel:.1e}", str(seen.beyond))
        table.add_row("differs" if seen.differs else "", value.name, value.op, *numbers)
    return table
