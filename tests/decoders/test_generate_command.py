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


@pytest.mark.parametrize("words", [["--draft", "SMALL"], ["--draft-tokens", "3"]])
def test_guesses_change_no_token(
    folder: Path, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = Shape(layers=1)
    write_folder(tmp_path, "llama", small, weights_of("llama", small))
    options = ["--max-tokens", "9", "--capacity", "32", "--chunk", "8"]
    words = [str(tmp_path) if word == "SMALL" else word for word in words]
    assert main(["generate", str(folder), "--tokens", "5,7,11,5,7", *options, *words]) == 0
    want = list(Generator(folder, capacity=32, chunk=8).generate([5, 7, 11, 5, 7], 9))
    assert [int(word) for word in capsys.readouterr().out.split()] == want


def test_a_drafter_has_the_same_tokens(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Shape(words=Shape().words + 8)
    write_folder(tmp_path, "llama", other, weights_of("llama", other))
    assert main(["generate", str(folder), "--tokens", "5", "--capacity", "32", "--draft", str(tmp_path)]) == 4
    assert f"a drafter of {other.words} tokens" in " ".join(capsys.readouterr().err.split())
    assert main(["generate", str(folder), "--tokens", "5", "--draft", str(tmp_path / "none")]) == 4
    assert "--draft " in capsys.readouterr().err


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
