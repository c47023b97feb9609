"""merge-groups: grouped convolutions with few channels per group as fewer groups that fill vectors.

In: a typed module in NCHW, constant weights. Out: a convolution whose groups have as many output as input channels, and
only blocks under a vector divide them, takes several groups as one, with zero weights between them. Invariant: same
values and types; only where half a vector takes as long as a whole one, so that the zeros cost no time while the
neighbours compute and store whole vectors. Which groups merge is asked by pad-channels too, which rounds their channels
up to whole ones; after it and before alter-op-layout.

    nn.conv2d(%x, weight[32, 8, 3, 3], groups=4)
    ->
    nn.conv2d(%x, merged[32, 16, 3, 3], groups=2)
"""

from __future__ import annotations

from armillary.backends.channels.merged_groups import with_merged_groups
from armillary.backends.cpu.graph._layout_rules import has_fast_half_vectors
from armillary.backends.cpu.graph.alter_op_layout import block_lanes
from armillary.base.data_layout import choose_block
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.transform._rules import op_name, rewrite_module
from armillary.relay.transform.layout._plan import stays_plain
from armillary.target import Target
from armillary.target.cpu import cpu_model
from armillary.transform import define_pass

WIDE = 2  # vectors: merging wider groups costs more than their neighbours gain


@define_pass("merge-groups", opt_level=3)
def merge_groups(module: IRModule, *, target: str | Target | None = None) -> IRModule:
    """Take so many groups as one that their channels fill whole vectors."""
    chosen = Target(target if target is not None else Target.current() or "llvm")
    lanes = mergeable_lanes(chosen)

    def rule(expr: Expr) -> Expr | None:
        if not isinstance(expr, Call):
            return None
        count = merged(expr, lanes)
        return with_merged_groups(expr, count) if count > 1 and expr.attrs.groups % count == 0 else None

    return rewrite_module(module, rule)


def mergeable_lanes(target: Target) -> int:
    """The lanes that merged groups should fill; 0 where parts of a vector are faster than whole ones."""
    return 0 if has_fast_half_vectors(cpu_model(target)) else block_lanes(target)


def merged(expr: Call, lanes: int) -> int:
    """How many groups of a convolution should be one; 1: it stays."""
    if op_name(expr) != "nn.conv2d" or not isinstance(expr.args[1], Constant) or expr.attrs.groups == 1:
        return 1
    attrs, (outputs, inside, *_) = expr.attrs, expr.args[1].held.shape
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    if layouts != ("NCHW", "OIHW", "NCHW") or inside == 1 or outputs != inside * attrs.groups:
        return 1
    block = choose_block(inside, lanes)
    if inside >= WIDE * lanes or block < 4 or block & (block - 1) or stays_plain(expr, lanes):
        return 1
    return lanes // block
