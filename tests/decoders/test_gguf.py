"""GGUF files, written by the package gguf, generate what float64 says of the numbers that they hold."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference import EXACT, Shape, Weights, config_of, logits, weights_of

from armillary.errors import ArmillaryError, ConfigError, ModelError, UnsupportedError
from armillary.generate import Generator
from armillary.generate.gguf import _GEMMA, _LAYER, _WHOLE, FAMILIES, File
from armillary.generate.gguf_blocks import ENCODINGS, packed_matrix
from armillary.generate.gguf_file import read_header
from armillary.generate.gguf_tokens import file_tokenizer

gguf = pytest.importorskip("gguf", reason="pip install armillary[generate]")
SHAPE = Shape(layers=2, hidden=256, heads=4, groups=2, size=64, inner=256, scalar=64)
TOKENS = [int(t) for t in np.random.default_rng(11).integers(0, SHAPE.words, 19)]
Q = gguf.GGMLQuantizationType
HALVES = {"F16": np.float16, "BF16": ml_dtypes.bfloat16}


def random_blocks(encoding: str, units: int, inner: int) -> np.ndarray:
    """Bytes of a matrix of that encoding, with random integers and scales of about 0.01."""
    rng, form = np.random.default_rng(5), ENCODINGS[encoding]
    size, terms = form.size, form.terms
    blocks = rng.integers(0, 256, (units, inner // terms, size), dtype=np.uint8)
    places = {"Q6_K": (208,)}.get(encoding, (0, 2) if encoding[-1] == "1" or encoding in ("Q4_K", "Q5_K") else (0,))
    for place in places:
        scale = (rng.uniform(-1, 1, blocks.shape[:2]) * (0.01 if "K" not in encoding else 2e-5)).astype(np.float16)
        blocks[..., place : place + 2] = scale[..., None].view(np.uint8)
    return blocks.reshape(units, -1)


def write(
    path: Path,
    family: str,
    weights: Weights,
    encoding: str = "F32",
    shape: Shape = SHAPE,
    more: Callable[[Any], None] = lambda writer: None,
) -> Weights:
    """The file that a converter writes, with more facts; gives the weights as the file has them."""
    arch = next(a for a, f in FAMILIES.items() if f == family)
    writer, config, held = gguf.GGUFWriter(path, arch), config_of(family, shape), Weights()
    writer.add_block_count(shape.layers)
    writer.add_context_length(512)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.groups)
    writer.add_key_length(shape.size)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1000.0)
    if family == "gemma3_text":
        writer.add_rope_freq_base_swa(50.0)
        writer.add_sliding_window_pattern(2)
    for name, add in (
        ("sliding_window", writer.add_sliding_window),
        ("attn_logit_softcapping", writer.add_attn_logit_softcapping),
        ("final_logit_softcapping", writer.add_final_logit_softcapping),
    ):
        if name in config:
            add(config[name])
    names = _LAYER | _GEMMA if "gemma" in family else _LAYER
    for name, weight in weights.items():
        stem, _, kind = name.rpartition(".")
        layer, _, part = stem.removeprefix("model.layers.").partition(".")
        place = f"{_WHOLE[stem]}.{kind}" if stem in _WHOLE else f"blk.{layer}.{names[part]}.{kind}"
        stored = weight + 1 if "gemma" in family and weight.ndim == 1 else weight
        if weight.ndim == 2 and encoding != "F32":
            raw = weight.astype(HALVES[encoding]) if encoding in HALVES else random_blocks(encoding, *weight.shape)
            raw = raw.view(np.uint8)
            held[name] = gguf.quants.dequantize(raw, Q[encoding])
            writer.add_tensor(place, paired(raw, name, arch, shape.size), raw_dtype=Q[encoding])
        else:
            held[name] = weight
            writer.add_tensor(place, paired(stored, name, arch, shape.size))
    more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


def paired(weight: np.ndarray, name: str, arch: str, size: int) -> np.ndarray:
    """Rows of queries and keys of llama as converters order them: the halves of a head in turn."""
    if arch != "llama" or not any(part in name for part in (".q_proj", ".k_proj")):
        return weight
    heads = weight.reshape(-1, 2, size // 2, *weight.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2).reshape(weight.shape))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_repacked_matrices_are_the_files_numbers(encoding: str) -> None:
    raw = random_blocks(encoding, 5, 512)
    made = packed_matrix(raw, encoding)
    want = gguf.quants.dequantize(raw, Q[encoding])
    np.testing.assert_allclose(made.float32(), want, rtol=0, atol=np.abs(want).max() * 2.0**-23)
    assert sum(part.nbytes for part in made.parts()) <= 1.03 * raw.nbytes + 8


@pytest.mark.parametrize("encoding", ["F32", *HALVES, *ENCODINGS])
def test_every_encoding_generates(encoding: str, tmp_path: Path) -> None:
    weights = write(tmp_path / "model.gguf", "llama", weights_of("llama", SHAPE), encoding)
    truth = logits("llama", SHAPE, weights, TOKENS)
    for config, off in ((EXACT, 2e-5), ({}, 5e-4)):
        generator = Generator(tmp_path / "model.gguf", capacity=32, chunk=8, config=config)
        for begin, end in ((0, 17), (17, 18), (18, 19)):
            close = off * max(1.0, float(np.abs(truth[end - 1]).max()))
            np.testing.assert_allclose(generator.feed(TOKENS[begin:end]), truth[end - 1], atol=close)


@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3_text"])
def test_families_of_files_are_float64s(family: str, tmp_path: Path) -> None:
    weights = write(tmp_path / "model.gguf", family, weights_of(family, SHAPE))
    truth = logits(family, SHAPE, weights, TOKENS)
    np.testing.assert_allclose(
        Generator(tmp_path / "model.gguf", capacity=32, chunk=8).feed(TOKENS), truth[-1], atol=4e-5
    )


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    write(file, "llama", weights_of("llama", SHAPE))
    whole = file.read_bytes()
    for damaged in (whole[:300], b"GGML" + whole[4:], b"", whole[:4] + b"\x63" + whole[5:], whole[:-5000]):
        file.write_bytes(damaged)
        with pytest.raises(ArmillaryError, match=r"model\.gguf"):
            Generator(file)
    file.write_bytes(whole.replace(b"llama", b"lemma"))
    with pytest.raises(UnsupportedError, match="architecture 'lemma'"):
        Generator(file)
    file.write_bytes(whole)
    with pytest.raises(ConfigError, match="keeps the bits that it has"):
        Generator(file, bits=4)


TEXTS = ["the cat sat on the mat", "  two  spaces, 12345 digits", "naïve ☃ words\nand lines", "it's we're"]


def test_byte_pairs_of_a_file_are_the_tokenizers(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="pip install armillary[generate]")
    truth = tokenizers.Tokenizer(tokenizers.models.BPE())
    truth.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    truth.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"])
    truth.train_from_iterator(TEXTS * 9, trainer)
    state = json.loads(truth.to_str())["model"]
    facts = {
        "model": "gpt2",
        "pre": "default",
        "tokens": sorted(state["vocab"], key=state["vocab"].get),
        "merges": [" ".join(m) for m in state["merges"]],
        "token_type": [3, 3] + [1] * (len(state["vocab"]) - 2),
        "bos_token_id": 0,
        "eos_token_id": 1,
        "add_bos_token": True,
    }
    made = file_tokenizer({f"tokenizer.ggml.{k}": v for k, v in facts.items()}, "x.gguf")
    assert made is not None and made.ends == {1}
    for text in TEXTS:
        assert made.encode(text) == [0, *truth.encode(text).ids]
        assert made.decode(made.encode(text)) == text
    merges = {"tokenizer.ggml.merges": ["t q"]}
    with pytest.raises(ModelError, match="merges 't and q'"):
        file_tokenizer({f"tokenizer.ggml.{k}": v for k, v in facts.items()} | merges, "x.gguf")
    with pytest.raises(UnsupportedError, match="split as for 'spiral'"):
        file_tokenizer(
            {f"tokenizer.ggml.{k}": v for k, v in facts.items()} | {"tokenizer.ggml.pre": "spiral"}, "x.gguf"
        )


def test_pieces_of_a_file_merge_by_score() -> None:
    pytest.importorskip("tokenizers", reason="pip install armillary[generate]")
    words = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256))]
    words += ["\u2581", "t", "h", "e", "\u2581t", "he", "\u2581the", "th", "\u2581th"]
    ranks = {"he": -1.0, "\u2581t": -2.0, "th": -3.0, "\u2581the": -4.0, "\u2581th": -5.0}
    facts = {
        "model": "llama",
        "tokens": words,
        "scores": [ranks.get(w, -9.0) for w in words],
        "token_type": [2, 3, 3] + [6] * 256 + [1] * 9,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    made = file_tokenizer({f"tokenizer.ggml.{k}": v for k, v in facts.items()}, "x.gguf")
    assert made is not None
    at = {w: n for n, w in enumerate(words)}
    assert made.encode("the th") == [1, at["\u2581the"], at["\u2581th"]]
    assert made.encode("\u00e9") == [1, at["\u2581"], at["<0xC3>"], at["<0xA9>"]]
    assert made.decode(made.encode("the th\u00e9")) == "the th\u00e9"


def test_sequences_side_by_side_answer_as_alone(tmp_path: Path) -> None:
    write(tmp_path / "x.gguf", "llama", weights_of("llama", SHAPE), "Q4_0")
    prompts = [TOKENS, TOKENS[3:8], TOKENS[:1]]
    alone = Generator(tmp_path / "x.gguf", capacity=64)
    wanted = [list(alone.generate(prompt, 12)) for prompt in prompts]
    assert Generator(tmp_path / "x.gguf", capacity=64, slots=2).generate_many(prompts, 12) == wanted


@pytest.mark.parametrize("seed", range(40))
def test_damaged_headers_are_refused_or_read(seed: int, tmp_path: Path) -> None:
    file, rng = tmp_path / "model.gguf", np.random.default_rng(seed)
    write(file, "llama", weights_of("llama", SHAPE))
    data, (facts, _) = bytearray(file.read_bytes()), read_header(file)
    assert facts["general.architecture"] == "llama"
    for place in rng.integers(4, 1500, 6):
        data[place] = rng.integers(0, 256)
    file.write_bytes(data)
    with contextlib.suppress(ArmillaryError):
        File(file).matrix("model.layers.1.mlp.up_proj.weight", 0)


def test_facts_are_those_of_the_package(tmp_path: Path) -> None:
    def more(writer: Any) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list([b"<unk>", "ü".encode(), b"abc"])
        writer.add_token_scores([0.5, -1.0, 2.0])
        writer.add_bool("some.flag", True)
        writer.add_uint8("some.byte", 200)
        writer.add_float64("some.double", 1e-300)
        writer.add_array("some.empty", [])

    file = tmp_path / "model.gguf"
    write(file, "llama", weights_of("llama", SHAPE), "Q4_0", more=more)
    facts, tensors = read_header(file)
    reader = gguf.GGUFReader(file)
    want = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert {n: v for n, v in facts.items() if v != []} == {n: v for n, v in want.items() if v not in ([], None)}
    for entry in reader.tensors:
        ours = tensors[entry.name]
        assert (ours.kind, ours.shape) == (entry.tensor_type.name, tuple(entry.shape[::-1]))
        held = np.asarray(entry.data).view(np.uint8).reshape(-1)
        width = len(held) // max(1, int(np.prod(entry.shape[1:], dtype=np.int64)))
        assert np.array_equal(ours.rows(width).compute().reshape(-1), held)


@pytest.mark.parametrize("encoding", ["Q4_K", "BF16"])
def test_weights_are_in_memory_once(encoding: str, tmp_path: Path) -> None:
    """Peak memory of a compile over that of a small one, of files of 44 and 156 MB."""
    shape = Shape(layers=4, hidden=1024, heads=16, groups=4, size=64, inner=2816, words=16000)
    write(tmp_path / "small.gguf", "llama", weights_of("llama", SHAPE), encoding)
    write(tmp_path / "model.gguf", "llama", weights_of("llama", shape), encoding, shape)
    text = (
        "import gc, re, sys\n"
        "from armillary.generate import Generator\n"
        "def memory(name):\n"
        "    return int(re.search(name + r':\\s*(\\d+) kB', open('/proc/self/status').read())[1]) * 1024\n"
        "Generator(sys.argv[1], capacity=32, chunk=8)\n"
        "gc.collect()\n"
        "before = memory('VmRSS')\n"
        "generator = Generator(sys.argv[2], capacity=32, chunk=8)\n"
        "generator.feed([5, 7])\n"
        "print(memory('VmHWM') - before)\n"
    )
    files = [str(tmp_path / name) for name in ("small.gguf", "model.gguf")]
    done = subprocess.run([sys.executable, "-c", text, *files], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1.3 * Path(files[1]).stat().st_size + (25 << 20)
