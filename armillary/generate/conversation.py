"""A conversation with one model: messages, and answers that go on where the caches are.

In: what the user says, a turn at a time. Out: the answer in pieces of text. Invariant: the messages are what was said
and answered, and nothing else; a turn that fails leaves them as they were. What a prompt shares with the tokens that
the caches hold, all turns before as a rule, is not computed again.
"""

from __future__ import annotations

import collections.abc
import dataclasses
from collections.abc import Sequence

from armillary.errors import ConfigError, ExecutionError
from armillary.generate.generator import Generator
from armillary.generate.sampling import Sampling


class Conversation:
    """`reply` to one message after the other; `system` is said before them."""

    def __init__(self, generator: Generator, system: str = "") -> None:
        template = generator.chat_template()
        if template is None or generator.tokenizer is None:
            lacks = "tokenizer" if generator.tokenizer is None else "chat template"
            hint = "armc generate goes on with a text as it is"
            raise ConfigError(f"a conversation needs a {lacks}, and the model has none", hint=hint)
        self.generator, self.template, self.tokenizer = generator, template, generator.tokenizer
        self.system, self.messages = system, list[dict[str, str]]()

    def reset(self) -> None:
        """Forget what was said; `system` stays."""
        self.messages = []

    def prompt(self, text: str) -> list[int]:
        """The tokens of the conversation with one more message, up to where its answer begins."""
        first = [{"role": "system", "content": self.system}] if self.system else []
        messages = [*first, *self.messages, {"role": "user", "content": text}]
        return self.tokenizer.encode(self.template.prompt(messages), special=False)

    def reply(
        self, text: str, max_tokens: int, sampling: Sampling | None = None, stop: Sequence[str] = ()
    ) -> collections.abc.Generator[str, None, None]:
        """The answer in pieces; one that is closed early is remembered as far as it came."""
        tokens = self.prompt(text)
        room = self.generator.capacity - len(tokens)
        if room < 1:
            message = f"the conversation has {len(tokens)} tokens, and the caches hold {self.generator.capacity}"
            raise ExecutionError(message, hint="forget it (/reset in armc chat), or a larger capacity")
        settings = dataclasses.asdict(sampling or Sampling())
        pieces = self.generator.stream(tokens, min(max_tokens, room), stop=stop, **settings)
        answer, is_failed = "", False
        try:
            for piece in pieces:
                answer += piece
                yield piece
        except ExecutionError:
            is_failed = True
            raise
        finally:
            if not is_failed:
                said = {"role": "user", "content": text}
                self.messages += [said, {"role": "assistant", "content": answer}]
