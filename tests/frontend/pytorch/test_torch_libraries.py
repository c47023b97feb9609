"""Operators of torchvision and transformers by torch.export; neither is needed: their schemas are declared here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch_runs import built, check_close, check_export, run, torch

from armillary import relay

nn, F = torch.nn, torch.nn.functional
_SCHEMAS = {
    "torchvision::nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "transformers::grouped_mm_fallback": "(Tensor input, Tensor weight, Tensor offs) -> Tensor",
}


def suppressed(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """The numbers of the boxes that overlap no better one too much, best first."""
    stay: list[int] = []
    for k in scores.argsort(descending=True, stable=True).tolist():
        low, high = (
            f(boxes[k].view(2, 2)[n], boxes[stay].view(-1, 2, 2)[:, n])
            for n, f in enumerate((torch.maximum, torch.minimum))
        )
        common = (high - low).clamp(min=0).prod(-1)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
        if not bool((common / (area[k] + area[stay] - common) > threshold).any()):
            stay.append(k)
    return torch.tensor(stay, dtype=torch.int64)


def aligned(
    x: torch.Tensor, rois: torch.Tensor, scale: float, h: int, w: int, samples: int, is_aligned: bool
) -> torch.Tensor:
    """Means of bilinear samples of regions that lie within their image."""
    assert is_aligned
    images = rois[:, 0].long()
    places = []
    for start, end, cells, size in ((2, 4, h, x.shape[2]), (1, 3, w, x.shape[3])):
        low, high = (rois[:, k, None] * scale - 0.5 for k in (start, end))
        steps = (torch.arange(cells * samples) + 0.5) / (cells * samples)
        places.append((low + (high - low) * steps) * 2 / (size - 1) - 1)
    rows, columns = places
    grid = torch.stack((columns[:, None].expand(-1, h * samples, -1), rows[:, :, None].expand(-1, -1, w * samples)), -1)
    return F.avg_pool2d(F.grid_sample(x[images], grid, align_corners=True), samples)


def by_group(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows times the matrix of their group; zeros behind the last."""
    starts = [0, *ends.tolist()]
    parts = [x[a:b] @ w for a, b, w in zip(starts, ends.tolist(), weight, strict=False)]
    return torch.cat((*parts, x.new_zeros(len(x) - starts[-1], weight.shape[2])))


def _fake_nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _fake_roi_align(
    x: torch.Tensor, rois: torch.Tensor, scale: float, h: int, w: int, samples: int, is_aligned: bool
) -> torch.Tensor:
    return x.new_empty(rois.shape[0], x.shape[1], h, w)


def _fake_groups(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[0], weight.shape[2])


_OPERATORS = {
    "torchvision::nms": (suppressed, _fake_nms),
    "torchvision::roi_align": (aligned, _fake_roi_align),
    "transformers::grouped_mm_fallback": (by_group, _fake_groups),
}


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    """Declare what torchvision and transformers declare, where they are not loaded."""
    declared = set(torch._C._dispatch_get_all_op_names())
    libraries = {}
    for name, (function, fake) in _OPERATORS.items():
        if name not in declared:
            library = libraries[name] = torch.library.Library(name.split("::")[0], "FRAGMENT")
            library.define(name.split("::")[1] + _SCHEMAS[name])
            library.impl(name.split("::")[1], function, "CPU")
            torch.library.register_fake(name, fake, lib=library)
    yield
    for library in libraries.values():
        library._destroy()


class Best(nn.Module):
    """The boxes that stay, and their scores."""

    def forward(self, corners: torch.Tensor, scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
        boxes = torch.cat((corners[:, :2], corners[:, :2] + corners[:, 2:].abs() + 0.1), 1)
        numbers = torch.ops.torchvision.nms(boxes, scores, 0.4)
        return numbers, boxes[numbers], scores[numbers] * 2


class Regions(nn.Module):
    """Regions of a feature map."""

    def forward(self, x: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
        return torch.ops.torchvision.roi_align(x, rois, 0.5, 3, 4, 2, True)


def test_boxes_that_overlap_better_ones_go() -> None:
    torch.manual_seed(0)
    rows = [(torch.rand(40, 4), torch.rand(40)) for _ in range(3)]
    module, params = relay.frontend.from_exported_program(torch.export.export(Best(), rows[0]))
    graph = built(module, params)
    counts = set()
    for row in rows:
        wanted = Best()(*row)
        check_close(run(graph, row), wanted)
        counts.add(len(wanted[0]))
    assert len(counts) > 1  # the data decide how many stay


def test_regions_are_pooled_from_bilinear_samples() -> None:
    torch.manual_seed(0)
    corners = torch.rand(6, 2) * 10 + 2
    rois = torch.cat((torch.tensor([0.0, 1, 1, 0, 1, 0])[:, None], corners, corners + torch.rand(6, 2) * 10 + 1), 1)
    check_export(Regions(), [torch.randn(2, 3, 16, 18), rois])


class Experts(nn.Module):
    """A mixture of experts as transformers writes it: rows in the order of their experts, products by group."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.up, self.down = nn.Parameter(torch.randn(4, 8, 12) / 3), nn.Parameter(torch.randn(4, 12, 8) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = torch.ops.transformers.grouped_mm_fallback
        share, expert = self.router(x).softmax(-1).topk(2)
        order = expert.reshape(-1).argsort(stable=True)
        ends = torch.histc(expert.reshape(-1).float(), bins=4, min=0, max=3).cumsum(0).to(torch.int32)
        y = product(F.silu(product(x[order // 2], self.up, ends)), self.down, ends)
        return (y[order.argsort()].view(-1, 2, 8) * share[..., None]).sum(1)


def test_experts_compute_their_rows() -> None:
    torch.manual_seed(0)
    for rows in (1, 9, 70):
        check_export(Experts(), [torch.randn(rows, 8)])


class Grouped(nn.Module):
    """Products by group alone."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.transformers.grouped_mm_fallback(x, weight, ends)
        return result


@pytest.mark.parametrize("ends", [(0, 40, 40, 41), (64, 64, 64, 64), (0, 0, 0, 0), (7, 16, 31, 50)], ids=str)
def test_groups_of_any_number_of_rows_meet_their_matrix(ends: tuple[int, ...]) -> None:
    x, weight = torch.randn(64, 8), torch.randn(4, 8, 12)
    inputs = x, weight, torch.tensor(ends)
    check_export(Grouped(), inputs)
    dims = {0: torch.export.Dim("rows")}, None, None
    program = torch.export.export(Grouped(), inputs, dynamic_shapes=dims)
    graph = built(*relay.frontend.from_exported_program(program))
    for rows in (64, 90):
        inputs = torch.randn(rows, 8), weight, torch.tensor(ends)
        check_close(run(graph, inputs), Grouped()(*inputs))
