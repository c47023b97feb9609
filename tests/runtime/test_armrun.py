"""The native runner: end to end here and under qemu, and a message instead of a crash on damage."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from emulators import qemu_aarch64

from armillary.artifact.package import save_package
from armillary.contrib.cc import get_cc
from armillary.errors import ArtifactError
from armillary.runtime import load_module
from armillary.target import host

from .conftest import WEIGHT, compile_library, expected, make_package
from .test_artifact import damaged

X = np.random.default_rng(3).standard_normal((6, 8)).astype(np.float32)
CROSS, QEMU = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64-static")


def run(*command: object) -> subprocess.CompletedProcess[str]:
    words = [str(c) for c in command]
    return subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=60, check=False)


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    np.savez(tmp_path / "in.npz", x=X)
    return tmp_path / "in.npz"


def check_output(path: Path) -> None:
    with np.load(path) as outputs:
        np.testing.assert_allclose(outputs["output_0"], expected(X), rtol=1e-5, atol=1e-5)


def test_runner_runs_a_tar(runner: Path, package: Path, inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    result = run(
        runner,
        f"--model={package}",
        f"--input={inputs}",
        f"--output={out}",
        "--threads=2",
        "--run-count=3",
        "--dry-run=1",
        "--profile",
        "--dump-meta",
    )
    assert result.returncode == 0, result.stderr
    for text in ("Module Load", "Params Set", "Average ExecTime", "input x: (6, 8) float32", "parameters: 1", "center"):
        assert text in result.stdout
    check_output(out)


def test_runner_runs_a_folder_with_npy_input(runner: Path, library: Path, tmp_path: Path) -> None:
    package = make_package(library)
    (tmp_path / "mod.so").write_bytes(package.library)
    (tmp_path / "mod.json").write_text(package.graph_json)
    (tmp_path / "mod.params").write_bytes(package.params)
    np.save(tmp_path / "x.npy", X)
    out = tmp_path / "out.npz"
    result = run(runner, f"--model={tmp_path}", f"--input=x={tmp_path / 'x.npy'}", f"--output={out}", "--run-count=1")
    assert result.returncode == 0, result.stderr
    check_output(out)


@pytest.mark.parametrize("fill", ["ones", "zeros", "random"])
def test_runner_fills_inputs(runner: Path, package: Path, tmp_path: Path, fill: str) -> None:
    out = tmp_path / "out.npz"
    assert run(runner, f"--model={package}", f"--fill={fill}", f"--output={out}", "--run-count=1").returncode == 0
    again = tmp_path / "again.npz"  # as `armc run` takes them
    assert run(runner, package, "--fill-mode", fill, "--output", again, "--run-count", "1").returncode == 0
    assert again.read_bytes() == out.read_bytes()
    with np.load(out) as outputs:
        if fill != "random":
            np.testing.assert_allclose(outputs["output_0"], WEIGHT - (7 if fill == "ones" else 0))


def test_damaged_files_end_with_a_message(runner: Path, library: Path, inputs: Path, tmp_path: Path) -> None:
    package = make_package(library)
    save_package(tmp_path / "x.tar", package)
    for name, data in (("params", package.params), ("json", package.graph_json.encode()), ("npz", inputs.read_bytes())):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "mod.so").write_bytes(package.library)
        (folder / "mod.json").write_text(package.graph_json)
        (folder / "mod.params").write_bytes(package.params)
        target = folder / ("in.npz" if name == "npz" else f"mod.{name}")
        shutil.copy(inputs, folder / "in.npz")
        for blob in damaged(data, 40):
            target.write_bytes(blob)
            result = run(runner, f"--model={folder}", f"--input={folder / 'in.npz'}", "--run-count=1", "--dry-run=0")
            assert result.returncode in (0, 1) and "Sanitizer" not in result.stderr, result.stderr
            assert result.returncode == 0 or result.stderr.startswith("armrun: ")


def test_damaged_tars_end_with_a_message(runner: Path, package: Path, tmp_path: Path) -> None:
    data, path = package.read_bytes(), tmp_path / "x.tar"
    for cut in range(0, len(data), len(data) // 40):
        path.write_bytes(data[:cut])
        result = run(runner, f"--model={path}", "--run-count=1", "--dry-run=0")
        assert result.returncode in (0, 1) and "Sanitizer" not in result.stderr, result.stderr


def test_compressed_input_is_refused_with_what_to_do(runner: Path, package: Path, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "in.npz", x=X)
    result = run(runner, f"--model={package}", f"--input={tmp_path / 'in.npz'}")
    assert result.returncode == 1 and "write it with numpy.savez instead" in result.stderr


def test_what_cannot_be_read_is_named_with_its_file(runner: Path, package: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "big.npz", x=X.astype(">f4"))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "big.npz").read_bytes()[:-9])
    whole = package.read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
    big, cut, tar = (tmp_path / name for name in ("big.npz", "cut.npz", "cut.tar"))
    for file, words, message in (
        (big, [package, f"--input={big}"], "x: numpy type '>f4' is not supported"),
        (cut, [package, f"--input={cut}"], "npz: not an archive, or truncated"),
        (tar, [tar], "tar: "),
    ):
        result = run(runner, *words)
        assert result.returncode == 1 and f"armrun: {file}: {message}" in result.stderr


def test_what_cannot_be_written_is_said_and_leaves_nothing(
    runner: Path, package: Path, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, temporary, folder = tmp_path / "out.npz", tmp_path / "tmp", tmp_path / "package"
    temporary.mkdir()
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with tarfile.open(package) as members:
        members.extractall(folder, filter="data")
    out.write_bytes(b"old")
    before = sorted(os.listdir(tmp_path))
    for model, message in ((package, "cannot be written (TMPDIR"), (folder, f"{out}: cannot be written")):
        words = (runner, model, f"--input={inputs}", f"--output={out}", "--run-count=1")
        result = run("prlimit", "--fsize=64", *words)
        assert result.returncode == 1 and message in result.stderr
        assert sorted(os.listdir(tmp_path)) == before and os.listdir(temporary) == [] and out.read_bytes() == b"old"
    assert run(*words).returncode == 0 and sorted(os.listdir(tmp_path)) == before
    check_output(out)


def test_wrong_usage_prints_the_options(runner: Path) -> None:
    for arguments in (["--modle=x"], ["x.tar", "--fill=fives"], ["x.tar", "--threads=0"], ["x.tar", "y.tar"]):
        result = run(runner, *arguments)
        assert result.returncode == 2 and f"cannot read the argument {arguments[-1]}" in result.stderr
        assert "--model=" in result.stderr
    assert run(runner).returncode == 2
    result = run(runner, "--help")
    assert result.returncode == 0 and "--model=" in result.stdout


def test_a_package_needs_no_option(runner: Path, package: Path) -> None:
    assert run(runner, package, "--run-count=1").returncode == 0


def test_package_for_another_processor_is_refused_by_name(runner: Path, tmp_path: Path) -> None:
    lacking = sorted(name for name, is_here in host.features().items() if not is_here)
    known = [name for name in lacking if name in ("fma4", "sse4a", "avx512vp2intersect", "avx512fp16", "sve", "sme")]
    if not known:
        pytest.skip("this processor has everything")
    save_package(tmp_path / "x.tar", make_package(compile_library(tmp_path, get_cc(), (known[0],))))
    result = run(runner, tmp_path / "x.tar")
    assert result.returncode == 1 and f"uses {known[0]}, which this processor lacks; compile it here" in result.stderr
    with pytest.raises(ArtifactError, match=f"uses {known[0]}, which this processor lacks"):
        load_module(tmp_path / "x.tar")


@pytest.mark.skipif(not os.environ.get("CI") and not (CROSS and QEMU), reason="needs the aarch64 compiler and qemu")
@pytest.mark.parametrize(
    ("feature", "without", "having"),
    [
        ("dotprod", "cortex-a53", "cortex-a76"),
        ("fullfp16", "cortex-a72", "cortex-a76"),
        ("rdm", "cortex-a53", "max"),
        ("i8mm", "cortex-a76", "max"),
        ("bf16", "cortex-a76", "max"),
        ("sve", "cortex-a76", "max"),
        ("complxnum", "cortex-a72", "max"),
        ("lse", "cortex-a72", "cortex-a76"),
    ],
)
def test_arm_processor_is_asked_what_it_has(
    feature: str, without: str, having: str, tmp_path: Path, built_runner: Callable[..., Path]
) -> None:
    runner = built_runner(["aarch64-linux-gnu-gcc"])
    save_package(tmp_path / "x.tar", make_package(compile_library(tmp_path, ["aarch64-linux-gnu-gcc"], (feature,))))
    for cpu, code in ((without, 1), (having, 0)):
        command = (*qemu_aarch64("-cpu", cpu), runner, tmp_path / "x.tar")
        result = run(*command, "--run-count=1", "--dry-run=0", "--threads=1")
        assert result.returncode == code, result.stderr
        assert (f"uses {feature}, which this processor lacks" in result.stderr) == bool(code)


@pytest.mark.skipif(not os.environ.get("CI") and not (CROSS and QEMU), reason="needs the aarch64 compiler and qemu")
def test_runner_cross_compiled_for_aarch64(inputs: Path, tmp_path: Path, built_runner: Callable[..., Path]) -> None:
    runner = built_runner(["aarch64-linux-gnu-gcc"])
    library = compile_library(tmp_path, ["aarch64-linux-gnu-gcc"])
    save_package(tmp_path / "x.tar", make_package(library))
    out = tmp_path / "out.npz"
    result = run(
        *qemu_aarch64(),
        runner,
        f"--model={tmp_path / 'x.tar'}",
        f"--input={inputs}",
        f"--output={out}",
        "--threads=2",
        "--run-count=2",
    )
    assert result.returncode == 0, result.stderr
    check_output(out)


def test_outputs_go_to_a_file_that_nobody_prepared(
    runner: Path, package: Path, inputs: Path, tmp_path: Path, umask: int
) -> None:
    out, kept, victim = tmp_path / "out.npz", tmp_path / "kept.npz", tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / "out.npz.part").symlink_to(victim)
    out.symlink_to(kept)
    kept.write_bytes(b"old")
    before = sorted(os.listdir(tmp_path))
    words = (runner, package, f"--input={inputs}", "--run-count=1")
    assert run(*words, f"--output={out}").returncode == 0
    assert victim.read_bytes() == b"mine" and out.is_symlink() and sorted(os.listdir(tmp_path)) == before
    assert stat.S_IMODE(kept.stat().st_mode) == 0o666 & ~umask
    check_output(out)
    assert run(*words, "--output=/dev/null").returncode == 0
    assert run(*words, f"--output={tmp_path / ('n' * 5000)}").returncode == 1


@pytest.fixture
def umask() -> Iterator[int]:
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def test_crash_says_in_which_kernel_it_happened(built_runner: Callable[..., Path], package: Path) -> None:
    command = [built_runner(get_cc()), f"--model={package}", "--threads=1", "--run-count=10000000"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while not catches(process.pid, signal.SIGSEGV) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGSEGV)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGSEGV, errors
    assert errors.startswith("armrun: signal 11 (")
    assert "\n  #0 " in errors


def catches(pid: int, number: int) -> bool:
    """Whether a process handles a signal itself, as the kernel shows it (proc(5), SigCgt)."""
    text = Path(f"/proc/{pid}/status").read_text("ascii")
    mask = next(line.split()[1] for line in text.splitlines() if line.startswith("SigCgt:"))
    return bool(int(mask, 16) >> (number - 1) & 1)
