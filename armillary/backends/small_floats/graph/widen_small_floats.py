"""widen-small-floats: compute in float32 what a network writes in float16 or bfloat16.

In: a typed module before its patterns are looked for. Out: the same, in which a 16-bit float is a format of
memory: parameters, inputs, results and what only moves them are narrow, values in between are float32, never rounded.
Invariant: parameters and results keep their types; the result is at least as exact. A rounding that the user asked for
stays: a cast to a half of what no half has gone into, one whose readers cast it back, and one before a conversion to
integers. Operators that take no float32 where they took 16-bit floats (or read their bits) get them as before.

    def @main(%x: Tensor[(1, 4), float16], %w: Tensor[(2, 4), float16]) {
      %0 = nn.dense(%x, %w);
      nn.relu(%0)
    }
    ->
    def @main(%x: Tensor[(1, 4), float16], %w: Tensor[(2, 4), float16]) {
      %0 = cast(%x, dtype="float32");
      %1 = cast(%w, dtype="float32");
      %2 = nn.dense(%0, %1);
      %3 = nn.relu(%2);
      cast(%3, dtype="float16")
    }

What the network's types said is noted in attributes of the function for later passes, by the target's back end: a CPU
that multiplies bfloat16 notes which products are in it (backends/cpu/graph/_bf16_products.py), whose parameters and
operands are not rounded here: round-operands does, once factors are folded. A GPU notes in which type it stores.

Why: sums of 16-bit floats are kept in float32 anyway, and on CPUs nothing but products is faster in them; operators in
half precision are float32 arithmetic with conversions around each of them; algorithms that hold values of other sizes
in between (Winograd) would lose what they gain in roundings, and patterns would have to know casts. What float32 costs
is memory traffic: twice as much between kernels. Weights stay 16-bit in the package (narrow-weights), and in memory
where reading them is what takes the time.
`relay.strict_half` switches the pass off: then each operator rounds, as the network says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from armillary.base.aligned import Deferred, in_rows
from armillary.base.dtype import DType
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.ops._dot_operands import BFLOAT16
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from armillary.relay.op import Kind, Op
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import call, on_functions, op_name
from armillary.relay.types import TensorType, TupleType, Type, tensor_fields
from armillary.relay.walk import map_children, not_primitive, post_order, users
from armillary.transform import PassContext, define_pass, register_config_option

SMALL_FLOATS = ("float16", "bfloat16")
STRICT = register_config_option(
    "relay.strict_half", bool, False, "round float16 and bfloat16 values after every operator, as the network says"
)
NOTE = "bfloat16_products"  # the attribute that names operators which will multiply bfloat16
Notes = Callable[[Sequence[Expr]], tuple[tuple[str, object], ...] | None]  # attributes of a function; None: leave it
_OF_BITS = ("reinterpret",)
_BLENDS = ("image.", "nn.upsampling")  # injective by kind, but with arithmetic


@define_pass("widen-small-floats", opt_level=3)
def widen_small_floats(module: IRModule, *, notes: Notes = lambda order: (), rounds: bool = True) -> IRModule:
    """Compute in float32 between 16-bit floats that are stored; `rounds`: casts to a half of float32 round.

    Without it they round constants alone: elsewhere they are where a network changes to half, which later passes store.
    """
    if PassContext.current().get(STRICT):
        return module

    def change(function: Function) -> Expr | None:
        order = post_order(function, not_primitive)
        if not any(_has_half(e.checked_type) for e in order):
            return None
        noted = notes(order)
        return None if noted is None else _Widener(order, noted, rounds=rounds).run(function)

    return on_functions(module, change)


class _Widener:
    """One walk: `new` maps each old node to its new form, of 16-bit floats that are stored or of float32.

    `casts` keeps a conversion for all readers; `mixed` holds the old nodes that a half has gone into; `products` names
    the operators that the target will multiply in bfloat16.
    """

    def __init__(
        self, order: list[Expr], notes: tuple[tuple[str, object], ...], *, rounds: bool
    ) -> None:  # Any: what attributes hold
        self.order, self.readers, self.notes, self.rounds = order, users(order), notes, rounds
        products = dict(notes).get(NOTE, ())
        assert isinstance(products, tuple), "names of operators"
        self.products: tuple[str, ...] = products
        self.new: dict[int, Expr] = {}
        self.casts: dict[tuple[int, str], Expr] = {}
        self.mixed: set[int] = set()

    def run(self, function: Function) -> Expr:
        for expr in self.order:
            if expr is not function:
                self.new[id(expr)] = self._visit(expr)
                self._note(expr)
        body = self._stored(function.body)
        if body is function.body and not self.notes:
            return function
        return Function(function.params, body, function.ret_type, (*function.attrs, *self.notes), function.span)

    def _note(self, expr: Expr) -> None:
        inputs = expr.args if isinstance(expr, Call) else expr.fields if isinstance(expr, Tuple) else ()
        inputs = (expr.tuple_value,) if isinstance(expr, TupleGetItem) else inputs
        if _has_half(expr.checked_type) or any(id(e) in self.mixed for e in inputs):
            self.mixed.add(id(expr))

    def _get(self, expr: Expr) -> Expr:
        return self.new.get(id(expr), expr)

    def _stored(self, expr: Expr) -> Expr:
        """The new form of an old node, in the old type."""
        return expr if isinstance(expr, Op) else self._as_type(self._get(expr), expr.checked_type)

    def _wide(self, expr: Expr) -> Expr:
        """The new form of an old node, in float32 where it has 16-bit floats."""
        wide = self._get(expr)
        return self._as_type(wide, _widened(wide.checked_type))

    def _visit(self, expr: Expr) -> Expr:
        if isinstance(expr, Tuple | TupleGetItem):
            return map_children(expr, self._get)
        if not isinstance(expr, Call) or not isinstance(expr.op, Op):
            return map_children(expr, self._stored)
        if expr.op.name == "cast":
            return self._cast(expr)
        if only_moves(expr) and all(self._get(a).checked_type == a.checked_type for a in expr.args):
            return map_children(expr, self._get)
        return self._in_float32(expr, expr.op)

    def _cast(self, expr: Call) -> Expr:
        """float32 to half: nothing, or a rounding that stays; half to float32 or float64: from the unrounded value."""
        (value,), wanted = expr.args, DType(expr.attrs.dtype)
        source = value.checked_type
        assert isinstance(source, TensorType), "a cast is of a tensor"
        if wanted in SMALL_FLOATS:
            if not source.dtype.is_float:
                return self._as_type(self._get(value), TensorType(source.shape, DType("float32")))
            is_asked_for = id(value) not in self.mixed or self._is_cast_back(expr)
            is_asked_for = is_asked_for if self.rounds else isinstance(value, Constant)
            is_asked_for = is_asked_for and not (wanted == BFLOAT16 and self._is_rounded_again(expr))
            return map_children(expr, self._stored) if is_asked_for else self._wide(value)
        if not wanted.is_float or source.dtype not in SMALL_FLOATS:
            return map_children(expr, self._stored)
        return self._as_type(self._wide(value), expr.checked_type)

    def _is_cast_back(self, expr: Expr) -> bool:
        """Whether all that happens to a half is that it becomes float32 again: a rounding for its own sake."""
        read = self.readers.get(id(expr), [])
        return bool(read) and all(op_name(e) == "cast" for e in read)

    def _is_rounded_again(self, expr: Call) -> bool:
        """Whether products will round a value, or it is a parameter of arithmetic in float32."""
        read = self.readers.get(id(expr), [])
        if not self.products or not read:
            return False
        return isinstance(expr.args[0], Constant) or all(op_name(e) in self.products for e in read)

    def _in_float32(self, expr: Call, op: Op) -> Expr:
        """The call with float32 for each 16-bit float; with these as before where the operator does not take that."""
        if not _has_half(expr.checked_type) and not any(_has_half(a.checked_type) for a in expr.args):
            return map_children(expr, self._stored)
        read = self._stored if Fact.READS_NARROW in op.facts else self._wide
        args = (*map(self._wide, expr.args[:1]), *map(read, expr.args[1:]))
        result = Call(op, args, _wide_attrs(expr.attrs), expr.span)
        if op.name not in _OF_BITS and _type_of(result) == _widened(expr.checked_type):
            return result
        return map_children(expr, self._stored)

    def _as_type(self, expr: Expr, wanted: Type) -> Expr:
        if expr.checked_type == wanted:
            return expr
        if isinstance(wanted, TupleType):
            parts = zip(expr, wanted.fields, strict=True)  # the fields of a tuple, or reads of them
            return Tuple(tuple(self._as_type(part, ty) for part, ty in parts))
        assert isinstance(wanted, TensorType), "only tensors have two forms"
        key = (id(expr), str(wanted.dtype))
        if key not in self.casts:
            if isinstance(expr, Constant) and wanted.dtype == "float32":
                self.casts[key] = _wide_constant(expr)
            else:
                self.casts[key] = call("cast", expr, dtype=str(wanted.dtype))
        return self.casts[key]


def _has_half(ty: Type) -> bool:
    return isinstance(ty, TensorType | TupleType) and any(f.dtype in SMALL_FLOATS for f in tensor_fields(ty))


def only_moves(expr: Call) -> bool:
    """Whether an operator puts elements elsewhere, and does nothing else."""
    op = expr.op  # an Op, as the caller has tested
    return op.kind == Kind.INJECTIVE and bool(expr.args) and not op.name.startswith(_BLENDS)


def _widened(ty: Type) -> Type:
    if isinstance(ty, TupleType):
        return TupleType(tuple(map(_widened, ty.fields)))
    return TensorType(ty.shape, DType("float32")) if isinstance(ty, TensorType) and ty.dtype in SMALL_FLOATS else ty


def _wide_attrs(attrs: Any) -> Any:  # Any: each operator's attrs
    """Attributes that name float32 where they named a half."""
    fields = dataclasses.fields(attrs) if attrs is not None else ()
    wide = {f.name: "float32" for f in fields if "dtype" in f.name and getattr(attrs, f.name) in SMALL_FLOATS}
    return dataclasses.replace(attrs, **wide) if wide else attrs


def _type_of(expr: Expr) -> Type | None:
    try:
        return expr.checked_type
    except TypeMismatch:
        return None


def _wide_constant(expr: Constant) -> Constant:
    """16-bit floats as float32: those of a file when they are read."""
    held = expr.held
    if isinstance(held, Deferred) and held.rows is not None:
        read, single = held.rows, np.dtype(np.float32)
        return Constant(in_rows(held.shape, single, lambda b, e: _numbers(read(b, e)), held.step), expr.span)
    return Constant(_numbers(expr.data), expr.span)


_numbers = partial(np.asarray, dtype=np.float32, order="C")
