"""The tokenizer that a GGUF file holds, built with the package `tokenizers` (an extra).

In: the file's facts. Out: a `Tokenizer`, or None where the file has none. Invariant: texts become the tokens that the
file's model was trained with: byte pairs with merges (`gpt2`), or pieces that merge by score (`llama`); other kinds are
refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.errors import ConfigError, ModelError, UnsupportedError
from armillary.generate import tokens
from armillary.generate.safetensors import Json

if TYPE_CHECKING:
    import tokenizers

_CONTROL, _ADDED = 3, 4
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGITS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{%s}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "llama-bpe": _DIGITS % "1,3",
    "llama3": _DIGITS % "1,3",
    "llama-v3": _DIGITS % "1,3",
    "smaug-bpe": _DIGITS % "1,3",
    "qwen2": _DIGITS % "1",
    "smollm": r"\p{N}|" + _GPT2,
}
_SPACE = "\u2581"


def file_tokenizer(facts: Json, name: str) -> tokens.Tokenizer | None:
    """The tokenizer of a file's facts; `name` is the file's, for messages."""

    def fact(key: str) -> object:
        return facts.get(f"tokenizer.ggml.{key}")

    kind, words = fact("model"), fact("tokens")
    if kind is None or not isinstance(words, list):
        return None
    try:
        import tokenizers
    except ImportError:
        raise ConfigError(f"{name} needs the package tokenizers", hint="pip install armillary[generate]") from None
    if kind == "gpt2":
        backend = _byte_pairs(facts, words, name)
    elif kind == "llama":
        backend = _pieces(facts, words, name)
    else:
        raise UnsupportedError(f"{name}: tokenizers of kind {kind!r} are not supported", hint="'gpt2', 'llama'")
    kinds = facts.get("tokenizer.ggml.token_type") or [1] * len(words)
    for number, role in ((_CONTROL, True), (_ADDED, False)):
        marked = [w for w, k in zip(words, kinds, strict=True) if k == number]
        added = [tokenizers.AddedToken(w, special=role, normalized=False) for w in marked]
        backend.add_special_tokens(added) if role else backend.add_tokens(added)
    begin = fact("bos_token_id")
    wants = facts.get("tokenizer.ggml.add_bos_token", kind == "llama")
    if wants and isinstance(begin, int):
        pair = [(words[begin], begin)]
        backend.post_processor = tokenizers.processors.TemplateProcessing(f"{words[begin]}:0 $A:0", special_tokens=pair)
    ends = [fact(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id")]
    return tokens.Tokenizer(backend, frozenset(e for e in ends if isinstance(e, int)))


def _byte_pairs(facts: Json, words: list[str], name: str) -> tokenizers.Tokenizer:
    """Bytes as letters, split by the model's expression, merged in the order of the file's merges."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    split = str(facts.get("tokenizer.ggml.pre") or "default")
    if split not in _SPLITS:
        known = ", ".join(sorted(_SPLITS))
        raise UnsupportedError(f"{name}: texts are split as for {split!r}, which is not supported", hint=known)
    merges = [tuple(m.split(" ", 1)) for m in facts.get("tokenizer.ggml.merges") or []]
    vocabulary = {word: number for number, word in enumerate(words)}
    odd = next((m for m in merges if len(m) != 2 or not {*m, "".join(m)} <= vocabulary.keys()), None)
    if odd is not None:
        raise ModelError(f"{name}: the tokenizer merges {' and '.join(odd)!r}, which are no tokens or make none")
    backend = Tokenizer(models.BPE(vocabulary, merges, ignore_merges="llama" in split))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLITS[split]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return backend


def _pieces(facts: Json, words: list[str], name: str) -> tokenizers.Tokenizer:
    """Pieces with scores: two neighbours merge to the piece of the best score first; bytes for what has no piece."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = facts.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(words):
        raise ModelError(f"{name}: {len(words)} tokens need a score each")
    vocabulary = {word: number for number, word in enumerate(words)}
    pairs = []
    for number, word in enumerate(words):
        halves = ((word[:k], word[k:]) for k in range(1, len(word)))
        pairs += [(-scores[number], number, h) for h in halves if h[0] in vocabulary and h[1] in vocabulary]
    merges = [h for _, _, h in sorted(pairs)]
    unknown = words[int(facts.get("tokenizer.ggml.unknown_token_id", 0))]
    model = models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    backend = Tokenizer(model)
    has_prefix = facts.get("tokenizer.ggml.add_space_prefix", True)
    steps = [normalizers.Prepend(_SPACE)] if has_prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    undo = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*undo, decoders.Strip(" ", 1, 0)] if has_prefix else undo)
    return backend
