"""Generator: a decoder that is compiled once and then generates, with caches that stay where they are.

In: a model (onnx_model.py, hugging_face.py), how many positions its caches hold. Out: logits, tokens, text. Invariant:
`tokens` are what the caches hold; two functions share weights and caches, one for `chunk` tokens of a prompt and one
for a single token; nothing is compiled and no cache is copied between tokens.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from armillary.base.aliases import Array, NumpyDtype
from armillary.base.aligned import aligned_empty
from armillary.driver.build import build
from armillary.driver.variants import variants_of
from armillary.errors import ConfigError, ExecutionError
from armillary.generate.decoder import LAST, MASK, POSITIONS, START, TOKENS, TOTAL, Decoder, in_place
from armillary.generate.hugging_face import folder_decoder
from armillary.generate.onnx_model import onnx_decoder
from armillary.generate.sampling import Sampling, select_token
from armillary.generate.tokens import Tokenizer, load_tokenizer
from armillary.runtime.device import cpu
from armillary.runtime.ndarray import NDArray
from armillary.transform import PassContext

CHUNK = 64


class Generator:
    """Generates tokens: `Generator(model)`, then `generate(prompt)` or `complete(prompt)`.

    `model`: an ONNX file or a Hugging Face folder. `capacity`: positions of the caches, prompt and answer together.
    `chunk`: tokens of a prompt that go in at once. `bits`: 4 or 8 packs the weights of a folder so. `config`: of the
    PassContext that compiles.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Decoder,
        *,
        capacity: int = 1024,
        chunk: int = CHUNK,
        bits: int = 0,
        target: str = "llvm",
        config: dict[str, object] | None = None,
    ) -> None:
        if capacity < 1 or chunk < 1:
            raise ConfigError(f"capacity {capacity} and chunk {chunk}", hint="both are at least 1")
        self.decoder, self.tokenizer = _decoder(model, capacity, bits)
        rows = sorted({1, min(chunk, self.decoder.most_rows, self.decoder.capacity)}, reverse=True)
        modules, caches = zip(*(in_place(self.decoder.make(n)) for n in rows), strict=True)
        with PassContext(opt_level=3, config=config or {}):
            library = build(variants_of(list(modules)), target)
        self.graph = library["default"](cpu(0))
        self.rows, self.tokens = rows, list[int]()
        self.caches: dict[str, NDArray] = {}
        for name, ty in caches[0].items():
            memory = aligned_empty(ty.static, ty.dtype.numpy)
            memory[...] = 0
            self.caches[name] = NDArray(memory)
            self.graph.set_input_zero_copy(name, self.caches[name])

    # ---- tokens and logits

    @property
    def capacity(self) -> int:
        """How many tokens the caches hold at most."""
        return self.decoder.capacity

    def rewind(self, length: int = 0) -> None:
        """Forget all tokens but the first `length`."""
        if not 0 <= length <= len(self.tokens):
            raise ExecutionError(f"rewind to {length} of {len(self.tokens)} tokens")
        del self.tokens[length:]

    def feed(self, tokens: Sequence[int]) -> Array:
        """Append tokens; the logits behind the last one."""
        if not len(tokens):
            raise ExecutionError("feed: there are no tokens", hint="a prompt has at least one token")
        if len(self.tokens) + len(tokens) > self.capacity:
            told = f"{len(tokens)} tokens after {len(self.tokens)} exceed the capacity of {self.capacity}"
            raise ExecutionError(told, hint="a Generator with a larger capacity, or rewind()")
        logits, rest = np.zeros(0, np.float32), [int(t) for t in tokens]
        while rest:
            start = len(self.tokens)
            fitting = [n for n in self.rows if start + n <= self.capacity and (n == 1 or 2 * len(rest) > n)]
            count = min(fitting[0], len(rest))
            logits = self._run(rest[:count], start, fitting[0])
            self.tokens += rest[:count]
            rest = rest[count:]
        return logits

    def _run(self, tokens: list[int], start: int, rows: int) -> Array:
        """One call; rows behind the last token are computed and written, and no row before them sees that."""
        count = len(tokens)
        numbers = {
            TOKENS: np.array([tokens + tokens[-1:] * (rows - count)]),
            POSITIONS: np.arange(start, start + rows)[None],
            START: np.array([start]),
            TOTAL: np.array([start + rows]),
            LAST: np.array([start + rows - 1]),
            MASK: (np.arange(self.capacity) < start + rows)[None],
        }
        for name, role in self.decoder.roles.items():
            shape, dtype = self._types(name, rows)
            self.graph.set_input(name, numbers[role].astype(dtype).reshape(shape))
        self.graph.run()
        logits = self.graph.get_output(0).numpy()
        last: Array = logits.reshape(-1, logits.shape[-1])[count - 1].astype(np.float32)
        return last

    def _types(self, name: str, rows: int) -> tuple[tuple[int, ...], NumpyDtype]:
        """Shape and type of an input of the function for so many rows."""
        if not hasattr(self, "_known"):
            self._known: dict[tuple[str, int], tuple[tuple[int, ...], NumpyDtype]] = {}
        if (name, rows) not in self._known:
            main = self.decoder.make(rows)["main"]
            for p in main.params:
                self._known[p.name_hint, rows] = p.checked_type.static, p.checked_type.dtype.numpy
        return self._known[name, rows]

    # ---- generation

    def generate(
        self,
        prompt: str | Sequence[int],
        max_tokens: int = 128,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Sequence[int] = (),
    ) -> Iterator[int]:
        """The tokens of the answer, one at a time; a token of `stop` ends it and is not given.

        What the prompt has in common with the tokens that the caches hold is not computed again.
        """
        sampling = Sampling(temperature, top_k, top_p, seed)
        sampling.check()
        random, tokens = np.random.default_rng(seed), self._tokens_of(prompt)
        ends = {*stop, *(self.tokenizer.ends if self.tokenizer is not None else ())}
        common = 0
        while common < min(len(tokens) - 1, len(self.tokens)) and tokens[common] == self.tokens[common]:
            common += 1
        self.rewind(common)
        logits = self.feed(tokens[common:])
        for number in range(max_tokens):
            token = select_token(logits, sampling, random)
            if token in ends:
                return
            yield token
            if number + 1 < max_tokens:
                logits = self.feed([token])

    def stream(
        self,
        prompt: str | Sequence[int],
        max_tokens: int = 128,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
    ) -> Iterator[str]:
        """The text of the answer in pieces, up to the first of the strings in `stop`."""
        tokenizer = self._need_tokenizer()
        tokens, shown = list[int](), ""
        answer = self.generate(prompt, max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        for token in answer:
            tokens.append(token)
            text = tokenizer.decode(tokens)
            place = min((at for s in stop if (at := text.find(s)) >= 0), default=-1)
            if place >= 0:
                yield text[len(shown) : place]
                return
            held = max((n for s in stop for n in range(1, len(s)) if text.endswith(s[:n])), default=0)
            ready = len(text) - held
            if text.endswith("\ufffd") or ready <= len(shown):
                continue  # a part of a character, or what may begin a stop string
            yield text[len(shown) : ready]
            shown = text[:ready]
        rest = tokenizer.decode(tokens)[len(shown) :]
        if rest:
            yield rest

    def complete(self, prompt: str | Sequence[int], max_tokens: int = 128, stop: Sequence[str] = ()) -> str:
        """The text of the likeliest answer."""
        return "".join(self.stream(prompt, max_tokens, stop=stop))

    def _tokens_of(self, prompt: str | Sequence[int]) -> list[int]:
        if isinstance(prompt, str):
            return self._need_tokenizer().encode(prompt)
        return [int(t) for t in prompt]

    def _need_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise ConfigError(
                "text needs a tokenizer, and the model has none",
                hint="tokenizer.json beside it, armillary[generate]",
            )
        return self.tokenizer


def _decoder(model: str | os.PathLike[str] | Decoder, capacity: int, bits: int) -> tuple[Decoder, Tokenizer | None]:
    if isinstance(model, Decoder):
        return model, None
    path = Path(model)
    if path.is_dir() and not (path / "model.onnx").exists():
        return folder_decoder(path, capacity, bits), load_tokenizer(path)
    file = path / "model.onnx" if path.is_dir() else path
    return onnx_decoder(file, capacity), load_tokenizer(file.parent)
