"""One kernel of two, where the second alone reads the first's result.

In: calls of two kernels after fuse-ops, and which argument of the second the first is. Out: what takes the second
call's place (`_rules.rewrite_found`). Invariant: the same operators on the same values; the first's inputs stand where
its result stood, so that a cache that is changed in place stays the first of all. Who decides which pairs pay:
the passes of a back end (backends/cpu/graph/_kernel_pairs.py, backends/opencl/graph/fuse_moves.py).
"""

from __future__ import annotations

from armillary.relay.expr import Call, Expr, Function, var
from armillary.relay.infer import infer_type
from armillary.relay.transform._rules import Found
from armillary.relay.walk import substitute


def joined(first: Call, second: Call, place: int) -> Found:
    """The call of one kernel in the place of the second call."""
    assert isinstance(first.op, Function) and isinstance(second.op, Function), "calls of kernels"
    kernel = _kernel(first.op, second.op, place)
    sources = (*second.args[:place], *first.args, *second.args[place + 1 :])
    return Found(sources, lambda *args: Call(kernel, args, None, second.span))


def _kernel(first: Function, second: Function, place: int) -> Function:
    """The second kernel, with the first's result as its parameter at `place`."""
    params = [*second.params[:place], *first.params, *second.params[place + 1 :]]
    variables = [var(f"p{k}", infer_type(p)) for k, p in enumerate(params)]
    named: dict[int, Expr] = {id(p): v for p, v in zip(params, variables, strict=True)}
    body = substitute(first.body, named)
    named[id(second.params[place])] = body
    kernel = Function(tuple(variables), substitute(second.body, named), second.ret_type, second.attrs, second.span)
    infer_type(kernel)
    return kernel
