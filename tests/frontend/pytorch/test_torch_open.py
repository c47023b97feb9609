"""Programs of torch.export with open sizes give what PyTorch gives, after one compile, at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from torch_runs import built, check_close, run, torch

from armillary import relay
from armillary.base.extent import bounds, sizes_of
from armillary.errors import ArmillaryError, ModelError, UnsupportedError
from armillary.frontend.pytorch import states_of

nn = torch.nn
Dim = torch.export.Dim


class Encoder(nn.Module):
    """Embedding, causal attention and shapes made of open sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(50, 16), nn.Parameter(torch.randn(64, 16))
        self.into, self.out, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b, t = ids.shape
        x = self.embed(ids) + self.places[:t] + torch.arange(t)[None, :, None] * 0.01
        q, k, v = self.into(x).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = self.norm(x + self.out(y.transpose(1, 2).reshape(b, t, 16)))
        mask = torch.full((t, t), -1.0).triu(1)
        return x / (t**0.5), x[:, -1], mask, torch.cat([x, x], 1), x.new_zeros(b, 2 * t), x[:, None].expand(b, 2, t, 16)


def check_sizes(model: Any, inputs: Sequence[Any], dims: Any) -> Any:
    """Export with the first input, compile once, compare for all."""
    model = model.eval()
    with torch.no_grad():
        program = torch.export.export(model, (inputs[0],), dynamic_shapes=(dims,))
        module, params = relay.frontend.from_exported_program(program)
        graph = built(module, params)
        for x in inputs:
            check_close(run(graph, [x]), model(x))
    return module["main"].params[0].checked_type


def test_an_encoder_of_any_batch_and_length() -> None:
    torch.manual_seed(0)
    inputs = [torch.randint(0, 50, shape) for shape in ((3, 6), (1, 5), (2, 17), (5, 64))]
    ty = check_sizes(Encoder(), inputs, {0: Dim("batch"), 1: Dim("time", min=4, max=64)})
    assert set(sizes_of(ty.shape)) == {"batch", "time"}
    assert bounds(ty.shape[1]) == (4, 64)


class Found(nn.Module):
    """Results of as many rows as values say, and what is computed of them and of their number."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x[x[:, 0] > 0]
        return (
            torch.nonzero(x > 1),
            torch.masked_select(x, x < 0),
            rows * 2 + rows.sum(0),
            x[x > 0.5] / (1 + rows.shape[0]),
            *torch.where(x > 0.7),
        )


def test_sizes_that_values_say_are_those_of_eager_mode() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(n, 4) for n in (6, 3, 17)]
    check_sizes(Found(), [*inputs, -inputs[0].abs()], {0: Dim("rows", min=2, max=32)})


def convolutional() -> Any:
    """A small network of images."""
    body = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3)]
    return nn.Sequential(*body, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def test_a_convolutional_network_of_any_batch() -> None:
    torch.manual_seed(0)
    check_sizes(convolutional(), [torch.randn(n, 3, 12, 12) for n in (3, 1, 8)], {0: Dim("batch")})


def test_a_convolutional_network_of_any_image() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(*shape) for shape in ((3, 3, 20, 24), (1, 3, 12, 30), (8, 3, 40, 8))]
    check_sizes(convolutional(), inputs, {0: Dim("batch"), 2: Dim.AUTO, 3: Dim.AUTO})


def test_groups_are_normalised_over_any_image() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AvgPool2d(2), nn.GroupNorm(2, 8))
    inputs = [torch.randn(*shape) for shape in ((1, 3, 32, 40), (1, 3, 17, 64), (1, 3, 50, 33))]
    check_sizes(model, inputs, {2: Dim.AUTO, 3: Dim.AUTO})


def test_a_transposed_convolution_of_any_length() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.ConvTranspose1d(8, 4, 2, stride=2))
    inputs = [torch.randn(*shape) for shape in ((2, 4, 32), (1, 4, 17), (3, 4, 99))]
    check_sizes(model, inputs, {0: Dim("batch"), 2: Dim.AUTO})


class Parts(nn.Module):
    """An open axis in parts: of one size, and of sizes made of the open one."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        half = x.shape[0] // 2
        first, second = x.split([half, x.shape[0] - half])
        return *x.split(8), first * 2, second + 1


def test_parts_of_an_open_axis() -> None:
    torch.manual_seed(0)
    check_sizes(Parts(), [torch.randn(n, 3) for n in (13, 16, 10)], {0: Dim("rows", min=10, max=16)})


def test_a_multiple_of_a_size() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 2, stride=2), nn.ReLU())
    check_sizes(model, [torch.randn(1, 3, h, 8) for h in (20, 12, 4)], {2: 4 * Dim("fourth", max=20)})


class Of(nn.Module):
    """A module of one function."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "pad": lambda x: nn.functional.pad(x, (1, 2)),
    "roll": lambda x: x.roll(1, -1),
    "repeat": lambda x: x.flip(-1).repeat(2, 1, 1),
    "std": lambda x: x.std(-1),
    "mask": lambda x: x.masked_fill(x > 0, 1.0),
    "product": lambda x: x @ x.transpose(1, 2),
    "positions": lambda x: x[:, :, torch.arange(x.shape[2])],
    "part": lambda x: x[:, 1, :-1],
    "elements": lambda x: x[torch.arange(x.shape[0])[:, None], :, torch.arange(x.shape[2])],
    "running": lambda x: x.cumsum(-1) + x.cumsum(1),
    "windows": lambda x: x.unfold(2, 3, 1),
    "flat": lambda x: x.flatten(1) * x.shape[2],
    "written": lambda x: torch.ops.aten.index_put(x, [None, torch.tensor([0, -2])], torch.ones(1)),
    "added": lambda x: x.index_put((torch.arange(x.shape[0]) * 0, torch.tensor(1)), x[:, 0], accumulate=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operators_over_open_sizes(name: str) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(*shape) for shape in ((2, 4, 9), (3, 4, 6), (1, 4, 33))]
    check_sizes(Of(FUNCTIONS[name]), inputs, {0: Dim.AUTO, 2: Dim.AUTO})


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_any_batch(mode: str) -> None:
    torch.manual_seed(0)
    bags = nn.EmbeddingBag(4, 6, mode=mode, padding_idx=1)  # some bags hold nothing else
    inputs = [torch.randint(0, 4, (3, 2)), torch.tensor([[1, 1], [0, 3], [1, 2], [3, 3]])]
    check_sizes(bags, inputs, {0: Dim.AUTO})


def test_names_and_numbers_of_a_user() -> None:
    program = torch.export.export(convolutional().eval(), (torch.randn(2, 3, 12, 12),), dynamic_shapes=({0: Dim.AUTO},))
    module, _ = relay.frontend.from_exported_program(program, shape={"input": ("many", 3, 12, 12)})
    assert set(sizes_of(module["main"].params[0].checked_type.shape)) == {"many"}
    with pytest.raises(ModelError, match="the program fixes it to 12"):
        relay.frontend.from_exported_program(program, shape={"input": (2, 3, "rows", 12)})


def test_what_has_no_form_over_sizes_is_refused_by_name() -> None:
    model = Of(lambda x: x.as_strided((x.shape[0], 2), (3, 1)))
    program = torch.export.export(model, (torch.randn(4, 3),), dynamic_shapes=({0: Dim.AUTO},))
    with pytest.raises(UnsupportedError, match=r"as_strided.*not supported over open sizes: .*x_0"):
        relay.frontend.from_exported_program(program)


def test_sizes_out_of_the_range_are_refused() -> None:
    dims = ({0: Dim("batch", max=4)},)
    program = torch.export.export(nn.Linear(3, 2), (torch.randn(2, 3),), dynamic_shapes=dims)
    graph = built(*relay.frontend.from_exported_program(program))
    with pytest.raises(ArmillaryError, match="batch"):
        run(graph, [torch.randn(5, 3)])


class Total(nn.Module):
    """A module that changes buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(3))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        self.count.add_(1)
        return self.total * self.count


def test_changed_buffers_are_states() -> None:
    module, params = relay.frontend.from_exported_program(torch.export.export(Total(), (torch.ones(3),)))
    states = states_of(module)
    assert states == {"total": "total.new", "count": "count.new"}
    first = {name: params.pop(name) for name in states}
    graph = relay.build(module, target="llvm", params=params, states=states)["default"]()
    for name, value in first.items():
        graph.set_input(name, value)
    model = Total()
    for _ in range(3):
        x = torch.rand(3)
        graph.set_input("x", x.numpy())
        graph.run()
        np.testing.assert_allclose(graph.get_output(0).numpy(), model(x).numpy(), rtol=1e-6)


class Contracted(nn.Module):
    """Products by einsum, distances and a diagonal over an open batch."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scores = torch.einsum("bhid,bhjd->bhij", x, x * 2)
        return scores, torch.diagonal(scores, 1, 2, 3), torch.cdist(x, x + 1)


def test_einsum_and_diagonals_over_an_open_batch() -> None:
    check_sizes(Contracted(), [torch.randn(b, 2, 5, 4) for b in (3, 1, 7)], {0: Dim("batch")})


class Repeated(nn.Module):
    """As often as the batch is large."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.arange(6.0).reshape(2, 3).repeat(x.shape[0], 1) + x[0, 0], x.repeat(2, x.shape[0], 1)


def test_repeats_by_an_open_size() -> None:
    check_sizes(Repeated(), [torch.randn(b, 3) for b in (3, 1, 7)], {0: Dim("batch")})
