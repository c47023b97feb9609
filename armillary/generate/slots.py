"""Sequences side by side: a compiled decoder whose caches have a slot for each, with a length of its own.

In: a `Decoder`, a number of slots. Out: logits behind the tokens that were appended to a slot, or to several at once.
Invariant: `tokens[slot]` are what the caches of the slot hold; a call for some slots changes nothing of the others that
counts; caches take memory where tokens were written; one function takes a token for every slot, others take several
tokens for one, over the same weights and caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from armillary.base.aliases import Array, NumpyDtype
from armillary.base.aligned import aligned_zeros
from armillary.driver.build import build
from armillary.driver.variants import variants_of
from armillary.errors import ConfigError, ExecutionError
from armillary.generate.decoder import (
    LAST,
    LONGEST,
    MASK,
    ORDER,
    POSITIONS,
    ROWS,
    START,
    TOKENS,
    TOTAL,
    Decoder,
    in_place,
)
from armillary.ir import IRModule
from armillary.runtime.device import cpu
from armillary.runtime.ndarray import NDArray
from armillary.transform import PassContext


class Slots:
    """Caches for `count` sequences and the functions that append to them.

    `chunks`: how many tokens of one sequence a call can take at once, beside one; logits are computed behind the last.
    `checked`: the size of a call that gives the logits behind each of its tokens; 0: there is none.
    """

    def __init__(
        self,
        decoder: Decoder,
        count: int,
        chunks: Sequence[int],
        target: str,
        config: Mapping[str, object],
        checked: int = 0,
    ) -> None:
        if count < 1 or decoder.capacity < 1 or min(chunks, default=1) < 1:
            message = f"{count} slots, capacity {decoder.capacity} and chunks {list(chunks)}"
            raise ConfigError(message, hint="each is at least 1")
        self.roles, self.capacity, self.count = decoder.roles, decoder.capacity, count  # not what holds the weights
        most = min(decoder.most_rows, decoder.capacity)
        self.checked = min(checked, most)
        self.chunks = sorted({self.checked, *(min(n, most) for n in chunks)} - {0, 1}, reverse=True)
        self.tokens: list[list[int]] = [[] for _ in range(count)]
        kinds = [(count, 1), *((1, rows) for rows in self.chunks)]
        wanted = [rows if rows == self.checked else 1 for _, rows in kinds]
        states = (decoder.make(rows, slots, n) for (slots, rows), n in zip(kinds, wanted, strict=True))
        modules, caches = zip(*map(in_place, states), strict=True)
        with PassContext(opt_level=3, config=dict(config)):
            library = build(variants_of(list(modules)), target)
        self.graph = library["default"](cpu(0))
        self.types = {kind: _types(module) for kind, module in zip(kinds, modules, strict=True)}
        self.caches: dict[str, NDArray] = {}
        for name, ty in caches[0].items():
            self.caches[name] = NDArray(aligned_zeros(ty.static, ty.dtype.numpy))
        self.words = int(self.graph.output_type(0)[0][-1])  # tokens there are to choose from
        self._bound: int | None = count  # none is bound yet: the thread that appends first binds, and owns the inputs

    def _bind(self, slot: int | None) -> None:
        """Let functions change the caches of one slot, or of all (None)."""
        if self._bound == slot:
            return
        for name, cache in self.caches.items():
            part = cache if slot is None else NDArray(cache.memory[slot : slot + 1])
            self.graph.set_input_zero_copy(name, part)
        self._bound = slot

    # ---- what slots hold

    def rewind(self, slot: int, length: int) -> None:
        """Forget all tokens of a slot but the first `length`."""
        if not 0 <= length <= len(self.tokens[slot]):
            raise ExecutionError(f"rewind to {length} of {len(self.tokens[slot])} tokens")
        del self.tokens[slot][length:]

    def copy(self, source: int, target: int, length: int) -> None:
        """Let a slot begin with the first `length` tokens of another, and hold nothing else."""
        if not 0 <= length <= len(self.tokens[source]):
            raise ExecutionError(f"copy of {length} of {len(self.tokens[source])} tokens")
        if source != target:
            for cache in self.caches.values():
                memory = cache.memory
                memory[target, :, :length] = memory[source, :, :length]
        self.tokens[target] = self.tokens[source][:length]

    def common(self, slot: int, tokens: Sequence[int]) -> int:
        """How many of the first tokens a slot holds already."""
        held, most = self.tokens[slot], min(len(tokens), len(self.tokens[slot]))
        return next((k for k in range(most) if held[k] != tokens[k]), most)

    def check_room(self, slot: int, more: int) -> None:
        """Refuse tokens that the slot has no place for."""
        held = len(self.tokens[slot])
        if held + more > self.capacity:
            message = f"{more} tokens after {held} exceed the capacity of {self.capacity}"
            raise ExecutionError(message, hint="a Generator with a larger capacity, or rewind()")

    # ---- appending

    def chunk(self, slot: int, count: int, each: bool = False) -> int:
        """How many rows a call for a slot best has when `count` tokens are to be appended; `each`: see `feed`."""
        room = self.capacity - len(self.tokens[slot])
        sizes = [rows for rows in self.chunks if rows == self.checked or not each]
        return next((rows for rows in sizes if rows <= room and rows < 2 * count), 1)

    def feed(self, slot: int, tokens: Sequence[int], each: bool = False) -> Array:
        """Append tokens to a slot; the logits behind the last, (1, words), or behind each of them, (tokens, words)."""
        if not len(tokens):
            raise ExecutionError("feed: there are no tokens", hint="a prompt has at least one token")
        self.check_room(slot, len(tokens))
        logits, rest = list[Array](), [int(t) for t in tokens]
        while rest:
            rows = self.chunk(slot, len(rest), each)
            logits.append(self.append(slot, rest[:rows], rows))
            rest = rest[rows:]
        result: Array = np.concatenate(logits) if each else logits[-1][-1:]
        return result

    def append(self, slot: int, tokens: list[int], rows: int) -> Array:
        """One call of `rows` for at most so many tokens; rows behind them are computed, and no row before sees them.

        The logits behind the last token, (1, words); behind each, (tokens, words), where the function computes them.
        """
        if rows == 1:
            return self.step({slot: tokens[0]})[slot][None]
        self._bind(slot if self.count > 1 else None)
        filled = tokens + tokens[-1:] * (rows - len(tokens))
        logits = self._run((1, rows), np.array([filled]), np.array([len(self.tokens[slot])]), len(tokens) - 1)
        self.tokens[slot] += tokens
        return logits[0, : len(tokens)]

    def step(self, tokens: Mapping[int, int]) -> dict[int, Array]:
        """Append one token to each of some slots in one call; the logits behind it by slot.

        Slots that take none get a token behind what they hold, which does not count; full ones forget their last token.
        """
        for slot in tokens:
            self.check_room(slot, 1)
        self._bind(None)
        start = np.array([min(len(held), self.capacity - 1) for held in self.tokens])
        full = [s for s in range(self.count) if s not in tokens and len(self.tokens[s]) == self.capacity]
        for slot in full:  # its last position is overwritten
            self.tokens[slot].pop()
        ids = np.array([[tokens.get(slot, 0)] for slot in range(self.count)])
        logits = self._run((self.count, 1), ids, start)
        for slot, token in tokens.items():
            self.tokens[slot].append(int(token))
        return {slot: logits[slot, 0] for slot in tokens}

    def _run(self, kind: tuple[int, int], tokens: Array, start: Array, last: int = 0) -> Array:
        """Logits of one call: (slots, rows, words), or (slots, 1, words) of the row `last`."""
        total = start + kind[1]
        numbers = {
            TOKENS: tokens,
            POSITIONS: start[:, None] + np.arange(kind[1]),
            START: start,
            TOTAL: total,
            LAST: total - 1,
            LONGEST: total.max(keepdims=True),
            ROWS: np.arange(kind[1]) if kind[1] == self.checked else np.array([last]),
            ORDER: start[0] + np.arange(kind[1]) if kind[0] == 1 else np.array([self.capacity - 1]),
            MASK: np.arange(self.capacity) < total[:, None],
        }
        for name, role in self.roles.items():
            shape, dtype = self.types[kind][name]
            self.graph.set_input(name, numbers[role].astype(dtype).reshape(shape))
        self.graph.run()
        logits = self.graph.get_output(0).numpy()
        result: Array = logits.reshape(kind[0], -1, logits.shape[-1]).astype(np.float32)
        return result


def _types(module: IRModule) -> dict[str, tuple[tuple[int, ...], NumpyDtype]]:
    """Shapes and types of the inputs of main."""
    return {p.name_hint: (p.checked_type.static, p.checked_type.dtype.numpy) for p in module["main"].params}
