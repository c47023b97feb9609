"""GroupQueryAttention and RotaryEmbedding of com.microsoft, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx_nodes
import pytest

from armillary.errors import ArmillaryError

H, G, D = 4, 2, 16


def _tables(length: int = 64, width: int = D) -> tuple[np.ndarray, np.ndarray]:
    angles = np.arange(length)[:, None] / 100 ** (np.arange(width // 2) / (width // 2))[None]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _inputs(
    rng: np.random.Generator, batch: int, rows: int, past: int, lengths: list[int], total: int, packed: bool = False
) -> dict:
    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    return {
        "query": draw(batch, rows, (H + 2 * G if packed else H) * D),
        "key": None if packed else draw(batch, rows, G * D),
        "value": None if packed else draw(batch, rows, G * D),
        "past_key": draw(batch, G, past, D),
        "past_value": draw(batch, G, past, D),
        "seqlens_k": np.array([n - 1 for n in lengths], np.int32),
        "total": np.array(total, np.int32),
    }


CASES = {
    "prompt": (1, 7, 0, [7], 7, {}),
    "padded_prompts": (2, 7, 0, [7, 4], 7, {}),
    "growing": (1, 1, 5, [6], 6, {}),
    "step_in_capacity": (1, 1, 32, [6], 6, {}),
    "steps_of_two_sequences": (2, 1, 32, [6, 17], 17, {}),
    "prompt_in_capacity": (1, 9, 32, [9], 9, {}),
    "chunk_behind_a_prompt": (1, 4, 32, [13], 13, {}),
    "window": (1, 1, 32, [20], 20, {"local_window_size": 5}),
    "window_over_a_prompt": (1, 12, 0, [12], 12, {"local_window_size": 5}),
    "softcap": (2, 1, 32, [20, 3], 20, {"softcap": 2.0}),
    "scale": (1, 3, 0, [3], 3, {"scale": 0.7}),
    "smooth": (1, 1, 32, [9], 9, {"smooth_softmax": 1}),
}


@pytest.mark.parametrize("rotary", [None, "halves", "interleaved"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_group_query_attention_is_onnxruntimes(name: str, packed: bool, rotary: str | None) -> None:
    batch, rows, past, lengths, total, attrs = CASES[name]
    inputs = _inputs(np.random.default_rng(3), batch, rows, past, lengths, total, packed)
    if rotary:
        inputs["cos"], inputs["sin"] = _tables()
        attrs = attrs | {"do_rotary": 1, "rotary_interleaved": int(rotary == "interleaved")}
    made = onnx_nodes.model(
        "GroupQueryAttention",
        inputs,
        3,
        constants=("cos", "sin") if rotary else (),
        num_heads=H,
        kv_num_heads=G,
        **attrs,
    )
    want = onnx_nodes.by_onnxruntime(made, inputs)
    got = onnx_nodes.compiled(made, inputs, static=("total",) if past < total else ())
    for b, length in enumerate(lengths):
        new = min(rows, length)
        np.testing.assert_allclose(got[0][b, :new], want[0][b, :new], rtol=2e-5, atol=2e-6)
        for k in (1, 2):
            assert got[k].shape == want[k].shape
            np.testing.assert_allclose(got[k][b, :, :length], want[k][b, :, :length], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("with_sink", [False, True])
def test_bias_and_sinks_are_onnxruntimes(with_sink: bool) -> None:
    rng = np.random.default_rng(5)
    inputs = _inputs(rng, 1, 3, 0, [3], 3) | {"cos": None, "sin": None, "positions": None}
    inputs["bias"] = rng.standard_normal((1, H, 3, 3)).astype(np.float32)
    attrs = {"softcap": 1.5}
    if with_sink:
        inputs["sink"] = rng.standard_normal(H).astype(np.float32)
    made = onnx_nodes.model("GroupQueryAttention", inputs, 3, num_heads=H, kv_num_heads=G, **attrs)
    want, got = onnx_nodes.by_onnxruntime(made, inputs), onnx_nodes.compiled(made, inputs, static=("total",))
    np.testing.assert_allclose(got[0], want[0], rtol=2e-5, atol=2e-6)


def test_given_positions_turn_queries_and_keys() -> None:
    inputs = _inputs(np.random.default_rng(6), 2, 1, 32, [6, 9], 9)
    inputs["cos"], inputs["sin"] = _tables()
    inputs["positions"] = np.array([[11], [3]], np.int64)
    made = onnx_nodes.model("GroupQueryAttention", inputs, 3, num_heads=H, kv_num_heads=G, do_rotary=1)
    want, got = onnx_nodes.by_onnxruntime(made, inputs), onnx_nodes.compiled(made, inputs)
    np.testing.assert_allclose(got[0], want[0], rtol=2e-5, atol=2e-6)


def test_a_length_beyond_the_capacity_is_refused() -> None:
    inputs = _inputs(np.random.default_rng(7), 1, 1, 8, [9], 9)
    made = onnx_nodes.model("GroupQueryAttention", inputs, 3, num_heads=H, kv_num_heads=G)
    with pytest.raises(ArmillaryError, match="a cache of 8 positions"):
        onnx_nodes.compiled(made, inputs)


def _token(past: int = 5, capacity: int = 12, **more: np.ndarray | None) -> dict[str, np.ndarray | None]:
    rng = np.random.default_rng(past)
    shapes = {"q": (2, 1, H * D), "k": (2, 1, H * D), "v": (2, 1, H * D), "mask": None, "bias": None}
    shapes |= dict.fromkeys(("past_k", "past_v"), (2, H, capacity, D))
    drawn = {name: None if s is None else rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
    return drawn | {"past": np.array([past], np.int32), "beam": None, "indirection": None, "biases": None} | more


@pytest.mark.parametrize("form", ["plain", "first", "last", "bias", "biases", "scale"])
def test_one_token_over_a_shared_cache_is_onnxruntimes(form: str) -> None:
    rng, past = np.random.default_rng(2), {"first": 0, "last": 11}.get(form, 5)
    more = {"bias": rng.standard_normal((1, H, 1, past + 1)).astype(np.float32)} if form == "bias" else {}
    more |= {"biases": rng.standard_normal(3 * H * D).astype(np.float32)} if form == "biases" else {}
    inputs, attrs = _token(past, **more), {"scale": 0.4} if form == "scale" else {}
    made = onnx_nodes.model(
        "DecoderMaskedMultiHeadAttention", inputs, 3, num_heads=H, past_present_share_buffer=1, **attrs
    )
    want, got = onnx_nodes.by_onnxruntime(made, inputs), onnx_nodes.compiled(made, inputs)
    np.testing.assert_allclose(got[0], want[0], rtol=2e-5, atol=2e-6)
    for k in (1, 2):
        np.testing.assert_allclose(got[k][:, :, : past + 1], want[k][:, :, : past + 1], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("more", "attrs", "message"),
    [
        ({"mask": np.ones((2, 6), np.int32)}, {}, "a mask of keys"),
        ({}, {"past_present_share_buffer": 0}, "no shared buffer"),
        ({"past": np.array([12], np.int32)}, {}, "a cache of 12 positions"),
    ],
)
def test_other_forms_of_one_token_are_refused(more: dict, attrs: dict, message: str) -> None:
    inputs, attrs = _token(**more), {"num_heads": H, "past_present_share_buffer": 1} | attrs
    with pytest.raises(ArmillaryError, match=message):
        onnx_nodes.compiled(onnx_nodes.model("DecoderMaskedMultiHeadAttention", inputs, 3, **attrs), inputs)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("form", ["rows", "heads", "first_position", "partial"])
def test_rotary_embedding_is_onnxruntimes(form: str, interleaved: int) -> None:
    rng = np.random.default_rng(8)
    cos, sin = _tables(64, D // 2 if form == "partial" else D)
    shape = (2, H, 5, D) if form == "heads" else (2, 5, H * D)
    positions = np.array([7]) if form == "first_position" else rng.integers(0, 64, (2, 5))
    inputs = {
        "x": rng.standard_normal(shape).astype(np.float32),
        "p": positions.astype(np.int64),
        "cos": cos,
        "sin": sin,
    }
    attrs = {"num_heads": H, "rotary_embedding_dim": D // 2} if form == "partial" else {}
    made = onnx_nodes.model("RotaryEmbedding", inputs, 1, interleaved=interleaved, **attrs)
    want, got = onnx_nodes.by_onnxruntime(made, inputs), onnx_nodes.compiled(made, inputs)
    np.testing.assert_allclose(got[0], want[0], rtol=2e-5, atol=2e-6)


MULTI = ("plain", "packed", "packed keys", "keys by heads", "past", "causal", "causal past", "bias past")


@pytest.mark.parametrize("form", MULTI)
def test_multi_head_attention_is_onnxruntimes(form: str) -> None:
    rng, (batch, rows, keys, past) = (
        np.random.default_rng(9),
        (2, 3, 3 if "causal" in form or form == "packed" else 5, 4),
    )

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    inputs = {"q": draw(batch, rows, H * D), "k": draw(batch, keys, H * D), "v": draw(batch, keys, H * D)}
    if form == "keys by heads":
        inputs |= {"k": draw(batch, H, keys, D), "v": draw(batch, H, keys, D)}
    total = keys + past if "past" in form else keys
    inputs |= {"bias": draw(3 * H * D) if form == "bias past" else None, "mask": None, "scores": None}
    if form == "bias past":
        inputs["scores"] = draw(1, H, rows, total)
    if "past" in form:
        inputs |= {"past_key": draw(batch, H, past, D), "past_value": draw(batch, H, past, D)}
    made = onnx_nodes.model(
        "MultiHeadAttention", inputs, 3 if "past" in form else 1, num_heads=H, unidirectional=int("causal" in form)
    )
    want = onnx_nodes.by_onnxruntime(made, inputs)
    if form.startswith("packed"):  # which ONNX Runtime has on GPUs alone
        names = ["q", "k", "v"] if form == "packed" else ["k", "v"]
        parts = [inputs[n].reshape(batch, -1, H, D) for n in names]
        inputs = {"q": inputs["q"], "k": None, "v": None} | {names[0]: np.stack(parts, axis=3)}
        made = onnx_nodes.model("MultiHeadAttention", inputs, 1, num_heads=H)
    got = onnx_nodes.compiled(made, inputs)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=3e-6)


PROJECTED = ("past", "causal past and mask", "present alone", "bias of scores", "mask by rows")


@pytest.mark.parametrize("form", PROJECTED)
def test_attention_that_projects_is_onnxruntimes(form: str) -> None:
    rng, (batch, rows, past) = np.random.default_rng(10), (2, 5, 6)

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    inputs = {"x": draw(batch, rows, H * D), "w": draw(H * D, 3 * H * D) / 8, "b": draw(3 * H * D), "mask": None}
    if form == "mask by rows":
        inputs["mask"] = rng.integers(0, 2, (batch, rows, rows)).astype(np.int32) | np.eye(rows, dtype=np.int32)
    if form == "causal past and mask":
        inputs["mask"] = (np.arange(rows + past) < np.array([[rows + past], [8]])).astype(np.int32)
    inputs["past"] = draw(2, batch, H, past, D) if "past" in form else None
    inputs["scores"] = draw(batch, 1, rows, rows) if form == "bias of scores" else None
    outputs = 2 if form in PROJECTED[:3] else 1
    made = onnx_nodes.model("Attention", inputs, outputs, num_heads=H, unidirectional=int("causal" in form))
    want, got = onnx_nodes.by_onnxruntime(made, inputs), onnx_nodes.compiled(made, inputs)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize("form", ["rows", "lengths of packed rows"])
def test_masks_of_multi_head_attention_are_onnxruntimes(form: str) -> None:
    rng = np.random.default_rng(11)
    inputs = {n: rng.standard_normal((2, 5, H * D)).astype(np.float32) for n in "qkv"}
    by_rows = rng.integers(0, 2, (2, 5, 5)).astype(np.int32) | np.eye(5, dtype=np.int32)
    inputs |= {"bias": None, "mask": by_rows if form == "rows" else np.array([5, 3, 0, 5, 8, 0, 5, 8], np.int32)}
    made = onnx_nodes.model("MultiHeadAttention", inputs, 1, num_heads=H)
    want, got = onnx_nodes.by_onnxruntime(made, inputs), onnx_nodes.compiled(made, inputs)
    np.testing.assert_allclose(got[0], want[0], rtol=2e-5, atol=3e-6)
