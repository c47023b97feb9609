"""alter-op-layout: channels in blocks of a vector, for CPU targets.

In: a module with conv2d in NCHW and dense layers, weights constant. Out: the same with nn.contrib_conv2d_NCHWc and
nn.contrib_dense_pack; pooling, elementwise operators, broadcasts with per-channel operands, concatenation, channel
shuffles and residual additions follow their producer's layout. Blocks are chosen so that neighbours agree
(layout/_plan.py), of a row of a matrix tile where it multiplies bfloat16; layout_transform stands only where a plain
tensor becomes a blocked one or the reverse, and is a reshape where no element moves. fold-constant packs the weights; a
weight that is an input stays plain, since it would be packed again at every run. Where a script has registered rules
of its own (`relay.op.register_alter_op_layout`), those decide alone. Invariant: the types of inputs and
outputs stay; running the pass again changes nothing.
The walk: _engine.py; the rules: layout/_rules.py, _shuffle.py.

    nn.conv2d(%x, weight)
    ->
    layout_transform(nn.contrib_conv2d_NCHWc(layout_transform(%x), layout_transform(weight)))
"""

from __future__ import annotations

from armillary.backends.cpu.conv2d.amx.cost import TILE_DWORDS
from armillary.backends.cpu.graph._bf16_products import allowed
from armillary.backends.cpu.graph._layout_rules import find_rule, has_fast_half_vectors, joins_products
from armillary.base.lazy import deferred
from armillary.base.node import reachable
from armillary.ir import IRModule
from armillary.ops._dot_operands import BFLOATS, LONG
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import LEGALIZE_RULES
from armillary.relay.transform._rules import on_functions, op_name
from armillary.relay.transform.layout._engine import LayoutEngine, Request
from armillary.relay.transform.layout._plan import plan_blocks
from armillary.relay.types import TensorType
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import define_pass

with deferred():
    from armillary.relay.transform.layout._registered_layouts import by_registered as _by_registered


@define_pass("alter-op-layout", opt_level=3)
def alter_op_layout(module: IRModule, *, target: Target | None = None) -> IRModule:
    """Use blocked layouts that suit the target's vectors (the current target, or this machine, by default)."""
    if LEGALIZE_RULES.get("FTVMAlterOpLayout"):
        return _by_registered(module, target)
    chosen = Target(target if target is not None else Target.current() or "llvm")
    lanes = block_lanes(chosen)
    if lanes < 2:
        return module
    cpu = cpu_model(chosen)
    sliced = lanes // 2 if has_fast_half_vectors(cpu) else lanes

    def change(function: Function) -> Expr:
        block = image_lanes(function, chosen)
        plan = plan_blocks(function, block, sliced)
        request = Request(lanes=block, outputs=lanes, plan=plan, target=chosen)
        return LayoutEngine(request, find_rule).run(function)

    return on_functions(module, change)


def block_lanes(target: str | Target) -> int:
    """float32 lanes of the target's vectors (never below 4, so that narrow machines still get contiguous channels)."""
    return max(4, cpu_model(Target(target)).lanes)


def image_lanes(function: Function, target: str | Target) -> int:
    """Channels of an image that a function keeps together: of the rows of matrix tiles where it multiplies bfloat16.

    Of a word of eight bytes where two rows of such words are multiplied by one instruction, and of two words of four
    whose products 16-bit numbers add up.
    """
    cpu = cpu_model(Target(target))
    if cpu.has_bfloat16_tiles and allowed(function):
        return TILE_DWORDS * BFLOATS
    is_long = any(_takes_eight_channels(e, cpu) for e in reachable(function))
    return max(LONG, block_lanes(target)) if is_long else block_lanes(target)


def _takes_eight_channels(expr: object, cpu: CpuModel) -> bool:
    if not isinstance(expr, Call) or op_name(expr) != "nn.conv2d":
        return False
    if not cpu.has_byte_matrices:
        return joins_products(expr, cpu)
    data = expr.args[0].checked_type
    return isinstance(data, TensorType) and str(data.dtype) in ("int8", "uint8")
