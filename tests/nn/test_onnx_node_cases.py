"""The ONNX node cases of the neural-network operators: imported and evaluated, they give the stated values."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest
from onnx.backend.test.case.node import collect_testcases

from armillary.errors import UnsupportedError
from armillary.frontend import from_onnx
from armillary.relay.evaluate import evaluate

PREFIXES = (
    "conv_", "basic_conv", "convtranspose", "maxpool", "averagepool", "lppool", "global", "relu", "leakyrelu", "prelu",
    "elu", "selu", "celu", "gelu", "hardsigmoid", "hardswish", "softplus", "softsign", "mish", "thresholdedrelu",
    "swish", "shrink", "dropout", "softmax", "logsoftmax", "flatten", "batchnorm", "layer_normalization",
    "group_normalization", "instancenorm", "rms_normalization", "mvn", "lrn", "l1normalization", "l2normalization",
    "lpnormalization", "constant_pad", "edge_pad", "reflect_pad", "wrap_pad", "resize", "upsample", "depthtospace",
    "spacetodepth", "simple_rnn", "rnn", "lstm", "gru", "gemm", "matmul_", "nllloss", "sce", "attention", "rotary",
    "gridsample", "col2im", "affine_grid", "center_crop_pad",
)  # fmt: skip
STATIC = {
    "pads", "scales", "sizes", "roi", "axes", "value", "training_mode", "image_shape", "block_shape", "size", "shape",
}  # fmt: skip


@functools.cache
def _cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    wanted = tuple(f"test_{p}" for p in PREFIXES)
    return {c.name: c for c in cases if c.name.startswith(wanted) and "expanded" not in c.name}


@pytest.mark.parametrize("name", sorted(_cases()))
def test_onnx_node_case_gives_the_stated_values(name: str) -> None:
    case = _cases()[name]
    inputs, outputs = ([np.asarray(v) for v in side] for side in case.data_sets[0])
    feed = dict(zip([i.name for i in case.model.graph.input], inputs, strict=True))
    static = {k: v for k, v in feed.items() if k in STATIC}
    module, _ = from_onnx(case.model, shape={k: v.shape for k, v in feed.items()}, static_inputs=static)
    result = evaluate(module, [feed[p.name_hint] for p in module["main"].params])
    results = result if isinstance(result, tuple) else (result,)
    for got, wanted in zip(results, outputs, strict=True):
        half = wanted.dtype.itemsize == 2
        rtol = 2**-6 if wanted.dtype.name == "bfloat16" else 1e-2 if half else 1e-3  # two units in the last place
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        got, wanted = (v.astype(np.float64) for v in (got, wanted))
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-3 if half else 1e-5)


def test_dropout_in_training_mode_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = next(c for c in collect_testcases(None) if c.name == "test_training_dropout_default")
    feed = dict(zip([i.name for i in case.model.graph.input], case.data_sets[0][0], strict=True))
    static = {k: np.asarray(v) for k, v in feed.items() if k in ("r", "t")}
    with pytest.raises(UnsupportedError, match="training mode"):
        from_onnx(case.model, static_inputs=static)
