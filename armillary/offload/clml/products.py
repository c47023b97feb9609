"""Dense layers and products of matrices for OpenCLML.

In: matches of the patterns. Out: None or why not, and the nodes nn.dense: data, weight [, bias], and nn.batch_matmul.
Invariant: a weight is (units, inner), a bias (1, units); dense1d has one row of data and a bias, dense2d no bias.
"""

from __future__ import annotations

from armillary.offload.clml.limits import FLOATS, check_values, is_single, is_tensor, same_dtype
from armillary.offload.graph_json import Kernel, attributes
from armillary.offload.rows import Composite, first, inside, is_dtype, is_rank, is_value, name_of, reshaped, tensor
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.pattern import DFPattern, is_constant, is_op, wildcard


def _dense() -> DFPattern:
    return is_op("nn.dense")(wildcard(), is_constant())


def _dense_rounded() -> DFPattern:
    """Sums in float32 of products of float16, or all in one type."""
    return _dense().optional(lambda p: is_op("cast")(p).has_attr({"dtype": "float16"}))


def _biased() -> DFPattern:
    return is_op("nn.bias_add")(_dense_rounded(), is_constant()) | is_op("add")(_dense_rounded(), is_constant())


def _parts(root: Expr) -> tuple[Call, Call, Call | None]:
    """The layer, its sums (rounded if they are), and what adds its bias."""
    assert isinstance(root, Call), "the pattern has a call"
    bias = root if name_of(root) in ("add", "nn.bias_add") else None
    summed = root if bias is None else bias.args[0]
    assert isinstance(summed, Call), "the pattern has a dense layer"
    dense = summed.args[0] if name_of(summed) == "cast" else summed
    assert isinstance(dense, Call), "the pattern has a dense layer"
    return dense, summed, bias


def _units(dense: Call) -> int:
    ty = tensor(dense.args[1])
    assert ty is not None, "a constant has a known shape"
    return ty.static[0]


def check_dense(root: Expr) -> str | None:
    """Why a dense layer is not taken."""
    dense, summed, bias = _parts(root)
    common = first(
        is_rank(dense.args[0], "data", 2),
        is_tensor(dense.args[0], "data"),
        is_dtype(dense.args[1], "weight", *FLOATS),
        is_tensor(root, "the result"),
        same_dtype(root, summed, *dense.args),
    )
    if common is not None or bias is None:
        return common
    ty, units = tensor(bias.args[1]), _units(dense)
    along = name_of(bias) == "add" or bias.attrs.axis in (1, -1)
    if ty is None or ty.size != units or ty.static[-1] != units or not along:
        return f"the bias is not one number for each of {units} units"
    return is_single(dense.args[0], "data")


def dense_kernel(call: Call) -> Kernel:
    """data, weight [, bias]"""
    body, outside = inside(call)
    dense, summed, bias = _parts(body)
    added: tuple[Constant, ...] = () if bias is None else (reshaped(bias.args[1], (1, _units(dense))),)
    attrs = attributes(dense.attrs) | {"units": (str(_units(dense)),)}
    if summed is not dense:
        attrs |= {"acc_dtype": ("float32",), "out_dtype": ("float16",)}
    return Kernel("nn.dense", (outside[id(dense.args[0])], dense.args[1], *added), attrs)


def check_batch_matmul(root: Expr) -> str | None:
    """Why a product of matrices is not taken."""
    assert isinstance(root, Call), "the pattern has a call"
    return first(
        *(is_rank(arg, "an operand", 3) for arg in root.args),
        *(is_single(arg, "an operand") for arg in root.args),
        check_values(root),
        is_value(bool(root.attrs.transpose_a), "transpose_a", False),
    )


def batch_matmul_kernel(call: Call) -> Kernel:
    """lhs, rhs"""
    body, outside = inside(call)
    assert isinstance(body, Call), "the composite is a call"
    attrs = attributes(body.attrs)
    return Kernel("nn.batch_matmul", tuple(outside.get(id(a), a) for a in body.args), attrs)


COMPOSITES = (
    Composite("dense1d", _biased, check_dense, dense_kernel),
    Composite("dense2d", _dense_rounded, check_dense, dense_kernel),
    Composite(
        "batch_matmul",
        lambda: is_op("nn.batch_matmul")(wildcard(), wildcard()),
        check_batch_matmul,
        batch_matmul_kernel,
    ),
)
