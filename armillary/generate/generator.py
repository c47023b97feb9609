"""Generator: a decoder that is compiled once and then generates, with caches that stay where they are.

In: a model (onnx_model.py, gguf.py, hugging_face.py), how many positions its caches hold, for how many sequences.
Out: logits, tokens, text. Invariant: `tokens` are what the caches of the first slot hold (slots.py); nothing is
compiled and no cache is copied between tokens. Many prompts: batching.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from armillary.base.aliases import Array
from armillary.errors import ConfigError
from armillary.generate.batching import LENGTH, Batcher, Request
from armillary.generate.blocks import CACHES
from armillary.generate.chat import ChatTemplate, TemplateText, file_template, folder_template
from armillary.generate.decoder import Decoder
from armillary.generate.gguf import File as GgufFile
from armillary.generate.gguf_tokens import file_tokenizer
from armillary.generate.guesses import Guesser
from armillary.generate.hugging_face import family_decoder, folder_decoder
from armillary.generate.onnx_model import onnx_decoder
from armillary.generate.sampling import Sampling
from armillary.generate.slots import Slots
from armillary.generate.text_pieces import TextPieces
from armillary.generate.tokens import Tokenizer, load_tokenizer

CHUNK = 64
# Logits are off by 1e-5 to 1e-4 of the greatest, 8 bits by 150 times that; 24 bits take 1.4 to 1.6 of the time.
_ROUNDING = {"low_bit.activation_bits": 16}


class Generator:
    """Generates tokens: `Generator(model)`, then `generate(prompt)` or `complete(prompt)`.

    `model`: an ONNX or GGUF file, or a Hugging Face folder. `capacity`: positions of the caches, prompt and answer
    together; None: as many as the model was trained for, 32,768 at most. Their memory follows the tokens that they
    hold. `cache`: "float32", "float16", or "int8" with a scale for each row, of a folder or a GGUF file. `chunk`:
    tokens of a prompt that go in at once. `slots`: sequences that `generate_many` computes side by side, each with
    caches of its own. `bits`: 4 or 8 packs the weights of a folder so. `draft`: how many tokens `generate` guesses
    and checks in one call, 0 for none: what `drafter` says, a Generator of a small model with the same tokens, or
    without one, what follows the same tokens earlier in the text. `config`: of the
    PassContext that compiles; "low_bit.activation_bits" in it (16, 24 or 8) says how exact rows are that meet packed
    weights.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Decoder,
        *,
        capacity: int | None = 1024,
        cache: str = "float32",
        chunk: int = CHUNK,
        slots: int = 1,
        bits: int = 0,
        draft: int = 0,
        drafter: Generator | None = None,
        target: str = "llvm",
        config: dict[str, object] | None = None,
    ) -> None:
        if (capacity is not None and capacity < 1) or chunk < 1 or draft < 0:
            raise ConfigError(f"capacity {capacity}, chunk {chunk} and draft {draft}", hint="1, 1 and 0 at least")
        if cache not in CACHES:
            raise ConfigError(f"caches of {cache!r}", hint=f"there are {', '.join(CACHES)}")
        decoder, self.tokenizer, self._template = _read(model, capacity, bits, cache)
        self.guesser = Guesser(draft, drafter.slots if drafter is not None else None) if draft else None
        self.slots: Slots = Slots(
            decoder, slots, [chunk], target, _ROUNDING | (config or {}), draft + 1 if draft else 0
        )
        if drafter is not None and drafter.slots.words != self.slots.words:
            message = f"a drafter of {drafter.slots.words} tokens for a model of {self.slots.words}"
            raise ConfigError(message, hint="both need the same tokenizer")

    # ---- tokens and logits

    @property
    def capacity(self) -> int:
        """How many tokens the caches of a sequence hold at most."""
        return self.slots.capacity

    @property
    def tokens(self) -> list[int]:
        """What the caches hold."""
        return self.slots.tokens[0]

    def rewind(self, length: int = 0) -> None:
        """Forget all tokens but the first `length`."""
        self.slots.rewind(0, length)

    def feed(self, tokens: Sequence[int]) -> Array:
        """Append tokens; the logits behind the last one."""
        last: Array = self.slots.feed(0, tokens)[0]
        return last

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
        repetition_penalty: float = 1.0,
        stop: Sequence[int] = (),
    ) -> Iterator[int]:
        """The tokens of the answer, one at a time; a token of `stop` ends it and is not given.

        What the prompt has in common with the tokens that the caches hold is not computed again.
        """
        sampling = Sampling(temperature, top_k, top_p, seed, repetition_penalty)
        request = Request(self._tokens_of(prompt), max_tokens, sampling, {*stop, *self._ends()}, slot=0)
        batcher = Batcher(self.slots, self.guesser)
        batcher.add(request)
        while not batcher.is_idle:
            for _, step in batcher.advance():
                if step.token is not None:
                    yield step.token
                if step.finish == LENGTH and request.produced < max_tokens:
                    self.slots.check_room(0, 1)  # the caches are full, and the answer has not ended

    def generate_many(
        self,
        prompts: Sequence[str | Sequence[int]],
        max_tokens: int = 128,
        *,
        sampling: Sampling | None = None,
        stop: Sequence[int] = (),
    ) -> list[list[int]]:
        """The answers to several prompts, as many at a time as there are slots; each is what it would be alone."""
        batcher, ends = Batcher(self.slots, self.guesser), {*stop, *self._ends()}
        kind = sampling or Sampling()
        requests = [Request(self._tokens_of(prompt), max_tokens, kind, ends) for prompt in prompts]
        for request in requests:
            batcher.check(request)
        answers: dict[Request, list[int]] = {}
        for request in requests:
            answers[request] = []
            if max_tokens > 0:
                batcher.add(request)
        while not batcher.is_idle:
            for request, step in batcher.advance():
                answers[request] += [] if step.token is None else [step.token]
        return list(answers.values())

    def _ends(self) -> frozenset[int]:
        return self.tokenizer.ends if self.tokenizer is not None else frozenset()

    def stream(
        self,
        prompt: str | Sequence[int],
        max_tokens: int = 128,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        repetition_penalty: float = 1.0,
        stop: Sequence[str] = (),
    ) -> Iterator[str]:
        """The text of the answer in pieces, up to the first of the strings in `stop`."""
        pieces = TextPieces(self._need_tokenizer(), stop)
        tokens = self.generate(
            prompt,
            max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            repetition_penalty=repetition_penalty,
        )
        for token in tokens:
            if piece := pieces.push(token):
                yield piece
            if pieces.is_stopped:
                return
        if piece := pieces.finish():
            yield piece

    def complete(self, prompt: str | Sequence[int], max_tokens: int = 128, stop: Sequence[str] = ()) -> str:
        """The text of the likeliest answer."""
        return "".join(self.stream(prompt, max_tokens, stop=stop))

    def _tokens_of(self, prompt: str | Sequence[int]) -> list[int]:
        if isinstance(prompt, str):
            return self._need_tokenizer().encode(prompt)
        return [int(t) for t in prompt]

    def chat_template(self) -> ChatTemplate | None:
        """How a conversation becomes a prompt, None where the model does not say."""
        return ChatTemplate(self._template) if self._template is not None else None

    def _need_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise ConfigError(
                "text needs a tokenizer, and the model has none",
                hint="tokenizer.json beside it, armillary[generate]",
            )
        return self.tokenizer


def _read(
    model: str | os.PathLike[str] | Decoder, capacity: int | None, bits: int, cache: str
) -> tuple[Decoder, Tokenizer | None, TemplateText | None]:
    """What a file or folder holds: a decoder, and how text and conversations become its tokens."""
    if isinstance(model, Decoder):
        return model, None, None
    path = Path(model)
    if path.suffix == ".gguf":
        if bits:
            raise ConfigError(f"{path} keeps the bits that it has", hint="bits packs the weights of a folder")
        file = GgufFile(path)
        decoder = family_decoder(path, file.config, file, capacity, 0, cache)
        return decoder, file_tokenizer(file.facts, str(path)), file_template(file.facts, path)
    folder = path if path.is_dir() else path.parent
    if path.is_dir() and not (path / "model.onnx").exists():
        decoder = folder_decoder(path, capacity, bits, cache)
    else:
        if cache != "float32":
            raise ConfigError(f"{path} has the caches that it has", hint="cache is of a folder or a GGUF file")
        decoder = onnx_decoder(path / "model.onnx" if path.is_dir() else path, capacity)
    return decoder, load_tokenizer(folder), folder_template(folder)
