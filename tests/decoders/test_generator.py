"""Generator: one compile, caches in place, tokens and logits as float64 gives them."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_decoders
import pytest
from onnx import helper, numpy_helper
from reference import EXACT, FAMILIES, Shape, config_of, logits, weights_of, write_folder

from armillary.errors import ArmillaryError, ConfigError, ExecutionError, ModelError, UnsupportedError
from armillary.generate import Generator
from armillary.generate.blocks import quantized
from armillary.generate.decoder import in_place
from armillary.generate.hugging_face import folder_decoder
from armillary.generate.sampling import Sampling, probabilities, select_token
from armillary.relay.expr import Call
from armillary.relay.walk import post_order

SHAPE = Shape()
TOKENS = [int(t) for t in np.random.default_rng(11).integers(0, SHAPE.words, 29)]
CLOSE = 2e-5  # of logits up to 5


@pytest.mark.parametrize("bits", [0, 4])
@pytest.mark.parametrize("form", onnx_decoders.FORMS)
def test_onnx_forms_generate_after_one_compile(form: str, bits: int, tmp_path: Path) -> None:
    weights = weights_of("llama", SHAPE)
    onnx_decoders.write(tmp_path / "model.onnx", form, SHAPE, weights, 64, bits)
    generator = Generator(tmp_path / "model.onnx", capacity=64, chunk=8, config=EXACT)
    truth = logits("llama", SHAPE, weights, TOKENS)
    for end, begin in zip((21, 22, 29), (0, 21, 22), strict=True):
        np.testing.assert_allclose(generator.feed(TOKENS[begin:end]), truth[end - 1], atol=CLOSE)
    heads = {kind: generator.slots.types[kind]["logit_rows"][0] for kind in generator.slots.types}
    assert set(heads.values()) == {(1,)}, heads  # no row but the last goes into the head
    tokens = list(TOKENS[:5])
    for token in generator.generate(TOKENS[:5], 40):
        row = logits("llama", SHAPE, weights, tokens)[-1]
        assert row[token] >= row.max() - CLOSE
        tokens.append(token)
    assert len(tokens) == 45


def test_caches_that_grow_serve_sequences_side_by_side_and_windows_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx_decoders.write(file, "grown", SHAPE, weights_of("llama", SHAPE))
    prompts = [TOKENS[:9], TOKENS[4:7], TOKENS[:20]]
    alone = [list(Generator(file, capacity=48, chunk=8).generate(prompt, 12)) for prompt in prompts]
    assert Generator(file, capacity=48, chunk=8, slots=2).generate_many(prompts, 12) == alone
    model = onnx.load(file)
    for n, node in enumerate(model.graph.node):  # as where positions are no input
        model.graph.node[n].input[:] = ["fixed" if name == "position_ids" else name for name in node.input]
    (place,) = (n for n, value in enumerate(model.graph.input) if value.name == "position_ids")
    del model.graph.input[place]
    model.graph.initializer.append(numpy_helper.from_array(np.array([[3]]), "fixed"))
    onnx.save(model, file)
    with pytest.raises(UnsupportedError, match="which sequences side by side have in common"):
        Generator(file, capacity=48, chunk=1, slots=2)
    near = np.tril(np.ones((1, 1, 64, 64), bool)) & ~np.tril(np.ones((64, 64), bool), -4)
    model.graph.initializer.append(numpy_helper.from_array(near, "near"))
    model.graph.node.append(helper.make_node("Slice", ["near", "past.0.k.length", "past.0.k.length"], ["cut"], "cut"))
    onnx.save(model, file)
    with pytest.raises(UnsupportedError, match="Slice node 'cut': a window of attention is cut"):
        Generator(file)


def test_caches_that_slide_or_whose_heads_a_configuration_states(tmp_path: Path) -> None:
    """As the builder of onnxruntime-genai writes files: heads and features have names, some layers' caches slide."""
    file = tmp_path / "model.onnx"
    onnx_decoders.write(file, "genai", SHAPE, weights_of("llama", SHAPE))
    model = onnx.load(file)
    node = next(n for n in model.graph.node if n.op_type == "GroupQueryAttention")
    node.attribute.append(helper.make_attribute("local_window_size", 6))
    onnx.save(model, file)
    want = Generator(file, capacity=64, chunk=8).feed(TOKENS)
    node.attribute.append(helper.make_attribute("sliding_window_cache", 1))
    for value in model.graph.input:
        if value.name.startswith("past"):
            value.type.tensor_type.shape.dim[1].dim_param = "heads"
            value.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    onnx.save(model, file)
    with pytest.raises(ModelError, match="a cache whose heads or features are open") as raised:
        Generator(file)
    assert "genai_config.json" in str(raised.value.hint)
    (tmp_path / "genai_config.json").write_text('{"model": 3}')
    with pytest.raises(ModelError, match=r"genai_config\.json: no configuration of a decoder"):
        Generator(file)
    stated = {"num_key_value_heads": SHAPE.groups, "head_size": SHAPE.size}
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": {"decoder": stated}}))
    np.testing.assert_array_equal(Generator(file, capacity=64, chunk=8).feed(TOKENS), want)


@pytest.mark.parametrize("family", FAMILIES)
def test_families_of_folders_are_float64s(family: str, tmp_path: Path) -> None:
    shape = Shape(layers=3)
    weights = weights_of(family, shape)
    write_folder(tmp_path, family, shape, weights)
    generator = Generator(tmp_path, capacity=32, chunk=8)
    truth = logits(family, shape, weights, TOKENS)
    np.testing.assert_allclose(generator.feed(TOKENS[:20]), truth[19], atol=CLOSE)
    for place in range(20, len(TOKENS)):
        np.testing.assert_allclose(generator.feed([TOKENS[place]]), truth[place], atol=CLOSE)


@pytest.mark.parametrize("held", [0, 3])
def test_logits_are_those_of_the_last_row_or_of_each(held: int, tmp_path: Path) -> None:
    weights = weights_of("llama", SHAPE)
    write_folder(tmp_path, "llama", SHAPE, weights)
    generator, truth = Generator(tmp_path, capacity=32, chunk=8, draft=4), logits("llama", SHAPE, weights, TOKENS)
    slots = generator.slots
    assert [slots.types[1, rows]["logit_rows"][0] for rows in (8, 5, 1)] == [(1,), (5,), (1,)]
    for count in (1, 3, 4, 5, 7, 16):
        for each in (False, True):
            slots.rewind(0, 0)
            if held:
                slots.feed(0, TOKENS[:held])
            rows, end = slots.feed(0, TOKENS[held : held + count], each), held + count
            np.testing.assert_allclose(rows, truth[held if each else end - 1 : end], atol=CLOSE)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_16_bits_are_read(dtype: str, tmp_path: Path) -> None:
    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    weights = {name: w.astype(kind) for name, w in weights_of("llama", SHAPE).items()}
    write_folder(tmp_path, "llama", SHAPE, weights)
    truth = logits("llama", SHAPE, weights, TOKENS)
    np.testing.assert_allclose(Generator(tmp_path, capacity=32, chunk=8).feed(TOKENS), truth[-1], atol=CLOSE)


@pytest.mark.parametrize("bits", [4, 8])
def test_folders_are_packed_on_demand(bits: int, tmp_path: Path) -> None:
    weights = weights_of("qwen3", SHAPE)
    write_folder(tmp_path, "qwen3", SHAPE, weights)
    generator = Generator(tmp_path, capacity=32, chunk=8, bits=bits, config=EXACT)
    for name, w in weights.items():
        if w.ndim == 2 and "embed" not in name:
            weights[name] = quantized(w, bits).float32()
    np.testing.assert_allclose(generator.feed(TOKENS), logits("qwen3", SHAPE, weights, TOKENS)[-1], atol=CLOSE)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    folder = tmp_path_factory.mktemp("small")
    write_folder(folder, "llama", SHAPE, weights_of("llama", SHAPE))
    return Generator(folder, capacity=32, chunk=8)


def test_caches_in_place_compute_each_layer_once(tmp_path: Path) -> None:
    shape = Shape(layers=3)
    write_folder(tmp_path, "llama", shape, weights_of("llama", shape))
    module = folder_decoder(tmp_path, 32, 0, "float32").make(1, 1, 1)
    changed, caches = in_place(module)
    before, after = ([e for e in post_order(m["main"]) if isinstance(e, Call)] for m in (module, changed))
    assert len(after) == len(before)
    assert sum(getattr(e.attrs, "in_place", False) for e in after) == len(caches) == 6


def test_rewinding_and_common_beginnings_change_nothing(small: Generator) -> None:
    first = list(small.generate(TOKENS[:9], 12))
    other = list(small.generate(TOKENS[:5] + TOKENS[20:23], 3))
    assert list(small.generate(TOKENS[:9], 12)) == first
    small.rewind()
    assert list(small.generate(TOKENS[:5] + TOKENS[20:23], 3)) == other


def test_seeds_repeat_and_differ(small: Generator) -> None:
    runs = [list(small.generate(TOKENS[:4], 12, temperature=1.5, seed=seed)) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_a_stop_token_ends_the_answer(small: Generator) -> None:
    whole = list(small.generate(TOKENS[:4], 12))
    assert list(small.generate(TOKENS[:4], 12, stop=[whole[5]])) == whole[: whole.index(whole[5])]


def test_an_answer_that_ends_where_caches_are_full_is_whole(small: Generator) -> None:
    answer: list[int] = []
    with pytest.raises(ExecutionError, match="1 tokens after 32 exceed the capacity of 32"):
        answer.extend(small.generate(TOKENS, 12))
    assert len(answer) == 4 and answer[3] not in answer[:3]
    assert list(small.generate(TOKENS, 12, stop=answer[3:])) == answer[:3]


def test_a_full_cache_is_refused_and_nothing_is_lost(small: Generator) -> None:
    small.rewind()
    small.feed(TOKENS)
    with pytest.raises(ExecutionError, match="4 tokens after 29 exceed the capacity of 32"):
        small.feed([1, 2, 3, 4])
    assert small.tokens == TOKENS
    before = small.feed([5, 6, 7])
    small.rewind(29)
    np.testing.assert_array_equal(small.feed([5, 6, 7]), before)


def test_caches_stay_where_they_are(small: Generator) -> None:
    places = {name: c.memory.ctypes.data for name, c in small.slots.caches.items()}
    small.rewind()
    small.feed(TOKENS[:10])
    assert {name: small.slots.graph.get_input(name).memory.ctypes.data for name in places} == places
    assert all(np.any(small.slots.caches[name].memory[:, :, 9]) for name in places)


def test_sampling_takes_the_likeliest() -> None:
    values = np.log(np.array([0.05, 0.5, 0.2, 0.25]))
    order, weights = probabilities(values, Sampling(1.0, top_k=3))
    assert list(order) == [1, 3, 2]
    np.testing.assert_allclose(weights, np.array([0.5, 0.25, 0.2]) / 0.95)
    order, weights = probabilities(values, Sampling(1.0, top_p=0.6))
    assert list(order) == [1, 3]
    assert list(probabilities(values, Sampling(1.0, top_p=1e-9))[0]) == [1]
    random = np.random.default_rng(0)
    counts = np.bincount([select_token(values, Sampling(1.0), random) for _ in range(4000)], minlength=4)
    np.testing.assert_allclose(counts / 4000, np.exp(values), atol=0.03)
    assert select_token(values, Sampling(), random) == 1


def test_settings_that_say_nothing_are_refused(small: Generator) -> None:
    with pytest.raises(ConfigError, match="top_p 0"):
        next(small.generate([1], 1, top_p=0))
    with pytest.raises(ConfigError, match="text needs a tokenizer"):
        small.complete("text")
    with pytest.raises(ExecutionError, match="there are no tokens"):
        small.feed([])


def test_models_that_are_no_decoders_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write_folder(folder, "llama", SHAPE, weights_of("llama", SHAPE))
    config = config_of("llama", SHAPE)
    for change, error, message in (
        ({"model_type": "bert"}, UnsupportedError, "models of type 'bert'"),
        ({"rope_scaling": {"rope_type": "spiral"}}, UnsupportedError, "rotary positions of type 'spiral'"),
        ({"hidden_act": "relu"}, UnsupportedError, "hidden_act 'relu'"),
    ):
        (folder / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(error, match=message):
            Generator(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="lacks hidden_size"):
        Generator(folder)
    info = [helper.make_tensor_value_info(n, 1, [1, 4]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", info[:1], info[1:])
    onnx.save(helper.make_model(graph), tmp_path / "relu.onnx")
    with pytest.raises(ModelError, match="no input is called input_ids"):
        Generator(tmp_path / "relu.onnx")


def test_damaged_tensors_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, "llama", SHAPE, weights_of("llama", SHAPE))
    file = tmp_path / "model-0.safetensors"
    whole = file.read_bytes()
    for damaged in (whole[:-10], (1 << 40).to_bytes(8, "little") + whole[8:], whole[:8] + b"[" + whole[9:]):
        file.write_bytes(damaged)
        with pytest.raises(ArmillaryError):
            Generator(tmp_path)
