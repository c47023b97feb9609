"""Guesses of the tokens that come next, which a large model checks in one call.

In: the tokens so far, how many guesses are wanted, how tokens are sampled. Out: guesses, with the probabilities that
they were drawn from (None: they were not drawn). Invariant: whoever checks them (batching.py) gives the tokens that it
would give without them, or, with a temperature, tokens of the same probability.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.generate.sampling import Sampling, distribution, penalised
from armillary.generate.slots import Slots

Guess = tuple[int, Array | None]


@record
class Guesser:
    """Guesses `count` tokens at a time: what `small` says, or without one, how a text went on that begins so."""

    count: int
    small: Slots | None = None

    def guesses(self, tokens: Sequence[int], room: int, sampling: Sampling, random: np.random.Generator) -> list[Guess]:
        """What may follow some tokens, `room` guesses at most."""
        count = min(self.count, room)
        if count < 1:
            return []
        return looked_up(tokens, count) if self.small is None else drafted(self.small, tokens, count, sampling, random)


def looked_up(tokens: Sequence[int], count: int) -> list[Guess]:
    """What followed the last two tokens where they stood before."""
    last = tuple(tokens[-2:])
    place = next((k for k in range(len(tokens) - 3, -1, -1) if (tokens[k], tokens[k + 1]) == last), -1)
    return [(token, None) for token in tokens[place + 2 : place + 2 + count]] if place >= 0 else []


def drafted(
    small: Slots, tokens: Sequence[int], count: int, sampling: Sampling, random: np.random.Generator
) -> list[Guess]:
    """What a small model with the same tokens says, one token after another, in its first slot."""
    count = min(count, small.capacity - len(tokens) + 1)
    if count < 1:
        return []
    small.rewind(0, min(small.common(0, tokens), len(tokens) - 1))
    result, rest = list[Guess](), list(tokens[len(small.tokens[0]) :])
    for _ in range(count):
        logits = small.feed(0, rest)[0]
        weights = distribution(penalised(logits, sampling, small.tokens[0]), sampling)
        sums = np.cumsum(weights)
        rest = [int(np.searchsorted(sums, random.random() * sums[-1], side="right"))]
        result.append((rest[0], weights))
    return result
