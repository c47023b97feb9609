"""Programs as PT2E's quantisers write them, by torch.export, against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
from torch_runs import check_export, torch

from armillary import relay
from armillary.frontend.pytorch.table import aten_rule

pytest.importorskip("torch.ao.quantization.fx._decomposed")  # declares the operators
OPS = torch.ops.quantized_decomposed
BYTES = (-128, 127, torch.int8)


def weights(*shape: int) -> tuple[Any, Any, Any]:
    """Integers, a scale for each row, and zero points."""
    integers = torch.randint(-127, 128, shape, dtype=torch.int8)
    return integers, torch.rand(shape[0]) * 0.01 + 0.001, torch.zeros(shape[0], dtype=torch.int64)


class Static(torch.nn.Module):
    """A convolution and a linear layer in integers, as a static quantiser leaves them."""

    def __init__(self) -> None:
        super().__init__()
        for layer, shape in (("deep", (8, 4, 3, 3)), ("flat", (5, 8))):
            for name, tensor in zip(("q", "scale", "zero"), weights(*shape), strict=True):
                self.register_buffer(f"{layer}_{name}", tensor)

    def forward(self, x: Any) -> Any:
        x = OPS.dequantize_per_tensor(OPS.quantize_per_tensor(x, 0.02, 3, *BYTES), 0.02, 3, *BYTES)
        w = OPS.dequantize_per_channel(self.deep_q, self.deep_scale, self.deep_zero, 0, -127, 127, torch.int8)
        y = torch.relu(torch.conv2d(x, w, padding=1))
        limits = (0, 127, torch.uint8)
        y = OPS.dequantize_per_tensor(OPS.quantize_per_tensor(y, 0.05, 0, *limits), 0.05, 0, *limits)
        w = OPS.dequantize_per_channel(self.flat_q, self.flat_scale, self.flat_zero, 0, -127, 127, torch.int8)
        return torch.nn.functional.linear(y.mean((2, 3)), w)


class Dynamic(torch.nn.Module):
    """A linear layer whose input's range is that of its values."""

    def __init__(self) -> None:
        super().__init__()
        for name, tensor in zip(("q", "scale", "zero"), weights(5, 8), strict=True):
            self.register_buffer(name, tensor)

    def forward(self, x: Any) -> Any:
        scale, zero = OPS.choose_qparams.tensor(x, -128, 127, 1e-6, torch.int8)
        steps = OPS.quantize_per_tensor.tensor(x, scale, zero, *BYTES)
        y = OPS.dequantize_per_tensor.tensor(steps, scale, zero, *BYTES)
        w = OPS.dequantize_per_channel(self.q, self.scale, self.zero, 0, -127, 127, torch.int8)
        return torch.nn.functional.linear(y, w), steps, scale, zero


class ByRow(torch.nn.Module):
    """Ranges of rows and of groups, as quantisers of language models take them."""

    def forward(self, x: Any, w: Any) -> Any:
        scale, zero = OPS.choose_qparams_per_token_asymmetric(x, torch.int8)
        steps = OPS.quantize_per_token(x, scale, zero, *BYTES)
        y = OPS.dequantize_per_token(steps, scale, zero, *BYTES, torch.float32)
        reach, none = OPS.choose_qparams_per_token(x, torch.int8)
        symmetric = OPS.choose_qparams_symmetric.tensor(x, -128, 127, 1e-6, torch.int8)
        size = torch.full((6, 2), 0.01)
        groups = OPS.quantize_per_channel_group(w, size, torch.ones(6, 2, dtype=torch.int32), -8, 7, torch.int8, 4)
        real = OPS.dequantize_per_channel_group(groups, size, None, -8, 7, torch.int8, 4, torch.float32)
        return y, steps, scale, zero, reach.double(), none.long(), *symmetric, groups, real


def test_static_programs_give_what_eager_gives() -> None:
    torch.manual_seed(0)
    check_export(Static(), [torch.randn(2, 4, 7, 7)])


def test_dynamic_programs_give_what_eager_gives() -> None:
    torch.manual_seed(0)
    check_export(Dynamic(), [torch.randn(3, 8)])
    check_export(Dynamic(), [torch.zeros(3, 8)])


def test_ranges_of_rows_and_groups_give_what_eager_gives() -> None:
    torch.manual_seed(0)
    check_export(ByRow(), [torch.randn(3, 5, 7), torch.randn(6, 8) / 20])


def test_quantised_programs_are_imported_as_qnn_operators() -> None:
    program = torch.export.export(Static().eval(), (torch.randn(1, 4, 7, 7),))
    text = str(relay.frontend.from_exported_program(program)[0])
    assert text.count("qnn.quantize") == 2
    assert text.count("qnn.dequantize") == 4


def test_every_operator_of_quantised_programs_has_a_rule() -> None:
    names = {n for n in dir(OPS) if not n.startswith("__") and hasattr(getattr(OPS, n), "overloads")}
    ours = ("quantize_per", "dequantize_per", "choose_qparams")
    missing = [n for n in names if n.startswith(ours) and aten_rule(f"quantized_decomposed.{n}.default") is None]
    assert not missing
