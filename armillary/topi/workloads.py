"""Workloads of convolutions, and the knobs that old templates take for them where no record says.

In: tensors and attributes of a convolution. Out: a `Workload`, as `topi.nn.conv2d._get_workload` of Relay-era scripts
gives it; from that, in a configuration that a template falls back on, `tile_ic`, `tile_oc`, `tile_ow`, `unroll_kw`.
Invariant: sizes of tiles divide what they split. Templates that scripts write themselves read these; our own kernels
choose their tiles in `backends/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from armillary import te
from armillary.errors import TypeMismatch
from armillary.target import Target, as_target
from armillary.target.cpu import cpu_model
from armillary.topi.convolutions import Numbers, per_axis
from armillary.topi.padding import Padding, get_pad_tuple
from armillary.topi.utils import get_const_tuple

if TYPE_CHECKING:
    from armillary.autotvm.task.space import FallbackConfigEntity


class Workload(NamedTuple):
    """A convolution of images: dtypes as texts; sizes, channels (`in_filter`, `out_filter`) and steps in elements."""

    in_dtype: str
    out_dtype: str
    height: int
    width: int
    in_filter: int
    groups: int
    out_filter: int
    kernel_h: int
    kernel_w: int
    padt: int
    padl: int
    padb: int
    padr: int
    dilation_h: int
    dilation_w: int
    stride_h: int
    stride_w: int

    @property
    def out_width(self) -> int:
        """Columns of the result."""
        span = (self.kernel_w - 1) * self.dilation_w + 1
        return (self.width + self.padl + self.padr - span) // self.stride_w + 1


def conv2d_workload(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    out_dtype: str,
    data_layout: str = "NCHW",
) -> Workload:
    """The workload of a convolution in NCHW (kernel OIHW), NHWC or HWCN (kernel HWIO)."""
    if data_layout not in ("NCHW", "NHWC", "HWCN"):
        raise TypeMismatch(f"a workload of layout {data_layout!r}", hint="NCHW, NHWC or HWCN")
    sizes = dict(zip(data_layout, get_const_tuple(data.shape), strict=True))
    axes = "OIHW" if data_layout == "NCHW" else "HWIO"
    window = dict(zip(axes, get_const_tuple(kernel.shape), strict=True))
    groups = sizes["C"] // window["I"]
    channels = sizes["C"], groups, window["O"]
    image, taps = (sizes["H"], sizes["W"]), (window["H"], window["W"])
    return _workload(data, out_dtype, image, channels, taps, padding, dilation, stride)


def depthwise_workload(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    out_dtype: str,
    data_layout: str = "NCHW",
) -> Workload:
    """The workload of a depthwise convolution in NCHW (kernel CMHW), NHWC (kernel HWCM) or NCHWc (kernel OIHWio)."""
    shape, window = get_const_tuple(data.shape), get_const_tuple(kernel.shape)
    if data_layout == "NCHW":
        (_, inside, *image), (_, times, *taps) = shape, window
    elif data_layout == "NHWC":
        (_, *image, inside), (*taps, _, times) = shape, window
    elif data_layout == "NCHWc":
        (_, blocks, *image, block), (outer, _, *taps, _, inner) = shape, window
        inside = blocks * block
        times = outer * inner // inside
    else:
        raise TypeMismatch(f"a depthwise workload of layout {data_layout!r}", hint="NCHW, NHWC or NCHWc")
    channels = inside, inside, inside * times
    return _workload(data, out_dtype, tuple(image), channels, tuple(taps), padding, dilation, stride)


def _workload(
    data: te.Tensor,
    out_dtype: str,
    image: tuple[int, ...],
    channels: tuple[int, int, int],
    taps: tuple[int, ...],
    padding: Padding,
    dilation: Numbers,
    stride: Numbers,
) -> Workload:
    steps = per_axis(dilation, 2)
    margins = get_pad_tuple(padding, [(k - 1) * d + 1 for k, d in zip(taps, steps, strict=True)])
    dtypes = str(data.dtype), str(out_dtype)
    return Workload._make([*dtypes, *image, *channels, *taps, *margins, *steps, *per_axis(stride, 2)])


def vector_knobs(cfg: FallbackConfigEntity, wkl: Workload) -> None:
    """Blocks of channels of at most one vector of the target in force, and as many columns as registers have room."""
    cpu = cpu_model(Target.current() or as_target("llvm"))
    _set_knobs(cfg, wkl, cpu.lanes, 1, cpu.vector_registers - 1)


def byte_knobs(cfg: FallbackConfigEntity, wkl: Workload, int32_lanes: int, num_int8_elements: int) -> None:
    """Blocks of `int32_lanes` outputs, whose inputs come in multiples of `num_int8_elements`."""
    if wkl.out_filter % int32_lanes or wkl.in_filter % num_int8_elements:
        raise TypeMismatch(
            f"{wkl.in_filter} to {wkl.out_filter} channels: they come in {num_int8_elements} and {int32_lanes}",
            hint="pad the channels",
        )
    _set_knobs(cfg, wkl, int32_lanes, num_int8_elements, _COLUMNS)


_COLUMNS = 31  # accumulators of a vector each beside one operand, of 32 registers


def _set_knobs(cfg: FallbackConfigEntity, wkl: Workload, lanes: int, step: int, columns: int) -> None:
    cfg.define_split("tile_oc", wkl.out_filter, num_outputs=2)
    cfg.fallback_split("tile_oc", [-1, lanes])
    cfg.define_split("tile_ic", wkl.in_filter, num_outputs=2, filter=lambda entity: entity.size[-1] % step == 0)
    cfg.fallback_split("tile_ic", [-1, max(cfg["tile_oc"].size[-1], step)])
    cfg.define_split("tile_ow", wkl.out_width, num_outputs=2)
    cfg.fallback_split("tile_ow", [-1, columns])
    cfg.define_knob("unroll_kw", [False])
