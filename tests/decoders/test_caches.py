"""Caches of 16 and 8 bits, and caches whose memory follows the tokens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_decoders
import pytest
from reference import Shape, logits, weights_of, write_folder

from armillary.cli.main import main
from armillary.errors import ConfigError
from armillary.generate import Generator
from armillary.generate.blocks import CACHES

SHAPE = Shape()
TOKENS = [int(t) for t in np.random.default_rng(11).integers(0, SHAPE.words, 29)]
ERRORS = {"float32": 4e-6, "float16": 1e-3, "int8": 2e-2}  # of logits, by the greatest; measured: 7e-7, 2e-4, 5e-3


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("cache", CACHES)
def test_narrow_caches_are_close(cache: str, family: str, tmp_path: Path) -> None:
    weights = weights_of(family, SHAPE)
    write_folder(tmp_path, family, SHAPE, weights)
    generator = Generator(tmp_path, capacity=32, chunk=8, cache=cache, slots=2)
    truth = logits(family, SHAPE, weights, TOKENS)
    for begin, end in ((0, 20), (20, 21), (21, 29)):
        off = np.abs(generator.feed(TOKENS[begin:end]) - truth[end - 1]).max() / np.abs(truth[end - 1]).max()
        assert off < ERRORS[cache]
        assert off > ERRORS[cache] / 1e3, "the caches are as narrow as they say"
    held = {c.memory.dtype.name for c in generator.slots.caches.values()}
    assert held == ({"int8", "float32"} if cache == "int8" else {cache})
    alone = list(generator.generate(TOKENS[:9], 6))
    assert generator.generate_many([TOKENS[:9], TOKENS[3:7], TOKENS[:9]], 6)[::2] == [alone, alone]


def test_files_with_float16_caches_generate(tmp_path: Path) -> None:
    weights = weights_of("llama", SHAPE)
    file = tmp_path / "model.onnx"
    onnx_decoders.write(file, "genai", SHAPE, weights, 64, 0)
    half, exact = tmp_path / "half.onnx", Generator(file, capacity=64, chunk=8)
    onnx.save(in_float16(onnx.load(file)), half)
    generator = Generator(half, capacity=64, chunk=8)
    assert {c.memory.dtype.name for c in generator.slots.caches.values()} == {"float16"}
    truth = logits("llama", SHAPE, weights, TOKENS)
    for begin, end in ((0, 20), (20, 29)):
        assert np.abs(generator.feed(TOKENS[begin:end]) - truth[end - 1]).max() < 5e-3 * np.abs(truth).max()
    assert np.abs(exact.feed(TOKENS) - truth[-1]).max() < 2e-5


def in_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same with all floats in float16."""
    graph, single, half = model.graph, onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
    for tensor in graph.initializer:
        if tensor.data_type == single:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == single:
            value.type.tensor_type.elem_type = half
    return model


def test_memory_follows_the_tokens(tmp_path: Path) -> None:
    """A capacity of 32,768 takes the pages of the tokens that came: 2 layers, 2 groups, keys and values."""
    write_folder(tmp_path, "llama", Shape(size=64), weights_of("llama", Shape(size=64)))
    text = (
        "import sys\n"
        "from armillary.generate import Generator\n"
        "generator = Generator(sys.argv[1], capacity=None, chunk=64)\n"
        "def rss():\n"
        "    return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "generator.feed([5] * 64)\n"
        "first = rss()\n"
        "generator.feed([5] * 4096)\n"
        "print(generator.capacity, rss() - first, sum(c.memory.nbytes for c in generator.slots.caches.values()))\n"
    )
    done = subprocess.run([sys.executable, "-c", text, str(tmp_path)], capture_output=True, text=True, check=True)
    capacity, more, whole = map(int, done.stdout.split())
    assert capacity == 32768 and whole == 32768 * 64 * 4 * 8
    assert 4096 / 32768 * whole * 0.5 < more < 4096 / 32768 * whole + (6 << 20)


def test_unknown_caches_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="caches of 'int4'"):
        Generator(tmp_path, cache="int4")
    onnx_decoders.write(tmp_path / "model.onnx", "genai", SHAPE, weights_of("llama", SHAPE), 64, 0)
    assert main(["generate", str(tmp_path / "model.onnx"), "--tokens", "5", "--cache", "int8"]) == 4
    assert "has the caches that it has" in capsys.readouterr().err
