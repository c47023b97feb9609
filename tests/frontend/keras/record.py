"""Records what Keras computes: `record.py` with keras 3.15 writes layers.npz, `record.py NAME…` these of its cases.

Out: for each case the bytes of a `.keras` archive, or of an .h5 file, its inputs and what the model predicted. Weights
are random.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

FOLDER = Path(__file__).parent
L = keras.layers
IMAGE, ROWS = (7, 6, 4), (5, 6)
Build = Callable[..., object]


def of(shape: tuple[int, ...], build: Build, dtype: str = "float32") -> Callable[[], keras.Model]:
    def made() -> keras.Model:
        inputs = keras.Input(shape, dtype=dtype, name="x")
        return keras.Model(inputs, build(inputs))

    return made


def nested() -> keras.Model:
    inner = keras.Sequential(
        [keras.Input((5, 6)), L.Conv1D(4, 3), L.BatchNormalization(), L.Conv1D(2, 2)], name="inner"
    )
    deep_in = keras.Input((2, 2))
    deep = keras.Model(deep_in, [L.Dense(3)(deep_in), L.Dense(2, activation="tanh")(deep_in)], name="deep")
    first, second = keras.Input(ROWS, name="first"), keras.Input(ROWS, name="second")
    left, right = deep(inner(first)), deep(inner(second))
    return keras.Model([first, second], [L.Add()([left[0], right[0]]), L.Multiply()([left[1], right[1]])])


def normalised() -> keras.Model:
    layer = L.Normalization()
    layer.adapt(np.random.default_rng(1).normal(3, 2, (40, 4)).astype("float32"))
    inputs = keras.Input(IMAGE, name="x")
    return keras.Model(inputs, L.Rescaling(0.5, offset=-1.0)(layer(inputs)))


def encoder_decoder() -> keras.Model:
    source, target = keras.Input(ROWS, name="source"), keras.Input((4, 6), name="target")
    _, hidden, cell = L.LSTM(3, return_state=True)(source)
    return keras.Model([source, target], L.LSTM(3, return_sequences=True)(target, initial_state=[hidden, cell]))


def attention(**attrs: object) -> Build:
    return lambda x: L.MultiHeadAttention(2, 3, value_dim=5)(x, L.Dense(6)(x), **attrs)


CASES: dict[str, Callable[[], keras.Model]] = {
    "conv": of(IMAGE, lambda x: L.Conv2D(8, 3, 2, "same", groups=2, activation="relu")(x)),
    "depthwise": of(IMAGE, lambda x: L.DepthwiseConv2D((3, 2), depth_multiplier=2, dilation_rate=2)(x)),
    "separable": of(IMAGE, lambda x: L.SeparableConv2D(5, 3, padding="same", activation="gelu")(x)),
    "transposed": of(IMAGE, lambda x: L.Conv2DTranspose(3, 3, 2, "same")(L.Conv2DTranspose(3, 2, 1)(x))),
    "conv1d": of(ROWS, lambda x: L.Conv1DTranspose(2, 3, 2)(L.Conv1D(4, 2, padding="causal", dilation_rate=2)(x))),
    "separable1d": of(ROWS, lambda x: L.SeparableConv1D(4, 2, padding="same")(L.DepthwiseConv1D(2)(x))),
    "conv3d": of((4, 5, 6, 2), lambda x: L.AveragePooling3D(2)(L.Conv3D(3, 2, padding="same")(x))),
    "pools": of(IMAGE, lambda x: L.AveragePooling2D(3, 1, "same")(L.MaxPooling2D((2, 3), 1, "same")(x))),
    "pools1d": of(ROWS, lambda x: [L.GlobalMaxPooling1D()(L.MaxPooling1D(2)(x)), L.GlobalAveragePooling1D()(x)]),
    "global": of(IMAGE, lambda x: [L.GlobalMaxPooling2D()(x), L.GlobalAveragePooling2D(keepdims=True)(x)]),
    "crops": of(IMAGE, lambda x: L.Cropping2D(((1, 0), (0, 2)))(L.ZeroPadding2D(((0, 1), (2, 0)))(x))),
    "images": of(IMAGE, lambda x: L.Resizing(9, 5)(L.UpSampling2D(2, interpolation="bilinear")(x))),
    "normalisations": of(IMAGE, lambda x: L.GroupNormalization(2)(L.LayerNormalization()(L.BatchNormalization()(x)))),
    "activations": of(
        ROWS,
        lambda x: L.Concatenate()(
            [
                L.Activation(name)(x)
                for name in ("elu", "selu", "silu", "softplus", "softsign", "mish", "hard_sigmoid", "gelu", "relu6")
            ]
        ),
    ),
    "relus": of(ROWS, lambda x: L.Concatenate()([L.PReLU()(x), L.LeakyReLU(0.1)(x), L.ELU(0.7)(x), L.ReLU(0.5)(x)])),
    "merges": of(
        ROWS, lambda x: L.Average()([L.Maximum()([x, L.Dense(6)(x)]), L.Subtract()([x, L.Permute((1, 2))(x)])])
    ),
    "operators": of(ROWS, lambda x: keras.ops.maximum(2.0 / (x + 3.0) - L.Dense(6)(x) * x, keras.ops.tanh(-x))),
    "dot": of(ROWS, lambda x: L.Dot((2, 2))([x, L.Dense(6)(x)])),
    "shapes": of((6,), lambda x: L.RepeatVector(3)(L.Flatten()(L.Reshape((2, -1))(x)))),
    "lstm": of(ROWS, lambda x: L.LSTM(4, return_sequences=True)(x)),
    "lstm_back": of(ROWS, lambda x: L.LSTM(4, return_sequences=True, go_backwards=True, use_bias=False)(x)),
    "gru": of(ROWS, lambda x: L.GRU(4)(x)),
    "gru_old": of(
        ROWS, lambda x: L.GRU(4, reset_after=False, return_sequences=True, recurrent_activation="hard_sigmoid")(x)
    ),
    "rnn": of(ROWS, lambda x: L.SimpleRNN(4, activation="relu", return_state=True)(x)),
    "both": of(ROWS, lambda x: L.Bidirectional(L.GRU(3, return_sequences=True))(x)),
    "both_sum": of(ROWS, lambda x: L.Bidirectional(L.LSTM(3), merge_mode="sum")(x)),
    "steps": of((3, 7, 6, 4), lambda x: L.TimeDistributed(L.Conv2D(2, 3))(x)),
    "attention": of(ROWS, attention()),
    "attention_causal": of(ROWS, attention(use_causal_mask=True)),
    "embedding": of((5,), lambda x: L.Embedding(9, 4)(x), "int32"),
    "nested": nested,
    "normalization": normalised,
    "encoder_decoder": encoder_decoder,
    "transposed3d": of((3, 4, 3, 2), lambda x: L.Conv3DTranspose(2, 2, 1)(L.Conv3DTranspose(3, 3, 2, "same")(x))),
    "upsampled3d": of((2, 3, 4, 2), lambda x: L.UpSampling3D((3, 1, 2))(L.Identity()(x))),
    "einsum": of(
        ROWS,
        lambda x: L.EinsumDense("abcd,cde->abe", output_shape=(None, 6), bias_axes="e", activation="gelu")(
            L.EinsumDense("abc,cde->abde", output_shape=(None, 4, 3), bias_axes="d")(x)
        ),
    ),
    "einsum_dots": of(IMAGE, lambda x: L.EinsumDense("...x,xy->...y", output_shape=3, bias_axes="y")(x)),
    "scaled": of(
        IMAGE,
        lambda x: L.Concatenate()([L.RMSNormalization()(x), L.UnitNormalization()(x), L.UnitNormalization([1, 2])(x)]),
    ),
    "deviation": of(
        IMAGE, lambda x: L.LayerNormalization(rms_scaling=True)(L.LayerNormalization(2, rms_scaling=True)(x))
    ),
    "augmented": of(IMAGE, lambda x: L.RandomZoom(0.2)(L.RandomFlip()(L.RandomRotation(0.1)(x)))),
}


def main() -> None:
    names = sys.argv[1:]
    stored: dict[str, np.ndarray] = dict(np.load(FOLDER / "layers.npz")) if names else {}
    for number, (name, build) in enumerate(CASES.items()):
        if names and name not in names:
            continue
        keras.utils.set_random_seed(number)
        model = build()
        random = np.random.default_rng(number)
        for layer in model._flatten_layers():
            is_own = not isinstance(layer, L.Normalization | keras.Model)
            if is_own and not any(isinstance(x, keras.Layer) for x in layer._layers):
                layer.set_weights(
                    [
                        random.uniform(0.1, 0.9, w.shape).astype("float32") - 0.3 * (w.ndim > 1)
                        for w in layer.get_weights()
                    ]
                )
        inputs = [draw(random, x) for x in model.inputs]
        outputs = model(inputs if len(inputs) > 1 else inputs[0], training=False)
        outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
        for suffix in ("keras", "h5"):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"m.{suffix}"
                model.save(path)
                stored[f"{name}:{suffix}"] = np.frombuffer(path.read_bytes(), np.uint8)
        stored |= {
            f"{name}:in{k}:{x.name}": value for k, (x, value) in enumerate(zip(model.inputs, inputs, strict=True))
        }
        stored |= {f"{name}:out{k}": keras.ops.convert_to_numpy(value) for k, value in enumerate(outputs)}
    np.savez_compressed(FOLDER / "layers.npz", **stored)


def draw(random: np.random.Generator, x: object) -> np.ndarray:
    shape = (2, *x.shape[1:])  # type: ignore[attr-defined]
    whole = str(x.dtype).startswith("int")  # type: ignore[attr-defined]
    return random.integers(0, 9, shape).astype("int32") if whole else random.uniform(-1, 1, shape).astype("float32")


if __name__ == "__main__":
    main()
