"""From a fused function to loops: Relay function -> TE tensors -> schedule -> TIR.

In: a primitive Relay function (its body composes operators; parameters are tensors or tuples of tensors), a target.
Out: a PrimFunc whose parameters are the flattened inputs, then the flattened outputs. Invariant: outputs are distinct
computed tensors (a function that returns an input, or one value twice, gets a copy). The anchor is the operator of the
highest kind, the last one among equals; it chooses the schedule (backends/registry.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from armillary import te
from armillary.backends.anchor import contractions, find_anchor, workload_of_call
from armillary.backends.base import backend_of
from armillary.backends.placement import scopes_of
from armillary.backends.registry import Fused, Implementation, Versions, choose, is_implemented, scripted
from armillary.backends.workload import Workload
from armillary.base.aliases import Array
from armillary.base.node import post_order
from armillary.base.node import replace as replace_node
from armillary.errors import UnsupportedError
from armillary.ops._types import copied
from armillary.relay.expr import LARGEST_SPLAT, Call, Constant, Function, Tuple, TupleGetItem, Var
from armillary.relay.op import Op, get_op
from armillary.relay.types import TupleType, Type, tensor_fields
from armillary.relay.walk import copy_type, substitute
from armillary.target import Target
from armillary.te.constant import spelled_out
from armillary.tir import build as T
from armillary.tir.extents import to_expr
from armillary.tir.stmt import KERNEL_SYMBOL, Buffer, IfThenElse, PrimFunc, Stmt
from armillary.tir.substitute import rename_buffers

Value = Any  # Any: a te.Tensor, or a (nested) tuple of them


def lower_fused(function: Function, target: Target, name: str, split: Op | None = None) -> PrimFunc:
    """The scheduled loops of one fused function, before the TIR passes; `split`: it is a version of a call of this
    operator, of which there are no further ones."""
    results = tensor_fields(function.body.checked_type)
    if results and all(0 in ty.shape for ty in results):
        return _nothing(function, name)
    anchor = find_anchor(function)
    if anchor is not None:
        workload = workload_of(function, anchor, target)
    else:
        workload = Workload(get_op("copy"), None, tuple(p.checked_type for p in function.params), target)
    lowered = _in_scopes(_lowered(function, anchor, workload, name, split), scopes_of(function))
    if backend_of(target).device:  # sources of devices are read beside those of old scripts
        return lowered.with_attr(KERNEL_SYMBOL, f"tvmgen_default_{name}")  # type: ignore[no-any-return]
    return lowered


def _in_scopes(func: PrimFunc, scopes: Mapping[int, str]) -> PrimFunc:
    """The loops with some of their tensors in other memory than buffers."""
    if not scopes:
        return func
    old = [p for p in func.params if isinstance(p, Buffer)]
    new = {b: replace_node(b, scope=scopes[n]) for n, b in enumerate(old) if n in scopes}
    params = tuple(new.get(p, p) if isinstance(p, Buffer) else p for p in func.params)
    moved: PrimFunc = replace_node(func, params=params, body=rename_buffers(func.body, new))
    return moved


def _lowered(
    function: Function, anchor: Call | None, workload: Workload, name: str, split: Op | None = None
) -> PrimFunc:
    implementation, _ = choose(workload)
    target = workload.target
    if implementation.versions is not None and anchor is not None and anchor.op is not split:
        versions = implementation.versions(anchor, workload)
        if versions is not None:
            return _by_size(function, anchor, versions, target, name)
    with target:  # a compute may depend on the vectors and registers it is compiled for
        fused = _compose(function, anchor, workload, implementation)
    schedule = te.create_schedule([t.op for t in fused.outputs])
    scheduled = implementation.schedule(schedule, fused) or schedule
    if isinstance(scheduled, PrimFunc):  # loops that were written, not scheduled
        written: PrimFunc = scheduled.with_attr("global_symbol", name)
        return written
    return te.lower_schedule(scheduled, [*fused.inputs, *fused.outputs], name)


def _by_size(function: Function, anchor: Call, versions: Versions, target: Target, name: str) -> PrimFunc:
    """The loops of one version of the anchor or, where sizes that are bound later decide, of all."""
    many = _version(function, anchor, versions.many, target, name)
    if isinstance(versions.extent, int):
        few = next(version.call for version in versions.few if not version.equal)
        return many if versions.extent >= versions.fewest else _version(function, anchor, few, target, name)
    body: Stmt | None = None
    for version in versions.few:
        lowered = _version(function, anchor, version.call, target, name)
        pairs = zip(lowered.params, many.params, strict=True)
        same = {a: b for a, b in pairs if isinstance(a, Buffer) and isinstance(b, Buffer)}
        tests = [T.equal(to_expr(extent), value) for extent, value in version.equal]
        loops = rename_buffers(lowered.body, same)
        body = IfThenElse(reduce(T.logical_and, tests), loops, body) if tests else loops
    assert body is not None, "there are versions for few"
    result: PrimFunc = replace_node(many, body=IfThenElse(to_expr(versions.extent) < versions.fewest, body, many.body))
    return result


def _version(function: Function, anchor: Call, call: Call, target: Target, name: str) -> PrimFunc:
    """The loops of a function with another call as its anchor."""
    assert isinstance(anchor.op, Op), "anchors are operators"
    return lower_fused(_with_anchor(function, anchor, call), target, name, anchor.op)


def _with_anchor(function: Function, anchor: Call, call: Call) -> Function:
    body = substitute(function.body, {id(anchor): copy_type(call, anchor)})
    return Function(function.params, body, function.ret_type, function.attrs, function.span)


def _nothing(function: Function, name: str) -> PrimFunc:
    """Results without elements: the loops of no operator run, and no schedule has to divide by their sizes."""
    inputs: list[te.Tensor] = []
    for parameter in function.params:
        _placeholders(parameter.name_hint, parameter.checked_type, inputs)
    outputs = [
        te.compute(ty.known, lambda *_, dtype=ty.dtype: T.const(0, dtype), name="empty", tag="injective")
        for ty in tensor_fields(function.body.checked_type)
    ]
    return te.lower_schedule(te.create_schedule([t.op for t in outputs]), [*inputs, *outputs], name)


def workload_of(function: Function, anchor: Call, target: Target) -> Workload:
    """What the choice of the function's schedule depends on."""
    alone = workload_of_call(anchor, target)
    together = replace(
        alone, inner=tuple(workload_of_call(c, target) for c in contractions(function) if c is not anchor)
    )
    return together if is_implemented(together) else alone


def _compose(function: Function, anchor: Call | None, workload: Workload, chosen: Implementation) -> Fused:
    """Evaluate the body over TE tensors; contractions that the workload names are computed as is chosen for them."""
    inner = [call for call in contractions(function) if call is not anchor] if workload.inner else []
    rules = {id(call): choose(of)[0].compute for call, of in zip(inner, workload.inner, strict=True)}
    rules[id(anchor)] = chosen.compute
    inputs: list[te.Tensor] = []
    values: dict[int, Value] = {}
    for parameter in function.params:
        values[id(parameter)] = _placeholders(parameter.name_hint, parameter.checked_type, inputs)
    anchor_tensors: tuple[te.Tensor, ...] = ()
    for item in post_order(function.body, lambda n: not isinstance(n, Op)):
        match item:
            case Call():
                rule = rules.get(id(item))
                if rule is None and isinstance(item.op, Op) and item.op.is_scripted_for(workload.target):
                    rule = scripted(workload_of_call(item, workload.target)).compute
                values[id(item)] = _call(item, [values[id(a)] for a in item.args], rule)
                if item is anchor:
                    anchor_tensors = _flat(values[id(item)])
            case Tuple(fields):
                values[id(item)] = tuple(values[id(f)] for f in fields)
            case TupleGetItem(of, index):
                values[id(item)] = values[id(of)][index]
            case Constant(data):
                values[id(item)] = _constant(data)
            case Var(name) if id(item) not in values:
                raise UnsupportedError(f"a kernel cannot use the free variable %{name}")
    outputs = _distinct(_flat(values[id(function.body)]), inputs)
    first = tuple(t for call in inner for t in _flat(values[id(call)]))
    return Fused(workload.typical, anchor_tensors, outputs, tuple(inputs), first)


def _placeholders(name: str, ty: Type, inputs: list[te.Tensor]) -> Value:
    if isinstance(ty, TupleType):
        return tuple(_placeholders(f"{name}_{i}", field, inputs) for i, field in enumerate(ty.fields))
    (tensor,) = tensor_fields(ty)
    result = te.placeholder(tensor.known, tensor.dtype, name=name)
    inputs.append(result)
    return result


def _call(call: Call, arguments: Sequence[Value], rule: Any) -> Value:
    op = call.op
    if not isinstance(op, Op):
        raise UnsupportedError(f"a kernel cannot call {type(op).__name__}", span=call.span)
    rule = rule or op.compute_rule
    if rule is None:
        raise UnsupportedError(f"operator {op.name} has no tensor-expression form", span=call.span)
    result = rule(call.attrs, *arguments)
    many = isinstance(call.checked_type, TupleType)
    return tuple(result) if many else result[0] if isinstance(result, list | tuple) else result


def _constant(data: Array) -> te.Tensor:
    if data.size > LARGEST_SPLAT:
        raise UnsupportedError(f"a constant of {data.size} elements cannot be spelled out in a kernel")
    return spelled_out(data)


def _flat(value: Value) -> tuple[te.Tensor, ...]:
    return tuple(t for v in value for t in _flat(v)) if isinstance(value, tuple | list) else (value,)


def _distinct(outputs: Sequence[te.Tensor], inputs: Sequence[te.Tensor]) -> tuple[te.Tensor, ...]:
    """Outputs as separate computed tensors."""
    taken = {id(t) for t in inputs}
    result = []
    for tensor in outputs:
        if id(tensor) in taken:
            tensor = copied(tensor)
        taken.add(id(tensor))
        result.append(tensor)
    return tuple(result)
