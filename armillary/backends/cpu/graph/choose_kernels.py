"""choose-kernels: the choice of each kernel is complete.

In: a module whose calls are calls of kernels. Out: the anchor of each kernel carries its complete choice - algorithm,
every knob, layouts, cost, what was weighed against it - as its attribute `choice`. Invariant: it is made here, once;
schedules, explanations and records read it (backends/cpu/space.py). A kernel is seen as it is lowered, a 1x1
convolution on one row of pixels where that is possible. A kernel of two contractions that has a schedule of its own
keeps what selected the algorithms of its calls.

    nn.contrib_conv2d_NCHWc(%x, weight)
    ->
    nn.contrib_conv2d_NCHWc(%x, weight, choice="conv2d.direct rows=14 vectors=2 lines=1 | …")

Which algorithms there are: backends/cpu/select.py.
"""

from __future__ import annotations

from dataclasses import replace

from armillary.backends.anchor import contractions, find_anchor, workload_of_call
from armillary.backends.cpu.graph._collapse_rows import collapse_rows
from armillary.base.lazy import deferred
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, shape_of
from armillary.relay.op import Kind, Op, is_primitive
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import copy_type, rewrite, substitute
from armillary.target import Target
from armillary.transform import define_pass

with deferred():
    from armillary.backends.cpu import select  # networks without contractions have nothing to select


@define_pass("choose-kernels", opt_level=0)
def choose_kernels(module: IRModule, *, target: Target | None = None) -> IRModule:
    """Write the complete choice of each kernel on its anchor."""
    where = Target(target if target is not None else Target.current() or "llvm")

    def rule(expr: Expr) -> Expr | None:
        return _chosen(expr, where) if isinstance(expr, Function) and is_primitive(expr) else None

    return on_functions(module, lambda f: rewrite(f, rule, lambda e: not is_primitive(e)))


def _chosen(function: Function, where: Target) -> Function | None:
    """The kernel with its anchor's complete choice; None where that has nothing to choose."""
    anchor = find_anchor(function)
    if anchor is None or not isinstance(anchor.op, Op) or anchor.op.kind is not Kind.CONTRACTION:
        return None
    if not select.candidates_of(anchor.op.name) or not hasattr(anchor.attrs, "choice"):
        return None
    names = [call.op.name for call in contractions(function) if call is not anchor and isinstance(call.op, Op)]
    if (names and select.candidates_of(" + ".join((*names, anchor.op.name)))) or not _is_known(anchor):
        return None
    seen = find_anchor(collapse_rows(function, where))
    assert seen is not None, "another form of a kernel has the same anchor"
    choice = str(select.decided(workload_of_call(seen, where)))
    attrs = anchor.attrs  # each Op has its own attrs class
    if not choice or choice == attrs.choice:
        return None
    selected = Call(anchor.op, anchor.args, replace(attrs, choice=choice), anchor.span)
    body = substitute(function.body, {id(anchor): copy_type(selected, anchor)})
    return Function(function.params, body, function.ret_type, function.attrs, function.span)


def _is_known(call: Call) -> bool:
    """Whether all extents are numbers, or expressions over named sizes."""
    return all(shape_of(argument) is not None for argument in call.args)
