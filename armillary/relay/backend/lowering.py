"""One call of an operator, lowered: `relay.backend.te_compiler` and `compile_engine` as scripts know them.

In: a call or a function, tensors, a target. Out: what computes it (tensors and the implementation), its loops, a
compiled function. Invariant: which implementation holds is the choice of `backends/registry.py`, as in a build.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import te
from armillary.backends.registry import Fused, Implementation, choose
from armillary.backends.workload import Workload
from armillary.base.boundary import boundary, bounded
from armillary.base.record import record
from armillary.driver.build_module.steps import GraphExecutorCodegen
from armillary.driver.library import FunctionLibrary
from armillary.driver.lower_fused import lower_fused
from armillary.driver.te_build import build
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.relay.expr import Call, Function
from armillary.relay.op import Op, get_op
from armillary.relay.op.strategy import OpImplementation, OpStrategy
from armillary.relay.types import Type, tensor_type
from armillary.target import as_target
from armillary.tir.stmt import PrimFunc

__all__ = ["GraphExecutorCodegen", "LoweredOutput", "TECompiler", "get", "lower_call", "lower_to_primfunc"]


@record
class LoweredOutput:
    """The tensors that a call computes, and what computed them."""

    outputs: list[te.Tensor]
    implementation: OpImplementation


def get_shape(shape: Sequence[object]) -> tuple[object, ...]:
    """A shape as it is: extents that are known are numbers here."""
    return tuple(shape)


def lower_to_primfunc(relay_func: Function, target: object) -> PrimFunc:
    """The scheduled loops of a function of operators."""
    return lower_fused(relay_func, as_target(target), "main")


@boundary("te_compiler.lower_call", arguments=True)
def lower_call(call: Call, inputs: Sequence[te.Tensor], target: object, otype: Type | None = None) -> LoweredOutput:
    """Compute a call of an operator over tensors, as a build for the target would."""
    del otype  # follows from the inputs
    if not isinstance(call, Call) or not isinstance(call.op, Op):
        raise TypeMismatch("lower_call takes a call of an operator", hint="relay.add(x, y), not a function of it")
    tensors, outputs = select_implementation(call.op, call.attrs, inputs, None, target)
    return LoweredOutput(outputs, tensors)


@boundary("te_compiler.select_implementation", arguments=True)
def select_implementation(
    op: Op | str,
    attrs: object,
    inputs: Sequence[te.Tensor],
    out_type: Type | None,
    target: object,
    use_autotvm: bool = True,
) -> tuple[OpImplementation, list[te.Tensor]]:
    """The implementation that a build would take, and what it computes of the inputs."""
    del out_type, use_autotvm  # records are asked first where a build's context has them
    workload = _workload(op, attrs, inputs, target)
    chosen, _ = choose(workload)
    return _offered(chosen, workload), _computed(chosen, workload, inputs)


@boundary("te_compiler.get_valid_implementations", arguments=True)
def get_valid_implementations(
    op: Op | str, attrs: object, inputs: Sequence[te.Tensor], out_type: Type | None, target: object
) -> list[OpImplementation]:
    """The implementation that holds for these inputs; those of lower priority are not weighed."""
    del out_type
    workload = _workload(op, attrs, inputs, target)
    return [_offered(choose(workload)[0], workload)]


def own_strategy(
    op: Op, attrs: object, inputs: Sequence[te.Tensor], out_type: Type | None, target: object
) -> OpStrategy:
    """What a build takes for an operator, as the strategy that scripts ask for: `op.get_attr("FTVMStrategy")`."""
    strategy = OpStrategy()
    strategy.implementations += get_valid_implementations(op, attrs, inputs, out_type, target)
    return strategy


def _workload(op: Op | str, attrs: object, inputs: Sequence[te.Tensor], target: object) -> Workload:
    operator = op if isinstance(op, Op) else get_op(op)
    return Workload(operator, attrs, tuple(tensor_type(t.shape, t.dtype) for t in inputs), as_target(target))


def _computed(chosen: Implementation, workload: Workload, inputs: Sequence[te.Tensor]) -> list[te.Tensor]:
    rule = chosen.compute or workload.op.compute_rule
    if rule is None:
        raise TypeMismatch(f"operator {workload.op.name} has no tensor-expression form")
    with workload.target:
        outputs = rule(workload.attrs, *inputs)
    return list(outputs) if isinstance(outputs, list | tuple) else [outputs]


def _offered(chosen: Implementation, workload: Workload) -> OpImplementation:
    def compute(attrs: object, tensors: Sequence[te.Tensor], out_type: object) -> list[te.Tensor]:
        del attrs, out_type
        return _computed(chosen, workload, tensors)

    def schedule(attrs: object, outs: Sequence[te.Tensor], target: object) -> te.Schedule:
        del attrs, target
        result = te.create_schedule([t.op for t in outs])
        inputs = tuple(s.op.output(0) for s in result.stages if isinstance(s.op, te.PlaceholderOp))
        with workload.target:
            scheduled = chosen.schedule(result, Fused(workload, tuple(outs), tuple(outs), inputs))
        return scheduled if isinstance(scheduled, te.Schedule) else result  # loops that were written have none

    return OpImplementation(chosen.name, compute, schedule, chosen.candidate.priority)


@bounded
class TECompiler:
    """Lowers and compiles functions of operators."""

    def lower(self, source_func: Function, target: object = None, mod_name: str = "default") -> IRModule:
        """The loops of a function as a module."""
        del mod_name  # one function has one name
        return IRModule({"main": lower_to_primfunc(source_func, target or "llvm")})

    def jit(self, source_func: Function, target: object = None) -> FunctionLibrary:
        """A compiled function of the inputs, then the outputs."""
        where = as_target(target or "llvm")
        return build(lower_to_primfunc(source_func, where), target=where)

    def clear(self) -> None:
        """Nothing is kept between calls; compiled kernels are in the cache on disk."""


def get() -> TECompiler:
    """The compiler of functions."""
    return TECompiler()
