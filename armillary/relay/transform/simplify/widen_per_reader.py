"""widen-per-reader: give each reader its own widening of bytes, so that it can be fused into it.

In: a module. Out: one where a cast of integers to more bytes, with sums and products with constants behind it, has one
reader among those that fuse what they read; what does not (contractions, opaque operators) shares one. Bytes then lie
between kernels, and reading them costs each kernel a few instructions on a vector. Runs behind canonicalize-cast, which
does this for the cast alone. Invariant: the same values.

    def @main(%x: Tensor[(2, 2), uint8]) {
      %0 = cast(%x, dtype="float32");
      %1 = multiply(%0, 0.5f);
      %2 = exp(%1);
      %3 = sum(%1, axis=[1]);
      (%2, %3)
    }
    ->
    def @main(%x: Tensor[(2, 2), uint8]) {
      %0 = cast(%x, dtype="float32");
      %1 = multiply(%0, 0.5f);
      %2 = exp(%1);
      %3 = cast(%x, dtype="float32");
      %4 = multiply(%3, 0.5f);
      %5 = sum(%4, axis=[1]);
      (%2, %5)
    }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.op import Kind, Op
from armillary.relay.transform._rules import on_functions, op_name, tensor
from armillary.relay.walk import copy_type, not_primitive, rewrite
from armillary.transform import define_pass

_ARITHMETIC = frozenset({"add", "subtract", "multiply"})
_LONGEST = 6  # calls of a widening: dequantize takes four


@define_pass("widen-per-reader", opt_level=3)
def widen_per_reader(module: IRModule) -> IRModule:
    """Duplicate widenings of bytes with several readers."""
    return on_functions(module, _split)


def _split(function: Function) -> Expr:
    taken: set[int] = set()

    def own(arg: Expr) -> Expr:
        chain = widening(arg)
        if len(chain) < 2 or id(arg) not in taken:  # a cast alone: canonicalize-cast
            taken.add(id(arg))
            return arg
        result = chain[0].args[0]
        for call, below in zip(chain, (chain[0].args[0], *chain), strict=False):
            args = tuple(result if a is below else a for a in call.args)
            result = copy_type(Call(call.op, args, call.attrs, call.span), call)
        return result

    def rule(expr: Expr) -> Expr | None:
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.kind > Kind.REDUCE:
            return None
        args = tuple(map(own, expr.args))
        return None if all(a is b for a, b in zip(args, expr.args)) else Call(expr.op, args, expr.attrs, expr.span)

    return rewrite(function, rule, not_primitive)


def widening(expr: Expr) -> list[Call]:
    """The calls that widen integers of one byte, the cast first; none where `expr` is something else."""
    chain: list[Call] = []
    while isinstance(expr, Call) and len(chain) < _LONGEST:
        inner = [a for a in expr.args if not isinstance(a, Constant)]
        is_cast = op_name(expr) == "cast"
        if len(inner) != 1 or not (is_cast or op_name(expr) in _ARITHMETIC) or tensor(inner[0]) is None:
            return []
        chain.insert(0, expr)
        source, result = tensor(inner[0]), tensor(expr)
        assert source is not None
        if result is None or result.shape != source.shape:
            return []
        if is_cast and source.dtype.is_int and source.dtype.bits <= 8:
            return chain
        expr = inner[0]
    return []
