"""What a benchmark measures: an ONNX file whose sizes are all fixed, and inputs for it.

In: a network's name (benchmarks/networks.py) or an ONNX file, sizes for what its export left open, an .npz file of
inputs or none. Out: `Model`s; a file with open sizes is copied with them fixed, so that every engine gets the same.
Invariant: whatever cannot be measured is refused here, by name and with what to do; two files never share a package,
whatever they are called; seeded inputs: normal for floats, 0 or 1 for integers and booleans (they index tables).
"""

from __future__ import annotations

import argparse
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from networks import FOLDER, NETWORKS, network_file
from onnx import helper

Shape = tuple[int, ...]
Array = np.ndarray[Any, Any]
_SHAPE = re.compile(r"\s*(?P<name>[^\s\[\]]+?)\s*:\s*\[(?P<dims>[\d,\s]*)\]\s*,?")
_INLINE_LIMIT = 1 << 30  # bytes; protobuf holds 2 GiB at most


@dataclass(frozen=True)
class Model:
    """A file to measure, its inputs, and its name in tables; `key` differs for any two files."""

    name: str
    path: Path
    inputs: Path

    @property
    def key(self) -> str:
        return place_name(self.path)

    @property
    def changed(self) -> float:
        """When the file was last written."""
        return self.path.stat().st_mtime


def place_name(path: Path) -> str:
    """A name for what is made from a file: the file's own, and a digest of where it lies."""
    return f"{path.stem}-{zlib.crc32(str(path.resolve()).encode()):08x}"


def add_arguments(parser: argparse.ArgumentParser, default: Sequence[str] = tuple(NETWORKS)) -> None:
    """The options that say what is measured."""
    names = ", ".join(NETWORKS)
    parser.add_argument("networks", nargs="*", default=list(default), help=f"ONNX files, or of {names}")
    parser.add_argument("--input-shapes", default="", metavar="SHAPES", help='for open sizes: "data:[1,3,224,224]"')
    parser.add_argument("-i", "--inputs", type=Path, metavar="NPZ", help="input arrays by name; others are random")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="networks and packages (default: build/benchmarks)")


def models_of(args: argparse.Namespace) -> list[Model]:
    """The models that the options name; all are checked before anything is measured."""
    shapes = read_shapes(args.input_shapes)
    found = [(name, fixed_file(name, args.folder, shapes)) for name in args.networks]
    stems = [path.stem for _, path in found]
    names = [path.stem if stems.count(path.stem) == 1 else name for name, path in found]
    files = [inputs_file(path, args.folder, args.inputs) for _, path in found]
    return [Model(name, path, inputs) for name, (_, path), inputs in zip(names, found, files, strict=True)]


def read_shapes(text: str) -> dict[str, Shape]:
    """Shapes by input name, from "data:[1,3,224,224] mask:[1,224]"."""
    shapes: dict[str, Shape] = {}
    position = 0
    while text[position:].strip():
        match = _SHAPE.match(text, position)
        if match is None:
            raise SystemExit(f'--input-shapes: cannot read {text[position:]!r}; write "data:[1,3,224,224]"')
        shapes[match["name"]] = tuple(int(size) for size in match["dims"].split(",") if size.strip())
        position = match.end()
    return shapes


def fixed_file(name: str, folder: Path = FOLDER, shapes: Mapping[str, Shape] | None = None) -> Path:
    """The ONNX file of a name, without open sizes: the file itself, or a copy in the folder."""
    if not name.endswith(".onnx"):
        return network_file(name, folder=folder)
    path = Path(name)
    graph = read_model(path).graph
    given = dict(shapes or {})
    inputs = inputs_of(graph)
    _refuse_unknown(f"--input-shapes: {name}", given, inputs)
    wanted = {key: _fixed(name, value, given.get(key)) for key, value in inputs.items()}
    if all(wanted[key] == sizes(value) for key, value in inputs.items()):
        return path
    text = f"{path.resolve()} {sorted(wanted.items())}"
    copy = folder / f"{path.stem}-{'_'.join('x'.join(map(str, s)) for s in wanted.values())}"[:120]
    copy = copy.with_name(f"{copy.name}-{zlib.crc32(text.encode()):08x}.onnx")
    if not copy.exists() or copy.stat().st_mtime < path.stat().st_mtime:
        _write_fixed(path, wanted, copy)
    return copy


def read_model(path: Path) -> onnx.ModelProto:
    """A model without the values of external weights."""
    if not path.is_file():
        raise SystemExit(f"there is no file {str(path)!r}: give an .onnx file or one of {', '.join(NETWORKS)}")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, OSError) as error:
        raise SystemExit(f"{path}: cannot be read as ONNX ({error}): is it whole? export it again") from None
    if not model.graph.node:
        size = path.stat().st_size
        raise SystemExit(f"{path}: {size} bytes without a network in them: is it whole? export it again")
    return model


def inputs_of(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    """The inputs that are no weights."""
    weights = {value.name for value in graph.initializer}
    return {value.name: value for value in graph.input if value.name not in weights}


def sizes(value: onnx.ValueInfoProto) -> tuple[int | str, ...]:
    """The shape of an input; text where the size is open."""
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims)


def _fixed(name: str, value: onnx.ValueInfoProto, given: Shape | None) -> Shape:
    """The sizes of one input, all known."""
    shape, key = sizes(value), value.name
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        raise SystemExit(f"{name}: the input {key!r} is no tensor of a known rank; the engines run tensors only")
    if given is None and all(isinstance(size, int) and size > 0 for size in shape):
        return tuple(int(size) for size in shape)
    shown = f"[{','.join(map(str, shape))}]"
    if given is None:
        example = ",".join(str(size) if isinstance(size, int) and size > 0 else "1" for size in shape)
        raise SystemExit(
            f"{name}: the input {key!r} has the open shape {shown}; say what to measure, such as "
            f'--input-shapes "{key}:[{example}]"'
        )
    fits = len(given) == len(shape) and all(g > 0 for g in given)
    if not fits or any(isinstance(s, int) and s > 0 and s != g for s, g in zip(shape, given, strict=False)):
        raise SystemExit(f"--input-shapes: {name}: the input {key!r} has the shape {shown}, got {list(given)}")
    return given


def _write_fixed(path: Path, wanted: Mapping[str, Shape], copy: Path) -> None:
    """A copy of a model with these input shapes; sizes of one name change everywhere."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        model = onnx.load(str(path))
    except OSError as error:
        raise SystemExit(f"{path}: its external weights cannot be read ({error}); put them beside it") from None
    graph = model.graph
    names: dict[str, int] = {}
    for key, value in inputs_of(graph).items():
        for dim, size in zip(value.type.tensor_type.shape.dim, wanted[key], strict=True):
            if dim.dim_param and names.setdefault(dim.dim_param, size) != size:
                text = f"both {names[dim.dim_param]} and {size}"
                raise SystemExit(f"--input-shapes: {path}: the size {dim.dim_param!r} cannot be {text}")
            dim.dim_value = size
    for value in graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in names:
                dim.dim_value = names[dim.dim_param]
    del graph.value_info[:]  # it speaks of the open sizes; every engine infers its own
    partial = copy.with_name(f"part-{copy.name}")
    outside = model.ByteSize() > _INLINE_LIMIT
    onnx.save(model, str(partial), save_as_external_data=outside, location=f"{copy.name}.data" if outside else None)
    partial.replace(copy)


# --- inputs ---------------------------------------------------------------------------------------------------------


def inputs_file(model: Path, folder: Path = FOLDER, given: Path | None = None) -> Path:
    """Inputs of a model as an .npz file: those given, seeded random ones for the others."""
    path = folder / f"{place_name(model)}.inputs.npz"
    mine = path.with_name(path.name.replace(".inputs", ".given")) if given is not None else path
    if given is None and path.exists() and path.stat().st_mtime >= model.stat().st_mtime:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    values = inputs_of(read_model(model).graph)
    own = _read_inputs(given) if given is not None else {}
    _refuse_unknown(str(given), own, values)
    random = np.random.default_rng(0)
    arrays = {
        name: _checked(own[name], value, given) if name in own else _made(value, random)
        for name, value in values.items()
    }
    partial = mine.with_name(f"part-{mine.name}")
    np.savez(partial, **arrays)  # type: ignore[arg-type, unused-ignore]
    partial.replace(mine)
    return mine


def _dtype(value: onnx.ValueInfoProto) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


def _made(value: onnx.ValueInfoProto, random: np.random.Generator) -> Array:
    shape, dtype = tuple(map(int, sizes(value))), _dtype(value)
    if dtype.kind in "iub":
        return random.integers(0, 2, shape).astype(dtype)
    return np.asarray(random.standard_normal(shape)).astype(dtype)


def _read_inputs(file: Path) -> dict[str, Array]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in getattr(archive, "files", ())}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise SystemExit(f"--inputs: {file}: cannot be read as .npz ({error})") from None


def _checked(array: Array, value: onnx.ValueInfoProto, file: Path | None) -> Array:
    if array.shape != sizes(value) or array.dtype != _dtype(value):
        got, want = f"{array.dtype} {list(array.shape)}", f"{_dtype(value)} {list(sizes(value))}"
        raise SystemExit(f"--inputs: {file}: {value.name!r} is {got}; the model takes {want}")
    return array


def _refuse_unknown(where: str, given: Mapping[str, object], inputs: Mapping[str, object]) -> None:
    unknown = sorted(set(given) - set(inputs))
    if unknown:
        raise SystemExit(f"{where}: there is no input {unknown[0]!r}; the inputs are {', '.join(inputs) or 'none'}")
