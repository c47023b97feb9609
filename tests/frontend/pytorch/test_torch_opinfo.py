"""ATen's core operators give what PyTorch gives, on PyTorch's own samples of them.

In: OpInfo's samples in float32, int64 and bool. Out: a failure for each operator that differs. Invariant: what is left
out has its reason here: results that depend on values' number, random numbers, memory that is left as it is, and the
derivatives, which inference has no use for.
"""

from __future__ import annotations

import pytest
from opinfo_runs import core_operators, infos_of, kind_of, outcomes

from armillary.frontend.pytorch.table import aten_rule

MOST = 4  # samples of an operator and dtype
OPERATORS = (
    *("abs", "acos", "acosh", "add", "addmm", "amax", "amin", "any", "arange", "argmax", "argmin", "asin", "asinh"),
    *("atan", "atan2", "atanh", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "bmm", "cat", "ceil"),
    *("clamp", "clone", "constant_pad_nd", "cos", "cosh", "cumsum", "diagonal", "div", "eq", "erf", "exp", "expand"),
    *("expm1", "fill", "flip", "floor", "fmod", "full", "full_like", "gather", "ge", "gt", "index_select", "isinf"),
    *("isnan", "le", "log", "log10", "log1p", "log2", "log_softmax", "logical_and", "logical_not", "logical_or"),
    *("logical_xor", "lt", "masked_scatter", "maximum", "mean", "minimum", "mm", "mul", "native_layer_norm", "ne"),
    *("neg", "nn.functional.adaptive_avg_pool1d", "nn.functional.adaptive_avg_pool2d", "nn.functional.avg_pool1d"),
    *("nn.functional.adaptive_avg_pool3d", "nn.functional.avg_pool2d", "nn.functional.avg_pool3d", "permute", "pow"),
    *(
        "cdist",
        "nn.functional.conv2d",
        "nn.functional.elu",
        "nn.functional.embedding",
        "nn.functional.gelu",
        "prod",
        "reciprocal",
    ),
    *("nn.functional.grid_sample", "nn.functional.hardtanh", "nn.functional.leaky_relu", "nn.functional.relu"),
    *("nn.functional.max_pool2d", "nn.functional.group_norm", "nn.functional.conv_transpose2d", "remainder", "repeat"),
    *(
        "round",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "select",
        "select_scatter",
        "sigmoid",
        "sign",
        "sin",
        "sinh",
    ),
    *("sign", "sin", "sinh", "slice", "slice_scatter", "softmax", "split_with_sizes", "sqrt", "squeeze", "sub", "sum"),
    *("tan", "tanh", "trunc", "unsqueeze", "var", "view", "where"),
    *("_embedding_bag", "_local_scalar_dense", "_native_batch_norm_legit", "_pdist_forward", "histc", "index_put"),
    *("addr", "angle", "clamp_max", "clamp_min", "cummax", "cummin", "index_add", "index_reduce", "kthvalue", "put"),
    *("nn.functional.bilinear", "ldexp", "median", "nanmedian"),
    *("_fft_c2r", "_fft_r2c", "nonzero", "rsqrt", "sort", "topk", "upsample_bilinear2d", "upsample_nearest2d"),
)
WITHOUT = {
    "its derivative is for training": (
        *("_adaptive_avg_pool2d_backward", "avg_pool2d_backward", "convolution_backward", "embedding_dense_backward"),
        *("max_pool2d_with_indices_backward", "native_group_norm_backward", "native_layer_norm_backward"),
    ),
    "it changes its argument's size; torch.export writes no such call": ("resize_",),
    "it changes statistics; its functional form has a rule": ("_native_batch_norm_legit",),
    "strides mean nothing here": ("sym_is_contiguous", "sym_storage_offset", "sym_stride"),
}


def test_core_operators_without_a_rule_are_those_with_a_reason() -> None:
    rows = [(name, overload) for name, overloads in core_operators().items() for overload in overloads]
    names = [(name, f"aten.{name}.{overload}") for name, overload in rows]
    missing = {name for name, full in names if aten_rule(full) is None and aten_rule(full, is_of_complex=True) is None}
    core = {name for name, _ in rows}  # versions of PyTorch differ in what they count among it
    assert missing == {name for names in WITHOUT.values() for name in names} & core
    assert len(missing) < 0.1 * len(rows)


@pytest.mark.parametrize("name", OPERATORS)
def test_samples_give_what_eager_gives(name: str) -> None:
    rows = infos_of(name)
    assert rows, f"OpInfo has no {name}"
    texts = [(info.name, info.variant_test_name, *row) for info in rows for row in outcomes(info, MOST)]
    taken = [row for row in texts if kind_of(row[-1]) != "PyTorch refuses"]
    assert taken, "PyTorch takes none of its own samples"
    assert [row for row in taken if row[-1]] == []
