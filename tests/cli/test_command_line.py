"""armc: discovery, exit codes, clean messages; and the sub-commands that need no compiled package."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary.base.config import setting
from armillary.cli.main import _parser, commands, main
from armillary.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
RELAY = "def @main(%x: Tensor[(2, 3), float32]) {\n  add(%x, multiply(2f, 3f))\n}\n"
TIR = "func @f(a: Buffer[(2,), float32]) {\n  for i in range(2) unrolled {\n    a[i] = 1.0\n  }\n}\n"


def armc(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Run the real command in a process of its own."""
    command, given = [sys.executable, "-m", "armillary.cli", *arguments], {**os.environ, **environment}
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_every_file_of_the_folder_is_a_sub_command() -> None:
    assert {"compile", "run", "opt", "devices", "build-runner", "onnx-score"} <= set(commands())


def test_help_lists_all_sub_commands_with_a_summary() -> None:
    code, out, _ = armc("--help")
    assert code == 0
    assert "Compile a model into a package" in out and "build-runner" in out


@pytest.mark.parametrize("name", sorted(commands()))
def test_each_sub_command_has_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    assert f"armc {name}" in capsys.readouterr().out.split("examples:")[1]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_paragraphs_of_help_are_folded_to_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit):
        main(["tune", "--help"])
    text = capsys.readouterr().out
    prose = text[text.index("Tune the kernels") : text.index("examples:")].splitlines()
    longest = max(map(len, prose))
    assert min(width, 120) - 20 < longest <= min(width, 120)
    assert 'default: "llvm", this CPU' in " ".join(text.split())


@pytest.mark.parametrize("name", sorted(commands()))
def test_the_examples_of_the_help_are_command_lines_that_parse(name: str) -> None:
    text = (commands()[name].read_text("utf-8").split('"""')[1]).replace("\\\\\n", " ")
    lines = [line.strip().partition("   (")[0] for line in text.splitlines() if line.startswith("  armc ")]
    assert lines
    for line in lines:
        arguments = shlex.split(line)[1:]
        assert _parser(arguments).parse_args(arguments).run is not None


def test_an_interrupt_while_modules_are_imported_prints_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise KeyboardInterrupt\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from armillary.cli.__main__ import command; "
    done = subprocess.run(
        [sys.executable, "-c", script + "sys.exit(command())"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_version() -> None:
    assert armc("--version") == (0, f"armc {armillary.__version__}\n", "")


@pytest.mark.parametrize("arguments", [(), ("nosuch",), ("opt", "--bogus")])
def test_a_wrong_command_line_exits_with_1_and_usage(arguments: tuple[str, ...]) -> None:
    code, out, err = armc(*arguments)
    assert (code, out) == (1, "")
    assert "usage: armc" in err


def test_a_refusal_is_one_message_and_exit_code_4(tmp_path: Path) -> None:
    (tmp_path / "m.relay").write_text(RELAY)
    code, out, err = armc("opt", str(tmp_path / "m.relay"), "-p", "fold-constan")
    assert (code, out) == (4, "")
    assert err.startswith("Error: there is no pass 'fold-constan'") and "fold-constant" in err
    assert "Traceback" not in err


def test_a_parse_error_shows_file_line_and_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.relay").write_text("def @main(%x: Tensor[(2,), float32]) {\n  add(%x,, 1f)\n}\n")
    assert main(["opt", str(tmp_path / "bad.relay"), "-p", "infer-type"]) == 4
    assert f"{tmp_path / 'bad.relay'}:2:" in capsys.readouterr().err


def test_a_parse_error_says_what_was_found_only_where_it_wanted_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for body, message in (
        ("nn.rleu(%x)", "there is no operator 'nn.rleu'\n"),
        ("%z", "%z is not defined here\n"),
        ("add(%x 1f)", "expected ',', found '1f'\n"),
    ):
        (tmp_path / "bad.relay").write_text(f"def @main(%x: Tensor[(2,), float32]) {{ {body} }}\n")
        assert main(["opt", str(tmp_path / "bad.relay"), "-p", "infer-type"]) == 4
        err = capsys.readouterr().err
        assert err.startswith(f"Error: {message}")
        assert ("similar: nn.relu" in err) == ("rleu" in body)


def test_opt_runs_passes_on_relay_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.relay").write_text(RELAY)
    assert main(["opt", str(tmp_path / "m.relay"), "-p", "fold-constant{max-bytes=64},infer-type"]) == 0
    out = capsys.readouterr().out
    assert "6f" in out and "multiply" not in out


def test_opt_reads_tir_from_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(TIR))
    assert main(["opt", "-", "-p", "unroll-loop"]) == 0
    out = capsys.readouterr().out
    assert "a[0] = 1.0" in out and "a[1] = 1.0" in out and "for" not in out


def test_opt_lists_every_pass_with_its_level(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", "--list"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert any(row.startswith("fold-constant") and " 2 " in row for row in rows)
    assert any(row.startswith("unroll-loop") for row in rows)


def test_unknown_option_of_a_pass_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.relay").write_text(RELAY)
    assert main(["opt", str(tmp_path / "m.relay"), "-p", "fold-constant{speed=9}"]) == 4
    assert "speed" in capsys.readouterr().err


def test_devices_names_cpu_and_opencl_devices_or_says_why_there_is_none(tmp_path: Path) -> None:
    code, out, err = armc("devices")
    assert code == 0, err
    assert "cpu(0)" in out and "caches" in out and "threads" in out
    if armillary.opencl().exist:
        facts = armillary.opencl().facts()
        assert f"cl(0)                 {facts['name']}" in out and f"{facts['units']}, work-groups of up to" in out
        assert "half" in out and "images" in out
        # a driver of this CPU counts the memory that is free when it is asked: no number holds in two processes
        (memory,) = re.findall(r"memory +(\d+) MiB", out)
        assert 0 < int(memory) < 2**30
        assert f"; {int(facts['local']) // 1024} KiB of a work-group" in out
    out = armc("devices", OCL_ICD_VENDORS=str(tmp_path))[1]
    assert re.search(r"cl\(0\) +not available: OpenCL: (no driver|there is no libOpenCL)", out), out


def test_devices_refuses_a_processor_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--target", "llvm -mcpu=no-such-cpu"]) == 4
    assert "does not know the processor no-such-cpu" in capsys.readouterr().err
    assert main(["devices", "--target", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex_a72"]) == 4
    assert "similar: cortex-a72" in capsys.readouterr().err


def test_devices_shows_another_targets_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--target", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76"]) == 0
    out = capsys.readouterr().out
    assert "cortex-a76 (aarch64)" in out and "128 bits" in out and "dotprod" in out


def test_score_counts_resumes_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, summary = tmp_path / "log.jsonl", tmp_path / "score.json"
    arguments = ["onnx-score", "--engine", "reference", "--filter", "node/test_(relu|abs|add)$", "--jobs", "1"]
    assert main([*arguments, "-o", str(log), "--json", str(summary)]) == 0
    assert len(log.read_text().splitlines()) == 3
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:2]) + '{"case": "cut sho')
    assert main([*arguments, "-o", str(log)]) == 0
    assert [row.split() for row in capsys.readouterr().out.splitlines() if row.startswith("all")] == [
        ["all", "3", "0", "0", "0", "0", "3"]
    ] * 2
    assert '"passed": 3' in summary.read_text()


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["verify", "x.onnx", "--seed", "-1"], "whole number"),
        (["verify", "x.onnx", "--rtol", "nan"], "at least 0"),
        (["verify", "x.onnx", "--atol", "-1"], "at least 0"),
        (["verify", "x.onnx", "--rtol", "much"], "at least 0"),
        (["onnx-score", "--jobs", "-1"], "whole number"),
        (["onnx-score", "--timeout", "-5"], "at least 0"),
    ],
)
def test_numbers_out_of_range_are_wrong_command_lines(
    arguments: list[str], wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 1 and wanted in capsys.readouterr().err


@pytest.mark.parametrize("command", ["compile", "profile", "verify"])
def test_every_level_of_a_build_is_one_of_the_command_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert [_parser([command]).parse_args([command, "x.onnx", "-O", str(k)]).opt_level for k in range(5)] == [*range(5)]
    with pytest.raises(SystemExit):
        _parser([command]).parse_args([command, "x.onnx", "-O", "5"])
    assert "invalid choice: 5" in capsys.readouterr().err


def test_a_score_of_no_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["onnx-score", "--kind", "simple", "--filter", "no-such-case"]) == 4
    assert "no case matches --filter 'no-such-case'" in capsys.readouterr().err


def test_input_shapes_are_read_and_bad_ones_quoted() -> None:
    from armillary.cli.options.models import input_shapes
    from armillary.errors import ConfigError

    assert input_shapes("data:[1,3, 224,224] in/x:0:[2] s:[]") == {"data": (1, 3, 224, 224), "in/x:0": (2,), "s": ()}
    with pytest.raises(ConfigError, match="--input-shapes"):
        input_shapes("data:1,3")


def test_fill_modes_follow_the_dtype() -> None:
    from armillary.base.dtype import DType
    from armillary.cli.run import generated_input

    random = np.random.default_rng(0)
    assert generated_input((4,), DType("int8"), "random", random).min() >= 0
    assert abs(generated_input((64,), DType("float16"), "random", random)).max() <= 1
    assert generated_input((2,), DType("int32"), "ones", random).tolist() == [1, 1]


def test_settings_without_a_usable_value_say_what_is_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARMILLARY_NUM_THREADS", "1.5")
    assert main(["devices"]) == 4
    assert "ARMILLARY_NUM_THREADS='1.5': must be a whole number that is at least 1" in capsys.readouterr().err
    monkeypatch.undo()
    for name in ("ARMILLARY_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(ConfigError, match="set ARMILLARY_CACHE_DIR"):
        setting("ARMILLARY_CACHE_DIR")


@pytest.mark.parametrize(
    ("named", "wanted"), [("/a", "/a/armillary"), ("a", "/h/.cache/armillary"), ("", "/h/.cache/armillary")]
)
def test_the_folder_of_caches_is_an_absolute_path(named: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The XDG Base Directory specification: a path that is not absolute is ignored."""
    monkeypatch.delenv("ARMILLARY_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert str(setting("ARMILLARY_CACHE_DIR")) == wanted


def test_closed_streams_are_no_error() -> None:
    command = f"{shlex.quote(sys.executable)} -m armillary.cli opt --list >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], cwd=ROOT, check=False, timeout=120).returncode == 0
