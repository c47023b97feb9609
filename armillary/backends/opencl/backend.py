"""The record of the OpenCL back end.

In: nothing. Out: `BACKEND`. Invariant: importing it loads no schedule and no emitter. Kernels are sources, which the
driver of a device compiles when a package is loaded there (`runtime/native/devices/arm_opencl_program.c`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from armillary.backends.base import Backend, GraphPasses
from armillary.backends.opencl.graph.annotate_memory_scope import annotate_memory_scope
from armillary.backends.opencl.graph.apply_records import TUNED, has_textures, opencl_apply_records
from armillary.backends.opencl.graph.block_channels import block_channels
from armillary.backends.opencl.graph.combine_dense import combine_dense
from armillary.backends.opencl.graph.fill_channels import fill_channels
from armillary.backends.opencl.graph.fuse_moves import fuse_moves
from armillary.backends.opencl.graph.store_half import storage_of, store_half
from armillary.backends.opencl.graph.winograd_conv2d import opencl_winograd_conv2d
from armillary.backends.small_floats.graph.widen_small_floats import widen_small_floats
from armillary.base.lazy import deferred
from armillary.codegen.opencl.program import shared_program
from armillary.relay.transform.check_choices import check_choices
from armillary.relay.transform.fusion.split_args import split_args
from armillary.relay.transform.layout.use_layouts import use_layouts
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.target import Target
from armillary.target.texture import LAST_CHANNELS
from armillary.transform import Pass

CHANNELS_SECOND: dict[str, tuple[str, ...]] = {
    "nn.conv2d": ("NCHW", "default"),
    "nn.conv2d_transpose": ("NCHW", "default"),
    **{f"nn.{kind}_pool2d": ("NCHW",) for kind in ("max", "avg", "global_max", "global_avg")},
}

with deferred():
    from armillary.backends.opencl import algorithms as _algorithms
    from armillary.codegen.opencl.build import build_kernels
    from armillary.tir.transform.split_host_device import split_host_device


def _types(target: Target) -> Sequence[Pass]:
    # Arithmetic is in float32 where sums are, unless a target names a GPU: Adreno's compute in half, NVIDIA's do not.
    return () if target.device_name else [widen_small_floats.bind(notes=storage_of, rounds=False)]


def _axes(target: Target) -> Sequence[Pass]:
    # Dense layers of the same data are one; channels are second: what follows has schedules for that.
    return [
        infer_type.bind(),
        combine_dense.bind(),
        infer_type.bind(),
        use_layouts.bind(desired_layouts=CHANNELS_SECOND),
    ]


def _layouts(target: Target) -> Sequence[Pass]:
    return [
        infer_type.bind(),
        *([fill_channels.bind(), infer_type.bind()] if has_textures(target) else ()),
        check_choices.bind(operators=partial(tuple, TUNED)),
        opencl_apply_records.bind(target=target),
        infer_type.bind(),  # calls with records have their choices
        # Channels are in blocks of four, or each convolution has its algorithm.
        (block_channels if has_textures(target) else opencl_winograd_conv2d).bind(),
        split_args.bind(max_function_args=target.max_function_args),
    ]


def _kernels(target: Target) -> Sequence[Pass]:
    # What a kernel would only move is read where it lies.
    # What lies between kernels is as the network's own types say.
    return () if has_textures(target) else [infer_type.bind(), fuse_moves.bind(), store_half.bind()]


def _choices(target: Target) -> Sequence[Pass]:
    # Kernels say which tensors are in textures.
    return [annotate_memory_scope.bind(target=target)] if has_textures(target) else []


BACKEND = Backend(
    family="opencl",
    algorithms=tuple(f"{__package__}.{name}" for name in ("schedules", "winograd", "pixel_dense", "gemm", "attention")),
    lower=split_host_device,
    emit=build_kernels,
    build=build_kernels,
    candidates=lambda op: _algorithms.candidates_of(op),
    passes=GraphPasses(types=_types, axes=_axes, layouts=_layouts, kernels=_kernels, choices=_choices),
    device="opencl",
    keeps_blocks=(LAST_CHANNELS,),
    sums_float16=True,
    program=shared_program,
    alignment=512,  # devices take parts of memory as buffers, whose offsets are multiples of up to 4096 bits
)
