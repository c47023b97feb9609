"""legalize: write operators as the target wants them.

In: a module. Out: one in which each call was offered to the rule that a user registered for its operator
(`relay.op.register_legalize`), and an operator that neither a tensor expression nor a script's strategy computes is
written in terms of others, by the `decompose` rule of its record. Invariant: a call is offered to its rule once; the
result computes the same values; a build needs the pass even when simplify-inference and qnn-canonicalize are off.
With the name of rules, as scripts ask for it, it leaves operators of the qnn dialect to qnn-canonicalize and drops
clips to the range that requantizing has; what a build decomposes at last has no such name.
`keeps_blocks`: data layouts in blocks that a target's kernels compute (backends/base.py).

    def @main(%x: Tensor[(2, 2), float32]) { nn.l2_normalize(%x, eps=1e-05f, axis=[1]) }
    ->
    def @main(%x: Tensor[(2, 2), float32]) {
      %0 = multiply(%x, %x);
      %1 = sum(%0, axis=[1], keepdims=True);
      %2 = maximum(%1, 1e-05f);
      %3 = sqrt(%2);
      divide(%x, %3)
    }
"""

from __future__ import annotations

from functools import partial

from armillary.base.dtype import DType
from armillary.base.lazy import deferred
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Op, is_call
from armillary.relay.op.facts import Follows
from armillary.relay.transform._rules import rewrite_module
from armillary.relay.transform.simplify._registered import apply_registered
from armillary.relay.transform.simplify.simplify_inference import decompose, pick_field
from armillary.transform import define_pass

with deferred():
    from armillary.ops.elementwise.cast import clip as _clip

_ROUNDS = 8


@define_pass("legalize")
def legalize(
    module: IRModule,
    *,
    legalize_map_attr_name: str = "FTVMLegalize",
    target: object = None,
    decomposes: bool = True,
    keeps_blocks: tuple[str, ...] = (),
) -> IRModule:
    """Apply registered rules once, then decompose what has no compute of its own (unless told not to).

    nn.batch_norm(x, …)  ->  x * scale + shift
    """
    module = apply_registered(module, legalize_map_attr_name, target)
    is_build = not legalize_map_attr_name
    if not is_build:
        module = rewrite_module(module, _without_clip)
    for _ in range(_ROUNDS if decomposes else 0):
        changed = rewrite_module(module, partial(_without_compute, keeps_blocks, is_build), pick_field)
        if changed is module:
            break
        module = changed
    return module


def _without_clip(expr: Expr) -> Expr | None:
    """clip(qnn.requantize(x), a_min, a_max)  ->  qnn.requantize(x)   if the dtype has no values beyond"""
    inner = expr.args[0] if isinstance(expr, Call) and expr.args else None
    if not isinstance(inner, Call) or not isinstance(inner.op, Op) or inner.op.layout_follows != Follows.REQUANTIZED:
        return None
    if not is_call(expr, _clip.name):
        return None
    dtype, attrs = DType(inner.attrs.out_dtype), expr.attrs
    return inner if attrs.a_min <= dtype.min_value and dtype.max_value <= attrs.a_max else None


def _without_compute(layouts: tuple[str, ...], is_build: bool, expr: Expr) -> Expr | None:
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return None
    if expr.op.is_scripted or (not is_build and expr.op.name.startswith("qnn.")):
        return None
    return decompose(expr) if expr.op.compute_rule is None or _is_in_blocks(expr, layouts) else None


def _is_in_blocks(expr: Call, exceptions: tuple[str, ...]) -> bool:
    """A convolution of plain layouts that a user's rule wrote in blocks, after those of the target were chosen."""
    layouts = (getattr(expr.attrs, "data_layout", ""), getattr(type(expr.attrs), "data_layout", ""))
    in_blocks, by_nature = (any(c.islower() for c in text) for text in layouts)
    return expr.op.decompose_rule is not None and in_blocks and not by_nature and layouts[0] not in exceptions
