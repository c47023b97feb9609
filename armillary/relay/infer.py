"""Type inference of the graph language.

In: an expression (and, for calls of global functions, their module). Out: its type; TypeMismatch names the operator,
the place in the model, what was got and wanted. Invariant: the walk is iterative, and each node's type is computed
once and kept in its hidden `_type` slot, so a pass that builds new nodes pays for the new nodes only.
Importing this module makes `expr.checked_type` work. The rules of operators sit with the operators (`Op.infer`).
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base import slots
from armillary.base.boundary import boundary
from armillary.base.dtype import DType, dtype_of
from armillary.base.extent import meetings_so_far, note_meeting
from armillary.base.node import Rules
from armillary.errors import ArmillaryError, InternalError, TypeMismatch
from armillary.ir import GlobalVar, IRModule
from armillary.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Let,
    Loop,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
)
from armillary.relay.op import Kind, Op
from armillary.relay.op.facts import Fact
from armillary.relay.types import AnyDim, FuncType, IncompleteType, TensorType, TupleType, Type


def infer_type(expr: object, module: IRModule | None = None) -> Type:
    """The type of an expression; `module` is needed where global functions are called."""
    if isinstance(expr, GlobalVar):
        return _global_type(expr, _Walk(module))
    expr = expr.astuple() if isinstance(expr, TupleWrapper) else expr
    if not isinstance(expr, Expr):
        raise TypeMismatch(f"expected a relay expression, got {type(expr).__name__}")
    if not _is_typed(expr):
        try:
            _Walk(module).run(expr)
        except NotFromLeaves:
            return slots.solve(expr, module)
    return _type(expr)


class NotFromLeaves(Exception):
    """A node whose type the walk below does not find: relay/adt/solve.py looks for it."""


@boundary("check_module", arguments=True)
def check_module(module: IRModule) -> IRModule:
    """Infer the type of every relay function of a module; returns the module itself."""
    for _, function in module.items():
        if isinstance(function, Function):
            infer_type(function, module)
    return module


def is_compatible(got: Type, wanted: Type) -> bool:
    """Whether a value of type `got` may stand where `wanted` is declared (unknown dimensions match any)."""
    match got, wanted:
        case TensorType(), TensorType():
            if got.dtype != wanted.dtype or len(got.shape) != len(wanted.shape):
                return False
            pairs = list(zip(got.shape, wanted.shape))
            for pair in pairs:
                note_meeting(*pair)
            return all(g == w or isinstance(g, AnyDim) or isinstance(w, AnyDim) for g, w in pairs)
        case TupleType(), TupleType():
            same = len(got.fields) == len(wanted.fields)
            return same and all(map(is_compatible, got.fields, wanted.fields))
    return got == wanted


class _Walk:
    """The work list: an expression is typed when all it needs is typed."""

    def __init__(self, module: IRModule | None) -> None:
        self.module = module
        self.open: set[int] = set()

    def run(self, root: Expr) -> None:
        stack, meetings = [root], meetings_so_far()
        while stack:
            expr = stack[-1]
            if _is_typed(expr):
                stack.pop()
                continue
            needs = _NEEDS.get(type(expr), _refuse)(expr, self)
            missing = [e for e in needs if not _is_typed(e)]
            if missing:
                self._open(missing)
                stack.extend(reversed(missing))
                continue
            noted = len(meetings) if meetings is not None else 0
            object.__setattr__(expr, "_type", _RULES[type(expr)](expr, self))
            for meeting in meetings[noted:] if meetings is not None else ():
                meeting.where = expr
            self.open.discard(id(expr))
            stack.pop()

    def _open(self, missing: Sequence[Expr]) -> None:
        for expr in missing:
            if type(expr) is Function:
                if id(expr) in self.open:
                    raise NotFromLeaves
                self.open.add(id(expr))

    def function(self, name: GlobalVar) -> Function:
        """The relay function that a global name stands for."""
        if self.module is None:
            raise TypeMismatch(f"@{name.name_hint}: a call of a global function has a type only within its module")
        result = self.module[name]
        if not isinstance(result, Function):
            raise TypeMismatch(f"@{name.name_hint} is not a relay function but a {type(result).__name__}")
        return result


def _is_typed(expr: Expr) -> bool:
    return hasattr(expr, "_type")


def _type(expr: Expr) -> Type:
    ty: Type = object.__getattribute__(expr, "_type")
    return ty


def _bind(var: Var, ty: Type, what: str) -> None:
    """Give a variable its type, which must agree with its annotation."""
    if var.type_annotation is not None and not isinstance(var.type_annotation, IncompleteType):
        if not is_compatible(ty, var.type_annotation):
            raise TypeMismatch(f"{what} %{var.name_hint}: got {ty}, wanted {var.type_annotation}", span=var.span)
    elif not _is_typed(var):
        object.__setattr__(var, "_type", ty)
    elif not is_compatible(ty, _type(var)):
        raise TypeMismatch(f"{what} %{var.name_hint}: got {ty}, but elsewhere it is {_type(var)}", span=var.span)


def declared_type(function: Function) -> FuncType | None:
    """The type written on a function, or None where a parameter or the result is not annotated."""
    if function.ret_type is None or any(p.type_annotation is None for p in function.params):
        return None
    written = tuple(p.type_annotation for p in function.params if p.type_annotation)
    return FuncType(written, function.ret_type, function.type_params)


# --- what must be typed first ---------------------------------------------------------------------------------------


def _needs_nothing(expr: object, walk: _Walk) -> Sequence[Expr]:
    return ()


def _refuse(expr: object, walk: _Walk) -> Sequence[Expr]:
    if isinstance(expr, Op):
        raise TypeMismatch(f"operator {expr.name} is not a value; call it")
    if isinstance(expr, Expr | GlobalVar):
        raise NotFromLeaves
    raise TypeMismatch(f"expected a relay expression, got {type(expr).__name__}")


def _needs_of_tuple(expr: Tuple, walk: _Walk) -> Sequence[Expr]:
    return expr.fields


def _needs_of_item(expr: TupleGetItem, walk: _Walk) -> Sequence[Expr]:
    return (expr.tuple_value,)


def _needs_of_if(expr: If, walk: _Walk) -> Sequence[Expr]:
    return (expr.cond, expr.true_branch, expr.false_branch)


def _needs_of_loop(expr: Loop, walk: _Walk) -> Sequence[Expr]:
    first = (expr.limit, expr.going, *expr.args)
    return (expr.body,) if all(map(_is_typed, first)) else first  # the body last: what is before may call it too


def _needs_of_function(expr: Function, walk: _Walk) -> Sequence[Expr]:
    return (expr.body, *expr.params)


def _needs_of_let(expr: Let, walk: _Walk) -> Sequence[Expr]:
    if isinstance(expr.value, Function) and not _is_typed(expr.var):
        declared = declared_type(expr.value)  # lets the function call itself through the variable
        if declared is not None:
            object.__setattr__(expr.var, "_type", declared)
    if not _is_typed(expr.value):
        return (expr.value,)
    _bind(expr.var, _type(expr.value), "let")
    return (expr.body,)


def _needs_of_call(expr: Call, walk: _Walk) -> Sequence[Expr]:
    op = expr.op
    if type(op) is Op and op.complete_rule is not None:
        return _complete(expr, op)
    if type(op) is Op or not all(map(_is_typed, expr.args)):
        return expr.args
    if isinstance(op, GlobalVar):
        function = walk.function(op)
        return () if declared_type(function) is not None else (function,)
    if isinstance(op, Function) and not _is_typed(op) and len(op.params) == len(expr.args):
        for param, arg in zip(op.params, expr.args, strict=True):
            if param.type_annotation is None:
                _bind(param, _type(arg), "parameter")
    if not isinstance(op, Expr):
        raise TypeMismatch(f"cannot call a {type(op).__name__}", span=expr.span)
    return (op,)


def _is_open_type(annotation: Type | None) -> bool:
    return annotation is None or isinstance(annotation, IncompleteType)


def _complete(expr: Call, op: Op) -> Sequence[Expr]:
    """The arguments that can be typed by themselves; once they are, the operator types variables without a type."""
    untyped = [a for a in expr.args if type(a) is Var and not _is_typed(a) and _is_open_type(a.type_annotation)]
    others = [a for a in expr.args if not any(a is u for u in untyped)]
    if not untyped or not all(map(_is_typed, others)) or op.complete_rule is None:
        return others
    types = [_type(a) if _is_typed(a) else None for a in expr.args]
    for arg, ty in zip(expr.args, op.complete_rule(expr.attrs, *types), strict=False):
        if type(arg) is Var and ty is not None and not _is_typed(arg):
            object.__setattr__(arg, "_type", ty)
    return expr.args


_NEEDS: Rules[[_Walk], Sequence[Expr]] = {
    Var: _needs_nothing,
    Constant: _needs_nothing,
    Tuple: _needs_of_tuple,
    TupleGetItem: _needs_of_item,
    If: _needs_of_if,
    Loop: _needs_of_loop,
    Let: _needs_of_let,
    Function: _needs_of_function,
    Call: _needs_of_call,
}


# --- the type, once that is known -----------------------------------------------------------------------------------


def _type_of_var(expr: Var, walk: _Walk) -> Type:
    if expr.type_annotation is None or isinstance(expr.type_annotation, IncompleteType):
        raise NotFromLeaves
    return expr.type_annotation


def _type_of_constant(expr: Constant, walk: _Walk) -> Type:
    return TensorType(tuple(expr.held.shape), dtype_of(expr.held))


def _type_of_tuple(expr: Tuple, walk: _Walk) -> Type:
    return TupleType(tuple(_type(field) for field in expr.fields))


def _type_of_item(expr: TupleGetItem, walk: _Walk) -> Type:
    ty = _type(expr.tuple_value)
    if not isinstance(ty, TupleType):
        raise TypeMismatch(f"field {expr.index} of a value that is no tuple: got {ty}", span=expr.span)
    if not 0 <= expr.index < len(ty.fields):
        raise TypeMismatch(f"field {expr.index} of a tuple of {len(ty.fields)} fields: {ty}", span=expr.span)
    return ty.fields[expr.index]


def _type_of_if(expr: If, walk: _Walk) -> Type:
    cond, yes, no = _type(expr.cond), _type(expr.true_branch), _type(expr.false_branch)
    if not (isinstance(cond, TensorType) and cond.shape == () and cond.dtype.is_bool):
        raise TypeMismatch(f"if: the condition is {cond}, wanted Tensor[(), bool]", span=expr.span)
    if yes != no:
        raise TypeMismatch(f"if: the branches differ: {yes} and {no}", span=expr.span)
    return yes


def _type_of_loop(expr: Loop, walk: _Walk) -> Type:
    number, flag = TensorType((), DType("int64")), TensorType((), DType("bool"))
    body, argument_types = _type(expr.body), [_type(a) for a in expr.args]
    for what, got, wanted in (("limit", _type(expr.limit), number), ("condition", _type(expr.going), flag)):
        if got != wanted:
            raise TypeMismatch(f"loop: the {what} is {got}, wanted {wanted}", span=expr.span)
    if not isinstance(body, FuncType) or not isinstance(body.ret_type, TupleType):
        raise TypeMismatch(f"loop: its body is {body}, wanted a function that returns a tuple", span=expr.span)
    wanted_args = (number, flag, *argument_types)
    if body.arg_types != wanted_args:
        want = ", ".join(map(str, wanted_args))
        raise TypeMismatch(f"loop: the body takes {', '.join(map(str, body.arg_types))}, wanted {want}", span=expr.span)
    states, results = tuple(argument_types[: expr.states]), body.ret_type.fields
    if results[: 1 + expr.states] != (flag, *states):
        got_text, want = ", ".join(map(str, results)), ", ".join(map(str, (flag, *states)))
        raise TypeMismatch(f"loop: the body returns ({got_text}), wanted ({want}, rows)", span=expr.span)
    return TupleType((*states, *(_scan_type(expr, row) for row in results[1 + expr.states :]), number))


def _scan_type(expr: Loop, row: Type) -> Type:
    if not isinstance(row, TensorType) or expr.trips == -1:
        wanted = "trips= says how many rows there are at most" if isinstance(row, TensorType) else "rows are tensors"
        raise TypeMismatch(f"loop: it collects rows of {row}; {wanted}", span=expr.span)
    return TensorType((expr.trips, *row.shape), row.dtype)


def _type_of_let(expr: Let, walk: _Walk) -> Type:
    return _type(expr.body)


def _type_of_function(expr: Function, walk: _Walk) -> Type:
    result = _type(expr.body)
    if expr.ret_type is not None and not is_compatible(result, expr.ret_type):
        raise TypeMismatch(f"the function's body is {result}, its declared result {expr.ret_type}", span=expr.span)
    return FuncType(tuple(_type(p) for p in expr.params), result, expr.type_params)


def _type_of_call(expr: Call, walk: _Walk) -> Type:
    if type(expr.op) is Op:
        return _type_of_op_call(expr, expr.op)
    if isinstance(expr.op, GlobalVar):
        name, callee = f"@{expr.op.name_hint}", _global_type(expr.op, walk)
    else:
        name, callee = "call", _type(expr.op)
    if not isinstance(callee, FuncType):
        raise TypeMismatch(f"{name}: the called value is {callee}, wanted a function", span=expr.span)
    if callee.type_params:
        raise NotFromLeaves
    got = [_type(arg) for arg in expr.args]
    if len(got) != len(callee.arg_types):
        raise TypeMismatch(f"{name}: got {len(got)} arguments, wanted {len(callee.arg_types)}", span=expr.span)
    for k, (have, want) in enumerate(zip(got, callee.arg_types, strict=True)):
        if not is_compatible(have, want):
            raise TypeMismatch(f"{name}: argument {k}: got {have}, wanted {want}", span=expr.span)
    return callee.ret_type


def _type_of_op_call(expr: Call, op: Op) -> Type:
    types = [_type(arg) for arg in expr.args]
    try:
        _check_arguments(op, types)
        result = op.infer_type(expr.attrs, types)
    except ArmillaryError as error:
        if error.span is None:
            error.span = expr.span
        if op.name not in error.message:
            error.message = f"{op.name}: {error.message}"
        raise
    if not isinstance(result, Type):
        raise InternalError(f"{op.name}: its type rule gave a {type(result).__name__}", span=expr.span)
    return result


def _check_arguments(op: Op, types: Sequence[Type]) -> None:
    """Operators take tensors; a variadic last input is a tuple. Rules need not repeat this."""
    if len(types) != len(op.inputs) or op.kind == Kind.OPAQUE or Fact.ANY_VALUE in op.facts:
        return  # the count is checked by the op; opaque operators may take anything
    for name, ty in zip(op.inputs, types, strict=True):
        wanted = TupleType if name.startswith("*") else TensorType
        if not isinstance(ty, wanted):
            kind = "a tuple of tensors" if wanted is TupleType else "a tensor"
            raise TypeMismatch(f"{op.name}: input {name.lstrip('*')!r}: got {ty}, wanted {kind}")


def _global_type(name: GlobalVar, walk: _Walk) -> Type:
    function = walk.function(name)
    declared = declared_type(function)
    if declared is not None:
        return declared
    if not _is_typed(function):
        walk.run(function)
    return _type(function)


_RULES: Rules[[_Walk], Type] = {
    Var: _type_of_var,
    Constant: _type_of_constant,
    Tuple: _type_of_tuple,
    TupleGetItem: _type_of_item,
    If: _type_of_if,
    Loop: _type_of_loop,
    Let: _type_of_let,
    Function: _type_of_function,
    Call: _type_of_call,
}
