"""round-operands: products that may be in bfloat16 get operands in it, where the target multiplies them.

In: a typed module in plain layouts and float32, whose functions say what may be in bfloat16 (_bf16_products.py). Out:
the same; operands of such products are cast to bfloat16, constants rounded, sums stay float32. Invariant: types of
results stay; a value is rounded once, where it comes into being (before it is moved or concatenated), and what else
reads it, element by element or in windows, reads the rounded one, so that memory holds no second copy.

    nn.relu(nn.conv2d(nn.relu(%x), weight))
    ->
    nn.relu(nn.conv2d(cast(nn.relu(%x), dtype="bfloat16"), rounded weight, out_dtype="float32"))
"""

from __future__ import annotations

import dataclasses

from armillary.backends.cpu.graph._bf16_products import allowed, multiplies, waits_for_weight
from armillary.base.dtype import DType
from armillary.ir import IRModule
from armillary.ops._dot_operands import BFLOAT16
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.op import Kind, Op
from armillary.relay.transform._rules import call, on_functions, op_name, tensor
from armillary.relay.transform.simplify._narrow_values import narrowed
from armillary.relay.walk import map_children, not_primitive, post_order, users
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import define_pass

_MOVES = frozenset(
    {"reshape", "transpose", "squeeze", "expand_dims", "nn.batch_flatten", "concatenate", "strided_slice"}
)
_WINDOWS = ("pool2d", "nn.conv2d")


@define_pass("round-operands", opt_level=3)
def round_operands(module: IRModule, *, target: Target | None = None) -> IRModule:
    """Round what products in bfloat16 read."""
    chosen = Target(target if target is not None else Target.current() or "llvm")
    if chosen.kind.family != "cpu":
        return module
    cpu = cpu_model(chosen)
    return on_functions(module, lambda function: _change(function, cpu))


def _change(function: Function, cpu: CpuModel) -> Expr | None:
    names = allowed(function)
    order = post_order(function, not_primitive) if names else []
    products = {id(e) for e in order if op_name(e) in names and multiplies(e, cpu)}
    weights = {id(e.args[1]) for e in order if isinstance(e, Call) and op_name(e) in names and waits_for_weight(e)}
    return _Rounder(order, products, weights).run(function) if products or weights else None


class _Rounder:
    """One walk: `new` maps each old node to its new form, `rounded` old nodes to that in bfloat16.

    `products`: the calls that multiply bfloat16; `stored`: the values that are kept so. `weights`: constants that are
    rounded and stay float32, which narrow-weights stores in 16 bits.
    """

    def __init__(self, order: list[Expr], products: set[int], weights: set[int]) -> None:
        self.order, self.readers, self.products, self.weights = order, users(order), products, weights
        self.new: dict[int, Expr] = {}
        self.rounded: dict[int, Expr] = {}
        self.stored: set[int] = set()
        for expr in reversed(order):
            if id(expr) in products:
                for arg in expr.args:  # type: ignore[attr-defined]  # a Call
                    self._store(arg)

    def _store(self, expr: Expr) -> None:
        """Note what is rounded for an operand: the value itself, and what it was moved from."""
        if isinstance(expr, Var | Constant):
            return
        self.stored.add(id(expr))
        for source in self._sources(expr):
            self._store(source)

    def _sources(self, expr: Expr) -> tuple[Expr, ...]:
        """What a move takes its elements from, where nothing else wants them in float32; () for other values."""
        if not isinstance(expr, Call) or op_name(expr) not in _MOVES:
            return ()
        result = tuple(part for arg in expr.args for part in (arg.fields if isinstance(arg, Tuple) else (arg,)))
        are_tensors = all(isinstance(part, Call | TupleGetItem) and tensor(part) is not None for part in result)
        return result if are_tensors else ()

    def run(self, function: Function) -> Expr:
        for expr in self.order:
            if expr is not function:
                self.new[id(expr)] = self._visit(expr)
        return map_children(function, self._get)

    def _get(self, expr: Expr) -> Expr:
        return self.new.get(id(expr), expr)

    def _visit(self, expr: Expr) -> Expr:
        if id(expr) in self.products and isinstance(expr, Call):
            attrs = dataclasses.replace(expr.attrs, out_dtype="float32")
            return Call(expr.op, tuple(map(self._half, expr.args)), attrs, expr.span)
        if id(expr) in self.weights and isinstance(expr, Constant):
            return narrowed(narrowed(expr, DType(BFLOAT16)), DType("float32"))
        return map_children(expr, self._read if _takes_rounded(expr) else self._get)

    def _read(self, expr: Expr) -> Expr:
        """A value as other readers get it: a widening of their own, which becomes a part of their kernel."""
        return call("cast", self._half(expr), dtype="float32") if id(expr) in self.stored else self._get(expr)

    def _half(self, expr: Expr) -> Expr:
        """The new form of an old node in bfloat16."""
        if id(expr) not in self.rounded:
            self.rounded[id(expr)] = self._round(expr)
        return self.rounded[id(expr)]

    def _round(self, expr: Expr) -> Expr:
        if isinstance(expr, Constant):
            return narrowed(expr, DType(BFLOAT16))
        sources = self._sources(expr)
        if not sources or not isinstance(expr, Call):
            return call("cast", self._get(expr), dtype=BFLOAT16)
        parts = iter([self._half(source) for source in sources])
        args: list[Expr] = []
        for arg in expr.args:
            args.append(Tuple(tuple(next(parts) for _ in arg.fields)) if isinstance(arg, Tuple) else next(parts))
        return Call(expr.op, tuple(args), expr.attrs, expr.span)


def _takes_rounded(expr: Expr) -> bool:
    """Whether an operator reads elements, or windows of them, in a kernel that can widen them."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return False
    return expr.op.kind <= Kind.BROADCAST or any(part in expr.op.name for part in _WINDOWS)
