"""`/v1/models`, `/v1/completions`, `/v1/chat/completions` as an ASGI application over an engine.

In: HTTP by any ASGI server (`armc serve`: uvicorn). Out: JSON, or server-sent events. Invariant: a client that vanishes
frees its slot; what is wrong with a request is said with a status of 4xx before anything is computed; with a token,
nothing is answered without it. Fields: protocol.py.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeAlias, TypedDict

from armillary.errors import ArmillaryError, ConfigError, ExecutionError
from armillary.generate import protocol
from armillary.generate.batching import STOP, Request, Step
from armillary.generate.chat import ChatTemplate
from armillary.generate.engine import Engine, FullError
from armillary.generate.text_pieces import TextPieces
from armillary.generate.tokens import Tokenizer

_Queue: TypeAlias = "asyncio.Queue[Step | ArmillaryError | None]"
Receive: TypeAlias = "Callable[[], Awaitable[Message]]"
Send: TypeAlias = "Callable[[Message], Awaitable[None]]"
MOST_BYTES = 4 << 20  # of a request


class Message(TypedDict, total=False):
    """What of ASGI's scopes and messages is read or written here."""

    type: str
    method: str
    path: str
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    more_body: bool


class _HttpError(Exception):
    """An answer with a status that is no success."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class _Vanished(Exception):
    """The client has closed the connection."""


class Server:
    """The application; `name` is what the model is called, `token` what clients have to show."""

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, template: ChatTemplate | None, name: str, token: str = ""
    ) -> None:
        self.engine, self.tokenizer, self.template = engine, tokenizer, template
        self.name, self.token, self.begun = name, token, int(time.time())

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one connection, as ASGI calls an application."""
        if scope["type"] != "http":
            return
        try:
            await self._route(scope, receive, send)
        except _Vanished:
            return
        except _HttpError as error:
            kind = "invalid_request_error" if error.status < 429 else "server_error"
            await _reply(send, error.status, protocol.error_body(str(error), kind, error.code))

    async def _route(self, scope: Message, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        if path == "/health" and method == "GET":
            return await _reply(send, 200, {"status": "ok", "open": self.engine.count})
        self._authenticate(scope)
        if path == "/v1/models" and method == "GET":
            entry = {"id": self.name, "object": "model", "created": self.begun, "owned_by": "armillary"}
            return await _reply(send, 200, {"object": "list", "data": [entry]})
        if path not in ("/v1/completions", "/v1/chat/completions"):
            raise _HttpError(404 if path != "/v1/models" else 405, f"{method} {path} is not served here")
        if method != "POST":
            raise _HttpError(405, f"{path} takes POST, not {method}")
        body = await _body(receive)
        await self._complete(body, path.endswith("/chat/completions"), receive, send)

    def _authenticate(self, scope: Message) -> None:
        header = dict(scope["headers"]).get(b"authorization", b"")
        if self.token and not hmac.compare_digest(header, b"Bearer " + self.token.encode()):
            raise _HttpError(401, "wanted the header Authorization: Bearer TOKEN with this server's token")

    # ---- one answer

    def _request(self, body: Mapping[str, object], is_chat: bool) -> tuple[Request, protocol.Asked]:
        if body.get("model") not in (None, self.name):
            raise _HttpError(404, f"there is no model {body['model']!r}; there is {self.name!r}", "model_not_found")
        try:
            asked = protocol.asked(body, is_chat)
            tokens = self._prompt(body, is_chat)
        except ConfigError as error:
            raise _HttpError(400, str(error)) from None
        room = self.engine.batcher.slots.capacity - len(tokens)
        limit = room if asked.max_tokens is None else min(asked.max_tokens, room)
        wanted = 0 if asked.likely is None else max(1, asked.likely)
        return Request(tokens, limit, asked.sampling, self.tokenizer.ends, wanted), asked

    def _prompt(self, body: Mapping[str, object], is_chat: bool) -> list[int]:
        if is_chat:
            if self.template is None:
                raise ConfigError("the model has no chat template", hint="/v1/completions takes its text as it is")
            return self.tokenizer.encode(self.template.prompt(protocol.messages_of(body)), special=False)
        prompt = protocol.prompt_of(body)
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        words = self.engine.batcher.slots.words
        bad = next((t for t in tokens if not 0 <= t < words), None)
        if bad is not None:
            raise ConfigError(f"prompt: {bad} is no token, wanted 0 to {words - 1}")
        return tokens

    async def _complete(self, body: Mapping[str, object], is_chat: bool, receive: Receive, send: Send) -> None:
        request, asked = self._request(body, is_chat)
        loop, steps = asyncio.get_running_loop(), asyncio.Queue["Step | ArmillaryError | None"]()

        def listen(step: Step | ArmillaryError) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(steps.put_nowait, step)

        try:
            self.engine.submit(request, listen)
        except FullError as error:
            raise _HttpError(429, str(error), "too_many_requests") from None
        except ExecutionError as error:
            raise _HttpError(400, str(error), "context_length_exceeded") from None
        answer = _Answer(self, request, asked, is_chat)
        watch = asyncio.ensure_future(_watch(receive, steps))
        try:
            parts = answer.parts(_steps(steps))
            await (answer.stream(parts, send) if asked.is_stream else answer.whole(parts, send))
        finally:
            watch.cancel()
            self.engine.cancel(request)


class _Answer:
    """One answer while it comes."""

    def __init__(self, server: Server, request: Request, asked: protocol.Asked, is_chat: bool) -> None:
        self.server, self.request, self.asked, self.is_chat = server, request, asked, is_chat
        self.count, self.finish = 0, ""
        kind, prefix = ("chat.completion", "chatcmpl") if is_chat else ("text_completion", "cmpl")
        kind += ".chunk" if is_chat and asked.is_stream else ""
        about = {"created": int(time.time()), "model": server.name}
        self.frame = {"id": f"{prefix}-{uuid.uuid4().hex}", "object": kind, **about}

    async def parts(self, steps: AsyncIterator[Step]) -> AsyncIterator[tuple[str, list[protocol.Piece]]]:
        """Text and the tokens that it is of; `finish` is set afterwards."""
        pieces, tokens = TextPieces(self.server.tokenizer, self.asked.stop), list[protocol.Piece]()
        async for step in steps:
            text = ""
            if step.token is not None:
                self.count += 1
                text = pieces.push(step.token)
                if self.asked.likely is not None:
                    tokens.append(self._piece(step, step.token))
            self.finish = STOP if pieces.is_stopped else step.finish
            if self.finish:
                text += pieces.finish()
            if text or self.finish:
                yield text, tokens
                tokens = []
            if self.finish:
                return

    def _piece(self, step: Step, token: int) -> protocol.Piece:
        spell = self.server.tokenizer.decode
        likely = step.likely[: self.asked.likely]
        return spell([token]), step.logarithm, [(spell([t]), v) for t, v in likely]

    def _choice(self, text: str, pieces: list[protocol.Piece], finish: str, key: str) -> dict[str, object]:
        choice: dict[str, object] = {"index": 0, "finish_reason": finish or None}
        if self.is_chat:
            choice[key] = {"role": "assistant", "content": text} if key == "message" else {"content": text}
        else:
            choice["text"] = text
        none = self.asked.likely is None
        choice["logprobs"] = None if none else protocol.logarithms(pieces, self.is_chat)
        return choice

    async def whole(self, parts: AsyncIterator[tuple[str, list[protocol.Piece]]], send: Send) -> None:
        """One JSON with all of it."""
        text, tokens = "", list[protocol.Piece]()
        try:
            async for piece, of in parts:
                text, tokens = text + piece, tokens + of
        except ArmillaryError as error:
            raise _HttpError(500, str(error)) from None
        choice = self._choice(text, tokens, self.finish, "message")
        counts = protocol.usage(len(self.request.prompt), self.count)
        await _reply(send, 200, {**self.frame, "choices": [choice], "usage": counts})

    async def stream(self, parts: AsyncIterator[tuple[str, list[protocol.Piece]]], send: Send) -> None:
        """An event for each piece of text."""
        await _begin(send, 200, b"text/event-stream")
        if self.is_chat:
            first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            await _event(send, {**self.frame, "choices": [first]})
        try:
            async for text, tokens in parts:
                choice = self._choice(text, tokens, self.finish, "delta")
                await _event(send, {**self.frame, "choices": [choice]})
            if self.asked.has_usage:
                counts = protocol.usage(len(self.request.prompt), self.count)
                await _event(send, {**self.frame, "choices": [], "usage": counts})
        except ArmillaryError as error:  # the status was sent
            await _event(send, protocol.error_body(str(error), "server_error"))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


# ---- ASGI


async def _steps(steps: _Queue) -> AsyncIterator[Step]:
    """What the engine tells, until the client vanishes."""
    while (result := await steps.get()) is not None:
        if isinstance(result, ArmillaryError):
            raise result
        yield result
    raise _Vanished


async def _watch(receive: Receive, steps: _Queue) -> None:
    """Put a None where the client vanishes."""
    while (await receive())["type"] != "http.disconnect":
        pass
    steps.put_nowait(None)


async def _body(receive: Receive) -> dict[str, object]:
    data, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Vanished
        data += message.get("body", b"")
        if len(data) > MOST_BYTES:
            raise _HttpError(413, f"the request has more than {MOST_BYTES} bytes")
        more = message.get("more_body", False)
    try:
        body = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise _HttpError(400, f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise _HttpError(400, "the body is no JSON object")
    return body


async def _begin(send: Send, status: int, kind: bytes) -> None:
    headers = [(b"content-type", kind), (b"cache-control", b"no-store")]
    if status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _reply(send: Send, status: int, body: Mapping[str, object]) -> None:
    await _begin(send, status, b"application/json")
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


async def _event(send: Send, body: Mapping[str, object]) -> None:
    await send({"type": "http.response.body", "body": f"data: {json.dumps(body)}\n\n".encode(), "more_body": True})
