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

from armillary.compute import OMPScheduler, Scheduler

FOLDER = Path(__file__).parents[2] / "examples/compute"
MARK = "# Output:\n"
FILES = sorted(FOLDER.glob("[0-9]*.py"))
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


if __name__ == "__main__":
    chosen = sys.argv[1:]
    sys.argv = ["listing"]
    for each in FILES:
        if not chosen or each.stem in chosen:
            Scheduler.set("CPP")
            update(each)
