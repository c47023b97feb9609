"""What operators with windows are in ONNX: convolutions, pools, padding, resizes, normalisation of windows.

In: a call and the names of its arguments' values. Out: nodes in a `Graph`. Invariant: ONNX has channels second; another
layout is transposed before and behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.contrib.target._onnx_graph import Graph
from armillary.contrib.target._onnx_types import Inputs, Rule, dtype_of, ndim_of, permutation, shape_of
from armillary.errors import UnsupportedError
from armillary.relay.expr import Call

_SPATIAL = {3: "W", 4: "HW", 5: "DHW"}
_METHODS = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}
_ROUNDINGS = {
    "floor": "floor",
    "ceil": "ceil",
    "round": "round_prefer_ceil",
    "round_prefer_floor": "round_prefer_floor",
    "round_prefer_ceil": "round_prefer_ceil",
}


def _pads(onnx_pads: Sequence[int], count: int) -> list[int]:
    """Before each axis, then behind: ONNX's order is Relay's."""
    pads = [int(size) for size in onnx_pads]
    if len(pads) == 1:
        return pads * (2 * count)
    return pads * 2 if len(pads) == count else pads


def _all(numbers: Sequence[int], count: int) -> list[int]:
    values = [int(size) for size in numbers]
    return values * count if len(values) == 1 else values


def _convolution(kind: str, letters: str) -> Rule:
    """Conv has kernels OI…, ConvTranspose IO…."""

    def rule(graph: Graph, call: Call, inputs: Inputs) -> str:
        attrs = call.attrs
        rank = ndim_of(call)
        plain, count = "NC" + _SPATIAL[rank], rank - 2
        dtypes = {dtype_of(arg) for arg in call.args} | {dtype_of(call)}
        if len(dtypes) != 1 or not next(iter(dtypes)).startswith("float"):
            raise UnsupportedError(f"to_onnx: {call.op} of {', '.join(sorted(dtypes))}", hint="ONNX has floats here")
        layout = attrs.out_layout or attrs.data_layout
        data = graph.transpose(inputs[0][0], permutation(attrs.data_layout, plain))
        order = permutation(attrs.kernel_layout, letters + _SPATIAL[rank])
        weight = graph.transpose(inputs[1][0], order)
        sizes = shape_of(call.args[1])
        more = {"output_padding": _all(attrs.output_padding, count)} if kind == "ConvTranspose" else {}
        node = graph.node(
            kind,
            [data, weight],
            kernel_shape=[sizes[k] for k in order[2:]],
            strides=_all(attrs.strides, count),
            pads=_pads(attrs.padding, count),
            dilations=_all(attrs.dilation, count),
            group=attrs.groups,
            **more,
        )
        return graph.transpose(node, permutation(plain, layout))

    return rule


def _pool(kind: str) -> Rule:
    def rule(graph: Graph, call: Call, inputs: Inputs) -> str:
        attrs = call.attrs
        rank = ndim_of(call)
        plain, count = "NC" + _SPATIAL[rank], rank - 2
        dilation = _all(attrs.dilation, count)
        more: dict[str, int | list[int]] = {"ceil_mode": int(attrs.ceil_mode)}
        if kind == "MaxPool":
            more["dilations"] = dilation
        else:
            more["count_include_pad"] = int(attrs.count_include_pad)
            if set(dilation) != {1}:
                raise UnsupportedError(f"to_onnx: {call.op} with dilation {dilation}", hint="ONNX has it for maxima")
        node = graph.node(
            kind,
            [graph.transpose(inputs[0][0], permutation(attrs.layout, plain))],
            kernel_shape=_all(attrs.pool_size, count),
            strides=_all(attrs.strides, count),
            pads=_pads(attrs.padding, count),
            **more,
        )
        return graph.transpose(node, permutation(plain, attrs.out_layout or attrs.layout))

    return rule


def _whole_pool(kind: str) -> Rule:
    def rule(graph: Graph, call: Call, inputs: Inputs) -> str:
        attrs = call.attrs
        rank = ndim_of(call)
        plain = "NC" + _SPATIAL[rank]
        sizes = dict(zip(attrs.layout, shape_of(call), strict=True))
        if any(sizes[letter] != 1 for letter in _SPATIAL[rank]):
            raise UnsupportedError(f"to_onnx: {call.op} to {shape_of(call)}", hint="ONNX has it for one element")
        value = graph.transpose(inputs[0][0], permutation(attrs.layout, plain))
        return graph.transpose(graph.node(kind, [value]), permutation(plain, attrs.layout))

    return rule


def _pad(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    if any(size < 0 for pair in attrs.pad_width for size in pair):
        raise UnsupportedError("to_onnx: nn.pad that cuts", hint="strided_slice cuts")
    begin, end = zip(*attrs.pad_width, strict=True)
    names = [inputs[0][0], graph.ints([*begin, *end])]
    if attrs.pad_mode == "constant":
        value = inputs[1][0] if len(inputs) > 1 else graph.constant(attrs.pad_value, dtype_of(call))
        names.append(value)
    return graph.node("Pad", names, mode=attrs.pad_mode)


def _resize(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    if attrs.coordinate_transformation_mode == "tf_crop_and_resize" or attrs.antialias:
        raise UnsupportedError("to_onnx: a resize of a region, or with antialiasing", hint="crop first")
    align = attrs.coordinate_transformation_mode == "align_corners"
    rounding = attrs.rounding_method or ("round" if align else "floor")
    more = {"cubic_coeff_a": float(attrs.cubic_alpha), "exclude_outside": int(attrs.cubic_exclude)}
    return _resized(
        graph,
        call,
        inputs[0][0],
        attrs.layout,
        mode=_METHODS[attrs.method],
        coordinate_transformation_mode=attrs.coordinate_transformation_mode,
        nearest_mode=_ROUNDINGS[rounding],
        **(more if attrs.method == "cubic" else {}),
    )


def _upsampling(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    method = {"bilinear": "linear", "bicubic": "cubic"}.get(attrs.method, "nearest")
    mode = "align_corners" if attrs.align_corners else "asymmetric"
    nearest = "round_prefer_ceil" if attrs.align_corners else "floor"
    return _resized(
        graph, call, inputs[0][0], attrs.layout, mode=method, coordinate_transformation_mode=mode, nearest_mode=nearest
    )


def _resized(graph: Graph, call: Call, value: str, layout: str, **attrs: str | float) -> str:
    """By sizes, which are exact; scales and regions are empty."""
    plain = "NC" + _SPATIAL[ndim_of(call)]
    layout = layout or plain
    order = permutation(layout, plain)
    sizes = [shape_of(call)[axis] for axis in order]
    empty = graph.constant([], "float32")
    node = graph.node("Resize", [graph.transpose(value, order), empty, empty, graph.ints(sizes)], **attrs)
    return graph.transpose(node, permutation(plain, layout))


def _lrn(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    if attrs.axis != 1:
        raise UnsupportedError(f"to_onnx: nn.lrn over axis {attrs.axis}", hint="ONNX has it over axis 1")
    named = {name: float(getattr(attrs, name)) for name in ("alpha", "beta", "bias")}
    return graph.node("LRN", [inputs[0][0]], size=attrs.size, **named)


def _instance_norm(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    if attrs.axis != 1 or not (attrs.scale and attrs.center):
        raise UnsupportedError("to_onnx: nn.instance_norm without scale or over another axis", hint="axis=1")
    names = [name for (name,) in inputs]
    return graph.node("InstanceNormalization", names, epsilon=float(attrs.epsilon))


def _depth_to_space(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    plain = "NCHW"
    value = graph.transpose(inputs[0][0], permutation(attrs.layout, plain))
    node = graph.node("DepthToSpace", [value], blocksize=attrs.block_size, mode=attrs.mode)
    return graph.transpose(node, permutation(plain, attrs.layout))


RULES: dict[str, Rule] = {
    **{f"nn.conv{n}d": _convolution("Conv", "OI") for n in (1, 2, 3)},
    **{f"nn.conv{n}d_transpose": _convolution("ConvTranspose", "IO") for n in (1, 2, 3)},
    **{f"nn.max_pool{n}d": _pool("MaxPool") for n in (1, 2, 3)},
    **{f"nn.avg_pool{n}d": _pool("AveragePool") for n in (1, 2, 3)},
    "nn.global_max_pool2d": _whole_pool("GlobalMaxPool"),
    "nn.global_avg_pool2d": _whole_pool("GlobalAveragePool"),
    **{f"nn.adaptive_max_pool{n}d": _whole_pool("GlobalMaxPool") for n in (1, 2, 3)},
    **{f"nn.adaptive_avg_pool{n}d": _whole_pool("GlobalAveragePool") for n in (1, 2, 3)},
    "nn.pad": _pad,
    "image.resize2d": _resize,
    "nn.upsampling": _upsampling,
    "nn.lrn": _lrn,
    "nn.instance_norm": _instance_norm,
    "nn.depth_to_space": _depth_to_space,
}
