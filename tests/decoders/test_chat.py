"""Conversations: `armc chat` from a pipe and at a terminal, templates of folders and of GGUF files."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reference import Shape, weights_of, write_folder

from armillary.cli.main import main
from armillary.errors import ConfigError, ExecutionError
from armillary.generate import Generator
from armillary.generate.conversation import Conversation

tokenizers = pytest.importorskip("tokenizers", reason="armillary[generate] is not installed")
pytest.importorskip("jinja2", reason="armillary[chat] is not installed")
from test_serving import TEMPLATE, write_tokenizer  # noqa: E402  # behind the packages that it needs

SHAPE = Shape(words=300)
OPTIONS = ["--capacity", "200", "--chunk", "8", "--max-tokens", "6"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = tmp_path_factory.mktemp("model")
    write_folder(result, "llama", SHAPE, weights_of("llama", SHAPE))
    write_tokenizer(result, SHAPE.words)
    return result


def answers_of(folder: Path, turns: list[tuple[str, list[str]]]) -> list[str]:
    """What a generator without a conversation says to conversations of a system text and messages."""
    generator, result = Generator(folder, capacity=200, chunk=8), list[str]()
    for system, messages in turns:
        text = f"<system> {system} " if system else ""
        for message in messages:
            text += f"<user> {message} "
            result.append(generator.complete(f"{text}<assistant>", 6))
            text += f"<assistant> {result[-1]} "
    return result


def test_a_pipe_is_answered_line_by_line(folder: Path) -> None:
    lines = ["the rain", "in \\", "spain", "", "/reset", "once", "/system be brief", "upon", "/quit", "a time"]
    command = [sys.executable, "-m", "armillary.cli", "chat", str(folder), *OPTIONS]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    turns = [("", ["the rain", "in \nspain"]), ("", ["once"]), ("be brief", ["upon"])]
    assert done.stdout == "".join(f"{answer}\n" for answer in answers_of(folder, turns))


def test_a_terminal_is_asked_and_told(folder: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "armillary.cli", "chat", str(folder), *OPTIONS, "--capacity", "60"]
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    os.write(ours, b"the rain\n/nothing\n" + b"q" * 80 + b"\n/reset\nonce\n/quit\n")
    out, err = process.communicate(timeout=120)
    os.close(ours)
    assert process.returncode == 0, err
    for answer in answers_of(folder, [("", ["the rain"]), ("", ["once"])]):
        assert answer in out
    assert "/nothing is no command" in err and "tokens, and the caches hold 60" in err


def test_turns_before_are_not_computed_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = Conversation(Generator(folder, capacity=200, chunk=8), "be brief")
    slots, sizes = conversation.generator.slots, list[int]()
    append = slots.append
    monkeypatch.setattr(
        slots, "append", lambda slot, tokens, rows: sizes.append(len(tokens)) or append(slot, tokens, rows)
    )
    list(conversation.reply("the rain in spain", 1))
    whole = sum(sizes)
    sizes.clear()
    list(conversation.reply("once", 1))
    assert whole > 12 and sum(sizes) < len(conversation.prompt("")) - whole, "the first prompt lies in the caches"


def test_a_turn_that_fails_is_not_remembered(folder: Path) -> None:
    conversation = Conversation(Generator(folder, capacity=40, chunk=8))
    with pytest.raises(ExecutionError, match="the caches hold 40"):
        list(conversation.reply("rain " * 50, 4))
    assert not conversation.messages
    abandoned = conversation.reply("a", 4)
    first = next(abandoned)
    abandoned.close()
    assert [m["content"] for m in conversation.messages] == ["a", first]


def test_the_end_of_a_turn_is_an_end(folder: Path, tmp_path: Path) -> None:
    tokenizer = (folder / "tokenizer.json").read_bytes()
    (tmp_path / "tokenizer.json").write_bytes(tokenizer)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "e"}}))
    from armillary.generate.tokens import load_tokenizer

    loaded = load_tokenizer(tmp_path)
    assert loaded is not None and loaded.ends == {loaded.encode("e")[0]}


def test_models_without_a_template_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path, "llama", SHAPE, weights_of("llama", SHAPE))
    assert main(["chat", str(tmp_path), *OPTIONS]) == 4
    assert "needs a tokenizer, and the model has none" in capsys.readouterr().err
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    with pytest.raises(ConfigError, match="needs a chat template"):
        Conversation(Generator(tmp_path, capacity=20, chunk=8))


def test_templates_of_gguf_files(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="armillary[generate] is not installed")
    from test_gguf import write

    state = json.loads((folder / "tokenizer.json").read_text())["model"]

    def facts(writer: Any) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(sorted(state["vocab"], key=state["vocab"].get))
        writer.add_token_merges([" ".join(m) for m in state["merges"]])
        writer.add_bos_token_id(7)
        writer.add_chat_template("{{ bos_token }}" + TEMPLATE)

    file = tmp_path / "model.gguf"
    write(file, "llama", weights_of("llama", SHAPE), shape=SHAPE, more=facts)
    generator = Generator(file, capacity=60, chunk=8)
    template = generator.chat_template()
    assert template is not None and generator.tokenizer is not None
    begin = generator.tokenizer.decode([7])
    assert template.prompt([{"role": "user", "content": "the rain"}]) == f"{begin}<user> the rain <assistant>"
    answer = "".join(Conversation(generator).reply("the rain", 6))
    generator.rewind()
    tokens = generator.tokenizer.encode(f"{begin}<user> the rain <assistant>", special=False)
    assert answer == "".join(generator.stream(tokens, 6))
