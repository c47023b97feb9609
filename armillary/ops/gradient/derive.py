"""The derivative of a function: one walk back over its expressions.

In: a function, and its module where it calls global functions. Out: a function of the same parameters that returns
(value, (gradient of each parameter…)). Invariant: calls of functions and lets are opened first, each expression is met
once, after all that use it, and shared expressions stay shared. Of an `If` the chosen branch is differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ir import GlobalVar, IRModule
from armillary.ops.gradient import elementwise, networks, shapes
from armillary.ops.gradient.rules import GRADIENTS, op
from armillary.relay import analysis
from armillary.relay.expr import Call, Expr, Function, If, Let, Loop, Tuple, TupleGetItem
from armillary.relay.infer import infer_type
from armillary.relay.op import Op
from armillary.relay.op.facts import Fact
from armillary.relay.types import TensorType, TupleType, Type
from armillary.relay.walk import is_interpreted, map_children, post_order, substitute

_RULE_FILES = (elementwise, networks, shapes)
_DEPTH = 200  # functions called within functions
Grad = Any  # Any: None for zero, an expression, or for a tuple a list of those


@boundary("gradient", arguments=True)
def gradient(expr: object, mod: IRModule | None = None, mode: str = "higher_order") -> Function:  # function or name
    """The function that returns `(value, (gradient of each parameter…))`.

    A result with several elements is differentiated as their sum. Both modes of Relay-era scripts, "higher_order" and
    "first_order", mean the same here: a gradient is made of operators, and has a gradient itself.
    """
    if mode not in ("higher_order", "first_order"):
        raise TypeMismatch(f"gradient: mode is {mode!r}, wanted 'higher_order' or 'first_order'")
    function = mod[expr] if isinstance(expr, GlobalVar) and mod is not None else expr
    if not isinstance(function, Function):
        hint = "pass the module too: gradient(name, mod)" if isinstance(expr, GlobalVar) else ""
        raise TypeMismatch(f"gradient: expected a function, got {type(expr).__name__}", hint=hint)
    infer_type(function, mod)
    body = _opened(function.body, mod)
    infer_type(body)
    grads = _walk_back(body, _seed(body.checked_type, body))
    result = Tuple((body, Tuple(tuple(_filled(grads.get(id(p)), p) for p in function.params))))
    primal = Function(function.params, result)
    infer_type(primal)
    return primal


# --- opening calls of functions and lets ----------------------------------------------------------------------------


def _opened(expr: Expr, mod: IRModule | None) -> Expr:
    """The expression with its lets and calls of functions replaced by what they stand for."""
    for _ in range(_DEPTH):
        order = post_order(expr)
        held = next((e for e in order if is_interpreted(e)), None)
        if held is not None:
            hint = "write the program without cells and data types; lets and calls are opened"
            raise UnsupportedError(f"gradient: a {type(held).__name__} has no gradient", hint=hint)
        if not any(_is_open(e) for e in order):
            return expr
        expr = _opened_once(expr, mod)
    hint = "a function that calls itself has no gradient; write its steps out"
    raise UnsupportedError(f"gradient: more than {_DEPTH} functions that call each other", hint=hint)


def _is_open(e: Expr) -> bool:
    return isinstance(e, Let) or (isinstance(e, Call) and isinstance(e.op, Function | GlobalVar))


def _opened_once(root: Expr, mod: IRModule | None) -> Expr:
    memo: dict[int, Expr] = {}

    def get(e: Expr) -> Expr:
        return memo.get(id(e), e)

    for e in post_order(root, lambda e: not isinstance(e, Function)):
        if isinstance(e, Let):
            memo[id(e)] = substitute(get(e.body), {id(e.var): get(e.value)})
        else:
            memo[id(e)] = _called(map_children(e, get), mod)
    return memo[id(root)]


def _called(e: Expr, mod: IRModule | None) -> Expr:
    if not isinstance(e, Call) or isinstance(e.op, Op):
        return e
    called = e.op
    if isinstance(called, GlobalVar):
        if mod is None:
            raise TypeMismatch(f"gradient: it calls @{called.name_hint}", hint="pass the module: gradient(f, mod)")
        called = mod[called]
    if not isinstance(called, Function):
        return e
    return substitute(called.body, {id(p): a for p, a in zip(called.params, e.args, strict=True)})


# --- the walk -------------------------------------------------------------------------------------------------------


def _walk_back(body: Expr, start: Grad) -> dict[int, Grad]:
    """The gradient of each expression below `body`, by id; `start` is that of `body` itself."""
    grads: dict[int, Grad] = {id(body): start}
    for e in reversed(post_order(body, lambda e: not isinstance(e, If | Function))):
        grad = grads.get(id(e))
        if grad is None:
            continue
        if isinstance(e, Call):
            _share(grads, e.args, _of_call(e, grad))
        elif isinstance(e, Tuple):
            _share(grads, e.fields, _parts(grad, len(e.fields), e))
        elif isinstance(e, TupleGetItem):
            count = len(_tuple(e.tuple_value).fields)
            _share(grads, [e.tuple_value], [[grad if k == e.index else None for k in range(count)]])
        elif isinstance(e, If):
            _of_if(grads, e, grad)
        elif isinstance(e, Loop):
            raise UnsupportedError("gradient of a loop", hint="write its iterations out")
    return grads


def _of_call(call: Call, grad: Grad) -> Sequence[Grad]:
    if not isinstance(call.op, Op):
        raise UnsupportedError(f"gradient: a call of a {type(call.op).__name__} that is not known when compiling")
    rule = GRADIENTS.get(call.op.name)
    if rule is None and Fact.FLAT in call.op.facts:
        return [None] * len(call.args)
    if rule is None:
        hint = f"say how with relay.op.register_gradient({call.op.name!r}, rule)"
        raise UnsupportedError(f"operator {call.op.name} has no gradient", span=call.span, hint=hint)
    fields = _filled_fields(grad, call)
    grads = rule[1](call, fields)
    if len(grads) != len(call.args):
        raise TypeMismatch(f"gradient of {call.op.name}: its rule gave {len(grads)}, wanted {len(call.args)}")
    return grads


def _of_if(grads: dict[int, Grad], e: If, grad: Grad) -> None:
    """The gradients of the variables that the branches read, of the branch that was chosen."""
    free = list(analysis.free_vars(Tuple((e.true_branch, e.false_branch))))
    if not free:
        return
    branches = []
    for branch in (e.true_branch, e.false_branch):
        inner = _walk_back(branch, grad)
        branches.append(Tuple(tuple(_filled(inner.get(id(v)), v) for v in free)))
    chosen = If(e.cond, branches[0], branches[1])
    infer_type(chosen)
    _share(grads, free, [_split(TupleGetItem(chosen, k), v.checked_type) for k, v in enumerate(free)])


def _split(value: Expr, ty: Type) -> Grad:
    """A tuple-typed gradient by its fields."""
    if isinstance(ty, TupleType):
        return [_split(TupleGetItem(value, k), field) for k, field in enumerate(ty.fields)]
    return value


def _tuple(expr: Expr) -> TupleType:
    ty = expr.checked_type
    if not isinstance(ty, TupleType):
        raise TypeMismatch(f"gradient: expected a tuple, got {ty}")
    return ty


def _share(grads: dict[int, Grad], targets: Sequence[Expr], first: Sequence[Grad]) -> None:
    for target, grad in zip(targets, first, strict=True):
        grads[id(target)] = _sum(grads.get(id(target)), grad)


def _sum(a: Grad, b: Grad) -> Grad:
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, list | tuple):
        return [_sum(x, y) for x, y in zip(a, b, strict=True)]
    return op("add", a, b)


def _parts(grad: Grad, count: int, like: Expr) -> Sequence[Grad]:
    if isinstance(grad, list | tuple):
        return grad
    return _split(grad, like.checked_type) if isinstance(grad, Expr) else [None] * count


def _seed(ty: Type, expr: Expr) -> Grad:
    """Ones for each tensor of a value."""
    if isinstance(ty, TupleType):
        fields = expr.fields if isinstance(expr, Tuple) else [TupleGetItem(expr, k) for k in range(len(ty.fields))]
        return [_seed(field, e) for field, e in zip(ty.fields, fields, strict=True)]
    return op("ones_like", expr)


def _filled_fields(grad: Grad, like: Expr) -> Grad:
    """A tuple's gradient as a list of expressions; a tensor's as it is."""
    if not isinstance(grad, list | tuple):
        return grad
    fields = _tuple(like).fields
    return [
        _filled(g, TupleGetItem(like, k)) if g is None else g for k, (g, _) in enumerate(zip(grad, fields, strict=True))
    ]


def _filled(grad: Grad, like: Expr) -> Expr:
    """A gradient as an expression: zeros where there is none."""
    ty = like.checked_type
    if isinstance(ty, TensorType):
        return op("zeros_like", like) if grad is None else grad
    fields = _tuple(like).fields
    values = grad if isinstance(grad, list | tuple) else [None] * len(fields)
    return Tuple(tuple(_filled(g, TupleGetItem(like, k)) for k, g in enumerate(values)))
