"""Quantise a model to 8 bits, by inputs that show its ranges.

Reads a float model and inputs to calibrate with, computes convolutions, dense layers and batched products in bytes, and
writes a package (.so, .tar), an ONNX file of QuantizeLinear and DequantizeLinear (.onnx), or Relay text (.relay, which
armc compile takes for other machines). With --weights the weights of dense layers alone are integers, of 4 or 8 bits,
with a scale for each --group terms. Prints a line for each layer, the error of the results for these inputs, and what
the parameters take. Inputs are .npz files of arrays by name, .npy files for a network of one input, or folders of them;
an array may hold several inputs along its first axis.

examples:
  armc quantize resnet18.onnx --calibrate images -o resnet18.so
  armc quantize model.onnx --calibrate first.npz second.npz --method entropy -o model.relay
  armc quantize model.onnx --calibrate rows.npy --error 0.02 -o model.tar   (sensitive layers stay float)
  armc quantize model.onnx --calibrate rows.npy --keep 0,20 -o model.tar    (layers by their number in the table)
  armc quantize model.onnx --calibrate images -o model.int8.onnx            (other engines read it, too)
  armc quantize bert.onnx --weights 4 --method gptq --calibrate rows.npz -o bert.so
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import dtype_of
from armillary.base.files import check_writable, write_atomic
from armillary.cli._console import note, output, stages
from armillary.cli.compile import output_path, types_of
from armillary.cli.options.models import (
    add_target_arguments,
    comma_list,
    count,
    fraction,
    input_shapes,
    load_model,
    target_of,
)
from armillary.cli.run import read_npz
from armillary.contrib.target.onnx import OPSETS, to_onnx
from armillary.driver.build import build
from armillary.driver.quantization.network import quantize
from armillary.driver.quantization.thresholds import LIMITS
from armillary.driver.quantization.weights import BITS, METHODS, quantize_weights
from armillary.errors import ConfigError, Span
from armillary.frontend.formats import MODEL_FILES
from armillary.ir import IRModule
from armillary.relay.expr import Constant, Function
from armillary.relay.types import TensorType
from armillary.relay.walk import post_order
from armillary.transform import MAX_LEVEL, PassContext

_SUFFIXES = (".npz", ".npy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc quantize`."""
    parser.add_argument("FILE", help=MODEL_FILES)
    parser.add_argument("--calibrate", nargs="+", default=[], metavar="PATH", help=".npz, .npy, or folders of them")
    parser.add_argument(
        "-o", "--output", default="module.tar", help="a .so, .tar, .onnx or .relay (default: module.tar)"
    )
    add_target_arguments(parser)
    parser.add_argument("--input-shapes", default="", metavar="SHAPES", help='"data:[1,3,224,224] mask:[1,224]"')
    methods = f"what gives ranges: {', '.join(LIMITS)} (default: mse); with --weights: {', '.join(METHODS)}"
    parser.add_argument("--method", choices=(*LIMITS, *METHODS), help=f"{methods} (default: {METHODS[0]})")
    parser.add_argument("--weights", type=int, choices=tuple(BITS), help="integers of so many bits, of weights alone")
    parser.add_argument("--group", type=count, default=32, help="terms of a row that have one scale (default: 32)")
    parser.add_argument(
        "--smooth", type=fraction, default=0.0, help="of outliers of dense layers' data: 0.5 (default: 0)"
    )
    parser.add_argument("--error", type=fraction, default=0.0, help="keep layers float until it is below this part")
    parser.add_argument("--keep", default="", metavar="NUMBERS", help="layers that stay float: 0,20")
    parser.set_defaults(output_format="")


def run(args: argparse.Namespace) -> int:
    """Load, quantise, build, export."""
    args.target = target_of(args)
    path = Path(args.output) if args.output.endswith((".relay", ".onnx")) else output_path(args)
    keep = _numbers(args.keep)
    check_writable(path)
    with stages() as progress:
        progress.start(f"reading {args.FILE}")
        module, params = load_model(args.FILE, input_shapes(args.input_shapes), assume=True)
        rows = _rows(args.calibrate, module["main"])
        progress.start(f"quantising by {len(rows)} inputs")
        if args.weights:
            how = {"bits": args.weights, "group": args.group, "method": args.method or METHODS[0]}
            smaller = quantize_weights(module, params, rows, keep=keep, **how)
        else:
            how = {"method": args.method or "mse", "smooth": args.smooth}
            smaller = quantize(module, params, rows, error=args.error, keep=keep, **how)
        progress.start(f"writing {path}")
        if path.suffix == ".onnx":
            to_onnx(smaller.module, name=Path(args.FILE).stem, opset_version=max(OPSETS), path=path)
        elif path.suffix == ".relay":
            write_atomic(path, smaller.module.astext().encode())
        else:
            with PassContext(MAX_LEVEL):
                library = build(smaller.module, target=args.target, progress=progress.advance)
            library.export_library(str(path))
            note(types_of(library))
    output.print(smaller.summary(), markup=False, highlight=False)
    before, after = _bytes(module, params), _bytes(smaller.module, {})
    text = f"parameters: {before / 1e6:.2f} MB, quantised {after / 1e6:.2f} MB ({after / max(before, 1):.2f} of it)"
    output.print(text, markup=False, highlight=False)
    note(f"{path}: {path.stat().st_size / 1e6:.2f} MB")
    return 0


def _numbers(text: str) -> list[int]:
    try:
        return [count(item) for item in comma_list(text)]
    except argparse.ArgumentTypeError as error:
        raise ConfigError(f"--keep {text!r}: {error}", hint="numbers of layers, as in 0,20") from None


def _bytes(module: IRModule, params: Mapping[str, Array]) -> int:
    """What constants and parameters take; of four bits, two are in a byte."""
    constants = [e.data for e in post_order(module["main"]) if isinstance(e, Constant)]
    return sum(value.size * dtype_of(value).bits // 8 for value in map(np.asarray, (*constants, *params.values())))


def _rows(paths: list[str], main: Function) -> list[dict[str, Array]]:
    """One dictionary for each input of the network that the files hold."""
    files: list[Path] = []
    for path in map(Path, paths):
        found = sorted(f for f in path.iterdir() if f.suffix in _SUFFIXES) if path.is_dir() else [path]
        if not found or found[0].suffix not in _SUFFIXES:
            message = "there is no .npz or .npy file" if path.is_dir() else "it is no .npz or .npy file"
            raise ConfigError(f"--calibrate: {message}", span=Span(str(path)), hint="numpy.savez makes one")
        files += found
    return [row for file in files for row in _rows_of(file, main)]


def _rows_of(file: Path, main: Function) -> list[dict[str, Array]]:
    params = {p.name_hint: p.checked_type for p in main.params}
    if file.suffix == ".npz":
        arrays = read_npz(str(file))
    elif len(params) == 1:
        arrays = {next(iter(params)): _read_npy(file)}
    else:
        message = f"--calibrate: a .npy file for a network of {len(params)} inputs"
        raise ConfigError(message, span=Span(str(file)), hint=f"an .npz with {', '.join(params)}")
    parts: dict[str, list[Array]] = {}
    for name, ty in params.items():
        if name not in arrays:
            message = f"--calibrate: the input {name!r} is missing"
            raise ConfigError(message, span=Span(str(file)), hint=f"it has {', '.join(arrays) or 'nothing'}")
        assert isinstance(ty, TensorType), "inputs of a model are tensors"
        parts[name] = _split(arrays[name], ty.static, name, file)
    if len({len(rows) for rows in parts.values()}) > 1:
        message = "--calibrate: " + ", ".join(f"{len(rows)} of {name!r}" for name, rows in parts.items())
        raise ConfigError(message, span=Span(str(file)), hint="as many of each input")
    return [dict(zip(parts, values, strict=True)) for values in zip(*parts.values(), strict=True)]


def _split(array: Array, shape: tuple[int, ...], name: str, file: Path) -> list[Array]:
    """The inputs along an array's first axis."""
    if array.shape == shape:
        return [array]
    step = shape[0] if shape else 1
    one = array.shape == shape[1:] and step == 1
    if one:
        return [array[np.newaxis]]
    if array.ndim != len(shape) or array.shape[1:] != shape[1:] or not array.shape[0] or array.shape[0] % max(step, 1):
        message = f"--calibrate: {name!r} has the shape {list(array.shape)}, the network takes {list(shape)}"
        raise ConfigError(message, span=Span(str(file)), hint="or several of them along the first axis")
    return [array[k : k + step] for k in range(0, array.shape[0], step)]


def _read_npy(file: Path) -> Array:
    """The array of a .npy file, read as it is used; pickled objects are refused."""
    try:
        result: Array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        message = f"--calibrate: cannot read the inputs: {error}"
        raise ConfigError(message, span=Span(str(file)), hint="numpy.save makes such a file") from None
    return result
