"""The C text of a network that runs without a graph executor: constants, memory, and one function of calls in order.

In: a `Package`: the graph with its memory plan, the rows of its kernels, the values of its constants. Out: the text of
the header and of the file that calls the kernels. Invariant: every entry of the graph has one place: a field of the
inputs or outputs, a constant, or an offset of the arena, as the plan says; kernels are called as
docs/architecture.md says, each for all of its window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from armillary.artifact import Descriptor, FunctionRow, GraphNode, GraphSpec
from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.base.names import identifier
from armillary.base.record import record
from armillary.codegen.c.constants import constant_array
from armillary.errors import UnsupportedError

_NOP = "__nop"
Place = tuple[str, int]  # a C expression of bytes, and how many of them lie before
Places = dict[int, Place]  # by entry of the graph


@record
class Package:
    """A network to be written: `values` are parameters by name, and what depends on them alone by its node."""

    name: str
    spec: GraphSpec
    descriptor: Descriptor
    values: Mapping[str, Array]
    alignment: int
    pool: str = ""  # memory of the caller; without one the package has an array of its own

    @property
    def prefix(self) -> str:
        """How every public name of the package begins."""
        return f"tvmgen_{identifier(self.name)}"

    @cached_property
    def arena_bytes(self) -> int:
        """Bytes of the values between kernels."""
        spec = self.spec
        ends = [0]
        for entry, storage in enumerate(spec.storage_ids):
            offset = spec.arena_offsets[storage] if spec.arena_offsets else -1
            if offset >= 0:
                ends.append(offset + _bytes(spec.shapes[entry], spec.dltypes[entry]))
        return self._aligned(max(ends))

    @property
    def shared_bytes(self) -> int:
        """Bytes of the largest workspace that the phases of a kernel share."""
        return self._aligned(max(known(0, *(row.workspace for row in self.descriptor.functions.values()))))

    @property
    def workspace_bytes(self) -> int:
        """Bytes of all memory that a run uses besides inputs, outputs and the stack."""
        own = max(known(0, *(row.thread_workspace for row in self.descriptor.functions.values())))
        return max(1, self.arena_bytes + self.shared_bytes + self._aligned(own))

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants."""
        return sum(np.asarray(value).nbytes for value in self.values.values())

    @property
    def alignment_of_workspace(self) -> int:
        """Bytes that the address of the memory is a multiple of."""
        return max(self.alignment, 64)

    def _aligned(self, size: int) -> int:
        step = self.alignment_of_workspace
        return -(-size // step) * step

    def runs(self, node: GraphNode) -> bool:
        """Whether a node is a call that a run makes."""
        return node.op != "null" and not node.is_load_time


def known(*sizes: int | str) -> tuple[int, ...]:
    """Sizes that are numbers; UnsupportedError where one is open."""
    numbers = tuple(size for size in sizes if isinstance(size, int))
    if len(numbers) < len(sizes):
        message = f"a C package of a network with open sizes: {', '.join(map(str, sizes))}"
        raise UnsupportedError(message, hint='bind them, or run it by Executor("graph")')
    return numbers


def _bytes(shape: tuple[int | str, ...], dtype: str) -> int:
    return int(np.prod(known(*shape), dtype=np.int64)) * DType(dtype).bytes


def _inputs(package: Package) -> list[int]:
    spec = package.spec
    return [k for k in spec.arg_nodes if spec.nodes[k].name not in package.values]


def _field_names(package: Package) -> tuple[list[str], list[str]]:
    """The C names of inputs and outputs."""
    inputs = [identifier(package.spec.nodes[k].name) for k in _inputs(package)]
    count = len(package.spec.heads)
    return inputs, ["output"] if count == 1 else [f"output{k}" for k in range(count)]


def arguments_of(package: Package) -> tuple[dict[str, dict[str, object]], dict[str, dict[str, object]]]:
    """Inputs and outputs by their C names: dtype, shape and bytes."""
    spec = package.spec
    names = _field_names(package)
    entries = [[spec.entry(k) for k in _inputs(package)], [spec.entry(n, o) for n, o, _ in spec.heads]]
    inputs, outputs = (
        {
            name: {
                "dtype": str(spec.dltypes[e]),
                "shape": list(spec.shapes[e]),
                "size": _bytes(spec.shapes[e], spec.dltypes[e]),
            }
            for name, e in zip(*part, strict=True)
        }
        for part in zip(names, entries, strict=True)
    )
    return inputs, outputs


def package_header(package: Package) -> str:
    """The header: structs of inputs and outputs, sizes, the function."""
    prefix, macro = package.prefix, package.prefix.upper()
    rows = arguments_of(package)
    lines = [f"#ifndef {macro}_H_", f"#define {macro}_H_", "#include <stdint.h>", "", "#ifdef __cplusplus"]
    lines += ['extern "C" {', "#endif", ""]
    for what, fields in zip(("input", "output"), rows, strict=True):
        lines += [f"#define {macro}_{name.upper()}_SIZE {row['size']}" for name, row in fields.items()]
        lines += [f"struct {prefix}_{what}s {{", *(f"  void *{name};" for name in fields), "};", ""]
    lines += [f"#define {macro}_WORKSPACE_SIZE {package.workspace_bytes}", ""]
    if package.pool:
        lines += [f"#define {macro}_{package.pool.upper()}_WORKSPACE_POOL_SIZE {package.workspace_bytes}"]
        lines += [f"/* {package.alignment_of_workspace} bytes are its alignment. */"]
        lines += [f"struct {prefix}_workspace_pools {{", f"  void *{package.pool};", "};", ""]
    one_by_one = "runs at once need pools of their own" if package.pool else "not to be called by two threads at once"
    lines += [f"/* 0, or the number of what a kernel refuses; {one_by_one}. */", f"{_signature(package)};", ""]
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "#endif", ""])


def _signature(package: Package) -> str:
    kinds = ("inputs", "outputs", *(["workspace_pools"] if package.pool else []))
    return f"int32_t {package.prefix}_run({', '.join(f'struct {package.prefix}_{kind} *{kind}' for kind in kinds)})"


def main_source(package: Package) -> str:
    """The file with the constants, the memory and the function that calls the kernels."""
    spec = package.spec
    if spec.variants or spec.image_widths or spec.devices:
        message = "variants" if spec.variants else "several devices or images"
        raise UnsupportedError(
            f"a C package of a graph with {message}", hint="build for one set of shapes and one device"
        )
    places, constants = _places(package)
    lines = [line for k, node in enumerate(spec.nodes) if package.runs(node) for line in _call(package, k, places)]
    lines += _copies_of_heads(package, places)
    functions = dict.fromkeys(node.func_name for node in spec.nodes if package.runs(node) and node.func_name != _NOP)
    arguments = "void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread"
    symbols = [phase.symbol for name in functions for phase in package.descriptor.functions[name].phases]
    declared = "".join(f"int32_t {symbol}({arguments});\n" for symbol in symbols)
    body = "\n".join(f"  {line}" for line in lines)
    memory = f"_Alignas({package.alignment_of_workspace}) uint8_t workspace[{package.workspace_bytes}]"
    return f"""#include "tvmgen_{package.name}.h"
#include <math.h>
#include <string.h>

{declared}
{"".join(constants)}
{"" if package.pool else f"static {memory};"}

{_signature(package)} {{
  int32_t status = 0;{f" uint8_t *workspace = workspace_pools->{package.pool};" if package.pool else ""}
  (void)inputs, (void)outputs, (void)workspace;
{body}
  return status;
}}
"""


def _places(package: Package) -> tuple[Places, list[str]]:
    """Where each entry lies, and the definitions of constants."""
    spec, by_storage, definitions = package.spec, dict[int, Place](), list[str]()
    places: Places = {}
    inputs, outputs = _field_names(package)
    for name, index in zip(inputs, _inputs(package), strict=True):
        by_storage[spec.storage_ids[spec.entry(index)]] = _field("inputs", name)
    used = {edge[0] for node in spec.nodes if package.runs(node) for edge in node.inputs} | {h[0] for h in spec.heads}
    for k, node in enumerate(spec.nodes):
        if node.name in package.values and k in used:
            name = f"constant_{k}"
            definitions.append(constant_array(name, np.asarray(package.values[node.name])))
            places[spec.entry(k)] = f"(uint8_t *){name}", 0
            if node.op == "null":
                by_storage[spec.storage_ids[spec.entry(k)]] = places[spec.entry(k)]
    for name, (node_index, output, _) in zip(outputs, spec.heads, strict=True):
        storage = spec.storage_ids[spec.entry(node_index, output)]
        if storage not in by_storage and (not spec.arena_offsets or spec.arena_offsets[storage] < 0):
            by_storage[storage] = _field("outputs", name)
    for entry, storage in enumerate(spec.storage_ids):
        offset = spec.arena_offsets[storage] if spec.arena_offsets else -1
        if entry not in places and storage in by_storage:
            places[entry] = by_storage[storage]
        elif entry not in places:
            places[entry] = "workspace", offset
    return places, definitions


def _field(owner: str, name: str) -> Place:
    return f"(uint8_t *){owner}->{name}", 0


def _text(place: Place) -> str:
    return f"{place[0]} + {place[1]}" if place[1] else place[0]


def _call(package: Package, index: int, places: Places) -> list[str]:
    """One call of the graph: its phases in order."""
    spec, node = package.spec, package.spec.nodes[index]
    outputs = [spec.entry(index, k) for k in range(node.num_outputs)]
    operands = [spec.entry(n, o) for n, o, _ in node.inputs]
    if node.func_name == _NOP:
        return _laid_together(package, operands, places[outputs[0]], places)
    row = package.descriptor.functions.get(node.func_name)
    if row is None or row.vars or row.external is not None or row.launches:
        message = "control flow" if row is None else "open sizes" if row.vars else "a part for a library or a device"
        raise UnsupportedError(
            f"a C package of a network with {message}: {node.name}", hint='Executor("graph") runs it'
        )
    shared = f"workspace + {package.arena_bytes}"
    own = f"workspace + {package.arena_bytes + package.shared_bytes}"
    pointers = ", ".join([*(_text(places[e]) for e in (*operands, *outputs)), shared, own, "0"])
    return ["{", f"  void *data[] = {{{pointers}}};", *(f"  {line}" for line in _phases(row)), "}"]


def _phases(row: FunctionRow) -> list[str]:
    lines = []
    for phase in row.phases:
        if not isinstance(phase.extent, int):
            raise UnsupportedError(f"a C package of a kernel of open sizes: {row.name}", hint='Executor("graph")')
        lines.append(f"if ((status = {phase.symbol}(data, 0, 0, {phase.extent}, 0)) != 0) return status;")
    return lines


def _laid_together(package: Package, operands: Sequence[int], place: Place, places: Places) -> list[str]:
    """Values one after another, without those that lie there already."""
    base, offset = place
    lines = []
    for entry in operands:
        if places[entry] != (base, offset):
            lines.append(_copy(package, entry, (base, offset), places[entry]))
        offset += _bytes(package.spec.shapes[entry], package.spec.dltypes[entry])
    return lines


def _copy(package: Package, entry: int, target: Place, source: Place) -> str:
    size = _bytes(package.spec.shapes[entry], package.spec.dltypes[entry])
    return f"memmove({_text(target)}, {_text(source)}, {size});"


def _copies_of_heads(package: Package, places: Places) -> list[str]:
    """Outputs that are not computed in place: inputs, constants, values that others share."""
    _, names = _field_names(package)
    lines = []
    for name, (node, output, _) in zip(names, package.spec.heads, strict=True):
        entry = package.spec.entry(node, output)
        if places[entry] != _field("outputs", name):
            lines.append(_copy(package, entry, _field("outputs", name), places[entry]))
    return lines
