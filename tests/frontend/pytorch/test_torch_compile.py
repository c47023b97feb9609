"""torch.compile(backend="armillary"): results of eager PyTorch, what is compiled and what is not."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from torch_runs import torch

backend = pytest.importorskip("armillary.contrib.torch_backend")
sessions = pytest.importorskip("armillary.contrib.torch_backend.sessions")
nn = torch.nn


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def network() -> nn.Module:
    """A small network with a batch."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    ).eval()


def test_the_entry_point_names_the_backend() -> None:
    assert "armillary" in torch._dynamo.list_backends(exclude_tags=())
    assert torch._dynamo.lookup_backend("armillary") is backend.armillary


@torch.inference_mode()
def test_batches_are_compiled_once_each() -> None:
    model, told = network(), list[str]()
    compiled = torch.compile(model, backend="armillary", options={"report": told.append})
    for batch in (1, 2, 3, 2, 3, 1):
        x = torch.randn(batch, 3, 8, 8)
        torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-5)
    assert len(told) == 2  # one graph of the first size, one of any size
    assert all("compiled as one" in text for text in told)


@torch.no_grad()
def test_weights_that_change_are_seen() -> None:
    model, x = network(), torch.randn(1, 3, 8, 8)
    compiled = torch.compile(model, backend="armillary")
    compiled(x)
    model[-1].weight.mul_(2)
    torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-5)


class Mixed(nn.Module):
    """An operator that has no rule between operators that have one."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        lengths = torch.linalg.svdvals(x.relu() * 2 + torch.eye(4, 8)) + 1
        return lengths.exp().sum(), (x * 2).t(), x


@torch.inference_mode()
def test_what_has_no_rule_stays_in_eager_mode_and_is_told() -> None:
    model, x, told = Mixed(), torch.randn(4, 8) / 10, list[str]()
    compiled = torch.compile(model, backend="armillary", options={"report": told.append})
    for got, wanted in zip(compiled(x), model(x), strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)
    assert len(told) == 1
    assert "aten._linalg_svd.default (1)" in told[0]


def test_a_graph_that_records_gradients_runs_in_eager_mode_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    model, x = network(), torch.randn(1, 3, 8, 8)
    with caplog.at_level(logging.WARNING, "armillary"):
        result = torch.compile(model, backend="armillary")(x)
    result.sum().backward()
    assert model[0].weight.grad is not None
    (line,) = [r.message for r in caplog.records if r.name.startswith("armillary")]
    assert line.startswith(
        "a graph runs in eager mode: it records gradients; call the model under torch.inference_mode()"
    )


class Counter(nn.Module):
    """A module that changes a buffer and its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        x.mul_(2)
        return self.total * 3


@torch.no_grad()
def test_buffers_and_inputs_are_changed_as_in_eager_mode() -> None:
    ours, theirs = Counter(), Counter()
    compiled = torch.compile(ours, backend="armillary")
    for _ in range(3):
        a, b = torch.ones(3), torch.ones(3)
        torch.testing.assert_close(compiled(a), theirs(b))
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(ours.total, theirs.total)


def written(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Results that are written to behind the graph that gives them: a constant, and clones."""
    zeros, same, twice = torch.zeros_like(x), x.clone(), x * 2
    third = twice.clone()
    torch._dynamo.graph_break()
    for value in (zeros, same, twice):
        value[0] += 1
    third[1] += 1
    return zeros, same, twice, third


@torch.inference_mode()
def test_results_may_be_written_to() -> None:
    x = torch.randn(3, 4)
    before, compiled = x.clone(), torch.compile(written, backend="armillary")
    for _ in range(2):
        torch.testing.assert_close(compiled(x), written(before))
        torch.testing.assert_close(x, before)


def viewed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Views of the argument that skip its elements or repeat them, beside what is computed."""
    return x.reshape(x.shape[0], -1, 4)[:, 1:], x.select(0, 1), x.expand(2, *x.shape), x.transpose(0, 1)[1:], x * 2


@torch.no_grad()
def test_views_of_arguments_are_those_of_eager_mode_over_open_sizes() -> None:
    compiled = torch.compile(viewed, backend="armillary", dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 6, 8)
        results, wanted = compiled(x), viewed(x)
        torch.testing.assert_close(results, wanted)
        assert [v.stride() for v in results] == [v.stride() for v in wanted]


@torch.no_grad()
def test_transposed_inputs_and_numbers_are_taken() -> None:
    def function(x: torch.Tensor, factor: int) -> torch.Tensor:
        return (x * factor).softmax(-1)

    compiled = torch.compile(function, backend="armillary")
    x = torch.randn(5, 3).t()
    for factor in (2, 3, 4):
        torch.testing.assert_close(compiled(x, factor), function(x, factor))


@torch.no_grad()
def test_options_that_are_not_known_are_refused() -> None:
    with pytest.raises(Exception, match="ConfigError: the option 'speed' is not known"):
        torch.compile(network(), backend="armillary", options={"speed": 9})(torch.randn(1, 3, 8, 8))
    with pytest.raises(Exception, match="precision is 'int3'"):
        torch.compile(network(), backend="armillary", options={"precision": "int3"})(torch.randn(1, 3, 8, 8))


@torch.no_grad()
def test_products_are_in_bfloat16_where_asked() -> None:
    model, x = network(), torch.randn(1, 3, 8, 8)
    compiled = torch.compile(model, backend="armillary", options={"precision": "bfloat16", "threads": 1})
    result = compiled(x)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, model(x), atol=2e-2, rtol=2e-2)


@torch.inference_mode()
def test_a_graph_of_open_sizes_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    build, shapes, texts = sessions.build, list[object](), list[str]()

    def counted(*arguments: Any) -> sessions.Session:
        shapes.append(arguments)
        return build(*arguments)

    monkeypatch.setattr(sessions, "build", counted)
    model = network()
    compiled = torch.compile(model, backend="armillary", options={"report": texts.append})
    for batch, side in ((2, 8), (3, 8), (4, 12), (7, 9), (5, 30)):
        x = torch.randn(batch, 3, side, side + 1)
        torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-5)
    assert len(shapes) == 3  # one of the first shape, one of any batch, one of any image
    assert not any("anew" in text for text in texts)


@torch.inference_mode()
def test_what_cannot_be_open_is_compiled_for_each_shape_and_told() -> None:
    texts: list[str] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cummax(x, -1).values * x.shape[0]

    compiled = torch.compile(function, backend="armillary", dynamic=True, options={"report": texts.append})
    for shape in ((2, 3), (4, 5)):
        x = torch.randn(*shape)
        torch.testing.assert_close(compiled(x), function(x))
    assert any("for each shape anew: " in text for text in texts)


def counted_builds(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A list that grows by one with each build."""
    build, builds = sessions._build, list[object]()

    def counted(*arguments: Any, **options: Any) -> Any:
        builds.append(arguments)
        return build(*arguments, **options)

    monkeypatch.setattr(sessions, "_build", counted)
    return builds


def in_a_new_process(model: nn.Module, batches: tuple[int, ...], **options: Any) -> None:
    """What a process that has compiled nothing does."""
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="armillary", options=options or None)
    for batch in batches:
        x = torch.randn(batch, 3, 8, 8)
        torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_graphs_are_kept_for_other_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARMILLARY_CACHE_DIR", str(tmp_path))
    model, builds = network(), counted_builds(monkeypatch)
    in_a_new_process(model, (1, 2, 3))
    assert len(builds) == 2  # one of the first size, one of any
    in_a_new_process(model, (1, 3, 2))
    assert len(builds) == 2
    model[-1].bias.add_(1)  # other weights are another graph
    in_a_new_process(model, (1,))
    assert len(builds) == 3
    in_a_new_process(model, (1,), cache=False)
    assert len(builds) == 4
    for entry in (tmp_path / "graphs").glob("kernels/*/*"):
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 1
        entry.write_bytes(data)
    in_a_new_process(model, (1,))
    assert len(builds) == 5


@torch.no_grad()
def test_inputs_in_any_order_and_empty_ones_are_taken() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x.sum(-1)

    compiled = torch.compile(function, backend="armillary", dynamic=False)
    for x in (torch.randn(6, 4)[::2], torch.randn(3, 4), torch.view_as_complex(torch.randn(3, 4, 2)).conj().imag):
        for got, wanted in zip(compiled(x), function(x), strict=True):
            torch.testing.assert_close(got, wanted)
    empty = torch.empty(0, 4)
    assert compiled(empty)[0].shape == (0, 4)


MODES = ((2, "bilinear", "upsample_bilinear2d"), (1, "nearest-exact", "_upsample_nearest_exact1d"))


@pytest.mark.parametrize(("rank", "mode", "name"), [*MODES, (2, "nearest", "upsample_nearest2d")])
@pytest.mark.parametrize("sizes", [{"scale_factor": 1.7}, {"size": 9}])
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_a_resize_of_known_sizes_stays_one_operator(
    rank: int, mode: str, name: str, sizes: dict[str, Any], context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch would gather the corners of each place; an open batch changes nothing."""
    names: list[str] = []

    def resize(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, mode=mode, **sizes)

    imported = sessions._imported

    def noted(module: Any, *rest: Any) -> Any:
        names.extend(str(n.target) for n in module.graph.nodes if n.op == "call_function")
        return imported(module, *rest)

    monkeypatch.setattr(sessions, "_imported", noted)
    compiled = torch.compile(resize, backend="armillary", options={"cache": False})
    with context():
        for batch in (2, 3):
            x = torch.rand(batch, 3, *(6, 8)[:rank])
            torch.testing.assert_close(compiled(x), resize(x))
    assert names == [f"aten.{name}.default"] * 2
