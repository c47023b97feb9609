"""Run a compiled package.

Loads a package (.so or .tar), fills its inputs from an .npz file or as --fill-mode says, runs it, and prints, saves or
times the outputs. In an .npz file inputs are named as in the model and outputs output_0, output_1, …

examples:
  armc run resnet18.so
  armc run module.tar -i inputs.npz -o outputs.npz --print-top 5
  armc run resnet18.so --print-time --repeat 10 --number 5
  armc run bert.tar --sizes batch=2,seq=40 --print-time
  armc run resnet18.so --profile
  armc run net.tar --rpc-tracker 192.168.1.2:9190 --rpc-key rk3399 --print-time
"""

from __future__ import annotations

import argparse
import math
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING

import numpy as np
from rich.table import Table

from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.base.extent import size_values
from armillary.base.files import check_writable, regular, written_atomically
from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.cli._console import note, output
from armillary.cli.options.models import positive
from armillary.cli.options.sizes import add_sizes_argument, note_assumed, one_size_each
from armillary.contrib.graph_executor import GraphModule
from armillary.errors import ConfigError, ExecutionError, RPCError, Span
from armillary.runtime import Device, GraphExecutor, device, load_module
from armillary.runtime.device import require
from armillary.runtime.open_shapes import at_sizes, open_shapes

if TYPE_CHECKING:
    from armillary.rpc.client import RPCSession

with deferred():
    from armillary.rpc.client import (
        connect,  # few runs are on another machine
        connect_tracker,
    )
    from armillary.rpc.programs import parse_address
_SEED = 0
_MOST_INPUTS = 1 << 36  # bytes
FILLS = ("zeros", "ones", "random")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc run`."""
    parser.add_argument("PATH", help="the package")
    parser.add_argument("--device", default="cpu", help="where to run (default: cpu)")
    parser.add_argument("--fill-mode", "--fill", choices=FILLS, default="random", help="inputs not given")
    parser.add_argument("-i", "--inputs", metavar="NPZ", help="input arrays by name")
    parser.add_argument("-o", "--outputs", metavar="NPZ", help="write the output arrays here")
    add_sizes_argument(parser)
    parser.add_argument("--print-time", action="store_true", help="time it and print mean, median, max, min, std")
    parser.add_argument("--repeat", type=positive, default=1, help="timed runs: this many results (default: 1)")
    parser.add_argument("--number", type=positive, default=1, help="each the mean of this many runs (default: 1)")
    parser.add_argument("--end-to-end", action="store_true", help="time copies of inputs and outputs too")
    parser.add_argument("--print-top", type=positive, metavar="N", help="the N largest of output_0 and their places")
    parser.add_argument("--rpc-tracker", metavar="HOST[:PORT]", help="run on a device of this tracker (port: 9190)")
    parser.add_argument("--rpc-key", metavar="KEY", help="the device's key; without one, the address is a server's")
    parser.add_argument("--rpc-timeout", type=positive, default=1000, metavar="S", help="seconds it may take there")
    parser.add_argument("--profile", action="store_true", help="time of each kernel")


def run(args: argparse.Namespace) -> int:
    """Load, fill, run, report."""
    if args.outputs:
        check_writable(args.outputs)
    with remote_session(args) as session:
        return run_on(args, session)


def run_on(args: argparse.Namespace, session: RPCSession | None) -> int:
    """Load the package here or there, fill, run, report."""
    arrays = read_npz(args.inputs) if args.inputs else {}
    network = loaded(args.PATH, args.device, session, arrays, args.fill_mode, one_size_each(args.sizes))
    module = network.module
    if args.print_time:
        result = module.benchmark(network.where, repeat=args.repeat, number=args.number, end_to_end=args.end_to_end)
        print(result)
    module.run()
    outputs = [module.get_output(i).numpy() for i in range(module.get_num_outputs())]
    if args.outputs:
        write_npz(Path(args.outputs), outputs)
    if args.print_top:
        print(top(outputs[0], args.print_top))
    if args.profile:
        output.print(profile_table(network.executor))
    if not (args.print_time or args.outputs or args.print_top or args.profile):
        message = ", ".join(f"output_{i} {a.dtype} {list(a.shape)}" for i, a in enumerate(outputs))
        note(f"{args.PATH} ran: {message}; -o saves outputs, --print-top shows some, --print-time times it")
    return 0


@record
class Loaded:
    """A graph that is ready to run, with the device that it is on."""

    module: GraphModule
    executor: GraphExecutor
    where: Device


def loaded(
    path: str,
    device: str,
    session: RPCSession | None,
    inputs: dict[str, Array],
    fill_mode: str,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> Loaded:
    """Load a package here or there and set its inputs: what is given, else as `fill_mode` says."""
    where = chosen_device(device, session)
    if session is not None:
        session.upload(path)
    library = load_module(path) if session is None else session.load_module(Path(path).name)
    executor = library["default"](where)  # a factory by name
    module = GraphModule(executor)
    for name, value in inputs.items():  # these choose the variant
        if module.get_input_index(name) >= 0:
            module.set_input(name, value)
    for name, value in fill_inputs(module, inputs, fill_mode, sizes).items():
        module.set_input(name, value)
    return Loaded(module, executor, where)


def remote_session(args: argparse.Namespace) -> AbstractContextManager[RPCSession | None]:
    """The session to run in, or nothing: then it is this process."""
    if not args.rpc_tracker:
        if args.rpc_key:
            raise RPCError("--rpc-key needs the tracker's address", hint="--rpc-tracker=HOST:PORT")
        return nullcontext()
    host, port = parse_address(args.rpc_tracker, 9190)
    if not args.rpc_key:
        session: RPCSession = connect(host, port, session_timeout=args.rpc_timeout)
    else:
        session = connect_tracker(host, port).request(args.rpc_key, session_timeout=args.rpc_timeout)
    return session


def chosen_device(text: str, session: RPCSession | None = None) -> Device:
    """The device of "cpu" or "cpu(0)", here or there; one that cannot be used is refused."""
    match = re.fullmatch(r"(\w+)\((\d+)\)", text.strip())
    chosen = device(match[1], int(match[2])) if match else device(text)
    return require(chosen) if session is None else session.own(chosen)


def fill_inputs(
    module: GraphModule, inputs: dict[str, Array], mode: str, sizes: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Array]:
    """An array for each input: the one given, or one made as `mode` says, of these `sizes` or typical ones."""
    shapes, dtypes = _shapes(module, inputs, sizes)
    unknown = sorted(set(inputs) - set(shapes))
    if unknown:
        raise ExecutionError(
            f"the inputs file holds {unknown[0]!r}, which is no input", hint=f"inputs: {', '.join(shapes) or 'none'}"
        )
    random = np.random.default_rng(_SEED)
    return {n: inputs[n] if n in inputs else generated_input(s, dtypes[n], mode, random) for n, s in shapes.items()}


def _shapes(
    module: GraphModule, inputs: dict[str, Array], sizes: Mapping[str, int]
) -> tuple[Mapping[str, tuple[int, ...]], Mapping[str, DType]]:
    """Shapes and types of inputs: of open ones at these sizes, at those that given inputs have, or at typical ones."""
    shapes, dtypes = module.get_input_info()
    open_network = open_shapes(module.module)
    if open_network is None and sizes:
        raise ConfigError("--sizes: the network has no open sizes, or runs on another machine")
    if open_network is None:
        return {name: tuple(d for d in shape if isinstance(d, int)) for name, shape in shapes.items()}, dtypes
    known = dict(sizes)
    for name, value in inputs.items():
        pairs = zip(open_network.inputs.get(name, ()), value.shape, strict=False)
        known |= {dim: size for dim, size in pairs if isinstance(dim, str) and dim in open_network.sizes}
    values = size_values(open_network.sizes, known)
    note_assumed(values, known)
    return {name: at_sizes(shape, values) for name, shape in open_network.inputs.items()}, dtypes


def generated_input(shape: Sequence[int], dtype: DType, mode: str, random: np.random.Generator) -> Array:
    """Zeros, ones, or random: 0 to 127 for 8-bit integers, 0 or 1 for booleans, else uniform in [-1, 1)."""
    if mode == "zeros":
        return np.zeros(shape, dtype.numpy)
    if mode == "ones":
        return np.ones(shape, dtype.numpy)
    if dtype.is_bool:
        return random.integers(0, 2, shape).astype(bool)
    if dtype.is_int and dtype.bits == 8:
        return random.integers(0, 128, shape).astype(dtype.numpy)
    return random.uniform(-1, 1, shape).astype(dtype.numpy)


def read_npz(file: str) -> dict[str, Array]:
    """The arrays of an .npz file; pickled objects are refused."""
    try:
        if Path(file).is_file() and not zipfile.is_zipfile(file):
            raise ExecutionError("expected an .npz archive", span=Span(file), hint="numpy.savez makes one")
        with open(file, "rb", opener=regular) as stream:
            _check_npz(stream, file)
            with np.load(stream, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
    except ExecutionError:
        raise
    except OSError as error:
        raise ExecutionError(f"cannot read the inputs: {error.strerror or error}", span=Span(file)) from None
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        message = f"cannot read the inputs: {error}"
        raise ExecutionError(message, span=Span(file), hint="numpy.savez makes such a file") from None


def _check_npz(stream: IO[bytes], file: str) -> None:
    """Refuse arrays that are larger than what the archive holds for them, or too large together, before memory is
    taken for them."""
    with zipfile.ZipFile(stream) as archive:
        rows = archive.infolist()
        for row in rows:
            with archive.open(row) as member:
                version = np.lib.format.read_magic(member)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(member)
                left = row.file_size - member.tell()
            if math.prod(shape) * dtype.itemsize > left:
                message = f"{row.filename}: an array of {shape} {dtype} in {left} bytes"
                raise ExecutionError(message, span=Span(file), hint="numpy.savez makes such a file")
    total = sum(row.file_size for row in rows)
    if total > _MOST_INPUTS:
        raise ExecutionError(f"arrays of {total} bytes, at most {_MOST_INPUTS} are read", span=Span(file))
    stream.seek(0)


def write_npz(path: Path, outputs: Sequence[Array]) -> None:
    """Save output_0, output_1, …; types that numpy does not know are widened to float32."""
    plain = [a if a.dtype.isbuiltin == 1 else a.astype(np.float32) for a in outputs]
    with written_atomically(path) as stream:
        np.savez(stream, **{f"output_{i}": array for i, array in enumerate(plain)})  # type: ignore[arg-type, unused-ignore]


def top(values: Array, count: int) -> str:
    """A line for each of the largest elements, largest first: its place in the flat array, and its value."""
    flat = values.reshape(-1)
    places = np.argsort(-flat.astype(np.float64), kind="stable")[:count].tolist()
    width = max((len(str(place)) for place in places), default=0)
    return "\n".join(f"{place:{width}}  {_shown(flat[place])}" for place in places)


def _shown(value: np.generic) -> str:
    return str(value) if value.dtype.kind in "biu" else f"{float(value):.7g}"


def profile_table(executor: GraphExecutor) -> Table:
    """Kernels by time, longest first."""
    rows = sorted(executor.profile(), key=lambda row: -row.seconds)
    total = sum(row.seconds for row in rows) or 1.0
    table = Table(box=None, pad_edge=False)
    for heading in ("node", "kernel", "us", "%"):
        table.add_column(heading, justify="right" if heading in ("us", "%") else "left")
    for row in rows:
        table.add_row(row.name, row.function, f"{1e6 * row.seconds:.1f}", f"{100 * row.seconds / total:.1f}")
    table.add_row("total", "", f"{1e6 * total:.1f}", "100.0")
    return table
