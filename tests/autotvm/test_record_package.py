"""A wheel of records, once installed, is used by builds; a broken one is named and left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from armillary import autotvm, relay
from armillary.autotvm import record
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureErrorNo, MeasureInput, MeasureResult, failed
from armillary.autotvm.record_package import write_record_package
from armillary.cli.main import main

TARGET = "llvm -mcpu=x86-64-v3"
_BUILD = f"""
import logging, re
import armillary
import numpy as np
from armillary import relay
from armillary.driver.build import optimized
from armillary.target import Target
from armillary.transform import PassContext
logging.basicConfig(level=logging.INFO)
x, w = relay.var("x", shape=(48, 64)), relay.const(np.arange(6144, dtype="float32").reshape(96, 64))
module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, w)))
with PassContext(opt_level=3):
    text = str(optimized(module, Target({TARGET!r})))
print(re.findall(r'choice="([^"|]*)[^"]*(by record)?', text), "by record" in text)
"""


def dense() -> autotvm.Task:
    """The task of weights that a build binds."""
    x, w = relay.var("x", shape=(48, 64)), relay.var("w", shape=(96, 64))
    (task,) = autotvm.task.extract_from_program(relay.Function([x, w], relay.nn.dense(x, w)), target=TARGET)
    return task


def pair(task: autotvm.Task, index: int, seconds: float) -> record.Pair:
    return MeasureInput(task.target, task, task.config_space.get(index)), MeasureResult((seconds,), 0, 1.0, 2.0)


def log_of(folder: Path) -> tuple[Path, Any]:
    """A log whose best configuration is the one that the model likes least."""
    task = dense()
    ranking = [index for index, _ in task.template.estimates(task)]
    rows = [pair(task, ranking[0], 2e-3), pair(task, ranking[-1], 1e-3)]
    wrong = (pair(task, ranking[1], 1.0)[0], failed(MeasureErrorNo.WRONG_ANSWER, "no", 1.0))
    log = folder / "tuned.log"
    record.LogFile(log).append([record.encode(*row) for row in (*rows, wrong)])
    return log, rows[1][0].config


def build(*folders: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = [*map(str, folders), *sys.path]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment}
    return subprocess.run(
        [sys.executable, "-c", _BUILD], capture_output=True, text=True, env=given, check=True, timeout=120
    )


@pytest.fixture(scope="module")
def plain() -> str:
    """What a build without packages prints."""
    return build().stdout


def install(wheel: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*command, str(wheel)], check=True, timeout=120)
    return folder


def test_an_installed_package_is_found_used_and_can_be_switched_off(
    plain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, config = log_of(tmp_path)
    options = ["--name", "some_board", "-o", str(tmp_path)]
    assert main(["records", "package", str(log), *options]) == 0
    wheel = tmp_path / "armillary_records_some_board-1.0-py3-none-any.whl"
    assert wheel.name in capsys.readouterr().err
    first = wheel.read_bytes()
    assert main(["records", "package", str(log), *options]) == 0 and wheel.read_bytes() == first
    site = install(wheel, tmp_path / "site")
    tuned = build(site)
    assert plain.strip().endswith("False") and tuned.stdout.strip().endswith("True")
    tile = f"rows={config['rows'].val} vectors={config['vectors'].val} lines={config['lines'].val}"
    assert tile in tuned.stdout and tile not in plain
    assert "records of the installed package some_board are used" in tuned.stderr
    assert build(site, ARMILLARY_INSTALLED_RECORDS="0").stdout == plain


def test_a_broken_package_is_named_and_harms_no_build(plain: str, tmp_path: Path) -> None:
    log, _ = log_of(tmp_path)
    pairs = record.best_of(record.load_from_file(log))
    site = install(write_record_package(pairs, "broken", "2.1", tmp_path), tmp_path / "site")
    (site / "armillary_records_broken" / "__init__.py").write_text("raise ValueError('no such board')")
    found = build(site)
    assert found.stdout == plain
    assert "the records of the installed package broken cannot be used" in found.stderr
    damaged = site / "armillary_records_broken" / "__init__.py"
    damaged.write_text("records = [1, 2]")
    assert "list is no dispatch context" in build(site).stderr


def test_contexts_of_a_script_come_first(tmp_path: Path) -> None:
    log, _ = log_of(tmp_path)
    task = dense()
    mine = task.config_space.get(task.template.estimates(task)[3][0])
    with autotvm.ApplyHistoryBest(str(log)), autotvm.ApplyConfig(mine) as inner:
        assert inner.query(task.target, task.workload) is mine


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name", "Bad-Name"], "wanted small letters, digits and _"),
        (["--name", "ok", "--package-version", "one"], "wanted numbers with dots between"),
        ([], "needs --name"),
    ],
)
def test_what_cannot_be_packed_is_said(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, _ = log_of(tmp_path)
    assert main(["records", "package", str(log), "-o", str(tmp_path), *options]) == 4
    assert message in capsys.readouterr().err and not list(tmp_path.glob("*.whl"))


def test_a_log_without_a_good_trial_makes_no_package(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="there is no record to pack"):
        write_record_package([], "empty", "1.0", tmp_path)
    assert list(tmp_path.iterdir()) == []
