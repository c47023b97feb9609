"""The conversions of a quantised network in functions of their own: qconfig's `partition_conversions`.

In: a realized module. Out: `main` calls three functions: `quantize_inputs` makes integers of inputs, `quantized_main`
computes, `dequantize_outputs` makes float of its results: a device without float computes the second. Invariant: main
computes what it did; with `ensure_fully_integral` the second has no float in or out, or that is an error.
"""

from __future__ import annotations

from armillary.errors import ArmillaryError
from armillary.ir import GlobalVar, IRModule
from armillary.ops.qnn.quantize import dequantize, quantize
from armillary.relay.expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.infer import check_module
from armillary.relay.types import TupleType, Type, tensor_fields
from armillary.relay.walk import map_children, post_order


class NotIntegral(ArmillaryError, AssertionError):
    """Something between the conversions is float."""


def partition_conversions(mod: IRModule, ensure_fully_integral: bool = False) -> IRModule:
    """Split main at the first and the last conversions."""
    check_module(mod)
    main = mod["main"]
    assert isinstance(main, Function), "a module of Relay"
    heads = [e for e in post_order(main) if getattr(e, "op", None) is quantize and _is_of_input(e, main)]
    inner, inputs = _inner(main, heads)
    body, tail = _outer(inner)
    middle = Function(tuple(inputs), body)
    result = IRModule()
    names = [GlobalVar(name) for name in ("quantize_inputs", "quantized_main", "dequantize_outputs")]
    head = _prefix(main, heads, inputs)
    result["quantize_inputs"], result["quantized_main"], result["dequantize_outputs"] = head, middle, tail
    params = tuple(map(_renamed, main.params))
    fed = Call(names[0], params, None)
    parts = tuple(TupleGetItem(fed, index) for index in range(len(inputs)))
    result["main"] = Function(params, Call(names[2], (Call(names[1], parts, None),), None))
    check_module(result)
    if ensure_fully_integral:
        _check(middle)
    return result


def _is_of_input(expr: Expr, main: Function) -> bool:
    return isinstance(expr, Call) and any(expr.args[0] is param for param in main.params)


def _renamed(param: Var) -> Var:
    return Var(param.name_hint, param.checked_type)


def _inner(main: Function, heads: list[Expr]) -> tuple[Expr, list[Var]]:
    """The body, of what the heads give and of inputs that are used otherwise."""
    new: dict[int, Expr] = {id(head): Var(f"quantized_{n}", head.checked_type) for n, head in enumerate(heads)}
    for param in main.params:
        new[id(param)] = Var(param.name_hint, param.checked_type)
    for expr in post_order(main.body):
        if id(expr) not in new:
            new[id(expr)] = map_children(expr, lambda child: new.get(id(child), child))
    body = new[id(main.body)]
    reached = {id(e) for e in post_order(body)}
    wanted = [new[id(e)] for e in (*heads, *main.params)]
    return body, [v for v in wanted if isinstance(v, Var) and id(v) in reached]


def _prefix(main: Function, heads: list[Expr], inputs: list[Var]) -> Function:
    """What gives the inputs of the middle: conversions, and inputs that pass through."""
    params = [_renamed(param) for param in main.params]
    by_name = {param.name_hint: param for param in params}
    renamed = {id(old): new for old, new in zip(main.params, params, strict=True)}
    prefixes: list[Expr] = []
    for wanted in inputs:
        if wanted.name_hint in by_name:
            prefixes.append(by_name[wanted.name_hint])
            continue
        head = heads[int(wanted.name_hint.rpartition("_")[2])]
        prefixes.append(map_children(head, lambda child: renamed.get(id(child), child)))
    return Function(tuple(params), Tuple(tuple(prefixes)))


def _outer(body: Expr) -> tuple[Expr, Function]:
    """The body without its last conversions, and the function that does those."""
    fields = body.fields if isinstance(body, Tuple) else (body,)
    stored = [f.args[0] if isinstance(f, Call) and f.op is dequantize else f for f in fields]
    inner = Tuple(tuple(stored)) if isinstance(body, Tuple) else stored[0]
    results = Var("results", inner.checked_type)
    outer: list[Expr] = []
    for index, (field, source) in enumerate(zip(fields, stored, strict=True)):
        part: Expr = TupleGetItem(results, index) if isinstance(body, Tuple) else results
        outer.append(part if field is source else _fed(field, source, part))
    return inner, Function((results,), Tuple(tuple(outer)) if isinstance(body, Tuple) else outer[0])


def _fed(field: Expr, source: Expr, part: Expr) -> Expr:
    return map_children(field, lambda child: part if child is source else child)


def _check(middle: Function) -> None:
    results: Type = middle.body.checked_type
    sides = [("takes", TupleType(tuple(p.checked_type for p in middle.params))), ("gives", results)]
    for what, ty in sides:
        floats = [str(field) for field in tensor_fields(ty) if field.dtype.is_float]
        if floats:
            raise NotIntegral(
                f"partition_conversions: quantized_main {what} {floats[0]}",
                hint="an operator before the first or behind the last quantised one stays float; ask for 'enabled'",
            )
    if not middle.params:
        raise NotIntegral("partition_conversions: quantized_main takes nothing", hint="nothing is quantised")
