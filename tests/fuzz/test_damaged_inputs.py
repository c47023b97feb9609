"""Outside bytes that are damaged or hostile end in an ArmillaryError of the user's kind, and leave no file behind."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import corpus
import pytest

from armillary.artifact import GraphSpec, load_params
from armillary.artifact.package import load_package
from armillary.errors import ArmillaryError, InternalError
from armillary.frontend import from_onnx

_MEMORY_LIMIT = 2 << 30


def offences(items: Iterable[corpus.Item], read: Callable[[bytes], Any], may_pass: bool) -> tuple[int, list[str]]:
    """Number of inputs tried, and those that ended in anything but a user error (or passed, where they must not)."""
    tried, wrong = 0, []
    for name, data in items:
        tried += 1
        try:
            read(data)
        except InternalError as error:
            wrong.append(f"{name}: InternalError: {error}")
        except ArmillaryError:
            continue
        except Exception as error:  # what this test is there to find
            wrong.append(f"{name}: {type(error).__name__}: {error}")
        else:
            if not may_pass:
                wrong.append(f"{name}: was accepted")
    print(f"seed {corpus.SEED}: {tried} inputs")
    return tried, wrong


def test_damaged_onnx_bytes_never_crash_the_importer() -> None:
    tried, wrong = offences(corpus.onnx_corpus(), from_onnx, may_pass=True)
    assert tried >= 150
    assert not wrong, "\n".join(wrong)


def test_truncated_onnx_is_always_refused() -> None:
    items = [item for item in corpus.onnx_corpus() if ":cut@" in item[0]]
    _, wrong = offences(items, from_onnx, may_pass=False)
    assert not wrong, "\n".join(wrong)


def test_hostile_onnx_graphs_are_refused() -> None:
    tried, wrong = offences(corpus.hostile_models(), from_onnx, may_pass=False)
    assert tried >= 60
    assert not wrong, "\n".join(wrong)


def test_memory_bombs_are_not_expanded_by_the_importer() -> None:
    tracemalloc.start()
    _, wrong = offences(corpus.bomb_models(), from_onnx, may_pass=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not wrong, "\n".join(wrong)
    assert peak < _MEMORY_LIMIT, f"{peak / 1e9:.1f} GB were allocated"


def test_damaged_parameter_blobs_never_crash() -> None:
    tried, wrong = offences(corpus.params_corpus(), load_params, may_pass=True)
    assert tried >= 60
    assert not wrong, "\n".join(wrong)


def test_damaged_graph_json_never_crashes() -> None:
    tried, wrong = offences(corpus.graph_json_corpus(), GraphSpec.from_json, may_pass=True)
    assert tried >= 200
    assert not wrong, "\n".join(wrong)


def test_damaged_and_escaping_tars_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    package = tmp_path / "package.tar"

    def read(data: bytes) -> None:
        package.write_bytes(data)
        load_package(package)

    tried, wrong = offences(corpus.tar_corpus(), read, may_pass=True)
    assert tried >= 40
    assert not wrong, "\n".join(wrong)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["inside", "package.tar"]
    assert not Path("/tmp/evil.so").exists()


def test_escaping_members_links_and_missing_parts_are_refused(tmp_path: Path) -> None:
    package = tmp_path / "package.tar"

    def read(data: bytes) -> None:
        package.write_bytes(data)
        load_package(package)

    names = ("member", "kind", "missing", "empty", "twice", "size of")
    items = [item for item in corpus.tar_corpus() if item[0].startswith(names)]
    _, wrong = offences(items, read, may_pass=False)
    assert not wrong, "\n".join(wrong)
