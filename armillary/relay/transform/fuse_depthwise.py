"""fuse-depthwise: a depthwise convolution and the 1x1 convolution that reads it become one kernel.

In: a module after fuse-ops. Out: where a kernel of a 1x1 convolution reads the result of a depthwise one that nothing
else reads, and that is too large to stay near until it is read, both are one kernel, which goes through the image in
bands of rows. Invariant: the same operators on the same values; a kernel has at most one of each.

    %1 = fn (%p0, %p1, Primitive=1) { nn.contrib_depthwise_conv2d_NCHWc(%p0, %p1) };
    %2 = fn (%p0, %p1, Primitive=1) { nn.relu(nn.contrib_conv2d_NCHWc(%p0, %p1)) };
    %2(%1(%x, %w), %v)
    ->
    %1 = fn (%p0, %p1, %p2, Primitive=1) {
      %0 = nn.contrib_depthwise_conv2d_NCHWc(%p0, %p1);
      nn.relu(nn.contrib_conv2d_NCHWc(%0, %p2))
    };
    %1(%x, %w, %v)

Whether it pays: target/cost_separable.py. The kernel: schedules/cpu/conv2d_separable.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from armillary.ir import IRModule
from armillary.ops.nn_conv_blocked import separable_of
from armillary.relay.expr import Call, Expr, Function, Var, var
from armillary.relay.infer import infer_type
from armillary.relay.op import Kind, Op
from armillary.relay.transform._rules import Found, Readers, op_name, rewrite_found, tensor
from armillary.relay.walk import children, not_primitive, post_order, substitute
from armillary.target import Target
from armillary.target.cost_separable import band_rows
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import define_pass

DEPTHWISE, POINTWISE = "nn.contrib_depthwise_conv2d_NCHWc", "nn.contrib_conv2d_NCHWc"


@define_pass("fuse-depthwise", opt_level=3)
def fuse_depthwise(module: IRModule, *, target: Any = None) -> IRModule:  # Any: whatever Target accepts
    """Put depthwise convolutions into the kernels of the 1x1 convolutions that read them."""
    device = Target(target if target is not None else Target.current() or "llvm")
    if device.kind.family != "cpu":
        return module
    return rewrite_found(module, partial(_find, cpu=cpu_model(device)))


def _find(expr: Expr, readers: Readers, *, cpu: CpuModel) -> Found | None:
    outer = _contraction(expr, POINTWISE)
    if outer is None:
        return None
    call: Any = expr  # Any: a Call of a Function, as just tested
    second = call.op
    place = next((k for k, p in enumerate(second.params) if p is outer.args[0]), None)
    if place is None or _uses(second.params[place], second) != 1:
        return None
    producer = call.args[place]
    inner = _contraction(producer, DEPTHWISE)
    if inner is None or len(readers[id(producer)]) != 1 or not _pays(outer, cpu):
        return None
    kernel = _joined(producer.op, second, place)
    sources = (*producer.args, *(a for k, a in enumerate(call.args) if k != place))
    return Found(sources, lambda *args: Call(kernel, args, None, call.span))


def _uses(parameter: Var, function: Function) -> int:
    return sum(child is parameter for e in post_order(function.body) for child in children(e))


def _contraction(expr: Expr, name: str) -> Call | None:
    """The only contraction of a kernel that is called, if it has that name and the kernel's result its shape."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Function) or not_primitive(expr.op):
        return None
    calls = [e for e in post_order(expr.op.body) if isinstance(e, Call)]
    heavy = [e for e in calls if not isinstance(e.op, Op) or e.op.kind > Kind.BROADCAST]
    found = heavy[0] if len(heavy) == 1 and op_name(heavy[0]) == name else None
    result = tensor(expr)
    if found is None or result is None or not all(isinstance(n, int) for n in result.shape):
        return None
    made = infer_type(found)
    return found if getattr(made, "shape", None) == result.shape else None


def _pays(outer: Call, cpu: CpuModel) -> bool:
    data, weight, result = (tensor(e) for e in (*outer.args, outer))
    assert data is not None and weight is not None and result is not None, "a convolution is of tensors"
    attrs: Any = outer.attrs  # Any: each Op has its own attrs class
    is_pointwise = weight.shape[2:4] == (1, 1) and result.shape[2:4] == data.shape[2:4]
    if not is_pointwise or attrs.groups != 1 or set(attrs.strides) != {1} or result.dtype != "float32":
        return False
    return band_rows(separable_of(data, result), cpu) > 0


def _joined(first: Function, second: Function, place: int) -> Function:
    """One kernel of two, of which the second has the first's result as its parameter at `place`."""
    params = [*first.params, *(p for k, p in enumerate(second.params) if k != place)]
    made = [var(f"p{k}", infer_type(p)) for k, p in enumerate(params)]
    named: dict[int, Expr] = {id(p): v for p, v in zip(params, made, strict=True)}
    body = substitute(first.body, named)
    named[id(second.params[place])] = body
    joined = substitute(second.body, named)
    kernel = Function(tuple(made), joined, second.ret_type, second.attrs, second.span)
    infer_type(kernel)
    return kernel
