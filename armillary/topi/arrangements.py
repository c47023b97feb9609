"""Functions of topi that move or order elements, or that have no operator of their own: `argwhere`, `dft`, `einsum`.

In: tensors, and attributes in each function's own order. Out: TE tensors. Invariant: as in signatures.py, arguments are
only named and reordered; `argwhere`, whose result has as many rows as its first argument says, is a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary import relay, te
from armillary.errors import TypeMismatch
from armillary.ops._loops import Index, load, nest, scratch, store
from armillary.te.api import Outputs as Result
from armillary.tir import build as T
from armillary.tir import stmt as S
from armillary.topi import symbolic_sizes
from armillary.topi.expression import of_function
from armillary.topi.operators import compute
from armillary.topi.utils import get_const_tuple

Tensor = te.Tensor


def argwhere(output_shape: Tensor, condition: Tensor) -> Tensor:
    """The positions of elements that are not zero, as many as `output_shape` has rows, in order."""
    rows, rank = get_const_tuple(output_shape.shape)
    sizes = get_const_tuple(condition.shape)
    if rank != max(len(sizes), 1):
        raise TypeMismatch(f"topi.argwhere: {rank} columns for positions in a tensor of {len(sizes)} axes")

    def body(ins: Sequence[S.Buffer], outs: Sequence[S.Buffer]) -> S.Stmt:
        count = scratch("count", 1, "int32", "local")

        def visit(at: Sequence[Index]) -> S.Stmt:
            row = load(count, 0)
            put = [store(outs[0], place, row, k) for k, place in enumerate(at or [T.const(0)])]
            nonzero = T.all_of(T.not_equal(load(ins[0], *at), T.const(0, condition.dtype)), T.less(row, rows))
            return S.IfThenElse(nonzero, S.seq(*put, store(count, T.add(row, 1), 0)))

        return S.Allocate(count, S.seq(store(count, 0, 0), nest(sizes, visit)))

    result: Tensor = te.extern([(rows, rank)], [condition], body, name="argwhere", dtype=["int32"])
    return result


def einsum(subscripts: str, *operand: Tensor) -> Result:
    """`topi.einsum("ij,jk->ik", A, B)`."""
    if symbolic_sizes.is_symbolic(operand):
        return symbolic_sizes.einsum(subscripts, operand)
    return of_function(relay.einsum, [list(operand), subscripts], {})


def dft(re_data: Tensor, im_data: Tensor, inverse: bool = False) -> list[Tensor]:
    """Fourier transforms along the last axis: real and imaginary parts."""
    return list(of_function(relay.dft, [re_data, im_data], {"inverse": inverse}))


def argsort(
    data: Tensor, valid_count: None = None, axis: int = -1, is_ascend: bool = True, dtype: str = "float32"
) -> Result:
    """The positions that sort an axis; of floats unless another dtype is asked for."""
    if valid_count is not None:
        raise TypeMismatch("topi.argsort: valid_count is not supported", hint="cut the tensor first")
    return compute("argsort", [data], (), {"axis": axis, "is_ascend": bool(is_ascend), "dtype": dtype})


def collapse_sum(data: Tensor, target_shape: Sequence[int]) -> Result:
    """Sums over what broadcasting `target_shape` to the data's shape would repeat."""
    known = get_const_tuple(target_shape)
    if symbolic_sizes.is_symbolic([data]) or not all(isinstance(extent, int) for extent in known):
        return symbolic_sizes.collapse_sum(data, known)
    return of_function(relay.collapse_sum_to, [data, known], {})


def batch_to_space_nd(
    data: Tensor, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> Result:
    """Blocks of the batch put back into the axes they came from."""
    crops = tuple(zip(crop_begin_list, crop_end_list, strict=True))
    return of_function(relay.nn.batch_to_space_nd, [data], {"block_shape": tuple(block_shape), "crops": crops})


def space_to_batch_nd(
    data: Tensor,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: float = 0.0,
) -> Result:
    """Blocks of the padded axes put into the batch."""
    paddings = tuple(zip(get_const_tuple(pad_before), get_const_tuple(pad_after), strict=True))
    named = {"block_shape": get_const_tuple(block_shape), "paddings": paddings, "pad_value": pad_value}
    return of_function(relay.nn.space_to_batch_nd, [data], named)


def multibox_detection(
    cls_prob: Tensor,
    loc_preds: Tensor,
    anchors: Tensor,
    clip: bool = True,
    threshold: float = 0.01,
    nms_threshold: float = 0.5,
    force_suppress: bool = False,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    nms_topk: int = -1,
) -> Result:
    """Boxes out of anchors and their predicted moves, without those that overlap a better one."""

    def detect(classes: relay.Expr, moves: relay.Expr, boxes: relay.Expr) -> relay.Expr:
        detections = relay.vision.multibox_transform_loc(
            classes, moves, boxes, clip=clip, threshold=threshold, variances=tuple(variances)
        )
        retained = {"force_suppress": force_suppress, "top_k": nms_topk, "return_indices": False}
        return relay.vision.non_max_suppression(
            detections[0], detections[1], detections[1], -1, nms_threshold, **retained
        )

    return of_function(detect, [cls_prob, loc_preds, anchors], {})


def correlation_nchw(
    data1: Tensor,
    data2: Tensor,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: int | Sequence[int],
    is_multiply: bool,
) -> Result:
    """How alike two feature maps are, for every displacement."""
    named = {"kernel_size": kernel_size, "max_displacement": max_displacement, "is_multiply": is_multiply}
    pads = (padding,) if isinstance(padding, int) else tuple(padding)
    return compute(
        "nn.correlation", [data1, data2], (), {**named, "stride1": stride1, "stride2": stride2, "padding": pads}
    )


def _deformable(layout: str, kernel_layout: str) -> Callable[..., Result]:
    def deformable(
        data: Tensor,
        offset: Tensor,
        kernel: Tensor,
        strides: int | Sequence[int],
        padding: int | Sequence[int],
        dilation: int | Sequence[int],
        deformable_groups: int,
        groups: int,
        out_dtype: str = "",
    ) -> Result:
        steps = {"strides": strides, "padding": padding, "dilation": dilation}
        named = {name: (v,) if isinstance(v, int) else tuple(v) for name, v in steps.items()}
        retained = "" if out_dtype == str(data.dtype) else out_dtype
        layouts = {"data_layout": layout, "kernel_layout": kernel_layout, "out_dtype": retained}
        counts = {"deformable_groups": deformable_groups, "groups": groups}
        return of_function(relay.nn.deformable_conv2d, [data, offset, kernel], {**named, **layouts, **counts})

    deformable.__doc__ = f"`topi.nn.deformable_conv2d`, in {layout}."
    return deformable


def _resize(rank: int) -> Callable[..., Result]:
    def resize(
        data: Tensor,
        roi: Sequence[float],
        size: Sequence[int],
        layout: str = "",
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        bicubic_alpha: float = -0.5,
        bicubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: str | None = None,
        output_shape: None = None,
    ) -> Result:
        del output_shape
        named = {
            "size": tuple(get_const_tuple(size)),
            "roi": tuple(roi or ()),
            "layout": layout,
            "method": method,
            "coordinate_transformation_mode": coordinate_transformation_mode,
            "rounding_method": rounding_method,
            "cubic_alpha": bicubic_alpha,
            "cubic_exclude": bicubic_exclude,
            "extrapolation_value": extrapolation_value,
            "out_dtype": out_dtype or "",
        }
        return of_function(getattr(relay.image, f"resize{rank}d"), [data], named)

    resize.__doc__ = f"`topi.image.resize{rank}d`."
    return resize


def roi_align_nchw(
    data: Tensor,
    rois: Tensor,
    pooled_size: int | Sequence[int],
    spatial_scale: float,
    mode: str | bytes | int,
    sample_ratio: int = -1,
) -> Result:
    """Regions pooled to one size."""
    sizes = (pooled_size,) if isinstance(pooled_size, int) else tuple(pooled_size)
    modes: dict[str | bytes | int, str] = {b"avg": "avg", b"max": "max", 0: "avg", 1: "max"}
    named = {"pooled_size": sizes, "spatial_scale": spatial_scale, "sample_ratio": sample_ratio}
    return compute("vision.roi_align", [data, rois], (), {**named, "mode": modes.get(mode, mode)})


def roi_pool_nchw(data: Tensor, rois: Tensor, pooled_size: int | Sequence[int], spatial_scale: float) -> Result:
    """Maxima of the cells of regions."""
    sizes = (pooled_size,) if isinstance(pooled_size, int) else tuple(pooled_size)
    return compute("vision.roi_pool", [data, rois], (), {"pooled_size": sizes, "spatial_scale": spatial_scale})


FUNCTIONS: dict[str, Callable[..., Result]] = {
    "vision.roi_align_nchw": roi_align_nchw,
    "vision.roi_pool_nchw": roi_pool_nchw,
    "argsort": argsort,
    "argwhere": argwhere,
    "collapse_sum": collapse_sum,
    "dft": dft,
    "einsum": einsum,
    "nn.batch_to_space_nd": batch_to_space_nd,
    "nn.space_to_batch_nd": space_to_batch_nd,
    "vision.multibox_detection": multibox_detection,
    "nn.correlation_nchw": correlation_nchw,
    "nn.deformable_conv2d_nchw": _deformable("NCHW", "OIHW"),
    "nn.deformable_conv2d_nhwc": _deformable("NHWC", "HWIO"),
    **{f"image.resize{rank}d": _resize(rank) for rank in (1, 2, 3)},
}
