"""Conversations as prompts: the template of tokenizer_config.json, chat_template.jinja or a GGUF file, by jinja2.

In: messages with a role and a content. Out: the text that the model was trained to answer. Invariant: a template comes
with a model's file, so it runs in jinja2's sandbox, which reaches nothing of Python; it is read when it is first asked
for, so that a model without conversations does without the package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.base.record import record
from armillary.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from jinja2 import Template

_MOST = 1 << 20  # characters of a prompt, so that a template cannot fill the memory


@record
class TemplateText:
    """A template as a file has it, the texts of the tokens that it names, and where it stands."""

    text: str
    special: Mapping[str, str]
    where: Path


class ChatTemplate:
    """`prompt(messages)` is the text up to where the answer begins."""

    def __init__(self, source: TemplateText) -> None:
        self.template, self.special, self.where = _compiled(source.text, source.where), source.special, source.where

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The text of a conversation; a ConfigError where the template refuses it."""
        import jinja2

        parts, size = list[str](), 0
        context = {"messages": [dict(m) for m in messages], "add_generation_prompt": True, **self.special}
        try:
            for part in self.template.generate(context):
                parts.append(part)
                size += len(part)
                if size > _MOST:
                    raise ConfigError(f"{self.where}: the conversation has more than {_MOST} characters")
        except (jinja2.TemplateError, TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"{self.where}: the template refuses these messages: {error}") from None
        return "".join(parts)


def folder_template(folder: Path) -> TemplateText | None:
    """The template of a folder, None where it has none."""
    data: dict[str, object] = {}
    where = folder / "tokenizer_config.json"
    if where.exists():
        try:
            data = json.loads(where.read_text("utf-8"))
        except ValueError as error:
            raise ModelError(f"{where} cannot be read: {error}") from None
    text = data.get("chat_template")
    if isinstance(text, list):  # several by name
        named = {entry.get("name"): entry.get("template") for entry in text if isinstance(entry, dict)}
        text = named.get("default")
    if (folder / "chat_template.jinja").exists():
        where = folder / "chat_template.jinja"
        text = where.read_text("utf-8")
    return TemplateText(text, _special(data), where) if isinstance(text, str) else None


def file_template(facts: Mapping[str, object], file: Path) -> TemplateText | None:
    """The template of a GGUF file's facts, None where there is none."""
    text, words = facts.get("tokenizer.chat_template"), facts.get("tokenizer.ggml.tokens")
    if not isinstance(text, str):
        return None
    special = dict[str, str]()
    for name, key in (("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")):
        number = facts.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(words, list) and isinstance(number, int) and 0 <= number < len(words):
            special[name] = str(words[number])
    return TemplateText(text, special, file)


def _compiled(text: str, where: Path) -> Template:
    try:
        from jinja2 import TemplateError, sandbox
    except ImportError:
        raise ConfigError(f"{where} needs the package jinja2", hint="pip install armillary[chat]") from None

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(text)
    except TemplateError as error:
        raise ModelError(f"{where}: the template cannot be read: {error}") from None


def _special(data: Mapping[str, object]) -> dict[str, str]:
    """Texts of the tokens that templates name."""
    result = dict[str, str]()
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = data.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            result[name] = value
    return result
