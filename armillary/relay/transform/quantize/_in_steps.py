"""Real numbers in units of a quantisation's steps: its division becomes part of factors that are there anyhow.

In: an expression of float arithmetic that is to be divided by a scale. Out: one that gives the quotient without a
division for each element: the scale goes into constants, into the scale of a dequantize, through sums, products,
normalisations, clips and moves; what other operators computed is multiplied by its inverse. Invariant: the same real
numbers to the rounding of float32; None for what nobody computed (inputs), which is divided exactly. A division of 16
lanes takes as long as 16 multiplications.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from armillary.base.aliases import Array
from armillary.ops.qnn.affine import NO_LIMITS, Affine, is_rearranged, real
from armillary.relay.expr import Call, Constant, Expr, TupleGetItem
from armillary.relay.op import has
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import Readers, call, op_name, tensor

_DEPTH = 12  # of arithmetic behind one quantisation


@dataclass(frozen=True)
class Divider:
    """Divides expressions by `scale`; `get` gives an old expression's new form, `steps` its integers."""

    scale: Array
    get: Callable[[Expr], Expr]
    steps: Mapping[int, object]
    readers: Readers

    def divided(self, expr: Expr, depth: int = 0) -> Expr | None:
        """expr / scale."""
        result = self._inside(expr, depth)
        if result is not None or is_rearranged(expr) or op_name(expr) in ("nn.relu", "clip", ""):
            return result
        ty = tensor(expr)
        inverse = Constant(np.asarray(1 / self.scale, np.float32))
        return self.get(expr) * inverse if ty is not None and ty.dtype == "float32" else None

    def _inside(self, expr: Expr, depth: int) -> Expr | None:
        """The same without a further factor."""
        steps = self.steps.get(id(expr))
        if isinstance(steps, Affine):
            scaled = dataclasses.replace(steps, scale=np.asarray(steps.scale / self.scale, np.float32))
            return real(scaled) if steps.limits == NO_LIMITS else None
        if isinstance(expr, Constant):
            return Constant(np.asarray(expr.data / self.scale, np.float32)) if expr.data.dtype == np.float32 else None
        if depth == _DEPTH or len(self.readers.get(id(expr), ())) != 1:
            return None
        if isinstance(expr, TupleGetItem):
            return self._normalized(expr)
        return self._call(expr, depth + 1) if isinstance(expr, Call) else None

    def _call(self, expr: Call, depth: int) -> Expr | None:
        name = op_name(expr)
        if name == "clip":
            inner = self.divided(expr.args[0], depth)
            ends = {end: float(np.float32(getattr(expr.attrs, end)) / self.scale) for end in ("a_min", "a_max")}
            return None if inner is None else call("clip", inner, **ends)
        if name == "nn.layer_norm" and expr.attrs.scale and expr.attrs.center:
            return self._scaled(expr)
        if has(expr, Fact.ADDITIVE):
            sides = [self.divided(a, depth) for a in expr.args]
        elif name == "multiply":
            sides = self._one_side(expr, depth)
        elif is_rearranged(expr) or name == "nn.relu":
            sides = [self.divided(expr.args[0], depth)]
        else:
            return None
        stepped = [s for s in sides if s is not None]
        return Call(expr.op, tuple(stepped), expr.attrs, expr.span) if len(stepped) == len(expr.args) else None

    def _one_side(self, expr: Call, depth: int) -> list[Expr | None]:
        """Of a product one side is divided: a constant, else whichever can be without a factor more."""
        lhs, rhs = expr.args
        order = (1, 0) if isinstance(rhs, Constant) else (0, 1)
        for side in order:
            rebuilt = self._inside(expr.args[side], depth)
            if rebuilt is not None:
                return [rebuilt, self.get(rhs)] if side == 0 else [self.get(lhs), rebuilt]
        return [None]

    def _normalized(self, expr: TupleGetItem) -> Expr | None:
        """nn.batch_norm with its factor and offset divided."""
        norm = expr.tuple_value
        if op_name(norm) != "nn.batch_norm" or not isinstance(norm, Call) or expr.index != 0:
            return None
        if not (norm.attrs.scale and norm.attrs.center) or len(self.readers.get(id(norm), ())) != 1:
            return None
        return TupleGetItem(self._scaled(norm), 0)

    def _scaled(self, norm: Call) -> Call:
        """A normalisation with arguments 1 and 2, its factor and offset, divided."""
        data, gamma, beta, *rest = (self.get(a) for a in norm.args)
        inverse = Constant(np.asarray(1 / self.scale, np.float32))
        parts = (data, gamma * inverse, beta * inverse, *rest)
        return Call(norm.op, parts, norm.attrs, norm.span)
