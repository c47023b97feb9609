"""narrow-weights: weights whose values fit a 16-bit float are stored so, and widened when they are loaded.

In: a module with packed float32 weights. Out: the same; large constants that float16 (or bfloat16) holds exactly are
stored in it, behind cpu.widen, which runs when they are loaded. Invariant: values stay; as few weights as bring
the package down to the size of the narrow ones and a share that it can bear, the largest first. Networks in half
precision are computed in float32 (widen-small-floats); this is why their packages do not double.

    nn.contrib_conv2d_NCHWc(%x, weight[32, 32, 1, 1, 16, 16])
    ->
    %0 = cpu.widen(weight[262144]);
    %1 = reshape(%0, newshape=[32, 32, 1, 1, 16, 16]);
    nn.contrib_conv2d_NCHWc(%x, %1)

A product that waits for its weight reads it as it is, bfloat16 in memory too (backends/cpu/cost/products16.py):

    nn.contrib_dense_pack(%x, weight)  ->  nn.contrib_dense_pack(%x, narrow weight, out_dtype="float32")
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

from armillary.backends.cpu.cost.products16 import reads_bfloat16
from armillary.base.aliases import Array
from armillary.base.aligned import Deferred
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.transform._rules import call, on_functions, op_name, tensor
from armillary.relay.transform.simplify._narrow_values import NARROW, holds, narrow_type, narrowed
from armillary.relay.walk import children, copy_type, map_children, not_primitive, post_order, scopes, users
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import define_pass

SHARE = 0.02  # of the parameters, in bytes that could be saved: no weight is narrowed for less
SMALLEST = 1 << 14  # bytes of a weight that is worth a kernel
PRODUCT = "nn.contrib_dense_pack"  # which takes a weight of another type than its data
_BODY = 1  # depth of the scope that is the function's body


@record
class _Fit:
    """A weight, and the narrow type that holds its values."""

    weight: Constant
    dtype: DType

    def narrow(self) -> Constant:
        """The weight in the narrow type."""
        return narrowed(self.weight, self.dtype)

    def widened(self) -> Expr:
        """The weight again, from the narrow one; flat, so that weights of one size share a kernel."""
        wide = call("cpu.widen", Constant(self._flat(), self.weight.span))
        return call("reshape", wide, newshape=self.weight.held.shape)

    def _flat(self) -> Array | Deferred:
        held = self.narrow().held
        if not isinstance(held, Deferred):
            return held.reshape(-1)
        read, compute, row = held.rows, held.compute, math.prod(held.shape[1:])
        assert read is not None, "made of rows"

        def rows(begin: int, end: int) -> Array:
            return read(begin // row, -(-end // row)).reshape(-1)

        return Deferred((math.prod(held.shape),), held.dtype, lambda: compute().reshape(-1), rows, held.step * row)


@define_pass("narrow-weights", opt_level=3)
def narrow_weights(
    module: IRModule, *, target: Target | None = None, smallest: int = SMALLEST
) -> IRModule:  # Any: whatever Target accepts
    """Store weights of at least `smallest` bytes in 16 bits, where the package is smaller so, or a kernel faster."""
    cpu = cpu_model(Target(target if target is not None else Target.current() or "llvm"))
    return on_functions(module, lambda function: _change(function, cpu, smallest))


def _change(function: Function, cpu: CpuModel, smallest: int) -> Expr | None:
    order = post_order(function, not_primitive)
    weights = {id(e): e for e in order if isinstance(e, Constant)}
    fits = {key: fit for key, w in weights.items() if (fit := _fitting(w, smallest)) is not None}
    whole = sum(w.nbytes for w in weights.values())
    memo: dict[int, Expr] = {}
    for key in _as_they_are(order, fits, whole, cpu):
        memo[key] = fits.pop(key).narrow()
    for key in _inside(function, order) & fits.keys():
        del fits[key]
    left = sum(fit.weight.nbytes // 2 for fit in fits.values())
    limit = SHARE * (whole - left)
    for key, fit in sorted(fits.items(), key=lambda item: -item[1].weight.nbytes):
        if left > limit:
            memo[key] = fit.widened()
            left -= fit.weight.nbytes // 2
    return _rewritten(order, memo) if memo else None


def _as_they_are(order: list[Expr], fits: Mapping[int, _Fit], parameters: int, cpu: CpuModel) -> list[int]:
    """The weights that all of their readers read faster in the narrow type."""
    readers = users(order)

    def is_better(key: int, fit: _Fit) -> bool:
        between = parameters if len(readers[key]) == 1 else fit.weight.nbytes
        return all(_waits(e, key, between, cpu) for e in readers[key])

    return [key for key, fit in fits.items() if is_better(key, fit)]


def _inside(function: Function, order: list[Expr]) -> set[int]:
    """What branches and loops read, which would widen it at each turn: nothing in them runs when weights are loaded."""
    of = scopes(function)[0]
    deep = [e for e in order if (scope := of.get(id(e))) is not None and scope.depth > _BODY]
    return {id(child) for e in deep for child in children(e)}


def _waits(expr: Expr, weight: int, between: int, cpu: CpuModel) -> bool:
    """Whether an expression is a product that takes less time with a narrow weight (cost/products16.py)."""
    if op_name(expr) != PRODUCT or not isinstance(expr, Call) or id(expr.args[1]) != weight:
        return False
    result = tensor(expr)
    return result is not None and reads_bfloat16(math.prod(result.static[:-1]), between, cpu)


def _fitting(weight: Constant, smallest: int) -> _Fit | None:
    """The narrow type that holds all values of a large weight; None where there is none."""
    first = narrow_type(weight, smallest)
    for dtype in map(DType, NARROW if first else ()):
        if all(holds(dtype, piece) for piece in _pieces(weight)):
            return _Fit(weight, dtype)
    return None


def _pieces(weight: Constant) -> Iterable[Array]:
    held = weight.held
    return held.pieces() if isinstance(held, Deferred) and held.rows is not None else [weight.data]


def _rewritten(order: list[Expr], memo: dict[int, Expr]) -> Expr:
    def new(expr: Expr) -> Expr:
        return memo.get(id(expr), expr)

    for expr in order:
        if id(expr) in memo:
            continue
        rebuilt = map_children(expr, new)
        if op_name(rebuilt) == PRODUCT and isinstance(rebuilt, Call) and _reads_narrow(rebuilt):
            attrs = dataclasses.replace(rebuilt.attrs, out_dtype="float32")
            rebuilt = Call(rebuilt.op, rebuilt.args, attrs, rebuilt.span)
        memo[id(expr)] = copy_type(rebuilt, expr)
    return memo[id(order[-1])]


def _dtype(expr: Expr) -> str:
    ty = tensor(expr)
    return "" if ty is None else str(ty.dtype)


def _reads_narrow(product: Call) -> bool:
    """Whether the weight of a product is a narrow float; products of bytes have types of their own."""
    data, weight = (_dtype(a) for a in product.args)
    return weight in NARROW and weight != data
