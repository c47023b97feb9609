"""Strict reading of JSON that may be hostile.

In: a text. Out: `Reader`, a value with its path that hands out checked parts. Invariant: whatever the text is, only
ArtifactError comes out, naming the path of the offending value. Used by `artifact/__init__.py` and the tuning records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from armillary.base.json_types import JsonObject
from armillary.errors import ArtifactError

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*\Z")


def parse(text: str | bytes, what: str, limit: int) -> Any:  # Any: JSON
    """Decode JSON of at most `limit` characters; duplicate keys, NaN and bad UTF-8 are refused."""
    if len(text) > limit:
        raise ArtifactError(f"{what}: {len(text)} bytes of JSON; the limit is {limit}")
    try:
        decoded = text if isinstance(text, str) else str(text, "utf-8")
        return json.loads(decoded, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{what}: not valid JSON: {str(error)[:200]}") from error


def dump(value: object) -> str:
    """Encode compactly; keys keep their order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:  # Any: JSON
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return result


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


class Reader:
    """A JSON value with the path that led to it."""

    __slots__ = ("path", "value")

    def __init__(self, value: object, path: str) -> None:  # JSON
        self.value = value
        self.path = path

    def error(self, message: str) -> ArtifactError:
        """An ArtifactError that names this place."""
        return ArtifactError(f"{self.path}: {message}")

    def has(self, key: str) -> bool:
        """Whether an object has the key."""
        return isinstance(self.value, dict) and key in self.value

    def get(self, key: str) -> Reader:
        """The value of a key that must exist."""
        if not isinstance(self.value, dict):
            raise self.error("an object is expected")
        if key not in self.value:
            raise self.error(f"key {key!r} is missing")
        return Reader(self.value[key], f"{self.path}.{key}")

    def items(self) -> Iterator[tuple[str, Reader]]:
        """The pairs of an object."""
        if not isinstance(self.value, dict):
            raise self.error("an object is expected")
        return ((key, Reader(value, f"{self.path}.{key[:60]}")) for key, value in self.value.items())

    def elements(self, limit: int = 1 << 24) -> Iterator[Reader]:
        """The elements of a list of at most `limit`."""
        if not isinstance(self.value, list) or len(self.value) > limit:
            raise self.error(f"a list of at most {limit} elements is expected")
        return (Reader(value, f"{self.path}[{index}]") for index, value in enumerate(self.value))

    def tagged(self, key: str, tag: str) -> Reader:
        """The payload of a Relay-era attribute `[tag, payload]`."""
        pair = self.get(key)
        if not isinstance(pair.value, list) or len(pair.value) != 2 or pair.value[0] != tag:
            raise pair.error(f'["{tag}", …] is expected')
        return Reader(pair.value[1], pair.path)

    def string(self) -> str:
        """A text without NUL characters."""
        if not isinstance(self.value, str) or "\0" in self.value:
            raise self.error("a text without NUL is expected")
        return self.value

    def identifier(self) -> str:
        """A name that a linker accepts."""
        text = self.string()
        if _IDENTIFIER.match(text) is None:
            raise self.error(f"{text[:40]!r} is not a symbol name")
        return text

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        if type(self.value) is not int or not low <= self.value <= high:
            raise self.error(f"an integer in [{low}, {high}] is expected, got {str(self.value)[:40]}")
        return self.value

    def decimal(self, high: int) -> int:
        """A non-negative integer written as text (Relay-era node attributes)."""
        text = self.value
        if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) > high:
            raise self.error(f"a decimal number in [0, {high}] as text is expected")
        return int(text)
