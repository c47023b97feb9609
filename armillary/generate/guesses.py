"""Guesses of the tokens that come next, which a large model checks in one call.

In: the tokens so far, how many guesses are wanted, how tokens are sampled. Out: guesses, with the probabilities that
they were drawn from (None: they were not drawn). Invariant: whoever checks them (generator.py) gives the tokens that it
would give without them, or, with a temperature, tokens of the same probability.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.generate.sampling import Sampling, distribution, penalised
from armillary.generate.slots import Slots

Guess = tuple[int, Array | None]


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
