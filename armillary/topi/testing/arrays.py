"""References of products, norms, images, slices and positions.

In: arrays, attributes in each function's own order. Out: an array. Invariant: as in `testing/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary import relay
from armillary.base.aliases import AnyFunction, Array
from armillary.errors import TypeMismatch
from armillary.relay.expr import Expr
from armillary.topi.testing.reference import moved, numbers, value_of

Numbers = int | Sequence[int]


def softmax_python(a_np: Array, axis: int = 1) -> Array:
    """Softmax over an axis."""
    return np.asarray(value_of(relay.nn.softmax, [a_np], axis=axis))


def log_softmax_python(a_np: Array, axis: int = 1) -> Array:
    """The logarithm of softmax along the last axis."""
    return np.asarray(value_of(relay.nn.log_softmax, [a_np], axis=axis))


def dense(
    x: Array,
    y: Array,
    bias: Array | None,
    use_bias: bool = False,
    use_relu: bool = False,
    out_dtype: str | None = None,
) -> Array:
    """[n, k] x [m, k] -> [n, m], a bias along m added and negative numbers cut where asked for."""
    result = np.asarray(value_of(relay.nn.dense, [x, y], out_dtype=out_dtype or ""))
    if use_bias:
        result = np.asarray(value_of(relay.add, [result, np.asarray(bias).astype(result.dtype)]))
    return np.asarray(value_of(relay.nn.relu, [result])) if use_relu else result


def batch_matmul(
    x: Array, y: Array, out_dtype: str | None = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    """A product for each batch; a batch of one serves all."""
    named = {"out_dtype": out_dtype or "", "transpose_a": trans_x, "transpose_b": trans_y}
    return np.asarray(value_of(relay.nn.batch_matmul, [x, y], **named))


def batch_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    moving_mean: Array,
    moving_var: Array,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
    training: bool,
    momentum: float,
) -> list[Array]:
    """The result, the moving mean and the moving variance; in training those of the batch normalise."""
    mean, var, moved_mean, moved_var = moving_mean, moving_var, moving_mean, moving_var
    if training:
        others = tuple(k for k in range(x.ndim) if k != axis % x.ndim)
        mean, var = x.mean(others), x.var(others)
        moved_mean = moving_mean * (1 - momentum) + mean * momentum
        moved_var = moving_var * (1 - momentum) + var * momentum

    def normal(data: Expr, by: Expr, plus: Expr, middle: Expr, spread: Expr) -> Expr:
        output = relay.nn.batch_norm(
            data, by, plus, middle, spread, axis=axis, epsilon=epsilon, center=center, scale=scale
        )
        first: Expr = output[0]
        return first

    output = value_of(normal, [x, gamma, beta, mean, var])
    return [output, moved_mean, moved_var]


def _over(data: Array, axes: Numbers) -> tuple[int, ...]:
    return tuple(sorted(a % data.ndim for a in numbers(axes, 1)))


def _normal(data: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """A tensor less its mean, by its deviation."""
    mean = value_of(relay.mean, [data], axis=axes, keepdims=True)
    var = value_of(relay.variance, [data], axis=axes, keepdims=True)
    return np.asarray((data - mean) / np.sqrt(var + epsilon))


def _along(vector: Array, data: Array, axes: Sequence[int]) -> Array:
    """Weights in the shape that lies along some axes."""
    return vector.reshape([n if k in axes else 1 for k, n in enumerate(data.shape)])


def layer_norm_python(data: Array, gamma: Array, beta: Array | None, axis: Numbers, epsilon: float = 1e-5) -> Array:
    """Over axes, along which the weights lie."""
    axes = _over(data, axis)
    result = _normal(data, axes, epsilon) * _along(gamma, data, axes)
    return result if beta is None else result + _along(beta, data, axes)


def group_norm_python(
    data: Array,
    gamma: Array | None,
    beta: Array | None,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> Array:
    """Over axes and the channels of each group; the weights lie along channels."""
    channel, shape = channel_axis % data.ndim, data.shape
    split = data.reshape(*shape[:channel], num_groups, shape[channel] // num_groups, *shape[channel + 1 :])
    others = tuple(a + (a > channel) for a in _over(data, axes) if a != channel)
    result = _normal(split, (channel + 1, *others), epsilon).reshape(shape)
    result = result if gamma is None else result * _along(gamma, data, (channel,))
    return result if beta is None else result + _along(beta, data, (channel,))


def rms_norm_python(data: Array, weight: Array, axis: Numbers, epsilon: float = 1e-5) -> Array:
    """By the root of the mean square over axes."""
    axes = _over(data, axis)
    square = value_of(relay.mean, [data * data], axis=axes, keepdims=True)
    return np.asarray(data / np.sqrt(square + epsilon) * _along(weight, data, axes))


def lrn_python(a_np: Array, size: int, axis: int, bias: float, alpha: float, beta: float) -> Array:
    """Local response normalisation."""
    return np.asarray(value_of(relay.nn.lrn, [a_np], size=size, axis=axis, bias=bias, alpha=alpha, beta=beta))


def l2_normalize_python(a_np: Array, eps: float, axis: Numbers | None = None) -> Array:
    """By the Euclidean norm over axes, all if None."""
    axes = None if axis is None else numbers(axis, 1)
    return np.asarray(value_of(relay.nn.l2_normalize, [a_np], eps=eps, axis=axes))


def dilate_python(
    input_np: Array, strides: Sequence[int], dilation_value: float = 0.0, out_dtype: str | None = None
) -> Array:
    """Elements `strides` apart, a number between them."""
    data = input_np if out_dtype is None else input_np.astype(out_dtype)
    return np.asarray(value_of(relay.nn.dilate, [data], strides=tuple(strides), dilation_value=dilation_value))


def _resize(rank: int, layout_by_default: str) -> AnyFunction:
    def resize(
        data: Array,
        scale: float | Sequence[float],
        layout: str = layout_by_default,
        method: str = "nearest_neighbor",
        coordinate_transformation_mode: str = "align_corners",
    ) -> Array:
        if data.ndim != rank + 2 or not set(layout_by_default) <= set(layout):
            message = f"resize{rank}d_python: {data.ndim} dimensions with layout {layout!r}"
            raise TypeMismatch(f"{message}, wanted the axes {layout_by_default}")
        scales = np.broadcast_to(np.asarray(scale, np.float64), (rank,))
        where = [layout.index(axis) for axis in layout_by_default[2:]]
        size = tuple(round(data.shape[at] * by) for at, by in zip(where, scales, strict=True))
        result: Array = value_of(
            getattr(relay.image, f"resize{rank}d"),
            [data],
            size=size,
            layout=layout,
            method={"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}.get(method, method),
            coordinate_transformation_mode=coordinate_transformation_mode,
        )
        return result

    resize.__doc__ = f"An image of {rank} axes, `scale` times as large."
    return resize


def crop_and_resize_python(
    image: Array,
    boxes: Array,
    box_indices: Array,
    crop_size: Sequence[int],
    layout: str,
    method: str = "bilinear",
    extrapolation_value: float = 0,
) -> Array:
    """Boxes of images, each brought to one size."""
    named = {"crop_size": tuple(crop_size), "layout": layout, "method": method}
    operands = [image, boxes, box_indices]
    return np.asarray(value_of(relay.image.crop_and_resize, operands, **named, extrapolation_value=extrapolation_value))


def affine_grid_python(data: Array, target_shape: Sequence[int]) -> Array:
    """Where affine maps of an image of some shape read."""
    return np.asarray(value_of(relay.image.affine_grid, [data], target_shape=tuple(target_shape)))


def grid_sample_python(
    data: Array,
    grid: Array,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Array:
    """An image at the places of a grid."""
    named = {"method": method, "layout": layout, "padding_mode": padding_mode, "align_corners": align_corners}
    return np.asarray(value_of(relay.image.grid_sample, [data, grid], **named))


def correlation_nchw_python(
    data1: Array,
    data2: Array,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: Numbers,
    is_multiply: bool,
) -> Array:
    """The correlation of two images' patches."""
    named = {"kernel_size": kernel_size, "max_displacement": max_displacement, "stride1": stride1, "stride2": stride2}
    pads = numbers(padding, 2)
    return np.asarray(value_of(relay.nn.correlation, [data1, data2], **named, padding=pads, is_multiply=is_multiply))


def _roi_align(layout: str) -> AnyFunction:
    def roi_align(
        a_np: Array,
        rois_np: Array,
        pooled_size: Numbers,
        spatial_scale: float,
        sample_ratio: int,
        mode: str | bytes = b"avg",
    ) -> Array:
        named = {"spatial_scale": spatial_scale, "sample_ratio": sample_ratio}
        kind = mode.decode() if isinstance(mode, bytes) else mode
        operands, size = [moved(a_np, layout, "NCHW"), rois_np], numbers(pooled_size, 2)
        return moved(value_of(relay.vision.roi_align, operands, pooled_size=size, mode=kind, **named), "NCHW", layout)

    roi_align.__doc__ = f"Regions of {layout}, each brought to one size."
    return roi_align


def roi_pool_nchw_python(a_np: Array, rois_np: Array, pooled_size: Numbers, spatial_scale: float) -> Array:
    """The largest of each part of a region."""
    named = {"pooled_size": numbers(pooled_size, 2), "spatial_scale": spatial_scale}
    return np.asarray(value_of(relay.vision.roi_pool, [a_np, rois_np], **named))


def reorg_python(a_np: Array, stride: int) -> Array:
    """The channels of YOLO's passthrough layer."""
    return np.asarray(value_of(relay.vision.yolo_reorg, [a_np], stride=stride))


def strided_slice_python(
    data: Array,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Numbers,
    slice_mode: str = "end",
    axes: Sequence[int] | None = None,
) -> Array:
    """Every `strides`-th element between limits; the mode "size" says how many."""
    named: dict[str, object] = {"strides": numbers(strides, 1) or None, "slice_mode": slice_mode}
    named |= {"begin": tuple(begin), "end": tuple(end), "axes": None if axes is None else tuple(axes)}
    return np.asarray(value_of(relay.strided_slice, [data], **named))


def slice_axis_python(data: Array, axis: int, begin: int, end: int | None = None) -> Array:
    """What lies between two limits of one axis."""
    stop = data.shape[axis] if end is None else end
    return strided_slice_python(data, [begin], [stop], [1], axes=[axis])


def strided_set_python(
    data: Array, v: Array, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None = None
) -> Array:
    """An array with some elements replaced."""
    rank = data.ndim
    first = [*begin, *[0] * (rank - len(begin))]
    stop = [*end, *data.shape[len(end) :]]
    steps = [*(strides or ()), *[1] * (rank - len(strides or ()))]
    named = {"begin": tuple(first), "end": tuple(stop), "strides": tuple(steps)}
    return np.asarray(value_of(relay.strided_set, [data, v], **named))


def gather_python(data: Array, axis: int, indices: Array) -> Array:
    """Elements at positions along an axis."""
    return np.asarray(value_of(lambda a, i: relay.gather(a, axis, i), [data, indices]))


def gather_nd_python(a_np: Array, indices_np: Array) -> Array:
    """Elements, or what lies behind them, at positions in the first axes."""
    return np.asarray(value_of(relay.gather_nd, [a_np, indices_np]))


def one_hot(indices: Array, on_value: float, off_value: float, depth: int, axis: int, dtype: str) -> Array:
    """One number at an index along a new axis, another elsewhere."""
    operands = [indices, np.array(on_value, dtype), np.array(off_value, dtype)]
    return np.asarray(value_of(relay.one_hot, operands, depth=depth, axis=axis, dtype=dtype))


def sequence_mask(data: Array, valid_length: Array, mask_value: float, axis: int) -> Array:
    """What lies behind each sequence's length replaced."""
    return np.asarray(value_of(relay.sequence_mask, [data, valid_length], mask_value=mask_value, axis=axis))


def matrix_set_diag(input_np: Array, diagonal: Array, k: Numbers = 0, align: str = "RIGHT_LEFT") -> Array:
    """Matrices with diagonals replaced."""
    return np.asarray(value_of(relay.matrix_set_diag, [input_np, diagonal], k=k, align=align))


def searchsorted_ref(sorted_sequence: Array, values: Array, right: bool, out_dtype: str) -> Array:
    """Where values would stand in sorted rows."""
    return np.asarray(value_of(relay.searchsorted, [sorted_sequence, values], right=right, dtype=out_dtype))


def space_to_depth_python(data: Array, block_size: int) -> Array:
    """Blocks of an NCHW image as channels."""
    return np.asarray(value_of(relay.nn.space_to_depth, [data], block_size=block_size))


def depth_to_space_python(data: Array, block_size: int, mode: str = "DCR") -> Array:
    """Channels of an NCHW image as blocks."""
    return np.asarray(value_of(relay.nn.depth_to_space, [data], block_size=block_size, mode=mode))


def _pairs(before: Sequence[int], after: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple((int(low), int(high)) for low, high in zip(before, after, strict=True))


def space_to_batch_nd_python(
    data: Array, block_shape: Sequence[int], pad_before: Sequence[int], pad_after: Sequence[int], pad_value: float = 0
) -> Array:
    """Blocks of padded axes as batches."""
    named = {"block_shape": tuple(block_shape), "paddings": _pairs(pad_before, pad_after), "pad_value": pad_value}
    return np.asarray(value_of(relay.nn.space_to_batch_nd, [data], **named))


def batch_to_space_nd_python(
    data: Array, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> Array:
    """Batches as blocks of axes, whose ends are cut off."""
    named = {"block_shape": tuple(block_shape), "crops": _pairs(crop_begin_list, crop_end_list)}
    return np.asarray(value_of(relay.nn.batch_to_space_nd, [data], **named))


def nll_loss(
    predictions: Array, targets: Array, weights: Array, reduction: str = "mean", ignore_index: int = -100
) -> Array:
    """The loss of classes that were foreseen with some logarithm of probability."""
    named = {"reduction": reduction, "ignore_index": ignore_index}
    return np.asarray(value_of(relay.nn.nll_loss, [predictions, targets, weights], **named))


_ACTS = {"sigmoid": relay.sigmoid, "tanh": relay.tanh, "relu": relay.nn.relu}


def lstm_python(
    Xs: Array,  # noqa: N803
    Wi: Array,  # noqa: N803
    Wh: Array,  # noqa: N803
    Bi: Array | None = None,  # noqa: N803
    Bh: Array | None = None,  # noqa: N803
    h_init: Array | None = None,
    c_init: Array | None = None,
    proj: Array | None = None,
    p_i: Array | None = None,
    p_f: Array | None = None,
    p_o: Array | None = None,
    f_act: str = "sigmoid",
    g_act: str = "tanh",
    h_act: str = "tanh",
    reverse: bool = False,
    weight_layout: str = "IFGO",
) -> tuple[Array, Array]:
    """States and cells of a layer of long short-term memory, in the order in which they are computed."""
    batch, hidden, out = Xs.shape[1], Wh.shape[0] // 4, Wh.shape[1]
    state = np.zeros((batch, out), Xs.dtype) if h_init is None else h_init
    cell = np.zeros((batch, hidden), Xs.dtype) if c_init is None else c_init
    states, cells = [], []

    def act(name: str, of: Array) -> Array:
        return np.asarray(value_of(_ACTS[name], [of]))

    for x in Xs[::-1] if reverse else Xs:
        total = x @ Wi.T + state @ Wh.T
        for bias in (Bi, Bh):
            total = total if bias is None else total + bias
        gate = dict(zip(weight_layout, np.split(total, 4, axis=1), strict=True))
        taken = act(f_act, gate["I"] + (0 if p_i is None else p_i * cell))
        retained = act(f_act, gate["F"] + (0 if p_f is None else p_f * cell))
        cell = retained * cell + taken * act(g_act, gate["G"])
        seen = act(f_act, gate["O"] + (0 if p_o is None else p_o * cell)) * act(h_act, cell)
        state = seen if proj is None else seen @ proj.T
        states.append(state)
        cells.append(cell)
    return np.stack(states), np.stack(cells)


FUNCTIONS: dict[str, AnyFunction] = {
    **{
        function.__name__: function
        for function in (
            affine_grid_python,
            batch_matmul,
            batch_norm,
            batch_to_space_nd_python,
            correlation_nchw_python,
            crop_and_resize_python,
            dense,
            depth_to_space_python,
            dilate_python,
            gather_nd_python,
            gather_python,
            grid_sample_python,
            group_norm_python,
            l2_normalize_python,
            layer_norm_python,
            log_softmax_python,
            lrn_python,
            lstm_python,
            matrix_set_diag,
            nll_loss,
            one_hot,
            reorg_python,
            rms_norm_python,
            roi_pool_nchw_python,
            searchsorted_ref,
            sequence_mask,
            slice_axis_python,
            softmax_python,
            space_to_batch_nd_python,
            space_to_depth_python,
            strided_set_python,
            strided_slice_python,
        )
    },
    "instance_norm_python": layer_norm_python,
    "resize1d_python": _resize(1, "NCW"),
    "resize2d_python": _resize(2, "NCHW"),
    "resize3d_python": _resize(3, "NCDHW"),
    "roi_align_nchw_python": _roi_align("NCHW"),
    "roi_align_nhwc_python": _roi_align("NHWC"),
}
