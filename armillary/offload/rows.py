"""What the tables of libraries share: the records of a row, and questions about expressions.

In: expressions of a typed graph. Out: `Composite` and `Simple` rows, which one file per operator family fills
(acl/conv2d.py, clml/convolution.py, …), and small checks that answer None or a reason. Invariant: a reason names what
was found and what the library takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

import numpy as np

from armillary.base.record import record
from armillary.offload.graph_json import Kernel
from armillary.relay.expr import Call, Constant, Expr, Function, const
from armillary.relay.op import Op
from armillary.relay.pattern import Check, DFPattern
from armillary.relay.types import TensorType

MAX_NDIM = 6  # dimensions of Arm Compute Library's tensors
BYTES = ("uint8", "int8")


@record
class Composite:
    """A pattern that is one function of the library: why a match is not taken, and its node in the JSON."""

    name: str
    pattern: Callable[[], DFPattern]
    check: Check
    kernel: Callable[[Call], Kernel]


@record
class Simple:
    """An operator that is one function of the library."""

    operator: str
    check: Callable[[Call], str | None]
    kernel: Callable[[Call], Kernel]


def first(*reasons: str | None) -> str | None:
    """The first reason there is."""
    return next((reason for reason in reasons if reason is not None), None)


def tensor(expr: Expr) -> TensorType | None:
    """The type, where it is a tensor whose shape is known."""
    ty = expr.checked_type
    return ty if isinstance(ty, TensorType) and all(isinstance(d, int) for d in ty.shape) else None


def is_dtype(expr: Expr, what: str, *dtypes: str) -> str | None:
    """Refuse another dtype, and shapes that the library cannot have."""
    ty = tensor(expr)
    if ty is None:
        return f"{what} has a shape that is not known when compiling"
    if str(ty.dtype) not in dtypes:
        return f"{what} is {ty.dtype}, wanted {' or '.join(dtypes)}"
    if len(ty.shape) > MAX_NDIM:
        return f"{what} has {len(ty.shape)} dimensions, at most {MAX_NDIM} are possible"
    if 0 in ty.shape:
        return f"{what} has no elements"
    return None


def is_rank(expr: Expr, what: str, rank: int) -> str | None:
    """Refuse another number of dimensions."""
    ty = tensor(expr)
    ndim = len(ty.shape) if ty is not None else -1
    return None if ndim == rank else f"{what} has {ndim} dimensions, wanted {rank}"


def is_value(value: object, what: str, *wanted: object) -> str | None:
    """Refuse another value of an attribute."""
    return None if value in wanted else f"{what} is {value!r}, wanted {' or '.join(map(repr, wanted))}"


def is_per_tensor(expr: Expr, what: str) -> str | None:
    """Refuse a scale or zero point that is not one constant number."""
    if not isinstance(expr, Constant):
        return f"{what} is not constant"
    return None if expr.data.size == 1 else f"{what} is per channel; the library takes one for the whole tensor"


def name_of(expr: Expr) -> str:
    """The operator of a call, or ""."""
    return expr.op.name if isinstance(expr, Call) and isinstance(expr.op, Op) else ""


def steps(root: Expr, names: Iterable[str]) -> dict[str, Call]:
    """The calls from a match's result upwards, by operator, while they are among `names` and none comes twice."""
    result: dict[str, Call] = {}
    wanted = set(names)
    while isinstance(root, Call) and (name := name_of(root)) in wanted and name not in result:
        result[name] = root
        root = root.args[0]
    return result


def inside(call: Call) -> tuple[Expr, dict[int, Expr]]:
    """The body of a composite, and what its parameters are at the call."""
    function = call.op
    assert isinstance(function, Function), "a composite is a call of a function"
    return function.body, {id(p): a for p, a in zip(function.params, call.args, strict=True)}


def four(padding: Iterable[int]) -> tuple[int, int, int, int]:
    """Padding as top, left, bottom, right."""
    p = tuple(int(x) for x in padding)
    match p:
        case (a,):
            return a, a, a, a
        case (h, w):
            return h, w, h, w
        case (t, l, b, r):
            return t, l, b, r
        case _:
            raise ValueError(f"padding {p} is none of two axes")


def scalar(expr: Expr, dtype: str) -> Constant:
    """A constant of one number as a scalar of that dtype."""
    assert isinstance(expr, Constant), "predicates made sure that it is constant"
    return const(np.asarray(expr.data, dtype).reshape(()))


def reshaped(expr: Expr, shape: tuple[int, ...]) -> Constant:
    """A constant in another shape."""
    assert isinstance(expr, Constant), "predicates made sure that it is constant"
    return const(np.ascontiguousarray(expr.data).reshape(shape))


def transposed(expr: Expr, layout: str, wanted: str) -> Constant:
    """A constant kernel in another layout."""
    assert isinstance(expr, Constant), "predicates made sure that it is constant"
    return const(np.ascontiguousarray(np.transpose(expr.data, [layout.index(axis) for axis in wanted])))


@record
class ConvolutionMatch:
    """The calls of a match; `data` is what the padding, or else the convolution, reads."""

    ROWS: ClassVar[int]  # the axis of rows of the data; columns follow
    conv: Call
    data: Expr
    pad: Call | None = None

    @property
    def kernel(self) -> dict[str, int]:
        """The sizes of the kernel by the letters of its layout."""
        ty = tensor(self.conv.args[1])
        assert ty is not None, "a constant has a known shape"
        return dict(zip(self.conv.attrs.kernel_layout, ty.static, strict=True))

    @property
    def is_depthwise(self) -> bool:
        groups = self.conv.attrs.groups
        return bool(groups != 1 and groups == self.kernel["O"] and self.kernel["I"] == 1)

    @property
    def padding(self) -> tuple[int, ...]:
        """Top, left, bottom, right."""
        own = four(self.conv.attrs.padding)
        if self.pad is None:
            return own
        rows, columns = self.pad.attrs.pad_width[self.ROWS : self.ROWS + 2]
        return tuple(a + b for a, b in zip(own, (rows[0], columns[0], rows[1], columns[1]), strict=True))
