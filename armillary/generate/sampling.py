"""How the next token is chosen from logits.

In: a vector of logits, the settings, a random generator. Out: the number of a token. Invariant: the same seed gives the
same tokens; without a temperature it is the first one of the greatest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.errors import ConfigError


@record
class Sampling:
    """`temperature` 0: the greatest logit. `top_k` 0: of all tokens; `top_p`: of the likeliest that sum to it.

    `repetition_penalty`: logits of tokens that came before are divided by it, negative ones multiplied.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    repetition_penalty: float = 1.0

    def check(self) -> None:
        """Refuse settings that say nothing."""
        if not (0 <= self.temperature < np.inf and self.top_k >= 0 and 0 < self.top_p <= 1 and self.seed >= 0):
            got = f"temperature {self.temperature}, top_k {self.top_k}, top_p {self.top_p}, seed {self.seed}"
            hint = "temperature, top_k and seed from 0 on, top_p above 0 and at most 1"
            raise ConfigError(f"sampling: {got}", hint=hint)
        if not 0 < self.repetition_penalty < np.inf:
            raise ConfigError(f"sampling: repetition_penalty {self.repetition_penalty}", hint="above 0; 1: none")


def penalised(logits: Array, sampling: Sampling, tokens: Sequence[int]) -> Array:
    """The logits with those of tokens that came before made less likely."""
    if sampling.repetition_penalty == 1 or not tokens:
        return logits
    seen = np.unique(np.asarray(tokens))
    result = np.array(logits)
    factor = np.float32(sampling.repetition_penalty)
    result[seen] = np.where(result[seen] > 0, result[seen] / factor, result[seen] * factor)
    return result


def log_probabilities(logits: Array) -> Array:
    """Logarithms of what the softmax of logits gives, in float64."""
    shifted = logits.astype(np.float64) - logits.max()
    result: Array = shifted - np.log(np.exp(shifted).sum())
    return result


def probabilities(logits: Array, sampling: Sampling) -> tuple[Array, Array]:
    """The tokens that can come next, likeliest first, and their probabilities."""
    order = np.argsort(-logits, kind="stable")
    if sampling.top_k:
        order = order[: sampling.top_k]
    scaled = logits[order].astype(np.float64) / sampling.temperature
    weights = np.exp(scaled - scaled[0])
    weights /= weights.sum()
    if sampling.top_p < 1:
        count = int(np.searchsorted(np.cumsum(weights), sampling.top_p)) + 1
        order, weights = order[:count], weights[:count] / weights[:count].sum()
    return order, weights


def select_token(logits: Array, sampling: Sampling, random: np.random.Generator) -> int:
    """The next token."""
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    order, weights = probabilities(logits, sampling)
    place = int(np.searchsorted(np.cumsum(weights), random.random(), side="right"))
    return int(order[min(place, len(order) - 1)])


def distribution(logits: Array, sampling: Sampling) -> Array:
    """The probability of every token, in float64; without a temperature the greatest logit's is 1."""
    result = np.zeros(len(logits), np.float64)
    if sampling.temperature == 0:
        result[np.argmax(logits)] = 1
    else:
        order, weights = probabilities(logits, sampling)
        result[order] = weights
    return result


def checked_token(logits: Array, sampling: Sampling, random: np.random.Generator, guess: int, drafted: Array) -> int:
    """The next token, where `guess` was drawn from the probabilities `drafted`: as likely as without the guess.

    Leviathan, Kalman and Matias, Fast inference from transformers via speculative decoding (2023): a guess stays with
    the probability wanted / drafted, and what replaces it is drawn from what is wanted beyond `drafted`.
    """
    wanted = distribution(logits, sampling)
    if random.random() * drafted[guess] < wanted[guess]:
        return guess
    beyond = np.maximum(wanted - drafted, 0)
    sums = np.cumsum(beyond if beyond.any() else wanted)  # none: both are the same, but for rounding
    return int(np.searchsorted(sums, random.random() * sums[-1], side="right"))
