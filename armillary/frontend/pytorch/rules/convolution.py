"""ATen's convolutions, of one to three axes, plain and transposed.

In: data, weight, perhaps a bias. Out: nn.conv* or nn.conv*_transpose, and nn.bias_add. Invariant: data without a batch
gets one and loses it again.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.frontend.pytorch.rules.padding import same_padding
from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import op, rank_of, repeated, shape_of
from armillary.relay.expr import Expr

Numbers = int | Sequence[int]


@aten("convolution", "_convolution", "convolution_overrideable")
def convolution(
    call: AtenCall,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    transposed: bool,
    output_padding: Numbers,
    groups: int,
    *_: object,
) -> Expr:
    rank = rank_of(weight) - 2
    if rank not in (1, 2, 3):
        call.refuse(f"a convolution over {rank} axes; 1, 2 and 3 are supported")
    sizes = shape_of(weight)
    data = x if rank_of(x) == rank + 2 else op("expand_dims", x, axis=0)
    attrs: dict[str, object] = {
        "strides": repeated(stride, rank),
        "padding": repeated(padding, rank),
        "dilation": repeated(dilation, rank),
        "groups": groups,
        "kernel_size": sizes[2:],
    }
    if transposed:
        extra = repeated(output_padding, rank)
        result = op(
            f"nn.conv{rank}d_transpose", data, weight, channels=sizes[1] * groups, output_padding=extra, **attrs
        )
    else:
        result = op(f"nn.conv{rank}d", data, weight, channels=sizes[0], **attrs)
    if bias is not None:
        result = op("nn.bias_add", result, bias, axis=1)
    return result if data is x else op("squeeze", result, axis=(0,))


@aten("conv1d", "conv2d", "conv3d", "_convolution_mode")
def conv(
    call: AtenCall,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Numbers,
    padding: Numbers | str,
    dilation: Numbers,
    groups: int,
) -> Expr:
    """With padding as numbers or, in one overload, "valid" or "same"."""
    rank = rank_of(weight) - 2
    pads: Numbers = 0 if padding == "valid" else padding if not isinstance(padding, str) else ()
    if padding == "same":
        x = same_padding(x, shape_of(weight)[2:], repeated(dilation, rank))
        pads = 0
    result: Expr = convolution(call, x, weight, bias, stride, pads, dilation, False, 0, groups)
    return result


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    call: AtenCall,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Numbers,
    padding: Numbers,
    output_padding: Numbers,
    groups: int,
    dilation: Numbers,
) -> Expr:
    result: Expr = convolution(call, x, weight, bias, stride, padding, dilation, True, output_padding, groups)
    return result
