"""`armc tune` writes a log that `armc compile` takes choices from and `armc records` reads."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from rich.console import Console
from rich.progress import Progress

from armillary.autotvm.measure.measure import MeasureInput
from armillary.autotvm.record import LogFile, best_of, load_from_file
from armillary.autotvm.task.task import create
from armillary.autotvm.tuner.gains import Gains
from armillary.cli.main import main
from armillary.cli.pages.tune_output import closing_table, columns, line
from armillary.cli.tune import _withdrawn, places


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A model, the log of tuning it, and what the command said."""
    folder = tmp_path_factory.mktemp("tuned")
    weight = np.random.default_rng(0).normal(size=(32, 16, 1, 1)).astype("float32")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "g",
        [value("x", 1, [1, 16, 14, 14])],
        [value("y", 1, [1, 32, 14, 14])],
        [numpy_helper.from_array(weight, "w")],
    )
    model, log = folder / "m.onnx", folder / "m.log"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(model))
    command = [sys.executable, "-m", "armillary.cli", "tune", str(model), "-o", str(log), "--trials", "3"]
    command += ["--repeat", "3", "--check-seconds", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return model, log, done.stderr


def test_tuning_shows_its_progress_and_keeps_its_trials(tuned: tuple[Path, Path, str]) -> None:
    _, log, told = tuned
    assert "[Task  1/ 1]  Current/Best:" in told and "Progress: (3/3)" in told and told.count("Done.") == 1
    assert "expected end-to-end gain: " in told and re.search(r"takes \d+\.\d+ ms with [01] of 1 records, \d", told)
    assert re.search(
        r"task +calls +default +best GFLOP/s +gain +trials +saved\nconv2d_NCHWc\.cpu\(.* 3 +0\.\d+ ms", told
    )
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(rows) >= 3 and all(row["result"][1] == 0 for row in rows[:3])


def test_a_log_is_not_written_over_and_resume_repeats_nothing(
    tuned: tuple[Path, Path, str], capfd: pytest.CaptureFixture[str]
) -> None:
    model, log, _ = tuned
    before = log.read_text()
    assert main(["tune", str(model), "-o", str(log)]) == 4
    assert "has trials already" in capfd.readouterr().err
    assert main(["tune", str(model), "-o", str(log), "--resume", "--trials", "3"]) == 0
    assert log.read_text() == before


def test_compile_takes_the_choice_of_a_log(tuned: tuple[Path, Path, str], tmp_path: Path) -> None:
    model, log, _ = tuned
    assert main(["records", "best", str(log), "-o", str(tmp_path / "best.log")]) == 0
    (row,) = [json.loads(line) for line in (tmp_path / "best.log").read_text().splitlines()]
    knobs = {name: value for name, _, value in row["config"]["entity"]}
    dump = ["--dump-code", "relay", "--tuning-records", str(tmp_path / "best.log"), "-o", str(tmp_path / "m.so")]
    assert main(["compile", str(model), *dump]) == 0
    text = (tmp_path / "m.so.relay").read_text()
    assert f"rows={knobs['rows']} vectors={knobs['vectors']}" in text and "by record" in text


def test_logs_are_shown_merged_and_converted(
    tuned: tuple[Path, Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, log, _ = tuned
    lines = log.read_text().splitlines()
    old = json.loads(lines[0])
    old["input"][1] = "conv2d_NCHWc.x86"
    (tmp_path / "old.log").write_text(json.dumps(old) + "\n" + lines[0][:50] + "\n")
    assert main(["records", "merge", str(log), str(log), str(tmp_path / "old.log"), "-o", str(tmp_path / "all")]) == 0
    assert len((tmp_path / "all").read_text().splitlines()) == len(lines) + 1
    assert main(["records", "convert", str(tmp_path / "all"), "-o", str(tmp_path / "new")]) == 0
    assert (tmp_path / "new").read_text().count("conv2d_NCHWc.x86") == 0
    assert "mean other loops" in capsys.readouterr().err
    assert main(["records", "show", str(log)]) == 0
    assert re.search(r"conv2d_NCHWc\.cpu 1x\d+x14x14x\d+", capsys.readouterr().out)


def test_options_that_do_not_go_together_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["tune", "none.onnx", "-o", str(tmp_path / "x.log"), "--rpc-key", "rk3399"]) == 4
    assert "--rpc-tracker and --rpc-key go together" in capsys.readouterr().err
    assert main(["records", "best", "x.log"]) == 4


def test_layouts_are_chosen_together_in_the_end(
    tuned: tuple[Path, Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "copy.log"
    log.write_text(tuned[1].read_text())
    words = ["--resume", "--trials", "3", "--repeat", "2", "--check-seconds", "0.1", "--layouts-together"]
    assert main(["tune", str(tuned[0]), "-o", str(log), *words]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("layouts together: ")]
    assert re.search(r"[2-9] kernels in blocks of channels, \d+ s: ", told[0])
    is_used = bool(re.search(r"the network takes \d+\.\d+ ms with them, .* % faster", told[-1]))
    assert is_used or "not used: " in told[-1] or "keeps its own" in told[-1]
    assert is_used == (log.read_text() != tuned[1].read_text()), "what is not used is not in the log"


def test_a_record_that_does_not_pay_is_not_used_any_more(tuned: tuple[Path, Path, str], tmp_path: Path) -> None:
    rows = [json.loads(line) for line in tuned[1].read_text().splitlines()][:3]
    for place, row in enumerate(rows):  # the first is what a build takes by itself
        row["result"] = [[1e-3 - 1e-4 * place], 0, 1.0, 1.0]
    log = tmp_path / "made.log"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (best,) = best_of(load_from_file(log))
    assert best[1].mean == 8e-4
    lines = _withdrawn(str(log), best, "end-to-end check: the network takes 2.000 ms with it, 1.000 ms without")
    LogFile(log).append(lines)
    (left,) = best_of(load_from_file(log))
    assert left[1].mean == 1e-3 and len(lines) == 2 and "2.000 ms with it" in lines[0]


def test_tasks_are_listed_and_chosen_by_number(
    tuned: tuple[Path, Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tuned[0])
    assert main(["tune", model, "-o", str(tmp_path / "l"), "--tasks", "list"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"Available Tasks for tuning:\n  0\. conv2d_NCHWc\.cpu\([0-9x]+, [0-9x]+\) \(len=\d+\)\n", told)
    for tasks, error in (("1", "there are 1 tasks, from 0 on"), ("a", "cannot read 'a'")):
        assert main(["tune", model, "-o", str(tmp_path / "l"), "--tasks", tasks]) == 4
        assert error in capsys.readouterr().err
    assert places("0,2", 4) == [0, 2] and places("1-2", 4) == [1, 2] and places("-1", 4) == [0, 1]
    for text, message in (
        ("-", "Missing lhs or rhs"),
        ("1-x", "Malformed"),
        ("0,5", "Task index"),
        ("1-5", "Right-hand"),
    ):
        with pytest.raises(AssertionError, match=message):
            places(text, 4)
    assert places("2-", 4) == [2, 3] and places("", 3) == [0, 1, 2] and places("", 0) == []


def test_a_list_of_tasks_needs_no_log_and_minds_none(
    tuned: tuple[Path, Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    model, log, _ = tuned
    before = log.read_text()
    for words in ([], ["-o", str(log)]):
        assert main(["tune", str(model), "--tasks", "list", *words]) == 0
        assert "0. conv2d_NCHWc.cpu(" in capsys.readouterr().out and log.read_text() == before
    assert main(["tune", str(model)]) == 4
    assert re.search(r"needs a log for its trials\n +hint: -o model.log", capsys.readouterr().err)


def test_an_interrupt_says_that_the_trials_are_kept(
    tuned: tuple[Path, Path, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "i.log"

    def interrupted(*_: object) -> int:
        LogFile(log).append(tuned[1].read_text().splitlines()[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr("armillary.cli.tune.tune_module", interrupted)
    assert main(["tune", str(tuned[0]), "-o", str(log)]) == 130
    assert f"{log} has the trials so far: --resume goes on with them\ninterrupted" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", [0.0, 73.325e-3])
@pytest.mark.parametrize("width", [40, 50, 60, 70, 80, 100, 120, 150, 200])
def test_the_line_of_a_task_fits_the_terminal(width: int, seconds: float) -> None:
    gains, prefix = Gains(seconds), "[Task 12/99] "
    text = line(width, prefix, 101.5e9, 1128e9, gains)
    assert text.startswith(prefix) and "101.5" in text and "/1128.0" in text
    assert ("gain" in text) == (width >= 64)
    console = Console(width=width, file=io.StringIO(), color_system=None)
    bar = Progress(*columns(width), console=console)
    bar.add_task(text.replace("[", r"\["), total=64, completed=12)
    console.print(bar.get_renderable())
    shown = console.file.getvalue()
    assert "…" not in shown and shown.count("\n") == 1 and "12/64" in shown
    assert ("left -:--:--" in shown) == (width >= 78) and ("━" in shown) == (width >= 105)


def test_the_closing_table_fits_the_terminal(tuned: tuple[Path, Path, str]) -> None:
    gains, pairs = Gains(0.0), list(load_from_file(tuned[1]))
    whole = [create(given.task.name, given.task.args, given.target) for given, _ in pairs]
    inputs = [MeasureInput(task.target, task, given.config) for (given, _), task in zip(pairs, whole)]
    gains(None, inputs, [result for _, result in pairs])
    head, row = closing_table(gains)
    assert "…" not in row and len(row) > 80
    for width in (78, 80):
        lines = closing_table(gains, width)
        assert all(len(text) == width for text in lines), lines
        assert lines[1].startswith("conv2d_NCHWc.cpu") and "…  " in lines[1] and lines[1].endswith(row[-20:])
    assert len(closing_table(gains, 20)[1]) < len(head)


def test_options_of_old_say_attributes_and_layouts_of_the_graph(
    tuned: tuple[Path, Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", str(tuned[0]), "-o", str(tmp_path / "l"), "--tasks", "list"]
    told = []
    for cpu, *options in (["haswell"], ["x86-64-v4"], ["haswell", "--desired-layout", "NHWC"]):
        assert main([*words, f"--target-llvm-mcpu={cpu}", *options]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] != told[1], "vectors of another width, tiles of another size"
    assert all(text.count("(len=") == 1 for text in told), told
    assert main([*words, "--target-opencl-device=adreno"]) == 4
    assert "--target-opencl-device: the target 'llvm' has no opencl" in capsys.readouterr().err
    assert main([*words, "--desired-layout", "NZ"]) == 4
    assert "NZ" in capsys.readouterr().err
    assert main([*words, "--enable-autoscheduler"]) == 4
    assert "AutoTVM tunes here" in capsys.readouterr().err


def test_the_host_of_a_device_is_part_of_the_target(tuned: tuple[Path, Path, str], tmp_path: Path) -> None:
    options = ["--target", "opencl", "--target-host", "llvm -mtriple=aarch64-linux-gnu", "--tasks", "list"]
    assert main(["tune", str(tuned[0]), "-o", str(tmp_path / "l"), *options]) == 0
