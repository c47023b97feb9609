"""`ccompiler`: a part of a graph as C source that is linked with the kernels.

In: a function of calls of operators, of known sizes. Out: C, one function of plain loops (`codegen/c/packed.py`).
Invariant: each element is computed by the operator's own compute, as our kernels are; what has no compute, or none in
C, is refused by the operator's name. It shows what a code generator has to give (docs/architecture.md: kernels), and is
what scripts mean that name it. Left to itself it takes sums, differences and products of tensors of one shape; a script
gives it any other call by a function of `Compiler="ccompiler"`, or by `compiler_begin` and `compiler_end`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from armillary import te
from armillary.base.aliases import AnyFunction
from armillary.codegen.c.packed import kernel_c
from armillary.errors import ArmillaryError, UnsupportedError
from armillary.ir import IRModule
from armillary.offload.contract import Offload, SourceModule, register_offload
from armillary.ops._types import copied
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.op import Op
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.relay.transform.simplify.legalize import legalize
from armillary.relay.types import TensorType, TupleType, tensor_fields
from armillary.relay.walk import post_order
from armillary.te.schedule import AutoInlineInjective
from armillary.tir.lower import lower_function

NAME = "ccompiler"
_TAKEN = ("add", "subtract", "multiply")
Value: TypeAlias = "te.Tensor | tuple[Value, ...]"


def _refusal(call: Call) -> str | None:
    """Why a call is not taken without being asked for."""
    types = {str(arg.checked_type) for arg in call.args} | {str(call.checked_type)}
    if len(types) != 1:
        return f"operands of {' and '.join(sorted(types))}, wanted one type"
    ty = call.checked_type
    known = isinstance(ty, TensorType) and all(isinstance(size, int) for size in ty.shape)
    return None if known else f"{ty} has a dimension that is not known"


def generate(function: Function) -> SourceModule:
    """Loops over elements. Raises UnsupportedError for a call that has no loops in C."""
    symbol = str(function.get_attr("global_symbol"))
    plain = Function(function.params, function.body)
    module = infer_type.bind()(IRModule.from_expr(plain))
    for name in ("FTVMLegalize", ""):  # rules of scripts, then what has no loops of its own
        module = infer_type.bind()(legalize.bind(legalize_map_attr_name=name, target="c")(module))
    main = module["main"]
    assert isinstance(main, Function), "as given"
    constants = [expr for expr in post_order(main.body) if isinstance(expr, Constant)]
    values: dict[int, Value] = {id(p): _placeholders(p, p.name_hint) for p in main.params}
    values |= {id(c): _placeholders(c, f"c{k}") for k, c in enumerate(constants)}
    inputs = [t for value in values.values() for t in _flat(value)]
    outputs: list[te.Tensor] = []
    for tensor in _flat(_composed(main.body, values)):
        outputs.append(copied(tensor) if tensor in inputs or tensor in outputs else tensor)
    schedule = te.create_schedule([t.op for t in outputs])
    AutoInlineInjective(schedule)
    try:
        loops = te.lower_schedule(schedule, [*inputs, *outputs], symbol)
        source = kernel_c(f"{symbol}__p0", lower_function(loops, "c"))
    except ArmillaryError as error:
        names = sorted({e.op.name for e in post_order(main.body) if isinstance(e, Call) and isinstance(e.op, Op)})
        raise UnsupportedError(f"ccompiler: {', '.join(names)}: {error.message}", span=function.span) from error
    return SourceModule(source, tuple(constants))


def _placeholders(of: Expr, name: str) -> Value:
    ty = of.checked_type
    if any(not isinstance(n, int) for t in tensor_fields(ty) for n in t.shape):
        raise UnsupportedError(f"ccompiler: {name} is {ty}", hint="parts in C are of known sizes")
    tensors = [te.placeholder(t.static, t.dtype, name=f"{name}_{k}") for k, t in enumerate(tensor_fields(ty))]
    return tuple(tensors) if isinstance(ty, TupleType) else tensors[0]


def _composed(body: Expr, values: dict[int, Value]) -> Value:
    """The tensors of an expression, given those of its variables and constants."""
    for item in post_order(body, lambda n: not isinstance(n, Op | Function)):
        match item:
            case Call():
                values[id(item)] = _called(item, [values[id(a)] for a in item.args], values)
            case Tuple(fields):
                values[id(item)] = tuple(values[id(f)] for f in fields)
            case TupleGetItem(of, index):
                values[id(item)] = values[id(of)][index]
            case Op() | Function() | Var() | Constant():
                pass
            case _:
                raise UnsupportedError(f"ccompiler: a {type(item).__name__}, wanted calls of operators")
    return values[id(body)]


def _called(call: Call, arguments: Sequence[Value], values: dict[int, Value]) -> Value:
    if isinstance(call.op, Function):  # a composite
        return _composed(call.op.body, values | {id(p): v for p, v in zip(call.op.params, arguments, strict=True)})
    rule: AnyFunction | None = call.op.compute_rule if isinstance(call.op, Op) else None
    if rule is None:
        name = getattr(call.op, "name", type(call.op).__name__)
        raise UnsupportedError(f"ccompiler: {name}: there is no C for it: it has no compute", span=call.span)
    result = rule(call.attrs, *arguments)
    if isinstance(call.checked_type, TupleType):
        return tuple(result)
    return result[0] if isinstance(result, list | tuple) else result  # type: ignore[no-any-return]


def _flat(value: Value) -> list[te.Tensor]:
    return [t for v in value for t in _flat(v)] if isinstance(value, tuple) else [value]


register_offload(Offload(NAME, generate, operators=dict.fromkeys(_TAKEN, _refusal)))
