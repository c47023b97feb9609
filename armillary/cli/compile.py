"""Compile a model into a package.

Reads a model (ONNX, PyTorch's .pt2 and TorchScript, Keras, TFLite and others), builds it for a target and writes one
package: a shared library (.so) that holds kernels, graph and parameters, or a tar of mod.so, mod.json and mod.params;
with --objects of mod.o, which the device links when it loads the package.

examples:
  armc compile resnet18.onnx -o resnet18.so
  armc compile net.pt2 -o net.tar
  armc compile model.onnx --input-shapes "data:[1,3,224,224]" --target "llvm -mcpu=native" -o model.tar
  armc compile model.onnx --target "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76" \\
      --cross-compiler aarch64-linux-gnu-gcc -o model.so
  armc compile model.onnx --target "arm_compute_lib, llvm -mtriple=aarch64-linux-gnu -mattr=+neon" \\
      --cross-compiler aarch64-linux-gnu-gcc --explain-offload -o model.so
  armc compile model.onnx --variants "batch=1;batch=4" -o model.tar
  armc compile model.onnx --mixed-precision --mixed-precision-calculation-type bfloat16 -o model.tar
  armc compile model.onnx --target "opencl, clml, llvm" --target-llvm-mtriple aarch64-linux-gnu \\
      --target-opencl-device adreno --cross-compiler aarch64-linux-gnu-gcc --dump-code cl -o model.tar
  armc compile model.onnx --dump-code relay,tir,ll --print-pass-times
  armc compile model.onnx --disabled-pass AlterOpLayout --print-after FuseOps,tir.StorageRewrite
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from armillary.artifact import FunctionRow, GraphSpec
from armillary.base.files import check_writable, write_atomic
from armillary.base.lazy import deferred
from armillary.cli._console import Stages, note, stages
from armillary.cli.options.models import (
    add_layout_arguments,
    add_target_arguments,
    comma_list,
    in_desired_layout,
    input_shapes,
    load_model,
    takes_fixed_shapes,
    target_of,
    variants,
)
from armillary.cli.options.passes import (
    add_pass_arguments,
    add_precision_arguments,
    check_precision,
    in_mixed_precision,
    pass_context,
    print_times,
)
from armillary.driver.build import build
from armillary.driver.library import GraphLibrary
from armillary.errors import ConfigError
from armillary.frontend.formats import FORMATS, MODEL_FILES
from armillary.instrument import PassTimingInstrument

with deferred():
    from armillary.autotvm.task.dispatcher import apply_history_best

CODE_FORMS = ("relay", "tir", "ll", "asm", "c", "cl")


def _states(text: str) -> dict[str, int | str]:
    """States as `--states` says them."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not name.strip() or not output.strip() for name, _, output in pairs):
        raise ConfigError(f"--states {text!r} is no list of INPUT=OUTPUT", hint="as in h=1,cell=c_out")
    return {name.strip(): int(output) if output.strip().isdigit() else output.strip() for name, _, output in pairs}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc compile`."""
    parser.add_argument("FILE", help=f"{MODEL_FILES}; - for Relay text on stdin")
    parser.add_argument("--model-format", choices=FORMATS, default="", help="its form (default: by the suffix)")
    parser.add_argument("-o", "--output", default="module.tar", help="the package to write (default: module.tar)")
    parser.add_argument("-f", "--output-format", choices=("so", "tar"), help="default: by the suffix of --output")
    add_target_arguments(parser)
    parser.add_argument("--input-shapes", default="", metavar="SHAPES", help='"data:[1,3,224,224] mask:[1,224]"')
    parser.add_argument(
        "--variants",
        default="",
        metavar="VARIANTS",
        help='compiled side by side, chosen by the shapes of inputs: "x:1x3x224x224;x:4x3x224x224", "batch=1;batch=4"',
    )
    help_text = "inputs whose value in the next run is an output, by number or name: h=1,cell=c_out"
    parser.add_argument("--states", default="", metavar="INPUT=OUTPUT", help=help_text)
    parser.add_argument("--dump-code", default="", metavar="FORMS", help=f"of {','.join(CODE_FORMS)} beside it")
    parser.add_argument("--cross-compiler", default="", metavar="CC", help="links for another machine")
    options = parser.add_argument("--cross-compiler-options", default="", metavar="OPTIONS")
    options.help = "behind an equals sign: --cross-compiler-options=-static-libgcc"
    parser.add_argument("--objects", action="store_true", help="a .tar holds an object, linked where it is loaded")
    parser.add_argument("--explain-offload", action="store_true", help="say what libraries compute, and why not more")
    parser.add_argument("--tuning-records", default="", metavar="LOG", help="take the best choices of this log")
    parser.add_argument("--module-name", default="default", help="name inside the package (default: default)")
    add_layout_arguments(parser)
    add_precision_arguments(parser)
    add_pass_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Load, build, export."""
    start = time.perf_counter()
    args.target = target_of(args)
    forms = _code_forms(args.dump_code)
    path = output_path(args)
    check_precision(args)
    check_writable(path)
    timing = PassTimingInstrument()
    with stages() as progress:
        library = _compile(args, path, forms, progress, timing)
    print_times(args, timing)
    note(types_of(library))
    size = path.stat().st_size
    note(f"{path}: {size / 1e6:.2f} MB in {time.perf_counter() - start:.1f} s")
    return 0


def _compile(
    args: argparse.Namespace, path: Path, forms: list[str], progress: Stages, timing: PassTimingInstrument
) -> GraphLibrary:
    progress.start(f"reading {args.FILE}")
    shapes, many = input_shapes(args.input_shapes), variants(args.variants)
    module, params = load_model(args.FILE, shapes, many, assume=takes_fixed_shapes(args.target), form=args.model_format)
    module = in_desired_layout(module, args)
    progress.start("compiling")
    with pass_context(args, timing, [progress]), _records(args.tuning_records):
        library = build(
            in_mixed_precision(module, args),
            target=args.target,
            params=params,
            states=_states(args.states),
            mod_name=args.module_name,
            progress=progress.advance,
        )
    if args.explain_offload:
        print(library.offload_report)
    progress.start(f"writing {path}")
    dump_code_of(library, path, forms)
    link = {"cc": args.cross_compiler} if args.cross_compiler else {}
    options = {"options": args.cross_compiler_options.split()} if args.cross_compiler_options else {}
    library.export_library(str(path), linked=not args.objects, **link, **options)
    return library


def types_of(library: GraphLibrary) -> str:
    """How many calls of a network compute with which numbers, and how many a library takes, in one line."""
    counts: Counter[str] = Counter()
    for node in GraphSpec.from_json(library.get_graph_json()).nodes:
        row = library.descriptor.functions.get(node.func_name)
        if row is not None:
            counts[row.external.kind if row.external is not None else _numbers(row)] += 1
    return f"{sum(counts.values())} calls: " + (", ".join(f"{n} {kind}" for kind, n in counts.most_common()) or "none")


def _numbers(row: FunctionRow) -> str:
    """The narrowest numbers that a function reads: bytes before 16-bit floats before float32."""
    types = [str(arg.dtype) for arg in row.args if arg.role == "in"] or [str(arg.dtype) for arg in row.args]
    return next((t for t in ("int8", "uint8", "bfloat16", "float16", "float32") if t in types), types[0])


def dump_code_of(library: GraphLibrary, path: Path, forms: Sequence[str]) -> None:
    """Write the code of a library in these forms beside a package."""
    for form in forms:
        write_atomic(path.with_name(f"{path.name}.{form}"), library.get_source(form).encode())


def _records(log: str) -> AbstractContextManager[object]:  # nobody uses what it gives
    return apply_history_best(log) if log else nullcontext()


def _code_forms(text: str) -> list[str]:
    forms = comma_list(text)
    unknown = sorted(set(forms) - set(CODE_FORMS))
    if unknown:
        raise ConfigError(f"--dump-code: unknown form {unknown[0]!r}", hint=f"it may be any of {', '.join(CODE_FORMS)}")
    return forms


def output_path(args: argparse.Namespace) -> Path:
    """The package that --output names; ConfigError for a suffix that is none of a package."""
    path = Path(args.output)
    if args.output_format:
        return path if path.suffix == f".{args.output_format}" else path.with_suffix(f".{args.output_format}")
    system = {".dll": "Windows", ".exe": "Windows", ".dylib": "macOS"}.get(path.suffix.lower())
    if system:
        raise ConfigError(
            f"--output {args.output!r}: a library of {system}, which is not supported: libraries are ELF files",
            hint="name a .so or .tar, for Linux or Android",
        )
    if path.suffix not in (".so", ".tar"):
        raise ConfigError(f"--output {args.output!r}: the suffix must be .so or .tar", hint="or say -f so or -f tar")
    return path
