"""Compiled graphs kept on disk between processes.

In: a graph module with the arguments that it is compiled for; or a compiled library and its `Interface`. Out: a key;
an entry of the cache. Invariant: the key has everything that the code depends on: the graph's text, shapes, ranges of
open sizes, the contents of weights and constants, options, records, the machine, and the sources of this package and
PyTorch's version; so no entry is ever stale. Weights that a library uses as they are in the module are not stored:
they are the module's. Nothing is unpickled; a damaged entry is a miss (codegen/workers/cache.py), the least recently
used go first above `MAX_BYTES`.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from armillary.artifact import Descriptor
from armillary.artifact.params import load_params, params_size, write_params
from armillary.backends.base import backend_of
from armillary.base.aliases import Array
from armillary.base.aligned import Deferred
from armillary.base.config import setting
from armillary.base.digest import blake2b
from armillary.base.dispatch import DispatchContext
from armillary.base.extent import Extent, Known
from armillary.base.record import record
from armillary.codegen.workers.cache import Cache, cache_key
from armillary.contrib.torch_backend.options import Options
from armillary.driver.kernels import compiler_fingerprint, context_text
from armillary.driver.library import GraphLibrary
from armillary.errors import ArtifactError, ParseError
from armillary.frontend.pytorch.tensors import array_of
from armillary.frontend.values import Value
from armillary.target import Target, as_target
from armillary.text.extent import parse_extent

if TYPE_CHECKING:
    from torch.fx import GraphModule
    from typing_extensions import Buffer

MAX_BYTES = 4 << 30
_LARGEST = 1 << 29  # of an entry: it is in memory when it is written
_FORMAT = "graph 2"


@record
class Result:
    """Where a result comes from: an output of the executor, an argument, a copy of one, or a value that is the same in
    each call, of which each call gets a copy."""

    kind: str  # "output", "output copy", "complex" (of parts), "argument", "argument copy", "value", "size": an extent
    place: int = -1
    value: Value = None


@record
class Interface:
    """What a compiled graph reads and gives.

    `inputs` are arguments by number, with their axes and dtypes; `outputs` shapes and dtypes; `sizes` the open ones,
    each with the argument and the axis that it is.
    """

    inputs: tuple[tuple[int, int, str], ...]
    outputs: tuple[tuple[tuple[Known, ...], str], ...]
    results: tuple[Result, ...]
    sizes: tuple[tuple[str, int, int], ...] = ()


def graph_key(
    module: GraphModule,
    arguments: Sequence[Value],
    static: frozenset[int],
    options: Options,
    sizes: Mapping[str, object],
) -> str:
    """The key of a compiled graph; empty where it is not kept: switched off, or compiled by records of packages."""
    if not (options.cache and setting("ARMILLARY_CACHE")) or DispatchContext.current.has_records():
        return ""
    records = Path(options.tune).read_bytes() if options.tune else b""
    machine = backend_of(as_target(options.target)).machine(as_target(options.target))
    common = (str(machine), setting("ARMILLARY_CC"), context_text(), compiler_fingerprint(), torch.__version__)
    plain = dataclasses.replace(options, report=None, tune="")
    metas = [n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder"]
    kinds = torch.Tensor | torch.SymInt
    values = [  # of what is open the symbol; its value, where it has one, is among the sizes
        _of_tensor(v) if place in static else _of_type(meta) if isinstance(meta, kinds) else repr(v)
        for place, (v, meta) in enumerate(zip(arguments, metas, strict=True))
    ]
    return cache_key(_FORMAT, *common, repr(plain), records, repr(sizes), repr(values), _of_graph(module))


def _of_graph(module: GraphModule) -> str:
    """A graph's nodes with their types, the contents of what it holds, and the graphs in it."""
    rows = [str(module.graph)]
    for node in module.graph.nodes:
        many = node.meta.get("val")
        rows.append(repr([_of_type(v) for v in (many if isinstance(many, list | tuple) else [many])]))
        if node.op == "get_attr":
            held: Value = module
            for part in node.target.split("."):
                held = getattr(held, part)
            rows.append(_of_graph(held) if hasattr(held, "graph") else _of_tensor(held))
    return "\n".join(rows)


def _of_type(value: Value) -> str:
    return f"{value.dtype}{tuple(value.shape)}" if isinstance(value, torch.Tensor) else str(value)


def _of_tensor(value: Value) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    array = array_of(value)
    return f"{array.dtype}{array.shape} {blake2b(array.reshape(-1).view(np.uint8).data).hexdigest()}"


def _cache() -> Cache:
    return Cache(setting("ARMILLARY_CACHE_DIR") / "graphs", MAX_BYTES)


def store(key: str, library: GraphLibrary, interface: Interface, weights: Mapping[int, Array]) -> None:
    """Keep a compiled graph; `weights` are those of the module, by argument."""
    places = {(a.ctypes.data, a.nbytes, a.dtype): place for place, a in weights.items() if a.nbytes}
    shared: dict[str, tuple[int, tuple[int, ...]]] = {}  # the argument, and the shape that it has here
    arrays: dict[str, Array | Deferred] = {}
    for name, held in library.params.held.items():
        is_here = not isinstance(held, Deferred) and held.flags.c_contiguous
        place = places.get((held.ctypes.data, held.nbytes, held.dtype)) if is_here else None  # type: ignore[union-attr]
        if place is None:
            arrays["param." + name] = held
        else:
            shared[name] = place, held.shape
    rows = []
    for number, row in enumerate(interface.results):
        value = str(row.value) if isinstance(row.value, Extent) else row.value
        if isinstance(value, torch.Tensor):
            if value.dtype == torch.bfloat16:  # numpy has none of its own
                return
            arrays[f"result.{number}"], value = array_of(value), None
        rows.append((row.kind, row.place, value))
    head = {
        "descriptor": library.descriptor.to_json(),
        "target": library.target.to_json(),
        "externs": library.externs,
        "graph": library.graph_json,
        "objects": [len(code) for code in library.objects],
        "shared": shared,
        "inputs": interface.inputs,
        "outputs": [
            ([d if isinstance(d, int) else str(d) for d in shape], dtype) for shape, dtype in interface.outputs
        ],
        "results": rows,
        "sizes": interface.sizes,
    }
    if params_size(arrays) > _LARGEST:
        return
    text, cache = json.dumps(head).encode(), _cache()
    parts: list[Buffer] = [struct.pack("<Q", len(text)), text, *library.objects]
    write_params(parts.append, arrays)  # the arrays' own memory: hundreds of MB are not copied first
    cache.put(key, *parts)
    cache.trim_at_times()


def load(key: str, weights: Mapping[int, Array]) -> tuple[GraphLibrary, Interface] | None:
    """What `store` kept under a key; None where there is nothing."""
    payload = _cache().get(key)
    if payload is None:
        return None
    try:
        return _read(payload, weights)
    except (ArtifactError, ParseError, LookupError, TypeError, ValueError, struct.error):  # of another format
        return None


def _read(payload: bytes, weights: Mapping[int, Array]) -> tuple[GraphLibrary, Interface]:
    (size,) = struct.unpack_from("<Q", payload)
    head, place = json.loads(payload[8 : 8 + size]), 8 + size
    objects = []
    for count in head["objects"]:
        objects.append(payload[place : place + count])
        place += count
    arrays = load_params(memoryview(payload)[place:])
    params = {name.removeprefix("param."): a for name, a in arrays.items() if name.startswith("param.")}
    params |= {name: weights[k].reshape(shape) for name, (k, shape) in head["shared"].items()}
    results = []
    for number, (kind, index, value) in enumerate(head["results"]):
        array = arrays.get(f"result.{number}")
        if array is not None:
            value = torch.from_numpy(array.copy())
        results.append(Result(kind, index, parse_extent(value) if kind == "size" and isinstance(value, str) else value))
    outputs = tuple((tuple(map(_dim, shape)), dtype) for shape, dtype in head["outputs"])
    interface = Interface(tuple(map(tuple, head["inputs"])), outputs, tuple(results), tuple(map(tuple, head["sizes"])))
    descriptor = Descriptor.from_json(head["descriptor"])
    library = GraphLibrary(
        Target(head["target"]), objects, descriptor, head["externs"], lambda form: "", head["graph"], params
    )
    return library, interface


def _dim(dim: int | str) -> Known:
    return dim if isinstance(dim, int) else parse_extent(dim)
