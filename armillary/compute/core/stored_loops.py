"""Loops and layers that this machine has compiled before: found without what lowers, optimises and compiles.

In: a function of loops, or of Relay with the weights that it is compiled for, and options of passes. Out: compiled
objects with their descriptor (of a layer its graph and packed weights, too), of the kernel cache, or compiled and kept
there. Invariant: an entry is found by the function's text, the weights' contents, the processor, the options, what is
installed, and the sizes and times of the compiler's own files, so what has changed finds none. Not stored: what needs
foreign functions, what records or a script's own rules for operators decide, layers of more than `_LARGEST` bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

import armillary
from armillary.artifact import Descriptor
from armillary.artifact.params import load_params, save_params
from armillary.base.aliases import Array
from armillary.base.config import setting
from armillary.base.digest import blake2b
from armillary.base.dispatch import DispatchContext, records_key
from armillary.base.lazy import deferred
from armillary.base.once import once
from armillary.codegen.object.jit import LoadedObjects
from armillary.codegen.workers.cache import Cache, cache_key, default_cache
from armillary.compute.core.shipped import compiler_files, shipped
from armillary.ir import IRModule
from armillary.target import Target
from armillary.tir.stmt import PrimFunc
from armillary.transform import PassContext

with deferred():
    from armillary.codegen.llvm.target import machine_text
    from armillary.driver.build import build as build_graph
    from armillary.driver.library import FunctionLibrary, GraphLibrary
    from armillary.driver.te_build import build
    from armillary.relay.op import LEGALIZE_RULES
    from armillary.relay.printer import astext

Code = tuple[LoadedObjects, Descriptor]
_LARGEST = 4 << 20  # of a layer's weights: larger ones take longer to read and to compare than to compile for


@once
def _compiler_sum() -> str:
    """What the compiler's files are now, by name, size and time."""
    return cache_key(armillary.__version__, armillary.__file__, repr(compiler_files()))


def code_of(function: PrimFunc, config: Mapping[str, object]) -> Code:
    """A function for this machine: as it came with the package, as it was stored, or compiled and stored."""
    text = str(function)
    data = shipped(text, config)
    if data is not None:
        return _loaded(data)
    target, cache = Target("llvm"), default_cache()
    key = cache_key("loops", text, machine_text(target), repr(sorted(config.items())), _compiler_sum())
    stored = cache.get(key) if cache is not None else None
    if stored is not None:
        return _loaded(stored)
    with PassContext(config=config):
        library = build(function, target=target)
    if cache is not None and not library.externs:
        cache.put(key, packed(library))
    return library.loaded(), library.descriptor


def layer_of(module: IRModule, weights: Mapping[str, Array], config: Mapping[str, object]) -> GraphLibrary:
    """A layer for this machine, at level 3 and for these weights: as it was stored, or compiled and stored."""
    target, cache = Target("llvm"), _cache_of_layers(weights)
    key = _layer_key(module, weights, config, target) if cache is not None else ""
    stored = cache.get(key) if cache is not None else None
    if stored is not None:
        return _unpacked_layer(stored, target)
    with PassContext(opt_level=3, config=config):
        library: GraphLibrary = build_graph(module, target=target, params=dict(weights))
    if cache is not None and not library.externs and not DispatchContext.current.has_records():
        params = save_params(library.params.held)
        layer = json.dumps({"graph": library.graph_json, "params": len(params)}).encode()
        cache.put(key, b"".join((struct.pack("<Q", len(layer)), layer, params, packed(library))))
        cache.trim_at_times()
    return library


def _cache_of_layers(weights: Mapping[str, Array]) -> Cache | None:
    is_large = sum(value.nbytes for value in weights.values()) > _LARGEST
    return None if is_large or records_key() is None or any(LEGALIZE_RULES.values()) else default_cache()


def _layer_key(module: IRModule, weights: Mapping[str, Array], config: Mapping[str, object], target: Target) -> str:
    rows = [f"{n} {v.dtype}{v.shape} {blake2b(v.reshape(-1).view('u1').data).hexdigest()}" for n, v in weights.items()]
    options = repr((sorted(config.items()), records_key(), setting("ARMILLARY_CC")))
    return cache_key("layer", astext(module), *rows, machine_text(target), options, _compiler_sum())


def packed(library: FunctionLibrary) -> bytes:
    """Objects and descriptor, as they are stored."""
    head = {"lengths": [len(code) for code in library.objects], "descriptor": library.descriptor.to_json()}
    return b"\n".join([json.dumps(head).encode(), b"".join(library.objects)])


def _unpacked(data: bytes) -> tuple[list[bytes], Descriptor]:
    head, _, code = data.partition(b"\n")
    row, objects, start = json.loads(head), [], 0
    for size in row["lengths"]:
        objects.append(code[start : start + size])
        start += size
    return objects, Descriptor.from_json(row["descriptor"])


def _loaded(data: bytes) -> Code:
    objects, descriptor = _unpacked(data)
    return LoadedObjects(objects, ()), descriptor


def _unpacked_layer(data: bytes, target: Target) -> GraphLibrary:
    (size,) = struct.unpack_from("<Q", data)
    layer, start = json.loads(data[8 : 8 + size]), 8 + size
    end = start + layer["params"]
    (objects, descriptor), params = _unpacked(data[end:]), load_params(memoryview(data)[start:end])
    return GraphLibrary(target, objects, descriptor, (), lambda form: "", layer["graph"], params)
