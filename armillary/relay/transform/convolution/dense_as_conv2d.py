"""dense-as-conv2d: products over channels, beside convolutions, as 1x1 convolutions.

In: a typed module in which elementwise operators stand next to contractions. Out: an nn.dense whose rows are the pixels
of an image that convolutions or resizings read is a 1x1 convolution of the image of its input, and one that reads the
pixels of a convolution's image is a convolution of that image, the moves after it. Invariant: same products and types;
only where the moves between rows and images (which blocked layouts do not see through) then have fewer channels or
cancel. A feed-forward network with a depthwise convolution moves its narrow ends instead of its wide middle.

    %0 = nn.dense(%x, %w);                          (1, 64, 8) -> (1, 64, 32)
    reshape(transpose(%0, axes=[0, 2, 1]), newshape=[1, 32, 8, 8])
    ->
    nn.conv2d(reshape(transpose(%x, axes=[0, 2, 1]), newshape=[1, 8, 8, 8]), reshape(%w, newshape=[32, 8, 1, 1]))
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.ops.nn._windows import reshape_to
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.op import is_call
from armillary.relay.transform._rules import (
    Found,
    Readers,
    axes_of,
    call,
    is_from_constants,
    op_name,
    rewrite_found,
    tensor,
    transposed,
)
from armillary.relay.transform.layout.hoist_elementwise import elementwise_data
from armillary.transform import define_pass

MIN_PIXELS = 16  # with fewer rows the weight is what takes time, and products read it best
_CONVOLUTIONS = ("nn.conv2d", "nn.conv2d_transpose")


@define_pass("dense-as-conv2d", opt_level=3)
def dense_as_conv2d(module: IRModule) -> IRModule:
    """Replace the products and move what they read or write."""
    return rewrite_found(module, lambda expr, readers: _to_image(expr, readers) or _from_image(expr, readers))


def _to_image(expr: Expr, readers: Readers) -> Found | None:
    """image(op(dense(x, w), c))  ->  op(conv2d(image(x), w), c)   if x is narrower, or was an image"""
    result, rows = tensor(expr), rows_of(expr)
    beside = [_reads_image(r, expr) for r in readers.get(id(expr), ())]
    if result is None or rows is None or not beside or not all(beside):
        return None
    chain: list[tuple[Call, int]] = []  # from the image's side
    node: Expr = rows
    while isinstance(node, Call) and (position := elementwise_data(node)) is not None:
        chain.append((node, position))
        node = node.args[position]
    between = [rows, *(c.args[k] for c, k in chain), *([expr.args[0]] if isinstance(expr, Call) else [])]
    if any(len(readers[id(e)]) > 1 for e in between) or not _is_product(node) or not isinstance(node, Call):
        return None
    n, c, h, w = result.static
    constants = [_constant(call_, position, c) for call_, position in chain]
    data = tensor(node.args[0])
    if data is None or any(k is False for k in constants) or h * w < MIN_PIXELS:
        return None
    source, inner = node.args[0], data.static[-1]
    if inner >= c and image_of(source) is None:
        return None

    def make(x: Expr) -> Expr:
        result = _convolved(_as_image(x, is_call(source, "transpose"), (n, inner, h, w)), node, c, inner)
        for (op, position), constant in zip(reversed(chain), reversed(constants), strict=True):
            args = [result] if not isinstance(constant, Constant) else [result, constant][:: 1 if position == 0 else -1]
            result = Call(op.op, tuple(args), op.attrs, op.span)
        return result

    return Found((source,), make)


def _from_image(expr: Expr, readers: Readers) -> Found | None:
    """dense(rows(y), w)  ->  rows(conv2d(y, w))   if y is of a convolution and the result narrower"""
    if not _is_product(expr) or not isinstance(expr, Call):
        return None
    data = expr.args[0]
    image, result = image_of(data), tensor(expr)
    ty = None if image is None else tensor(image)
    if image is None or ty is None or result is None or not isinstance(data, Call):
        return None
    (n, c, h, w), units = ty.static, result.static[-1]
    moves = [data, *([data.args[0]] if data.args[0] is not image else [])]
    if units >= c or h * w < MIN_PIXELS or any(len(readers[id(m)]) > 1 for m in moves) or not _is_of_convolution(image):
        return None

    def make(y: Expr) -> Expr:
        convolved = _convolved(y, expr, units, c)
        if axes_of(data) == (0, 2, 1):
            return transposed(reshape_to(convolved, (n, units, h * w)), (0, 2, 1))
        moved = transposed(convolved, (0, 2, 3, 1))
        return moved if result.ndim == 4 else reshape_to(moved, result.static)

    return Found((image,), make)


def rows_of(expr: Expr) -> Expr | None:
    """(N, T, C) or (N, H, W, C) of an image (N, C, H, W) that is a move of it."""
    image, inner = tensor(expr), expr.args[0] if isinstance(expr, Call) and expr.args else None
    if image is None or image.ndim != 4 or inner is None or not isinstance(expr, Call):
        return None
    n, c, h, w = image.static
    if is_call(expr, "reshape") and isinstance(inner, Call) and axes_of(inner) == (0, 2, 1):
        moved = tensor(inner)
        return inner.args[0] if moved is not None and moved.static == (n, c, h * w) else None
    if axes_of(expr) != (0, 3, 1, 2):
        return None
    source = tensor(inner.args[0]) if is_call(inner, "reshape") else None
    return inner.args[0] if source is not None and source.static == (n, h * w, c) and isinstance(inner, Call) else inner


def image_of(expr: Expr) -> Expr | None:
    """(N, C, H, W) of rows (N, T, C) or (N, H, W, C) that are a move of it."""
    rows, inner = tensor(expr), expr.args[0] if isinstance(expr, Call) and expr.args else None
    if rows is None or inner is None or not isinstance(expr, Call):
        return None
    if axes_of(expr) == (0, 2, 3, 1):
        return inner
    source = tensor(inner.args[0]) if isinstance(inner, Call) and inner.args else None
    if source is None or source.ndim != 4 or not isinstance(inner, Call):
        return None
    n, c, h, w = source.static
    is_flat_first = axes_of(expr) == (0, 2, 1) and is_call(inner, "reshape")
    is_moved_first = is_call(expr, "reshape") and axes_of(inner) == (0, 2, 3, 1)
    return inner.args[0] if (is_flat_first or is_moved_first) and rows.static == (n, h * w, c) else None


def _is_product(expr: Expr) -> bool:
    """Whether it is an nn.dense of float32 images' or rows' channels by a constant weight."""
    ty = tensor(expr)
    if op_name(expr) != "nn.dense" or not isinstance(expr, Call) or ty is None or ty.ndim not in (3, 4):
        return False
    data = tensor(expr.args[0])
    both = data is not None and str(data.dtype) == str(ty.dtype) == "float32"
    return both and is_from_constants(expr.args[1])


def _reads_image(reader: Expr, image: Expr) -> bool:
    """Whether a convolution reads it, or a resizing, which takes rows or columns."""
    if not isinstance(reader, Call) or reader.args[0] is not image:
        return False
    return op_name(reader) in _CONVOLUTIONS or (op_name(reader) == "take" and reader.attrs.axis in (2, 3))


def _is_of_convolution(expr: Expr) -> bool:
    """Whether elementwise operators lead up to a convolution."""
    while isinstance(expr, Call) and (position := elementwise_data(expr)) is not None:
        expr = expr.args[position]
    return op_name(expr) in _CONVOLUTIONS


def _constant(expr: Call, position: int, channels: int) -> Constant | bool | None:
    """The other operand as an image's; None where there is none, False where it is not one number per channel."""
    if len(expr.args) == 1:
        return None
    other = expr.args[1 - position]
    if not isinstance(other, Constant) or other.data.size not in (1, channels):
        return False
    if other.data.size == 1:
        return Constant(other.data.reshape(()))
    return Constant(other.data.reshape(channels, 1, 1)) if other.data.shape[-1] == channels else False


def _as_image(x: Expr, is_transposed: bool, shape: tuple[int, int, int, int]) -> Expr:
    """Rows as an image; where they are themselves a transposition, by moves that cancel with it."""
    n, c, h, w = shape
    if is_transposed:
        return reshape_to(transposed(reshape_to(x, (n, h * w, c)), (0, 2, 1)), shape)
    return transposed(reshape_to(x, (n, h, w, c)), (0, 3, 1, 2))


def _convolved(image: Expr, product: Call, units: int, inner: int) -> Expr:
    """The product's weight applied to each pixel."""
    weight = reshape_to(product.args[1], (units, inner, 1, 1))
    return call("nn.conv2d", image, weight, channels=units, kernel_size=(1, 1))
