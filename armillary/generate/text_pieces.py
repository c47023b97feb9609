"""Text of an answer in pieces while its tokens come, up to the first of some stop strings.

In: tokens, one at a time. Out: pieces of text that together are the answer. Invariant: a piece ends at the end of a
character, and holds nothing that may begin a stop string; the work for a token does not grow with the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.generate.tokens import Tokenizer

_AGAIN = 8  # tokens that are decoded again with the next ones: what a token spells depends on its neighbours


class TextPieces:
    """`push` each token, then `finish`; `is_stopped` once a stop string came."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self.tokenizer, self.stop = tokenizer, [s for s in stop if s]
        self.is_stopped = False
        self._tokens: list[int] = []  # those whose text is not settled, with some before
        self._known = ""  # text of self._tokens that went to self._held
        self._held = ""  # text that may begin a stop string

    def push(self, token: int) -> str:
        """The text that is certain with one more token, maybe none."""
        if self.is_stopped:
            return ""
        self._tokens.append(token)
        text = self.tokenizer.decode(self._tokens)
        if text.endswith("\ufffd"):
            return ""  # a part of a character
        self._settle(text)
        return self._ready(False)

    def _settle(self, text: str) -> None:
        self._held += text[len(self._known) :]
        if len(self._tokens) > 2 * _AGAIN:
            self._tokens = self._tokens[-_AGAIN:]
            text = self.tokenizer.decode(self._tokens)
        self._known = text

    def _ready(self, is_last: bool) -> str:
        places = [at for s in self.stop if (at := self._held.find(s)) >= 0]
        if places:
            self.is_stopped = True
            return self._held[: min(places)]
        ends = (n for s in self.stop for n in range(1, len(s)) if self._held.endswith(s[:n]))
        count = len(self._held) - (0 if is_last else max(ends, default=0))
        piece, self._held = self._held[:count], self._held[count:]
        return piece

    def finish(self) -> str:
        """The text that is left when no token follows."""
        if self.is_stopped:
            return ""
        if self._tokens:
            self._settle(self.tokenizer.decode(self._tokens))
        return self._ready(True)
