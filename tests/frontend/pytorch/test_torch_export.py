"""Programs of torch.export give what PyTorch gives."""

from __future__ import annotations

import numpy as np
import pytest
from torch_runs import check_export, torch

from armillary import relay
from armillary.errors import ModelError, UnsupportedError
from armillary.relay.evaluate import evaluate

nn = torch.nn


class Residual(nn.Module):
    """Convolutions with batch normalisation around a short cut, as ResNet has them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        y = nn.functional.max_pool2d(torch.relu(self.norm(self.second(y)) + y), 2)
        return self.head(y.mean((2, 3)))


def test_a_residual_network_is_what_eager_gives() -> None:
    torch.manual_seed(0)
    check_export(Residual(), [torch.randn(2, 3, 12, 12)])


def test_parameters_are_named_as_in_the_model_and_share_its_memory() -> None:
    model = Residual().eval()
    program = torch.export.export(model, (torch.randn(1, 3, 8, 8),))
    module, params = relay.frontend.from_exported_program(program)
    assert list(module["main"].attrs["input_names"]) == ["x"]
    assert set(params) == {n for n in model.state_dict() if not n.endswith("num_batches_tracked")}
    assert np.shares_memory(params["head.weight"], model.head.weight.detach().numpy())


def test_frozen_parameters_are_constants() -> None:
    program = torch.export.export(Residual().eval(), (torch.randn(1, 3, 8, 8),))
    module, params = relay.frontend.from_torch(program, freeze_params=True)
    assert not params
    assert [p.name_hint for p in module["main"].params] == ["x"]


def test_open_sizes_are_taken_where_shape_fixes_them() -> None:
    size = torch.export.Dim("size", min=4, max=64)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    program = torch.export.export(model, (torch.randn(1, 3, 8, 8),), dynamic_shapes=({2: size},))
    module, _ = relay.frontend.from_exported_program(program, shape={"input": (1, 3, 10, 8)})
    assert module["main"].checked_type.ret_type.static == (1, 4, 8, 6)
    with pytest.raises(ModelError, match="no input of the program"):
        relay.frontend.from_exported_program(program, shape={"x": (1, 3, 10, 8)})


def test_a_module_is_refused_with_the_way_to_a_program() -> None:
    with pytest.raises(ModelError, match="got Residual"):
        relay.frontend.from_exported_program(Residual())


def test_operators_without_a_rule_are_named_together() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.eigvalsh(x) + torch.special.bessel_j0(x).sum()

    program = torch.export.export(Odd(), (torch.eye(3),))
    with pytest.raises(UnsupportedError, match=r"2 operators of the model .*_linalg_eigh.*special_bessel_j0"):
        relay.frontend.from_exported_program(program)


class Medians(nn.Module):
    """Medians along axes and of all, and a transform of padded values."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        transformed = torch.fft.fft2(x.nan_to_num(), s=(8, 4)).abs()
        return *x.median(1), *x.nanmedian(0), x.median(), x.nanmedian(), transformed


def test_medians_of_data_with_nan() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 6)
    x[1, 2] = x[1, 4] = x[3] = float("nan")
    check_export(Medians(), [x])
    check_export(Medians(), [torch.randn(4, 3)])


class Antialiased(nn.Module):
    """Images that become smaller, and larger, by averages."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        rows = [(size, mode) for size in ((3, 4), (20, 7)) for mode in ("bilinear", "bicubic")]
        return [nn.functional.interpolate(x, size=size, mode=mode, antialias=True) for size, mode in rows]


def test_averages_of_images_leave_out_what_lies_outside() -> None:
    torch.manual_seed(0)
    check_export(Antialiased(), [torch.randn(1, 2, 10, 12)])


class Counter(nn.Module):
    """A module that changes a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2


def test_a_changed_buffer_is_a_further_output() -> None:
    program = torch.export.export(Counter(), (torch.ones(3),))
    module, params = relay.frontend.from_exported_program(program)
    assert list(module["main"].attrs["output_names"])[1] == "total.new"
    result = evaluate(module, {"x": np.ones(3, "float32"), **params})
    np.testing.assert_array_equal(result[0], [2, 2, 2])
    np.testing.assert_array_equal(result[1], [1, 1, 1])


class Branches(nn.Module):
    """Control flow that depends on values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,))

        def goes(i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return i < 3

        def step(i: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, v + i

        return torch._higher_order_ops.while_loop(goes, step, (torch.tensor(0), y))[1]


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_and_loops_run(sign: int) -> None:
    check_export(Branches(), [sign * torch.rand(4)])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(mode: str) -> None:
    check_export(nn.EmbeddingBag(20, 6, mode=mode), [torch.randint(0, 20, (3, 4))])
    uneven = [torch.randint(0, 20, (12,)), torch.tensor([0, 3, 3, 10])]
    check_export(nn.EmbeddingBag(20, 6, mode=mode), uneven)


class Masked(nn.Module):
    """What is written where a mask holds, as many values as there are hits, one for all of them, or added."""

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mask = x[:, 0] > 0
        every, row, more, each = x.clone(), x.clone(), x.clone(), x.clone()
        every[mask] = rows[:, :3][mask] * 2
        row[mask] = rows[0, :3]
        each[x < 0.5] = x[x < 0.5] + 7
        return every, row, more.index_put((mask,), x[mask] * 3, accumulate=True), each


def test_values_are_written_where_a_mask_holds() -> None:
    torch.manual_seed(0)
    check_export(Masked(), [torch.randn(7, 3), torch.randn(7, 4)])


def test_images_whose_corners_are_aligned_are_resized_by_sizes_alone() -> None:
    model = nn.Upsample(scale_factor=1.7, mode="bilinear", align_corners=True)
    check_export(model, [torch.randn(2, 3, 4, 4)])
