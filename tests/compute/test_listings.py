"""The listings of the architecture text, as files that people run: each prints what its end says."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opencl_device import needs_opencl

from armillary import compute
from armillary.compute import OMPScheduler, Scheduler, graph

FOLDER = Path(__file__).parents[2] / "examples/compute"
MARK = "# Output:\n"
FILES = sorted(FOLDER.glob("[0-9]*.py"))
NAMES = """Allocator BlobLifetimeManager BlobMemoryPool BorderMode CLBufferAllocator CLConvolutionLayer CLKernelLibrary
CLMemoryGroup CLScheduler CLTensor CLTuner CPPDetectionWindowNonMaximaSuppressionKernel CPPPermute CPPScheduler
ConvolutionMethod Coordinates DataType DimensionRoundingType Format IAllocator IFunction IKernel ILifetimeManager
IMemoryGroup IMemoryManager IMemoryPool INEKernel IPoolManager IScheduler ITensor ITensorInfo Image InterpolationPolicy
Iterator MemoryGroup MemoryManagerOnDemand NEConvolution3x3 NEConvolutionLayer NEGaussian3x3 NEGaussianPyramidHalf
NEHarrisCorners NEScheduler NESoftmaxLayer NEWinogradLayer OMPScheduler PPMLoader PadStrideInfo PoolManager Scheduler
SingleThreadScheduler Tensor TensorAllocator TensorInfo TensorShape ThreadInfo ValidRegion WeightsInfo Window"""
GRAPH_NAMES = """DummyAccessor Graph GraphHints INode IOperation ITensorAccessor ITensorObject NodeContext
OperationRegistrar OperationRegistry OperationType Stage Target TargetHint Tensor TopNPredictionsAccessor
register_simple_operation"""
CL = {path for path in FILES if "CLScheduler" in path.read_text()}


@pytest.fixture(autouse=True)
def _scheduler() -> Iterator[None]:
    before = Scheduler.get()
    yield
    Scheduler.set(before)


def expected(path: Path) -> str:
    """What a file says that it prints."""
    _, _, block = path.read_text().partition(MARK)
    return "".join(line.removeprefix("#").removeprefix(" ") for line in block.splitlines(keepends=True))


def printed(path: Path) -> str:
    """What it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(str(path), run_name="__main__")
    return out.getvalue()


def update(path: Path) -> None:
    """Write what a file prints at its end: `python tests/compute/test_listings.py`."""
    head, _, _ = path.read_text().partition(MARK)
    lines = "".join(f"# {line}".rstrip() + "\n" for line in printed(path).splitlines())
    path.write_text(head + MARK + lines)


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem, marks=[needs_opencl] if p in CL else []) for p in FILES])
def test_a_listing_prints_what_it_says(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if "OMPScheduler" in path.read_text() and not OMPScheduler.is_available():
        pytest.skip("this system has no libgomp")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [path.name])
    assert expected(path).strip(), "a listing without output proves nothing"
    said = [line.rstrip() for line in printed(path).splitlines()]
    assert said == expected(path).splitlines()


def test_the_names_of_the_text_are_there() -> None:
    """Classes and interfaces that the text names; those of listings are used by the files."""
    for module, names in ((compute, NAMES), (graph, GRAPH_NAMES)):
        assert [name for name in names.split() if not hasattr(module, name)] == []
    made = graph.Operation("Mine", graph.Target.NEON, lambda ctx: compute.NEActivationLayer())
    registry = graph.OperationRegistry.get()
    before = registry.find_operation(graph.OperationType.SoftmaxLayer, graph.Target.NEON)
    try:
        graph.OperationRegistrar(graph.OperationType.SoftmaxLayer, made)
        assert registry.find_operation(graph.OperationType.SoftmaxLayer, graph.Target.NEON) is made
    finally:
        registry.add_operation(graph.OperationType.SoftmaxLayer, before)


if __name__ == "__main__":
    chosen = sys.argv[1:]
    sys.argv = ["listing"]
    for each in FILES:
        if not chosen or each.stem in chosen:
            Scheduler.set("CPP")
            update(each)
