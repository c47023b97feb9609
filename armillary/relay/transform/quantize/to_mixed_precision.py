"""to-mixed-precision: compute in float16 (or bfloat16) what gains from it, and in float32 what would lose by it.

In: a module. Out: the same with casts, so that contractions take and give the mixed type (ALWAYS), cheap operators do
where their inputs are in it, variables or constants (FOLLOW), and the sensitive ones stay as they were (NEVER).
Invariant: a value is cast to a type once; operators without floats are untouched, as are contractions of bytes
dequantised, which a build computes in integers (fake-quantization-to-integer); branches, lets and calls of functions
see the old types.
`missing_op_mode` says what an operator without a category means: 0 an error, 1 a warning and NEVER, 2 NEVER.
Sums of 16-bit floats are float32 in the kernels of a build, whatever `out_dtype` says (widen-small-floats).
The result keeps its type if `keep_orig_output_dtype` says so, or the configuration of that name where it is None.
`conversions` maps an operator to (category, accumulation dtype, output dtype) and goes before the tables.
What a build makes of the mixed type: widen-small-floats (arithmetic in float32, 16-bit weights), round-operands
(products of bfloat16 where the target multiplies them).

    def @main(%x: Tensor[(1, 4), float32], %w: Tensor[(2, 4), float32]) {
      %0 = nn.dense(%x, %w);
      nn.relu(%0)
    }
    ->
    def @main(%x: Tensor[(1, 4), float32], %w: Tensor[(2, 4), float32]) {
      %0 = cast(%x, dtype="float16");
      %1 = cast(%w, dtype="float16");
      %2 = nn.dense(%0, %1, out_dtype="float16");
      nn.relu(%2)
    }
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from armillary.base.aliases import AnyFunction
from armillary.base.dtype import DType
from armillary.errors import ConfigError, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.op import OPS, Op, register_op_attr
from armillary.relay.op.facts import Precision
from armillary.relay.transform._rules import call, on_functions
from armillary.relay.transform.simplify.canonicalize_cast import is_cast
from armillary.relay.types import TensorType, TupleType, Type
from armillary.relay.walk import map_children, not_primitive, post_order
from armillary.transform import PassContext, define_pass, register_config_option

_RULE = "FTVMMixedPrecisionConversionType"
_MIXED = ("float16", "bfloat16", "float64")
Conversion = tuple[int, str, str]
KEEP_OUTPUT = register_config_option(
    "relay.ToMixedPrecision.keep_orig_output_dtype", bool, False, "cast the results of to-mixed-precision back"
)


def register_mixed_precision_conversion(
    op_name: str, func: Callable[[Call, str], Sequence[object]] | None = None, level: int = 10
) -> AnyFunction:
    """Say how an operator takes part: `func(call, mixed type)` gives [category, accumulation dtype, output dtype].

    Also a decorator.
    """
    held: AnyFunction = register_op_attr(op_name, _RULE, func, level)
    return held


def generic_always_op(call_node: Call, mixed_precision_type: str) -> list[object]:
    """A rule for `register_mixed_precision_conversion`: always in the mixed type, sums and result too."""
    return [int(Precision.ALWAYS), mixed_precision_type, mixed_precision_type]


def generic_follow_op(call_node: Call, mixed_precision_type: str) -> list[object]:
    """A rule: in the mixed type where the inputs are."""
    return [int(Precision.FOLLOW), mixed_precision_type, mixed_precision_type]


def generic_never_op(call_node: Call, mixed_precision_type: str) -> list[object]:
    """A rule: never in the mixed type."""
    return [int(Precision.NEVER), mixed_precision_type, mixed_precision_type]


def register_func_to_op_list(list_ops: Sequence[str]) -> Callable[[AnyFunction], AnyFunction]:
    """Decorate a rule that holds for all of these operators."""

    def decorator(rule: AnyFunction) -> AnyFunction:
        for name in list_ops:
            register_mixed_precision_conversion(name, func=rule)
        return rule

    return decorator


MIXED_PRECISION_ALWAYS, MIXED_PRECISION_FOLLOW, MIXED_PRECISION_NEVER = map(int, Precision)
_LISTS = {"DEFAULT_ALWAYS_LIST": 0, "DEFAULT_FOLLOW_LIST": 1, "DEFAULT_NEVER_LIST": 2}


def __getattr__(name: str) -> list[str]:
    """The operators of a category, as they state it themselves."""
    if name not in _LISTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return [op for op in OPS if OPS[op].precision == _LISTS[name]]


@define_pass("to-mixed-precision")
def to_mixed_precision(
    module: IRModule,
    *,
    mixed_precision_type: str = "float16",
    missing_op_mode: int = 1,
    keep_orig_output_dtype: bool | None = None,
    conversions: Mapping[str, Conversion] | None = None,
) -> IRModule:
    """Insert casts so that contractions and what follows them compute in `mixed_precision_type`."""
    if mixed_precision_type not in _MIXED:
        raise ConfigError(f"to-mixed-precision: {mixed_precision_type!r} is not one of {', '.join(_MIXED)}")
    if missing_op_mode not in (0, 1, 2):
        raise ConfigError(f"to-mixed-precision: missing_op_mode is 0 (error), 1 (warn) or 2, got {missing_op_mode!r}")
    mixed, overrides = DType(mixed_precision_type), dict(conversions or {})
    keeps = PassContext.current().get(KEEP_OUTPUT) if keep_orig_output_dtype is None else keep_orig_output_dtype

    def change(function: Function) -> Expr:
        return _Converter(mixed, missing_op_mode, overrides).run(function, keeps)

    return on_functions(module, change)


class _Converter:
    """One walk over one function: `new` maps each old node to its new form, `casts` a new node to its casts."""

    def __init__(self, mixed: DType, missing: int, overrides: Mapping[str, Conversion]) -> None:
        self.mixed, self.missing, self.overrides = mixed, missing, overrides
        self.new: dict[int, Expr] = {}
        self.casts: dict[tuple[int, str], Expr] = {}
        self.warned: set[str] = set()
        self.quantized: set[int] = set()  # old nodes whose values are those of bytes: what moves dequantised ones

    def run(self, function: Function, keep_output: bool) -> Expr:
        for expr in post_order(function, not_primitive):
            if expr is not function:
                self.new[id(expr)] = self._visit(expr)
        body = self.restored(function.body) if keep_output else self.get(function.body)
        if body is function.body:
            return function
        ret_type = function.ret_type if body.checked_type == function.body.checked_type else None
        return Function(function.params, body, ret_type, function.attrs, function.span)

    def get(self, expr: Expr) -> Expr:
        return self.new.get(id(expr), expr)

    def restored(self, expr: Expr) -> Expr:
        """The new form of an old node, in the old type."""
        return self._as_type(self.get(expr), expr.checked_type)

    def _visit(self, expr: Expr) -> Expr:
        if isinstance(expr, Tuple | TupleGetItem):
            return map_children(expr, self.get)
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            return self._operator(expr, expr.op)
        return map_children(expr, self.restored)

    def _operator(self, expr: Call, op: Op) -> Expr:
        category, accumulate, result = self._category(expr, op)
        if op.name == "qnn.dequantize" or (category == Precision.FOLLOW and self._are_quantized(expr)):
            self.quantized.add(id(expr))
        elif category == Precision.ALWAYS and (self._are_quantized(expr) or not _reads_floats(expr)):
            return map_children(expr, self.restored)
        args = [self.get(a) for a in expr.args]
        if category == Precision.FOLLOW and not (self._follows(expr, args) and _bounds_fit(expr.attrs, self.mixed)):
            category = Precision.NEVER
        if category == Precision.NEVER:
            return map_children(expr, self.restored)
        cast = [self._to(a, self.mixed) for a in args]
        attrs = self._attrs(expr.attrs, accumulate) if category == Precision.ALWAYS else expr.attrs
        call = Call(expr.op, tuple(cast), attrs, expr.span)
        return self._to(call, DType(result)) if category == Precision.ALWAYS else call

    def _are_quantized(self, expr: Call) -> bool:
        return bool(expr.args) and all(id(arg) in self.quantized for arg in expr.args)

    def _category(self, expr: Call, op: Op) -> tuple[Precision, str, str]:
        rule = op.get_attr(_RULE)
        if op.name in self.overrides or rule is not None:
            category, accumulate, result = self.overrides.get(op.name) or rule(expr, str(self.mixed))
            return Precision(int(category)), str(accumulate), str(result)
        precision = op.precision
        if precision is None:
            self._report(op.name)
            precision = Precision.NEVER
        return precision, self.mixed, self.mixed

    def _report(self, name: str) -> None:
        message = f"to-mixed-precision: operator {name} has no category"
        if self.missing == 0:
            raise UnsupportedError(message, hint="name it in conversions=, or use missing_op_mode 1 or 2")
        if self.missing == 1 and name not in self.warned:
            self.warned.add(name)
            warnings.warn(f"{message}; it stays in its own precision", stacklevel=2)

    def _follows(self, expr: Call, args: Sequence[Expr]) -> bool:
        """Whether each float input is in the mixed type, or a variable or constant, which costs little."""
        parts = [part for arg in args for part in (arg.fields if isinstance(arg, Tuple) else (arg,))]
        floats = [part for part in parts if _has_float(part.checked_type)]
        mixed = [_is_all(part.checked_type, self.mixed) for part in floats]
        free = [isinstance(part, Constant | Var) for part in floats]
        is_free = bool(floats) and not is_cast(expr)  # which says itself which type is wanted
        return (any(mixed) or is_free) and all(m or f for m, f in zip(mixed, free, strict=True))

    def _attrs(self, attrs: Any, accumulate: str) -> object:  # Any: each operator's attrs
        names = {f.name for f in dataclasses.fields(attrs)} if attrs is not None else set()
        return dataclasses.replace(attrs, out_dtype=str(accumulate)) if "out_dtype" in names else attrs

    def _to(self, expr: Expr, dtype: DType) -> Expr:
        """An expression with its float tensors in `dtype`."""
        return self._as_type(expr, _with_floats(expr.checked_type, dtype))

    def _as_type(self, expr: Expr, wanted: Type) -> Expr:
        if expr.checked_type == wanted:
            return expr
        if isinstance(wanted, TupleType):
            parts = zip(expr, wanted.fields, strict=True)  # the fields of a tuple, or reads of them
            return Tuple(tuple(self._as_type(part, ty) for part, ty in parts))
        if not isinstance(wanted, TensorType):
            return expr
        key = (id(expr), str(wanted.dtype))
        if key not in self.casts:
            self.casts[key] = call("cast", expr, dtype=str(wanted.dtype))
        return self.casts[key]


def _with_floats(ty: Type, dtype: DType) -> Type:
    if isinstance(ty, TupleType):
        return TupleType(tuple(_with_floats(f, dtype) for f in ty.fields))
    return TensorType(ty.shape, dtype) if isinstance(ty, TensorType) and ty.dtype.is_float else ty


def _bounds_fit(attrs: object, dtype: DType) -> bool:
    """Whether the type has the bounds between which an operator puts its input."""
    limit = float(np.finfo(np.float16).max) if dtype == "float16" else np.inf
    return not any(limit < abs(getattr(attrs, name, 0.0)) < np.inf for name in ("a_min", "a_max"))


def _has_float(ty: Type) -> bool:
    if isinstance(ty, TupleType):
        return any(map(_has_float, ty.fields))
    return isinstance(ty, TensorType) and ty.dtype.is_float


def _reads_floats(expr: Call) -> bool:
    return any(_has_float(arg.checked_type) for arg in expr.args)


def _is_all(ty: Type, dtype: DType) -> bool:
    return _has_float(ty) and _with_floats(ty, dtype) == ty
