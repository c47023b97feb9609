"""annotate-memory-scope: which tensors lie in textures, for GPUs that read through a texture unit (`-device=adreno`).

In: a module whose main calls kernels, images in blocks of four channels. Out: the same; the attribute `scopes` of a
kernel names the memory of each of its tensors, inputs first ("global.texture, global.texture-weight, global.texture").
A tensor is in a texture where all that read it, in branches too, are kernels on images that can read one; constants,
too; what enters or leaves main, a branch or a loop is in buffers. Invariant: producer and readers agree. Images above
the attribute `texture_spatial_limit` of the target stay in buffers, and a warning says so.
Geometry: target/texture.py.

    %0 = fn (%p0, %p1, Primitive=1) { nn.contrib_conv2d_NCHWc(%p0, %p1) };
    %1 = fn (%p0, Primitive=1) { nn.max_pool2d(%p0, layout="NCHW4c") };
    %1(%0(%x, weight))
    ->
    %0 = fn (%p0, %p1, Primitive=1, scopes="global, global.texture-weight, global.texture") { … };
    %1 = fn (%p0, Primitive=1, scopes="global.texture, global") { … };
    %1(%0(%x, weight))
"""

from __future__ import annotations

import math
import warnings

from armillary.backends.placement import SCOPES_ATTR
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, Let
from armillary.relay.op import Kind, Op, is_call, is_primitive
from armillary.relay.transform._rules import on_functions, op_name
from armillary.relay.types import TensorType, tensor_fields
from armillary.relay.walk import map_children, not_primitive, post_order, users
from armillary.target import Target
from armillary.target.texture import BUFFER, LAST_CHANNELS, NHWC, PIXEL, SCOPES, TEXTURE, WEIGHT, image_size
from armillary.transform import define_pass

_IMAGE_AXES = 5  # of one in blocks of channels
_ROW_AXES = 3  # of rows of a dense layer, in blocks
_DENSE = "opencl.dense_pixels"
_CONTRACTIONS = ("nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc", "nn.max_pool2d", "nn.avg_pool2d")
_KINDS = (Kind.ELEMENTWISE, Kind.BROADCAST, Kind.INJECTIVE)
_VIEWS = ("reshape", "expand_dims", "squeeze", "nn.batch_flatten", "copy")
_LIMIT = "texture_spatial_limit"
_FLOATS = ("float32", "float16")


@define_pass("annotate-memory-scope", opt_level=0)
def annotate_memory_scope(module: IRModule, *, target: object = None) -> IRModule:  # whatever Target accepts
    """Give tensors between kernels, and constants, scopes of textures where that is possible."""
    where = Target(target if target is not None else Target.current() or "opencl")
    limit = int(str(where.attrs.get(_LIMIT, where.kind.limits[_LIMIT])))
    return on_functions(module, lambda function: _Annotator(function, limit).run())


class _Annotator:
    """One function: `scopes` of its values by id; everything else is in buffers."""

    def __init__(self, function: Function, limit: int) -> None:
        self.function, self.limit = function, limit
        self.order = post_order(function, not_primitive)
        self.readers = users(self.order)
        self.lets = [expr for expr in self.order if isinstance(expr, Let) and isinstance(expr.value, Call)]
        for let in self.lets:  # who reads a variable reads its value
            uses = [*self.readers[id(let.value)], *self.readers[id(let.var)]]
            self.readers[id(let.value)] = [reader for reader in uses if reader is not let]
        self.scopes: dict[int, str] = {}
        self.too_large: list[tuple[int, ...]] = []
        self.made: dict[tuple[int, str], Function] = {}
        kernels = (kernel for kernel in map(_kernel, self.order) if kernel is not None)
        self.channels_last = any(map(is_channels_last, (n for kernel in kernels for n in post_order(kernel.body))))

    def run(self) -> Expr | None:
        for expr in self.order:
            if isinstance(expr, Constant) or (isinstance(expr, Call) and _gives_image(expr)):
                scope = self.scope_of(expr)
                if scope != BUFFER:
                    self.scopes[id(expr)] = scope
        named = {id(let.var): self.scopes[id(let.value)] for let in self.lets if id(let.value) in self.scopes}
        self.scopes |= named
        if self.too_large:
            message = f"{len(self.too_large)} tensors, such as one of shape {max(self.too_large, key=math.prod)}"
            hint = "they stay in buffers; a device with larger images takes -texture_spatial_limit=N"
            warnings.warn(f"textures of {self.limit} pixels at most do not hold {message}: {hint}", stacklevel=2)
        if not self.scopes:
            return None
        new: dict[int, Expr] = {}
        for expr in self.order:
            rebuilt = map_children(expr, lambda e: new.get(id(e), e))
            new[id(expr)] = self.with_scopes(expr, rebuilt) if _kernel(expr) is not None else rebuilt
        return new[id(self.function)]

    def scope_of(self, expr: Expr) -> str:
        ty = expr.checked_type
        if not isinstance(ty, TensorType) or not _has_axes(ty) or str(ty.dtype) not in _FLOATS:
            return BUFFER
        if not all(isinstance(d, int) and d > 0 for d in ty.shape) or ty.static[-1] != PIXEL:
            return BUFFER
        readers = self.readers.get(id(expr), ())
        if not readers or not all(_reads_image(reader) for reader in readers):
            return BUFFER
        is_weight = isinstance(expr, Constant) or ty.ndim > _IMAGE_AXES
        wanted: tuple[str, ...] = (WEIGHT, NHWC, TEXTURE) if is_weight else (TEXTURE, NHWC, WEIGHT)
        if self.channels_last and ty.ndim == _IMAGE_AXES:
            wanted = _squarest(ty.static) if is_weight else (NHWC, TEXTURE, WEIGHT)
        assert set(wanted) == set(SCOPES), "every scope is tried"
        fitting = [scope for scope in wanted if max(image_size(scope, ty.static)) <= self.limit]
        if not fitting:
            self.too_large.append(ty.static)
        return fitting[0] if fitting else BUFFER

    def with_scopes(self, old: Expr, new: Expr) -> Expr:
        """A call whose kernel says where its tensors lie."""
        assert isinstance(old, Call) and isinstance(new, Call), "a call of a kernel"
        own = self.scopes.get(id(old), BUFFER)
        scopes = [self.scopes.get(id(arg), BUFFER) for arg in old.args for _ in tensor_fields(arg.checked_type)]
        scopes += [own] * len(tensor_fields(old.checked_type))
        if all(scope == BUFFER for scope in scopes):
            return new
        text = ", ".join(scopes)
        key = (id(old.op), text)
        if key not in self.made:
            kernel = old.op
            assert isinstance(kernel, Function), "asked by _kernel"
            self.made[key] = kernel.with_attr(SCOPES_ATTR, text)
        return Call(self.made[key], new.args, new.attrs, new.span)


def _squarest(shape: tuple[int, ...]) -> tuple[str, ...]:
    """The scopes, those first whose images have sides of about a length."""
    return tuple(sorted(SCOPES, key=lambda scope: abs(int.__sub__(*image_size(scope, shape)))))


def is_channels_last(expr: Expr) -> bool:
    """Whether a call is a convolution of images in NHWC4c."""
    return is_call(expr, "nn.conv2d") and expr.attrs.data_layout == LAST_CHANNELS


def _has_axes(ty: TensorType) -> bool:
    return ty.ndim >= _IMAGE_AXES or ty.ndim == _ROW_AXES


def _kernel(expr: Expr) -> Function | None:
    if isinstance(expr, Call) and isinstance(expr.op, Function) and is_primitive(expr.op):
        return expr.op
    return None


def _gives_image(expr: Call) -> bool:
    """Whether a call is one of a kernel that stores four elements at once."""
    kernel = _kernel(expr)
    return kernel is not None and isinstance(expr.checked_type, TensorType) and _is_on_images(kernel)


def _reads_image(expr: Expr) -> bool:
    kernel = _kernel(expr)
    return kernel is not None and _is_on_images(kernel)


def _is_on_images(kernel: Function) -> bool:
    """Whether the result is an image in blocks, and each operator computes pixel by pixel or by windows; no view."""
    ty = kernel.body.checked_type
    if not isinstance(ty, TensorType) or not _has_axes(ty) or ty.shape[-1] != PIXEL:
        return False
    calls = [n for n in post_order(kernel.body) if isinstance(n, Call) and isinstance(n.op, Op)]
    names = {op_name(n) for n in calls}
    if ty.ndim == _ROW_AXES and _DENSE not in names:
        return False  # by chance four numbers
    if names <= set(_VIEWS) or (names <= {*_VIEWS, "layout_transform", "transpose"} and not _moves(kernel)):
        return False
    return all(n.op.kind in _KINDS or n.op.name in (*_CONTRACTIONS, _DENSE) or is_channels_last(n) for n in calls)


def _moves(kernel: Function) -> bool:
    """Whether elements change their places: an image of one pixel, or of one block of channels, is a view."""
    ty = kernel.body.checked_type
    assert isinstance(ty, TensorType), "asked by _is_on_images"
    image = math.prod(ty.static[2:-1]) if all(isinstance(d, int) for d in ty.shape) else 0
    return image > 1
