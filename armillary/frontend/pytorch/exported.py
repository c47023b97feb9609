"""Programs of torch.export as Relay modules.

In: an ExportedProgram. Out: `(IRModule, params)`; "main" takes the program's inputs in order, then its parameters and
buffers under their names in the model, and records `input_names` and `output_names`. Invariant: operators that have no
rule are decomposed by PyTorch's own table before the walk (fx_graph.py), those that have one are not; what no rule
imports is refused for the whole program at once. The module computes; it changes nothing: a buffer that the program
changes is a further output behind the others, `<buffer>.new`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from armillary.base.aliases import Array
from armillary.base.node import Pairs, post_order
from armillary.errors import ModelError, Span, UnsupportedError
from armillary.frontend.pytorch.complex_values import complex_of, is_complex, real_type
from armillary.frontend.pytorch.fx_graph import FxWalk, refuse_missing, target_name
from armillary.frontend.pytorch.sizes import OpenSizes, numeric_ranges
from armillary.frontend.pytorch.table import aten_rule
from armillary.frontend.pytorch.tensors import array_of
from armillary.frontend.values import Value, is_tensor, scalar
from armillary.ir import IRModule
from armillary.ops.shape.bound_sizes import with_sizes_bound
from armillary.relay.expr import Constant, Expr, Function, Tuple, Var
from armillary.relay.types import TensorType

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram
    from torch.export.graph_signature import InputSpec

_CHANGED = ("BUFFER_MUTATION", "USER_INPUT_MUTATION", "PARAMETER_MUTATION")
_SMALL = 64  # elements of a buffer of integers that is a constant: it decides shapes


def import_program(
    program: ExportedProgram, shape: Mapping[str, Sequence[object]], freeze: bool
) -> tuple[IRModule, dict[str, Array]]:
    """What entry.py says of `from_exported_program`."""
    lowered = decomposed(program)
    refuse_missing(lowered.graph_module, "<exported program>")
    return _Import(lowered, dict(shape), freeze).run()


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """The program in operators that have a rule, as far as PyTorch's decompositions lead there."""
    import torch

    table = torch.export.default_decompositions()
    decomposes = ("aten.einsum.default",) if program.range_constraints else ()  # its kernel wants fixed sizes
    for operator in list(table):
        name = target_name(operator)
        if aten_rule(name) is not None and name not in decomposes:
            del table[operator]
    return program.run_decompositions(table)


class _Import:
    def __init__(self, program: ExportedProgram, shape: dict[str, Sequence[object]], freeze: bool) -> None:
        self.program, self.shape, self.freeze = program, shape, freeze
        self.sizes = _sizes_of(program)
        self.walk = FxWalk("<exported program>", self.sizes)
        self.params: dict[str, tuple[Var, Array]] = {}
        self.inputs: list[Var] = []
        self.changed = {s.target for s in program.graph_signature.output_specs if s.kind.name in _CHANGED}
        self.by_placeholder = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}

    def run(self) -> tuple[IRModule, dict[str, Array]]:
        signature = self.program.graph_signature
        names = [spec.arg.name for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
        unknown = sorted(set(self.shape) - set(names))
        if unknown:
            hint = f"inputs: {', '.join(names)}"
            raise ModelError(f"shape= names {unknown[0]!r}, which is no input of the program", hint=hint)
        values = [self.input(spec) for spec in signature.input_specs]
        results = self.walk.run(self.program.graph_module, values)
        rows: list[tuple[str, Expr]] = []
        for place, (spec, value) in enumerate(zip(signature.output_specs, results, strict=True)):
            kind = spec.kind.name
            if kind == "TOKEN" or value is None:
                continue
            changed = kind in _CHANGED
            name = f"{spec.target}.new" if changed else str(getattr(spec.arg, "name", "") or f"output{place}")
            value = value.joined() if is_complex(value) else value
            rows.append((name, value if is_tensor(value) else number(value)))
        changed_last = [row for row in rows if not row[0].endswith(".new")] + [r for r in rows if r[0].endswith(".new")]
        return module_of(self.inputs, self.params, changed_last, self.walk.folder.data_sizes.binds)

    def input(self, spec: InputSpec) -> Value:
        """The value of a placeholder: a variable for an input or a parameter, a constant, or a number."""
        kind, name = spec.kind.name, spec.arg.name
        if kind == "USER_INPUT":
            return self.user_input(spec, name)
        if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            return self.weight(spec, kind)
        if kind == "TOKEN":
            return None
        raise UnsupportedError(f"the input {name!r} is a {kind.lower()}", span=Span("<exported program>", name))

    def user_input(self, spec: InputSpec, name: str) -> Value:
        if not type(spec.arg).__name__.startswith("Tensor"):
            value = self.by_placeholder[name].meta.get("val")
            is_open = type(value).__name__ == "SymInt"
            return self.sizes.extent(value) if is_open else getattr(spec.arg, "value", None)
        meta = self.by_placeholder[name].meta["val"]
        sizes = self.shape.get(name, meta.shape)
        if len(sizes) != len(meta.shape):
            raise ModelError(f"shape= gives {name!r} {len(sizes)} sizes, the program has {len(meta.shape)}")
        known = self.sizes.shape(name, meta.shape, sizes, _dim_names(meta, name))
        result = Var(name, real_type(known, meta.dtype), Span("<exported program>", name))
        self.inputs.append(result)
        self.walk.folder.outer.add(id(result))
        return complex_of(result, self.walk.folder) if meta.is_complex() else result

    def weight(self, spec: InputSpec, kind: str) -> Value:
        held = self.program.constants if spec.target in self.program.constants else self.program.state_dict
        value = self.array(spec, kind, array_of(held[spec.target]))
        return complex_of(value, self.walk.folder) if held[spec.target].is_complex() else value

    def array(self, spec: InputSpec, kind: str, array: Array) -> Var | Constant:
        """A weight as a constant or a variable."""
        target = spec.target
        is_index = array.dtype.kind in "iub" and array.size <= _SMALL
        if target in self.changed:
            return parameter(self.walk, self.params, target, array)
        if self.freeze or is_index or kind == "CONSTANT_TENSOR":
            return self.walk.folder.give(Constant(array, Span("<exported program>", target)))
        return parameter(self.walk, self.params, target, array)


def _sizes_of(program: ExportedProgram) -> OpenSizes:
    """The open sizes of a program: their ranges, and what they are in the example."""
    shapes = [getattr(n.meta.get("val"), "shape", ()) for n in program.graph.nodes if n.op == "placeholder"]
    examples = {}
    for dim in (d for shape in shapes for d in shape if not isinstance(d, int)):
        if dim.node.expr.is_Symbol and dim.node.has_hint():
            examples[str(dim.node.expr)] = int(dim.node.hint)
    return OpenSizes(numeric_ranges(program.range_constraints), examples)


def _dim_names(meta: Tensor, name: str) -> dict[int, str]:
    """The names of an input's axes, where it was exported with a Dim of that name and not loaded from a file."""
    env = next((d.node.shape_env for d in meta.shape if not isinstance(d, int)), None)
    names = getattr(env, "source_name_to_debug_name", None) or {}
    return {k: n for k in range(meta.ndim) if (n := names.get(f"L['{name}'].size()[{k}]")) and n.isidentifier()}


def parameter(walk: FxWalk, params: dict[str, tuple[Var, Array]], name: str, array: Array) -> Var:
    """A variable whose value is known when importing."""
    if name not in params:
        variable = Var(name, TensorType(array.shape, Constant(array).checked_type.dtype), Span(walk.source, name))  # type: ignore[attr-defined]
        params[name] = (variable, array)
        walk.folder.given += array.nbytes
        walk.folder.outer.add(id(variable))
        walk.folder.weights[id(variable)] = array
    return params[name][0]


def number(value: Value) -> Expr:
    """A number that a program returns, as a tensor."""
    return scalar(value, "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float64")


def module_of(
    inputs: Sequence[Var],
    params: Mapping[str, tuple[Var, Array]],
    outputs: Sequence[tuple[str, Expr]],
    binds: Mapping[str, Expr] | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """A module whose main takes inputs and those parameters that are read; `binds` give sizes that the data say."""
    if not outputs:
        raise ModelError("the model returns no tensor")
    body = outputs[0][1] if len(outputs) == 1 else Tuple(tuple(value for _, value in outputs))
    body = with_sizes_bound(body, binds or {})
    used = {id(item) for item in post_order(body) if isinstance(item, Var)}
    weights = {name: pair for name, pair in params.items() if id(pair[0]) in used}
    attrs: Pairs = (
        ("input_names", tuple(v.name_hint for v in inputs)),
        ("output_names", tuple(name for name, _ in outputs)),
    )
    function = Function((*inputs, *(v for v, _ in weights.values())), body, None, attrs)
    return IRModule({"main": function}), {name: array for name, (_, array) in weights.items()}
