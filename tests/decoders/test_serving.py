"""`armc serve` over real HTTP: answers, streams, many clients, clients that vanish, full slots, oversized prompts."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from reference import Shape, weights_of, write_folder

from armillary.cli.main import main
from armillary.generate import Generator

tokenizers = pytest.importorskip("tokenizers", reason="armillary[generate] is not installed")
pytest.importorskip("uvicorn", reason="armillary[serve] is not installed")

SECRET = "a token of this test"
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'robot' %}{{ raise_exception('no robots') }}{% endif %}"
    "<{{ m.role }}> {{ m.content }} {% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def write_tokenizer(folder: Path, words: int) -> None:
    """Bytes and a few of their pairs, trained on a text, and its template for conversations."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=words, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(["the rain in spain stays mainly in the plain", "once upon a time"] * 9, trainer)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "bos_token": "<s>"}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("small") / "small"
    made.mkdir()
    shape = Shape(words=300)
    write_folder(made, "llama", shape, weights_of("llama", shape))
    write_tokenizer(made, 300)
    return made


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[int]:
    """A server in a process of its own; its port."""
    command = [sys.executable, "-m", "armillary.cli", "serve", str(folder), "--port", "0", "--chunk", "8", *options]
    environment = {**os.environ, "ARMILLARY_SERVE_TOKEN": SECRET}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "/v1" in line:
                yield int(line.rsplit(":", 1)[1].split("/")[0])
                return
        raise AssertionError(f"no server: {process.wait()}")
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        finally:
            process.kill()
            process.stderr.close()


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    with serving(folder, "--slots", "2", "--queue", "2", "--capacity", "2000", "--draft-tokens", "3") as number:
        yield number


def send(port: int, path: str, body: Any = None, token: str = SECRET) -> http.client.HTTPResponse:
    """The response, its body not read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {token}"}
    data = body if isinstance(body, bytes) or body is None else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, data, headers)
    response = connection.getresponse()
    response.connection = connection  # type: ignore[attr-defined]
    return response


def answer(port: int, path: str, body: Any = None, token: str = SECRET) -> tuple[int, Any]:
    response = send(port, path, body, token)
    try:
        return response.status, json.loads(response.read())
    finally:
        response.connection.close()  # type: ignore[attr-defined]


def events(port: int, path: str, body: Any) -> list[Any]:
    response = send(port, path, {**body, "stream": True})
    assert response.status == 200 and response.headers["content-type"] == "text/event-stream"
    lines = [line[6:] for line in response.read().decode().split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def open_requests(port: int) -> int:
    return int(answer(port, "/health")[1]["open"])


def wait_until(true: Any) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


GREEDY = {"model": "small", "temperature": 0, "max_tokens": 12}


def test_completions_are_the_generators(port: int, folder: Path) -> None:
    generator = Generator(folder, capacity=64, chunk=8)
    want = generator.complete("once upon", 12)
    status, whole = answer(port, "/v1/completions", {**GREEDY, "prompt": "once upon"})
    assert status == 200, whole
    assert whole["object"] == "text_completion"
    assert whole["choices"][0]["text"] == want and whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 12
    pieces = events(port, "/v1/completions", {**GREEDY, "prompt": "once upon"})
    assert "".join(p["choices"][0]["text"] for p in pieces) == want
    stop = want[4:6]
    _, cut = answer(port, "/v1/completions", {**GREEDY, "prompt": "once upon", "stop": stop})
    assert cut["choices"][0]["text"] == want[: want.index(stop)] and cut["choices"][0]["finish_reason"] == "stop"


def test_conversations_follow_the_template(port: int, folder: Path) -> None:
    messages = [{"role": "user", "content": "the rain"}]
    want = Generator(folder, capacity=64, chunk=8).complete("<user> the rain <assistant>", 12)
    _, whole = answer(
        port, "/v1/chat/completions", {**GREEDY, "messages": messages, "logprobs": True, "top_logprobs": 2}
    )
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": want}
    content = whole["choices"][0]["logprobs"]["content"]
    assert len(content) == 12 and all(c["logprob"] == c["top_logprobs"][0]["logprob"] < 0 for c in content)
    usage = {"stream_options": {"include_usage": True}}
    *pieces, last = events(port, "/v1/chat/completions", {**GREEDY, "messages": messages, **usage})
    assert "".join(p["choices"][0]["delta"]["content"] for p in pieces) == want
    assert last["usage"]["completion_tokens"] == 12


def test_clients_side_by_side_get_what_they_get_alone(port: int) -> None:
    prompts = ["the rain", "once", "in spain stays mainly in", "a time", "plain " * 9, "upon"]
    bodies = [{**GREEDY, "prompt": p, "max_tokens": 20 + 3 * n} for n, p in enumerate(prompts)]
    alone = [answer(port, "/v1/completions", b)[1]["choices"] for b in bodies]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda b: answer(port, "/v1/completions", b)[1]["choices"], bodies * 3))
    assert together == alone * 3


def test_vanished_clients_free_slots_and_full_queues_are_told(port: int) -> None:
    long = {**GREEDY, "prompt": "once", "max_tokens": 1900, "stream": True}
    clients = [send(port, "/v1/completions", long) for _ in range(4)]  # 2 slots, 2 wait
    assert open_requests(port) == 4
    status, refused = answer(port, "/v1/completions", {**GREEDY, "prompt": "once"})
    assert status == 429 and "4 requests are open, 2 of them are being answered" in refused["error"]["message"]
    assert refused["error"]["code"] == "too_many_requests"
    for client in clients:
        client.close()
        client.connection.close()  # type: ignore[attr-defined]
    wait_until(lambda: open_requests(port) == 0)
    assert answer(port, "/v1/completions", {**GREEDY, "prompt": "once"})[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"prompt": "x" * 3000}, 400, "a slot holds 2000 with the answer"),
        ({"prompt": "a", "temperature": -1}, 400, "temperature -1"),
        ({"prompt": "a", "max_tokens": "many"}, 400, "max_tokens: 'many', wanted an integer"),
        ({"prompt": "a", "n": 3}, 400, "n: 3 is not supported"),
        ({"prompt": "a", "tempratur": 1}, 400, "tempratur: 1 is no field"),
        ({"prompt": [5, 300]}, 400, "300 is no token, wanted 0 to 299"),
        ({"prompt": ""}, 400, "the prompt has no tokens"),
        ({"prompt": {"a": 1}}, 400, "prompt: wanted a text"),
        ({"prompt": "a", "model": "large"}, 404, "there is no model 'large'; there is 'small'"),
        (b"{", 400, "the body is no JSON"),
        (b"[" * 100_000, 400, "the body is no JSON"),
        (b'"' + b"a" * (5 << 20), 413, "more than 4194304 bytes"),
    ],
)
def test_what_is_wrong_is_told(port: int, body: Any, status: int, message: str) -> None:
    got, told = answer(port, "/v1/completions", body)
    assert got == status and message in told["error"]["message"]
    assert open_requests(port) == 0


def test_templates_messages_paths_and_tokens_are_checked(port: int) -> None:
    chat = "/v1/chat/completions"
    assert "no robots" in answer(port, chat, {"messages": [{"role": "robot", "content": ""}]})[1]["error"]["message"]
    assert "messages[0]" in answer(port, chat, {"messages": [{"role": "user", "content": 5}]})[1]["error"]["message"]
    assert [m["id"] for m in answer(port, "/v1/models")[1]["data"]] == ["small"]
    assert answer(port, "/v1/engines")[0] == 404
    assert answer(port, "/v1/completions")[0] == 405
    assert answer(port, "/v1/models", token="guessed")[0] == 401


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "others could ask without a token"),
        (["--token-file", "/nowhere"], "No such file"),
        (["--host", "127.0.0.1", "--port", "70000"], "--port 70000"),
    ],
)
def test_servers_that_would_be_open_are_refused(
    folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(folder), *options]) == 4
    assert message in " ".join(capsys.readouterr().err.split())
