"""TorchScript modules, traced and scripted, give what PyTorch gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_runs import built, check_close, run, torch

from armillary import relay
from armillary.errors import ModelError, TypeMismatch, UnsupportedError
from armillary.relay.frontend import pytorch, pytorch_utils

nn = torch.nn


def check(model: Any, inputs: list[Any], scripted: bool, tolerance: float = 1e-4) -> None:
    """By from_pytorch as in eager mode."""
    model = model.eval()
    with torch.no_grad():
        wanted = model(*inputs)
        module = torch.jit.script(model) if scripted else torch.jit.trace(model, tuple(inputs))
    infos = [(f"input{k}", (tuple(x.shape), str(x.dtype)[6:])) for k, x in enumerate(inputs)]
    made, params = relay.frontend.from_pytorch(module, infos)
    check_close(run(built(made, params), inputs), wanted, tolerance)


class Network(nn.Module):
    """A convolution, a normalisation and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.relu_(self.norm(self.first(x)))
        y = nn.functional.adaptive_avg_pool2d(y, (1, 1))
        return self.head(y.view(y.size(0), -1))


@pytest.mark.parametrize("scripted", [False, True])
def test_a_network_is_what_eager_gives(scripted: bool) -> None:
    torch.manual_seed(0)
    check(Network(), [torch.randn(2, 3, 8, 8)], scripted)


@pytest.mark.parametrize(
    ("kernel", "padding", "dilation"), [(3, "same", 1), (4, "same", 1), (5, "same", 2), (3, "valid", 2)]
)
def test_padding_may_be_a_word(kernel: int, padding: str, dilation: int) -> None:
    model = nn.Conv2d(4, 6, kernel, padding=padding, groups=2, dilation=dilation)
    check(model, [torch.randn(2, 4, 16, 18)], scripted=False)


def test_parameters_are_named_as_in_the_model_and_friendly_where_asked() -> None:
    traced = torch.jit.trace(Network().eval(), torch.randn(1, 3, 8, 8))
    module, params = relay.frontend.from_pytorch(traced, [("data", (1, 3, 8, 8))])
    assert {"first.weight", "first.bias", "norm.running_mean", "head.weight"} <= set(params)
    assert module["main"].params[0].name_hint == "data"
    _, params = relay.frontend.from_pytorch(traced, [("data", (1, 3, 8, 8))], use_parser_friendly_name=True)
    assert "first_weight" in params
    assert np.shares_memory(params["first_weight"], traced.first.weight.detach().numpy())


class Decisions(nn.Module):
    """Loops and branches over numbers, lists and values; changes in place."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = []
        for i in range(4):
            if i % 2 == 0:
                x = x + i
            else:
                x = x * 2
            rows.append(x)
        while bool(x.sum() < 100):
            x = x * 2
        if bool(x.mean() > 3):
            x = x - 1
        else:
            x = x + 1
        y = torch.cat(rows)
        y[:, 0] = 7
        y.add_(1)
        return y, x


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_scripted_control_flow_runs(scale: float) -> None:
    torch.manual_seed(0)
    check(Decisions(), [torch.rand(2, 3) * scale], True)


class Sequences(nn.Module):
    """A recurrent network whose last states are results too."""

    def __init__(self, cell: type, **options: Any) -> None:
        super().__init__()
        self.cell = cell(5, 6, 2, **options)

    def forward(self, x: torch.Tensor) -> Any:
        return self.cell(x)


@pytest.mark.parametrize("options", [{}, {"batch_first": True, "bidirectional": True}, {"bias": False}])
@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_networks_are_what_eager_gives(cell: type, options: dict[str, bool]) -> None:
    torch.manual_seed(0)
    check(Sequences(cell, **options), [torch.randn(4, 3, 5)], False)


class Encoder(nn.Module):
    """An encoder layer, which is one operator in inference."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "activation": "gelu"}])
def test_an_encoder_layer_is_what_eager_gives(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    check(Encoder(**options), [torch.randn(2, 4, 16)], False)


class Stale(nn.Module):
    """Reads a view of what has been changed since."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        row = y[0]
        y.add_(1)
        return row


def test_a_stale_view_is_refused_instead_of_a_wrong_answer() -> None:
    traced = torch.jit.trace(Stale(), torch.rand(2, 3))
    with pytest.raises(UnsupportedError, match="changed in place"):
        relay.frontend.from_pytorch(traced, [("x", (2, 3))])


class Odd(nn.Module):
    """An operator without a rule."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(x) + 1


def test_operators_of_ones_own_are_converted_by_the_map() -> None:
    traced = torch.jit.trace(Odd(), torch.rand(3))
    with pytest.raises(UnsupportedError, match="special_bessel_j0"):
        relay.frontend.from_pytorch(traced, [("x", (3,))])
    converters = {"aten::special_bessel_j0": lambda inputs, types: relay.negative(inputs[0])}
    module, params = relay.frontend.from_pytorch(traced, [("x", (3,))], converters)
    result = run(built(module, params), [torch.tensor([1.0, 2.0, 3.0])])
    np.testing.assert_array_equal(result[0], [0, -1, -2])


def test_what_is_no_module_and_what_is_no_description_are_refused() -> None:
    with pytest.raises(ModelError, match="got Network"):
        relay.frontend.from_pytorch(Network(), [("x", (1, 3, 8, 8))])
    traced = torch.jit.trace(nn.ReLU(), torch.rand(3))
    with pytest.raises(TypeMismatch, match="described by"):
        relay.frontend.from_pytorch(traced, ["x"])
    with pytest.raises(ModelError, match="2 inputs are described"):
        relay.frontend.from_pytorch(traced, [("x", (3,)), ("y", (3,))])


def test_old_modules_are_there() -> None:
    assert pytorch.from_pytorch is relay.frontend.from_pytorch
    assert pytorch_utils.is_version_greater_than("1.5.0")
    assert not pytorch_utils.is_version_greater_than("99.0.0")


@pytest.mark.parametrize("dim", [0, 2])
def test_weights_by_their_length(dim: int) -> None:
    check(torch.nn.utils.weight_norm(nn.Conv1d(3, 4, 3), dim=dim), [torch.randn(2, 3, 8)], False)


class BySizes(nn.Module):
    """Arithmetic between sizes, which a trace holds as tensors of one number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sub(x.shape[0], x.shape[1], alpha=2) + (1 - x.shape[1]) / (x.shape[0] - 1)


def test_a_difference_of_sizes_is_what_eager_gives() -> None:
    check(BySizes(), [torch.randn(7, 2)], scripted=False)


class Counting(nn.Module):
    """A module that notes its calls, and may compute with their number."""

    def __init__(self, is_read: bool) -> None:
        super().__init__()
        self.calls, self.is_read = 0, is_read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls = x.shape[0]
        return x * self.calls if self.is_read else x * 2


def test_an_attribute_may_change_unless_it_is_read() -> None:
    check(Counting(False), [torch.randn(3, 2)], scripted=True)
    with pytest.raises(UnsupportedError, match="attribute calls is read and changed"):
        check(Counting(True), [torch.randn(3, 2)], scripted=True)
