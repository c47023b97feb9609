"""Text as tokens and back, by the `tokenizers` package (an extra) and the files of a Hugging Face folder.

In: a folder with tokenizer.json, maybe config.json or generation_config.json. Out: `Tokenizer`, or None where there is
no such file. Invariant: `ends` are the tokens after which a model says no more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from armillary.errors import ConfigError


class _Encoding(Protocol):
    """What an encoding of the package has."""

    ids: list[int]


class _Backend(Protocol):
    """What a tokenizer of the package does."""

    def encode(self, sequence: str, *, add_special_tokens: bool = ...) -> _Encoding: ...

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str: ...


class Tokenizer:
    """Encodes and decodes text."""

    def __init__(self, backend: _Backend, ends: frozenset[int]) -> None:
        self.backend, self.ends = backend, ends

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text, with those that every text begins with unless the text spells them (`special`)."""
        return [int(token) for token in self.backend.encode(text, add_special_tokens=special).ids]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that stand for no text."""
        return str(self.backend.decode(list(tokens), skip_special_tokens=True))


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a folder."""
    file = folder / "tokenizer.json"
    if not file.exists():
        return None
    try:
        import tokenizers
    except ImportError:
        raise ConfigError(f"{file} needs the package tokenizers", hint="pip install armillary[generate]") from None
    backend = tokenizers.Tokenizer.from_file(str(file))
    ends = {*_numbered_ends(folder), backend.token_to_id(_spelled_end(folder))}
    return Tokenizer(backend, frozenset(e for e in ends if e is not None))


def _numbered_ends(folder: Path) -> list[int]:
    """The tokens after which the model's configuration says no more."""
    for name in ("generation_config.json", "config.json", "genai_config.json"):
        if (folder / name).exists():
            data = json.loads((folder / name).read_text("utf-8"))
            end = data.get("eos_token_id", data.get("model", {}).get("eos_token_id"))
            if end is not None:
                return [int(e) for e in (end if isinstance(end, list) else [end])]
    return []


def _spelled_end(folder: Path) -> str:
    """The end of a turn, which only the tokenizer's configuration has where the model's is of its base model."""
    file = folder / "tokenizer_config.json"
    end = json.loads(file.read_text("utf-8")).get("eos_token") if file.exists() else None
    return str(end.get("content", "") if isinstance(end, dict) else end or "")
