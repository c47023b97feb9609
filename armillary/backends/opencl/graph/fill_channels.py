"""fill-channels: convolutions of whole fours of channels, for GPUs that read four at once (`-device=adreno`).

In: a typed module in NCHW, constant weights. Out: a convolution whose output channels four does not divide computes a
few more, with zero weights; values stay wide through what keeps channels apart, concatenations and slices too, up to
convolutions that ignore the added ones. One of groups whose channels four does not divide takes two or four groups as
one. Invariant: values and types outside of such a region stay. Where values are wide: backends/channels
(wide_channels.py, joined_channels.py). Runs before block-channels, which finds whole blocks.

    nn.relu(nn.conv2d(%x, weight[58]))
    ->
    strided_slice(nn.relu(nn.conv2d(%x, padded[60])), begin=[0, 0, 0, 0], end=[.., 58, ..])
"""

from __future__ import annotations

from armillary.backends.channels.joined_channels import channels_of, cuts_of, groups_of, rounded
from armillary.backends.channels.merged_groups import with_merged_groups
from armillary.backends.channels.wide_channels import Channels, absorbs, calls_of, find_regions, widen
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.transform._rules import on_functions, op_name, rewrite_module
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.target.choice import stored_choice
from armillary.target.texture import PIXEL
from armillary.transform import define_pass

LEAST = 3  # output channels: fewer would be mostly zeros
MERGED = (2, 4)  # groups that become one, as many times the products


@define_pass("fill-channels", opt_level=2)
def fill_channels(module: IRModule) -> IRModule:
    """Round channels of convolutions up to whole pixels of textures."""
    return on_functions(infer_type(rewrite_module(module, _with_whole_groups)), _filled)


def _with_whole_groups(expr: Expr) -> Expr | None:
    """A grouped convolution as one of fewer groups, if four then divides their channels."""
    if op_name(expr) != "nn.conv2d" or not isinstance(expr, Call) or not isinstance(expr.args[1], Constant):
        return None
    attrs, (outputs, inside, *_) = expr.attrs, expr.args[1].held.shape
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    of_group = outputs // attrs.groups
    is_depthwise = inside == of_group == 1
    if attrs.groups == 1 or is_depthwise or layouts != ("NCHW", "OIHW", "NCHW") or stored_choice(expr):
        return None
    if not (inside % PIXEL or of_group % PIXEL):
        return None
    fitting = (n for n in MERGED if not (attrs.groups % n or inside * n % PIXEL or of_group * n % PIXEL))
    count = next(fitting, 1)
    return with_merged_groups(expr, count) if count > 1 else None


def _filled(function: Function) -> Expr | None:
    calls = calls_of(function)
    cuts, joined = cuts_of(calls), dict[int, Channels]()
    for members in groups_of(calls):
        joined |= rounded(members, cuts, PIXEL)
    alone = {id(c): Channels(((n, -n % PIXEL),)) for c in calls if absorbs(c) and (n := channels_of(c)) % PIXEL}
    small = {id(c) for c in calls if channels_of(c) < LEAST or stored_choice(c)}
    chosen = {key: filled for key, filled in (alone | joined).items() if key not in small}
    wide = find_regions(function, lambda c: chosen.get(id(c)), lambda c: False, chosen.keys(), lambda c: 1)
    return widen(function, wide) if wide else None
