"""torchvision's own operators by torch.export; torchvision itself is not needed: its schemas are declared here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch_runs import built, check_close, check_export, run, torch

from armillary import relay

nn, F = torch.nn, torch.nn.functional
_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
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


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    """Declare what torchvision declares, where it is not installed."""
    if "torchvision" in {name.split("::")[0] for name in torch._C._dispatch_get_all_op_names()}:
        yield
        return
    library = torch.library.Library("torchvision", "DEF")
    for name, schema in _SCHEMAS.items():
        library.define(name + schema)
        library.impl(name, {"nms": suppressed, "roi_align": aligned}[name], "CPU")

    @torch.library.register_fake("torchvision::nms", lib=library)
    def _(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
        return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)

    @torch.library.register_fake("torchvision::roi_align", lib=library)
    def _(
        x: torch.Tensor, rois: torch.Tensor, scale: float, h: int, w: int, samples: int, is_aligned: bool
    ) -> torch.Tensor:
        return x.new_empty(rois.shape[0], x.shape[1], h, w)

    yield  # what is declared goes with the library


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
