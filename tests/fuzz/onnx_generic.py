"""A random node of any operator, from its schema: types, optional inputs, attributes.

In: a Draw and an operator's name. Out: the node added to the graph, or Unfit. Invariant: it needs no knowledge of the
operator beyond the schema, so an operator that is new in the table is drawn without being listed here; those whose
inputs must fit each other in ways that the schema does not say have a recipe of their own (onnx_recipes*.py).
"""

from __future__ import annotations

from typing import Any

import onnx
from onnx.defs import OpSchema
from onnx_kit import ALL, Draw, Unfit, Value
from onnx_truth import words

_FLAGS = words(
    "keepdims exclusive reverse select_last_index noop_with_empty_axes fmod upper detect_negative "
    "detect_positive largest sorted center_point_box align_corners no_concat time_major linear_before_reset "
    "allowzero"
)
_WORDS = {
    "approximate": ("none", "tanh"),
    "direction": ("LEFT", "RIGHT"),
    "reduction": ("none", "sum", "mean"),
    "mode": ("standard", "nesterov"),  # of Momentum; others have recipes
    "round_mode": (),
}


def schema_of(op: str, domain: str, opset: int) -> OpSchema:
    """The schema that holds at an opset; Unfit where there is none."""
    try:
        return onnx.defs.get_schema(op, opset if domain == "" else 100, domain)
    except onnx.defs.SchemaError:
        raise Unfit(f"{op} is not in opset {opset}") from None


def allowed(schema: OpSchema, kind: str) -> list[str]:
    """The element types that a formal parameter takes."""
    constraints = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    names = [t[7:-1] for t in constraints.get(kind, [kind]) if t.startswith("tensor(")]
    plain = {"float": "float32", "double": "float64"}
    return [d for d in ALL if d in {plain.get(n, n) for n in names}]


def generic(d: Draw, op: str, domain: str = "") -> list[Value]:
    """Add a node of this operator."""
    schema = schema_of(op, domain, d.opset)
    bound: dict[str, str] = {}
    inputs: list[Value | None] = []
    first: Value | None = None
    for formal in schema.inputs:
        if formal.option == OpSchema.FormalParameterOption.Optional and d.chance(0.5):
            inputs.append(None)
            continue
        variadic = formal.option == OpSchema.FormalParameterOption.Variadic
        for _ in range(d.integer(max(1, formal.min_arity), 4) if variadic else 1):
            value = _input(d, allowed(schema, formal.type_str), bound.get(formal.type_str), first)
            bound.setdefault(formal.type_str, value.dtype)
            first = first or value
            inputs.append(value)
    attributes = {
        name: value
        for name, a in schema.attributes.items()
        if (value := _attribute(d, name, a, first.rank if first is not None else 0)) is not None
    }
    outputs = sum(o.option == OpSchema.FormalParameterOption.Single for o in schema.outputs) or 1
    return d.emit(op, inputs, outputs, domain, **attributes)


def _input(d: Draw, dtypes: list[str], bound: str | None, first: Value | None) -> Value:
    if bound is not None:
        dtypes = [bound]
    if not dtypes:
        raise Unfit("no type of ours")
    if first is None:
        return d.data(sorted(dtypes, key=lambda t: t != "float32"))
    shape = d.broadcast(first.shape) if d.chance(0.6) else first.shape
    return d.like(Value("", d.array(d.one(dtypes), ())), shape)


def _attribute(d: Draw, name: str, schema: Any, rank: int) -> Any:
    if not schema.required and d.chance(0.35):
        return None
    kind = schema.type
    if name == "axis":
        return d.axis(rank)
    if name == "axes":
        return d.axes(rank)
    if name in _FLAGS:
        return d.integer(0, 1)
    if kind == OpSchema.AttrType.FLOAT:
        return d.random.choice((0.01, 0.5, 1.0, 1.5, 2.0, d.random.uniform(0, 2)))
    if _WORDS.get(name):
        return d.one(_WORDS[name])
    if schema.required:
        raise Unfit(f"attribute {name} has no rule")
    return None
