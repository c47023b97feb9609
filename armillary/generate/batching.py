"""Continuous batching: answers to many prompts, side by side in the slots of one decoder.

In: requests, at any time. Out: their tokens, as `advance` computes them: a chunk of one waiting prompt, then one token
for every sequence. While one request alone is answered, what may follow its token is guessed, and one call gives the
logits behind all guesses (speculative decoding: Leviathan et al., "Fast Inference from Transformers via Speculative
Decoding", 2023); beside others a call for all slots gives more. Invariant: the tokens of an answer do not depend on its
neighbours (to the rounding of products with other numbers of rows), nor on guesses; a slot is free once its request is
done or dropped, and keeps its tokens for prompts that begin so.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Collection, Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.errors import ExecutionError
from armillary.generate.guesses import Guess, Guesser
from armillary.generate.sampling import Sampling, checked_token, log_probabilities, penalised, select_token
from armillary.generate.slots import Slots

STOP, LENGTH = "stop", "length"  # why an answer ends


@record
class Step:
    """A token of an answer, None where it ends with one that is not given; `likely`: (token, logarithm), best first."""

    token: int | None
    logarithm: float = 0.0
    likely: tuple[tuple[int, float], ...] = ()
    finish: str = ""


@dataclasses.dataclass(eq=False)
class Request:
    """A prompt and how it is answered; `likely`: how many alternatives each token comes with; `slot`: -1 for any.

    `ahead`: logits behind guesses that have come true so far, each with the guess of what follows it.
    """

    prompt: Sequence[int]
    max_tokens: int = 128
    sampling: Sampling = dataclasses.field(default_factory=Sampling)
    ends: Collection[int] = ()
    likely: int = 0
    slot: int = -1
    pending: list[int] = dataclasses.field(default_factory=list)
    ahead: list[tuple[Array, Guess | None]] = dataclasses.field(default_factory=list)
    produced: int = 0
    random: np.random.Generator = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.sampling.check()
        self.random = np.random.default_rng(self.sampling.seed)


class Batcher:
    """Requests wait in a queue, have a slot while they are answered, and leave; `guesser`: None for no guesses."""

    def __init__(self, slots: Slots, guesser: Guesser | None = None) -> None:
        self.slots, self.guesser = slots, guesser
        self.waiting: deque[Request] = deque()
        self.active: dict[int, Request] = {}

    def check(self, request: Request) -> None:
        """Refuse what no slot can hold."""
        count, capacity = len(request.prompt), self.slots.capacity
        if not count:
            raise ExecutionError("the prompt has no tokens", hint="a prompt has at least one token")
        if count >= capacity:
            hint = "a shorter prompt, or a larger capacity"
            raise ExecutionError(f"a prompt of {count} tokens, and a slot holds {capacity} with the answer", hint=hint)

    def add(self, request: Request) -> None:
        """Let a request wait for a slot."""
        self.check(request)
        self.waiting.append(request)

    def drop(self, request: Request) -> None:
        """Forget a request; its slot is free."""
        if self.active.get(request.slot) is request:
            del self.active[request.slot]
        elif request in self.waiting:
            self.waiting.remove(request)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.waiting and not self.active

    def advance(self) -> list[tuple[Request, Step]]:
        """One round; the tokens that it gave."""
        while self.waiting and len(self.active) < self.slots.count:
            self._seat(self.waiting.popleft())
        if len(self.active) == 1:
            self._look_ahead(*self.active.values())
        results = [step for request in list(self.active.values()) if request.ahead for step in self._next(request)]
        if results:
            return results
        long = next((r for r in self.active.values() if self._rows(r) > 1), None)
        if long is not None:
            rows = self._rows(long)
            part, long.pending = long.pending[:rows], long.pending[rows:]
            logits = self.slots.append(long.slot, part, rows)
            if not long.pending:
                results += self._chosen(long, logits[-1])
        short = [r for r in self.active.values() if r is not long and r.pending and self._rows(r) == 1]
        if short:
            rows_of = self.slots.step({r.slot: r.pending.pop(0) for r in short})
            for request in short:
                if not request.pending:
                    results += self._chosen(request, rows_of[request.slot])
        return results

    def _look_ahead(self, request: Request) -> None:
        """Compute the logits behind the token that waits, and behind guesses of what follows, in one call."""
        held = self.slots.tokens[request.slot]
        if self.guesser is None or request.ahead or len(request.pending) != 1:
            return
        room, tokens = self.slots.capacity - len(held) - 1, [*held, *request.pending]
        guesses = self.guesser.guesses(tokens, room, request.sampling, request.random)
        if guesses:
            appended = [*request.pending, *(token for token, _ in guesses)]
            logits = self.slots.feed(request.slot, appended, each=True)
            self.slots.rewind(request.slot, len(tokens))  # the caches have guesses, too
            request.pending, request.ahead = [], list(zip(logits, [*guesses, None], strict=True))

    def _next(self, request: Request) -> list[tuple[Request, Step]]:
        """The token of a row that was computed ahead."""
        logits, guess = request.ahead.pop(0)
        return self._chosen(request, logits, guess)

    def _rows(self, request: Request) -> int:
        return self.slots.chunk(request.slot, len(request.pending)) if request.pending else 1

    def _seat(self, request: Request) -> None:
        """Give a request the free slot that it can use most of; the longest beginning may be a neighbour's."""
        prompt = [int(t) for t in request.prompt]
        free = [s for s in range(self.slots.count) if s not in self.active and request.slot in (-1, s)]
        shared = {s: min(self.slots.common(s, prompt), len(prompt) - 1) for s in range(self.slots.count)}
        source = max(shared, key=lambda s: (shared[s], s in free))
        slot = source if source in free else min(free, key=lambda s: (len(self.slots.tokens[s]), s))
        self.slots.copy(source, slot, shared[source])
        request.slot, request.pending = slot, prompt[shared[source] :]
        self.active[slot] = request

    def _chosen(self, request: Request, logits: Array, guess: Guess | None = None) -> list[tuple[Request, Step]]:
        """The next token of a request, which may be the last one; where it was guessed, the caches have it."""
        if request.produced >= request.max_tokens:
            self.drop(request)
            return [(request, Step(None, finish=LENGTH))]
        held = self.slots.tokens[request.slot]
        token = self._selected(request, penalised(logits, request.sampling, held), guess)
        if token in request.ends:
            self.drop(request)
            return [(request, Step(None, finish=STOP))]
        request.produced += 1
        is_last = request.produced >= request.max_tokens or len(held) >= self.slots.capacity
        step = Step(token, *self._logarithms(request, logits, token), LENGTH if is_last else "")
        if is_last:
            self.drop(request)
        elif guess is not None and token == guess[0]:
            held.append(token)
        else:
            request.pending, request.ahead = [token], []
        return [(request, step)]

    def _selected(self, request: Request, logits: Array, guess: Guess | None) -> int:
        token, weights = guess or (-1, None)
        if weights is None:
            return select_token(logits, request.sampling, request.random)
        return checked_token(logits, request.sampling, request.random, token, weights)

    def _logarithms(self, request: Request, logits: Array, token: int) -> tuple[float, tuple[tuple[int, float], ...]]:
        if not request.likely:
            return 0.0, ()
        logarithms = log_probabilities(logits)
        best = np.argsort(-logits, kind="stable")[: request.likely]
        return float(logarithms[token]), tuple((int(t), float(logarithms[t])) for t in best)
