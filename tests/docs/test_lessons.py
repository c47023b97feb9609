"""The lessons in docs/lessons/*.md, docs/compute.md, errors.md and rpc.md run as they are printed.

Every ```python block of a lesson runs, in order, in one process; a ```text block right after it must match what the
block printed, where `...` in the text stands for anything (figures that differ from run to run). A ```console block
holds commands that start with `$ ` and may go on in lines with `> `; they run in a shell inside a temporary folder, and
the lines after them must match too.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import onnx
import pytest
from emulators import qemu_aarch64, qemu_arm
from onnx import TensorProto, helper

from armillary.relay.op import OPS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("compute", "errors", "rpc")]
LESSONS = [*sorted((ROOT / "docs" / "lessons").glob("*.md")), *PAGES]
_BLOCK = re.compile(r"^```(python|text|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LESSONS += [page for page in sorted((ROOT / "docs" / "guides").glob("*.md")) if _BLOCK.search(page.read_text())]


def matches(expected: str, got: str) -> bool:
    """Whether `got` is `expected` with every `...` standing for any text; trailing blanks do not count."""
    parts = [re.escape(part) for part in _tidy(expected).split("...")]
    return re.fullmatch(".*?".join(parts), _tidy(got), re.DOTALL) is not None


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_lesson_runs_and_prints_what_it_shows(
    lesson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if lesson.stem == "pytorch":
        pytest.importorskip("torch")
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    operators = dict(OPS)
    request.addfinalizer(lambda: [OPS.pop(name) for name in set(OPS) - set(operators)])  # lesson 3 defines one
    module = types.ModuleType("lesson")
    monkeypatch.setitem(sys.modules, "lesson", module)  # as if typed into a session
    scope = vars(module)
    printed: str | None = None
    blocks = _BLOCK.findall(lesson.read_text())
    assert blocks, f"{lesson} has no blocks"
    for kind, text in blocks:
        if kind == "python":
            printed = run_python(text, scope, lesson)
        elif kind == "console":
            run_console(text, folder, commands_folder(tmp_path))
        else:
            assert printed is not None, f"{lesson}: a text block without a python block before it"
            assert matches(text, printed), f"{lesson}: expected\n{text}\ngot\n{printed}"


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_examples_of_the_first_pages_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / page).read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("input", "output"))
    graph = helper.make_graph([helper.make_node("Relu", ["input"], ["output"])], "network", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "network.onnx")
    lines = [block for kind, block in _BLOCK.findall(text) if kind == "console"]
    commands = [line for block in lines for line in re.findall(r"^\$ armc (.*)$", block, re.MULTILINE)]
    assert [line.split()[0] for line in commands] == ["compile", "run"]
    for command in commands:
        subprocess.run([sys.executable, "-m", "armillary.cli", *command.split()], check=True, capture_output=True)
    for example in (block for kind, block in _BLOCK.findall(text) if kind == "python"):
        run_python(example, {"image": np.full((1, 8), -1, np.float32)}, ROOT / page)


def run_python(text: str, scope: dict[str, object], lesson: Path) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, str(lesson), "exec", dont_inherit=True), scope)
    return out.getvalue()


def commands_folder(parent: Path) -> Path:
    """A folder with `armc`, for a source tree that is not installed."""
    folder = parent / "bin"
    folder.mkdir(exist_ok=True)
    script = folder / "armc"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m armillary.cli "$@"\n')
    script.chmod(0o755)
    return folder


def run_console(text: str, folder: Path, bin_folder: Path) -> None:
    path = os.pathsep.join((str(bin_folder), str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | {"PATH": path, "COLUMNS": "120", "PYTHONPATH": str(ROOT), "ARMILLARY_SOURCE": str(ROOT)}
    environment |= {"ARM64_LIBRARIES": qemu_aarch64()[-1], "ARM32_LIBRARIES": qemu_arm()[-1]}
    for name in ("JAVA_TOOL_OPTIONS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"):  # the JVM and a make below another say so
        environment.pop(name, None)
    commands = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    for command in commands:
        line, _, expected = command.partition("\n")
        while expected.startswith(">"):  # the command goes on, as a shell shows it
            more, _, expected = expected.partition("\n")
            line += "\n" + more[2:]
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        got = done.stdout
        assert done.returncode == 0, f"$ {line}\n{got}"
        assert matches(expected, got) or not expected.strip(), f"$ {line}\nexpected\n{expected}\ngot\n{got}"


def test_matching_lets_dots_stand_for_anything_but_nothing_else() -> None:
    assert matches("a ... c", "a b c\n")
    assert not matches("a b", "a c")
