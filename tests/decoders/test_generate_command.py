"""`armc generate`: numbers in, numbers out; text with a tokenizer that is trained here."""

from __future__ import annotations

from pathlib import Path

import pytest
from reference import Shape, weights_of, write_folder

from armillary.cli.main import main
from armillary.generate import Generator


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    write_folder(made, "llama", Shape(), weights_of("llama", Shape()))
    return made


def test_numbers_are_answered_with_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--max-tokens", "6", "--capacity", "32", "--chunk", "8"]
    assert main(["generate", str(folder), "--tokens", "5,7,11", *options]) == 0
    want = list(Generator(folder, capacity=32, chunk=8).generate([5, 7, 11], 6))
    assert [int(word) for word in capsys.readouterr().out.split()] == want


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tokens", "5,x"], "wanted numbers with commas between"),
        ([], "takes a prompt or --tokens"),
        (["text"], "text needs a tokenizer"),
        (["--tokens", "500000", "--capacity", "8", "--chunk", "4", "--max-tokens", "20"], "exceed the capacity of 8"),
    ],
)
def test_misuse_is_told(folder: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(folder), *words]) == 4
    assert message in " ".join(capsys.readouterr().err.split())
