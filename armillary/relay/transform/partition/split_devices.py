"""split-devices: what runs on other devices than the main one becomes functions, one for each region.

In: a module with `annotation.on_device` notes or copies between devices; the type of the main device, where parameters
and results are. Out: one without them, in which each region of another device is a function with the attribute
Compiler="device<type>", called by name. Invariant: the graph computes the same; values go to a region and come back at
its call. Which call runs where: plan_devices.py. Who compiles the regions: relay/transform/over_devices.py.

    def @main(%x: Tensor[(2,), float32]) {
      %0 = nn.relu(%x);
      %1 = annotation.on_device(%0, device_type=4);
      negative(%1)
    }
    ->
    def @main(%x: Tensor[(2,), float32]) {
      %0 = @tvmgen_default_device4_main_0(%x);
      negative(%0)
    }
    def @tvmgen_default_device4_main_0(%device4_0_i0: Tensor[(2,), float32], Compiler="device4", Primitive=1, Inline=1,
        global_symbol="tvmgen_default_device4_main_0") -> Tensor[(2,), float32] { nn.relu(%device4_0_i0) }
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from armillary.errors import TargetError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, Tuple, TupleGetItem
from armillary.relay.op import Op
from armillary.relay.transform._rules import on_functions, op_name
from armillary.relay.transform.partition import COPY, ON_DEVICE
from armillary.relay.transform.partition.annotate_target import wrapped
from armillary.relay.transform.partition.merge_compiler_regions import merge_compiler_regions
from armillary.relay.transform.partition.partition_graph import partition_graph
from armillary.relay.transform.partition.plan_devices import Domains, devices_of
from armillary.relay.walk import copy_type, map_children, not_primitive, post_order
from armillary.transform import Sequential, define_pass

PREFIX = "device"


@define_pass("split-devices")
def split_devices(module: IRModule, *, main: int = 1, known: Collection[int] = ()) -> IRModule:
    """Lift what runs on other devices out of every function; a note that asks for none of `known` is refused."""
    annotated = on_functions(module, lambda function: _annotated(function, main, known))
    if annotated is module:
        return module
    return Sequential([merge_compiler_regions.bind(), partition_graph.bind()], "lift-regions")(annotated)


def _annotated(function: Function, main: int, known: Collection[int]) -> Expr | None:
    order = post_order(function, not_primitive)
    notes = [e for e in order if isinstance(e, Call) and op_name(e) in (ON_DEVICE, COPY)]
    if not notes:
        return None
    for note in notes:
        missing = set(devices_of(note)) - set(known) - {main}
        if known and missing:
            message = f"{op_name(note)} asks for device type {min(missing)}"
            targets = ", ".join(map(str, sorted({*known, main})))
            raise TargetError(
                f"{message}, targets are given for {targets}", span=note.span, hint="give a target for it"
            )
    domains, memo = Domains(order, function, main), dict[int, Expr]()

    def get(expr: Expr) -> Expr:
        return memo.get(id(expr), expr)

    for expr in order:
        memo[id(expr)] = _placed(expr, domains, main, get)
    return memo[id(function)]


def _placed(expr: Expr, domains: Domains, main: int, get: Callable[[Expr], Expr]) -> Expr:
    """The expression without notes, as a region of its own where it is not on the main device."""
    if isinstance(expr, Call) and op_name(expr) in (ON_DEVICE, COPY):
        return get(expr.args[0])  # the way there and back is at the calls of regions
    is_plain = isinstance(expr, Tuple | TupleGetItem) or (isinstance(expr, Call) and isinstance(expr.op, Op))
    if is_plain and domains(expr) != main:
        return wrapped(expr, f"{PREFIX}{domains(expr)}", get)
    return copy_type(map_children(expr, get), expr)
