"""Packages and tuning logs that earlier versions wrote still load; those of later formats are refused by their number.

stored/ holds what the commits of those days exported for x86-64: relu(dense(x, w)), and two trials of a convolution.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import autotvm
from armillary.artifact import ABI_VERSION, Descriptor
from armillary.contrib import graph_executor
from armillary.errors import ArtifactError

STORED = Path(__file__).parent / "stored"
PACKAGES = sorted(path for path in STORED.iterdir() if path.suffix in (".so", ".tar"))
LOG = STORED / "log-2026-11-25.json"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the packages are for x86-64")
@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.name)
def test_a_package_of_an_earlier_version_runs(path: Path) -> None:
    network = graph_executor.GraphModule(armillary.runtime.load_module(path)["default"](armillary.cpu()))
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    network.run(x=x)
    w = (np.arange(32).reshape(4, 8) % 7 - 3).astype(np.float32)
    np.testing.assert_allclose(network.get_output(0).numpy(), np.maximum(x @ w.T, 0), rtol=1e-5, atol=1e-6)


def test_a_tuning_log_of_an_earlier_version_is_read() -> None:
    records = list(autotvm.record.load_from_file(str(LOG)))
    assert [result.error_no for _, result in records] == [0, 0]
    assert all(given.task.name and given.config.to_json_dict() for given, _ in records)


def test_formats_carry_versions_and_later_ones_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = Descriptor("llvm", {}).to_json()
    assert json.loads(text)["abi"] == ABI_VERSION
    with pytest.raises(ArtifactError, match="kernel ABI 99 is not supported; this runtime knows 1"):
        Descriptor.from_json(json.dumps(json.loads(text) | {"abi": 99}).encode())
    later = tmp_path / "log.json"
    row = json.loads(LOG.read_text().splitlines()[0])
    later.write_text(json.dumps(row | {"version": 9.5}) + "\n")
    assert list(autotvm.record.load_from_file(str(later))) == []
    assert "it is of version 9.5, known is 0.2" in caplog.text
