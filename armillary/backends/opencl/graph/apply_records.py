"""opencl-apply-records: calls get the choices that tuning records name.

In: a module with convolutions and products in plain layouts, the dispatch contexts in force (base/dispatch.py), the
option `schedule.choice`. Out: calls for which there is a choice carry it as their attribute; opencl-winograd-conv2d and
the schedules take it from there. Invariant: as in backends/records.py, which does what all families do alike. The knobs
are named as in Relay-era logs: tile_fc, tile_y and tile_x are (what is left, results of a work-item, work-items of a
group), tile_rcc is (what is left, terms of a step); 0 is no transform, or plain loops; of the product kernel tile_y is
(groups, work-items) that share a sum.

    nn.conv2d(%x, weight)
    ->
    nn.conv2d(%x, weight, choice="conv2d.tiles threads_c=8 threads_y=4 … step=8 unroll=0 | by record")

Every choice there is: backends/opencl/points.py.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from armillary.backends.opencl.algorithms import check_algorithm
from armillary.backends.opencl.graph.block_channels import has_channels_last, is_depthwise, objection_to_blocks
from armillary.backends.opencl.graph.winograd_conv2d import can_transform
from armillary.backends.opencl.space import (
    DEPTHWISE,
    DIRECT,
    MIN_ROWS,
    PLAIN,
    PRODUCT,
    TEXELS,
    WINOGRAD,
    Tiling,
    config_of,
    tiling_of,
)
from armillary.backends.opencl.tiles import FLOATS, Tile
from armillary.backends.records import WorkloadRule, call_key, open_extents, with_records
from armillary.base.dispatch import Workload
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import Op
from armillary.target import Target
from armillary.target.choice import Choice, Source
from armillary.transform import define_pass

CONV2D, DEPTHWISE_CONV2D = "conv2d_nchw.opencl", "depthwise_conv2d_nchw.opencl"
IMAGES = ("conv2d_nchwc.image2d", "depthwise_conv2d_nchwc.image2d")  # on blocks of four channels, in textures
IMAGES_LAST = ("conv2d_nhwc.image2d", "depthwise_conv2d_nhwc.image2d")  # where channels lie last
TUNED = {
    "nn.conv2d": (CONV2D, DEPTHWISE_CONV2D, *IMAGES, *IMAGES_LAST),
    "nn.dense": ("dense.opencl",),
    "nn.batch_matmul": ("batch_matmul.opencl",),
}
BY_PRODUCT = 1  # the knob `winograd` of what the product kernel computes; a transform has a tile of 2 or more
SPLITS = ("tile_fc", "tile_y", "tile_x", "tile_rcc")


@define_pass("opencl-apply-records", opt_level=0)
def opencl_apply_records(module: IRModule, *, target: object = None) -> IRModule:  # whatever Target accepts
    """Attach the stored choices of the current dispatch context."""
    chosen = Target(target if target is not None else Target.current() or "opencl")
    textures = has_textures(chosen)
    refuse = partial(_refuse, textures=textures)
    return with_records(module, chosen, partial(_rule_of, textures=textures), choice_of, _fits, refuse)


def has_textures(target: Target | None) -> bool:
    """Whether kernels read and write images: where the target names a GPU that gains by it."""
    return target is not None and target.device_name == "adreno"


def rule_here(function: Function) -> WorkloadRule:
    """What records of a function's calls are found by, for the current target."""
    return _rule_of(function, textures=has_textures(Target.current()))


def _rule_of(function: Function, *, textures: bool) -> WorkloadRule:
    names = IMAGES_LAST if textures and has_channels_last(function) else IMAGES
    return partial(workload_of, images=names if textures else ())


def _fits(expr: Call, choice: Choice) -> bool:
    return choice.algorithm != WINOGRAD.name or can_transform(expr)


def _refuse(expr: Expr, asked: Choice, *, textures: bool) -> None:
    if asked.algorithm == TEXELS.name and not textures:
        raise ConfigError(f"the choice {TEXELS.name} is for GPUs with textures", hint="target: opencl -device=adreno")
    check_algorithm(getattr(getattr(expr, "op", None), "name", ""), asked)


def workload_of(expr: Expr, *, images: tuple[str, ...]) -> Workload | None:
    """What records of a call are found by: a name, the types of its operands, its attributes, and for convolutions
    whether Winograd's algorithm can compute it; None for calls that are not tuned. `images`: the names of convolutions
    and depthwise ones in textures, where there are textures."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.name not in TUNED:
        return None
    key, name = call_key(expr, expr.op), TUNED[expr.op.name][0]
    if key is None or open_extents(expr) or any(operand[2] not in FLOATS for operand in key[: len(expr.args)]):
        return None
    if expr.op.name != "nn.conv2d":
        sizes = key[0][1]
        has_choice = len(sizes) > 1 and (expr.op.name != "nn.dense" or math.prod(sizes[:-1]) >= MIN_ROWS)
        return (name, *key) if has_choice else None
    attrs = expr.attrs  # those of a convolution
    if (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW") != ("NCHW", "OIHW", "NCHW"):
        return None
    if images and not objection_to_blocks(expr):
        return (images[is_depthwise(expr)], *key)
    return (name if attrs.groups == 1 else DEPTHWISE_CONV2D, *key, can_transform(expr))


def knobs_of(choice: Choice) -> dict[str, Any]:  # Any: tuples and numbers
    """A choice as the values of a space's knobs."""
    tiling = tiling_of(choice)
    size = BY_PRODUCT if choice.algorithm == PRODUCT.name else max(choice.knob("tile"), 0)
    if tiling is None:
        return {"winograd": size, **dict.fromkeys(SPLITS[:3], (-1, 0, 0)), "tile_rcc": (-1, 0), "unroll_explicit": 0}
    tile = tiling.tile
    splits = {name: (-1, own, over) for name, own, over in zip(SPLITS, tile.sums, tile.threads, strict=False)}
    return {"winograd": size, **splits, "tile_rcc": (-1, tile.step), "unroll_explicit": int(tiling.unroll)}


def choice_of(config: Any, workload: Workload) -> Choice:  # Any: a ConfigEntity; its package lies above
    """The choice that a configuration of a task states."""
    wanted = {"winograd", *SPLITS, "unroll_explicit"}
    if set(config) != wanted:
        message = f"the record {config} of {workload[0]} has other knobs than {', '.join(sorted(wanted))}"
        raise ConfigError(message, hint="tune again")
    parts = [len(getattr(config[name], "size", ())) for name in SPLITS]
    numbers = [getattr(config[name], "val", None) for name in ("winograd", "unroll_explicit")]
    if parts != [3, 3, 3, 2] or not all(type(value) in (int, bool) for value in numbers):
        raise ConfigError(f"the record {config} of {workload[0]} has knobs of other kinds", hint="tune again")
    (f, y, x), (a, b, c) = zip(*(config[name].size[1:] for name in SPLITS[:3]), strict=True)
    step, size = config["tile_rcc"].size[1], config["winograd"].val
    knobs = config_of(Tiling(Tile((a, b, c), (f, y, x), step), bool(config["unroll_explicit"].val)))
    names = {CONV2D: DIRECT, DEPTHWISE_CONV2D: DEPTHWISE, **dict.fromkeys((*IMAGES, *IMAGES_LAST), TEXELS)}
    if not step:
        choice = Choice(PLAIN.name, source=Source.RECORD)
    elif size not in (0, BY_PRODUCT):
        choice = Choice(WINOGRAD.name, (("tile", size), *knobs), source=Source.RECORD)
    else:
        algorithm = PRODUCT if size == BY_PRODUCT else names.get(workload[0], PRODUCT)
        choice = Choice(algorithm.name, knobs, source=Source.RECORD)
    check_algorithm(next(op for op, tasks in TUNED.items() if workload[0] in tasks), choice)
    return choice
