"""What the usual endpoints for completions take and give, as JSON.

In: the body of a request. Out: what is asked (`Asked`), chunks and whole answers. Invariant: a field that would change
the answer and is not implemented is refused by name; nothing is ignored but `user` and `metadata`.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence

from armillary.base.record import record
from armillary.errors import ConfigError
from armillary.generate.sampling import Sampling

MOST_LIKELY = 20
_IGNORED = frozenset({"user", "metadata", "model"})
_DEFAULTS: Mapping[str, object] = {  # fields that may say what is done anyway
    "n": 1,
    "best_of": 1,
    "echo": False,
    "suffix": None,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": None,
    "tools": None,
    "tool_choice": "none",
    "response_format": {"type": "text"},
}
_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "repetition_penalty",
    "max_tokens",
    "max_completion_tokens",
    "stop",
)
_KNOWN = frozenset({*_SAMPLING, "prompt", "messages", "stream", "stream_options", "logprobs", "top_logprobs"})


@record
class Asked:
    """A request for text; `likely`: alternatives for each token, None for no logarithms."""

    sampling: Sampling
    max_tokens: int | None
    stop: tuple[str, ...]
    is_stream: bool
    has_usage: bool
    likely: int | None


def _number(body: Mapping[str, object], name: str, default: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{name}: {value!r}, wanted a number")
    return value


def _whole(body: Mapping[str, object], name: str, least: int, most: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{name}: {value!r}, wanted an integer from {least} to {most}")
    return value


def _flag(body: Mapping[str, object], name: str) -> bool:
    value = body.get(name)
    if not isinstance(value, bool | None):
        raise ConfigError(f"{name}: {value!r}, wanted true or false")
    return bool(value)


def _stop(body: Mapping[str, object]) -> tuple[str, ...]:
    value = body.get("stop")
    texts = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list) or len(texts) > 16 or not all(isinstance(t, str) and t for t in texts):
        raise ConfigError("stop: wanted a text or up to 16 of them")
    return tuple(texts)


def asked(body: Mapping[str, object], is_chat: bool) -> Asked:
    """What a body asks for; a ConfigError names the field that is wrong."""
    for name, value in body.items():
        if name in _IGNORED or name in _KNOWN or (name in _DEFAULTS and value in (None, _DEFAULTS[name])):
            continue
        known = "is not supported" if name in _DEFAULTS else "is no field that is known"
        raise ConfigError(f"{name}: {value!r} {known}")
    likely = _whole(body, "top_logprobs" if is_chat else "logprobs", 0, MOST_LIKELY)
    if is_chat:
        likely = (likely or 0) if _flag(body, "logprobs") else None
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise ConfigError("stream_options: wanted an object")
    seed = _whole(body, "seed", 0, (1 << 63) - 1)
    sampling = Sampling(
        _number(body, "temperature", 1.0),
        _whole(body, "top_k", 0, 1 << 31) or 0,
        _number(body, "top_p", 1.0),
        secrets.randbits(63) if seed is None else seed,
        _number(body, "repetition_penalty", 1.0),
    )
    sampling.check()
    most = [_whole(body, n, 1, 1 << 31) for n in ("max_tokens", "max_completion_tokens")]
    limit = next((n for n in most if n is not None), None if is_chat else 16)
    return Asked(sampling, limit, _stop(body), _flag(body, "stream"), _flag(options, "include_usage"), likely)


def prompt_of(body: Mapping[str, object]) -> str | list[int]:
    """The prompt of a completion: a text or tokens."""
    value = body.get("prompt")
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(t, int) and not isinstance(t, bool) for t in value):
        return value
    raise ConfigError("prompt: wanted a text or a list of token numbers, one prompt a request")


def messages_of(body: Mapping[str, object]) -> list[dict[str, str]]:
    """The messages of a conversation, their contents as texts."""
    value = body.get("messages")
    if not isinstance(value, list) or not value:
        raise ConfigError("messages: wanted a list of {role, content}")
    return [_message(entry, number) for number, entry in enumerate(value)]


def _message(entry: object, number: int) -> dict[str, str]:
    role = entry.get("role") if isinstance(entry, dict) else None
    content = entry.get("content") if isinstance(entry, dict) else None
    if isinstance(content, list):
        texts = [p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str)]
        content = "".join(texts) if len(texts) == len(content) else None  # no pictures
    if not isinstance(role, str) or not isinstance(content, str):
        raise ConfigError(f"messages[{number}]: wanted a role and a content, both texts")
    return {"role": role, "content": content}


def error_body(message: str, kind: str, code: str | None = None) -> dict[str, object]:
    """The body of an error."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def usage(prompt: int, answer: int) -> dict[str, int]:
    """How many tokens went in and came out."""
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


Piece = tuple[str, float, Sequence[tuple[str, float]]]  # text of a token, its logarithm, alternatives


def logarithms(pieces: Sequence[Piece], is_chat: bool) -> dict[str, object]:
    """Logarithms of probabilities as the endpoint gives them."""
    if is_chat:
        content = [
            {"token": t, "logprob": v, "top_logprobs": [{"token": o, "logprob": w} for o, w in others]}
            for t, v, others in pieces
        ]
        return {"content": content}
    return {
        "tokens": [t for t, _, _ in pieces],
        "token_logprobs": [v for _, v, _ in pieces],
        "top_logprobs": [dict(others) for _, _, others in pieces],
    }
