"""Darknet: made-up `.cfg` texts with random weights, against loops in numpy written from Darknet's formulas."""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.base.aliases import Array
from armillary.cli.main import main
from armillary.errors import ArmillaryError, ModelError, TypeMismatch, UnsupportedError
from armillary.relay.evaluate import evaluate

Layers = list[tuple[str, dict[str, Any]]]
SIZE = (1, 3, 16, 16)
NET: tuple[str, dict[str, Any]] = ("net", {"batch": 64, "channels": 3, "height": 16, "width": 16})
CONV = {"batch_normalize": 1, "size": 3, "stride": 1, "pad": 1, "activation": "leaky"}
LINEAR = {"size": 1, "stride": 1, "pad": 1, "activation": "linear"}
ANCHORS = "10,14, 23,27, 37,58, 81,82"
YOLO = {"anchors": ANCHORS, "classes": 2, "num": 4}
TINY: Layers = [
    ("convolutional", CONV | {"filters": 8}),
    ("maxpool", {"size": 2, "stride": 2}),
    ("convolutional", CONV | {"filters": 8, "activation": "mish", "groups": 2}),
    ("maxpool", {"size": 2, "stride": 1}),
    ("convolutional", CONV | {"filters": 8, "activation": "logistic", "stride": 2}),
    ("shortcut", {"from": -1, "activation": "relu"}),
    ("convolutional", LINEAR | {"filters": 14}),
    ("yolo", YOLO | {"mask": "2,3", "scale_x_y": 1.05}),
    ("route", {"layers": "-3"}),
    ("convolutional", CONV | {"filters": 4, "size": 1}),
    ("upsample", {"stride": 2}),
    ("route", {"layers": "-1, 2"}),
    ("route", {"layers": "-1", "groups": 2, "group_id": 1}),
    ("convolutional", LINEAR | {"filters": 14}),
    ("yolo", YOLO | {"mask": "0,1"}),
]
REGION: Layers = [
    ("convolutional", CONV | {"filters": 8, "stride": 2}),
    ("maxpool", {"size": 3, "stride": 2, "padding": 1}),
    ("route", {"layers": "0"}),
    ("reorg", {"stride": 2}),
    ("route", {"layers": "-1,-3"}),
    ("convolutional", LINEAR | {"filters": 16}),
    ("region", {"anchors": "1,2,3,4", "classes": 3, "coords": 4, "num": 2, "softmax": 1}),
]
CLASSIFIER: Layers = [
    ("conv", CONV | {"filters": 6, "size": 5, "stride": 2, "activation": "relu"}),
    ("conv", CONV | {"filters": 4, "activation": "tanh"}),
    ("shortcut", {"from": "-2", "activation": "linear"}),
    ("dropout", {"probability": 0.5}),
    ("connected", {"output": 10, "activation": "leaky", "batch_normalize": 1}),
    ("connected", {"output": 7, "activation": "linear"}),
    ("softmax", {"groups": 1, "temperature": 2}),
    ("cost", {"type": "sse"}),
]
RESIDUAL: Layers = [
    ("crop", {"crop_height": 12, "crop_width": 8}),
    ("conv", CONV | {"filters": 6}),
    ("conv", CONV | {"filters": 8, "stride": 2}),
    ("shortcut", {"from": -2, "activation": "leaky"}),
]
POOLED: Layers = [
    ("conv", CONV | {"filters": 6, "activation": "swish"}),
    ("conv", CONV | {"filters": 5, "activation": "ramp"}),
    ("avg", {}),
    ("softmax", {}),
]
BACKGROUND: Layers = [*REGION[:-1], ("region", REGION[-1][1] | {"background": 1})]
NETWORKS = {
    "tiny": TINY,
    "background": BACKGROUND,
    "region": REGION,
    "classifier": CLASSIFIER,
    "pooled": POOLED,
    "residual": RESIDUAL,
}


def text_of(layers: Layers) -> str:
    rows = [(kind, [f"{key} = {value}" for key, value in options.items()]) for kind, options in [NET, *layers]]
    return "# a network\n" + "\n\n".join("\n".join([f"[{kind}]", *lines]) for kind, lines in rows) + "\n; the end\n"


ACTIVATED: dict[str, Callable[[Array], Array]] = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "leaky": lambda x: np.where(x > 0, x, 0.1 * x),
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "ramp": lambda x: x * (x > 0) + 0.1 * x,
    "swish": lambda x: x / (1 + np.exp(-x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
}


class Reference:
    """Computes a network in float64 for one image and writes the file of its weights on the way."""

    def __init__(self, layers: Layers, image: Array, version: tuple[int, int] = (0, 2)) -> None:
        self.random, self.version = np.random.default_rng(7), version
        wide = version[0] * 10 + version[1] >= 2 and max(version) < 1000
        self.file = struct.pack("<3i", *version, 0) + (b"\0" * 8 if wide else b"\0" * 4)
        self.values: list[Array] = []
        self.detections: list[Array] = []
        x = image.astype(np.float64)
        for kind, options in layers:
            x = getattr(self, kind[:4])(x, options)
            self.values.append(x)
        self.outputs = self.detections if layers[-1][0] in ("yolo", "region") else [x]

    def draw(self, count: int, low: float = -1, high: float = 1) -> Array:
        array = self.random.uniform(low, high, count).astype(np.float32)
        self.file += array.tobytes()
        return array.astype(np.float64)

    def normal(self, count: int) -> Callable[[Array], Array]:
        scale, mean, variance = self.draw(count), self.draw(count), self.draw(count, 0, 2)
        return lambda row: scale * (row - mean) / (np.sqrt(variance) + 0.000001)

    def conv(self, x: Array, o: dict[str, Any]) -> Array:
        n, size, stride, groups = o["filters"], o["size"], o["stride"], o.get("groups", 1)
        bias = self.draw(n)
        normal = self.normal(n) if o.get("batch_normalize") else lambda row: row
        c, h, w = x.shape
        weight = self.draw(n * c // groups * size * size).reshape(n, c // groups, size, size)
        pad = size // 2
        framed = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
        out = np.zeros((n, (h + 2 * pad - size) // stride + 1, (w + 2 * pad - size) // stride + 1))
        for k, i, j in np.ndindex(*out.shape):
            first = k // (n // groups) * (c // groups)
            window = framed[first : first + c // groups, i * stride : i * stride + size, j * stride : j * stride + size]
            out[k, i, j] = (window * weight[k]).sum()
        moved = normal(out.transpose(1, 2, 0)) + bias
        return ACTIVATED[o["activation"]](moved.transpose(2, 0, 1))

    def conn(self, x: Array, o: dict[str, Any]) -> Array:
        bias = self.draw(o["output"])
        weight = self.draw(o["output"] * x.size)
        is_transposed = max(self.version) > 1000
        matrix = weight.reshape(x.size, -1).T if is_transposed else weight.reshape(-1, x.size)
        out = matrix @ x.ravel()
        return ACTIVATED[o["activation"]]((self.normal(out.size)(out) if o.get("batch_normalize") else out) + bias)

    def maxp(self, x: Array, o: dict[str, Any]) -> Array:
        size, stride = o["size"], o["stride"]
        padding = o.get("padding", size - 1)
        c, h, w = x.shape
        out = np.full((c, (h + padding - size) // stride + 1, (w + padding - size) // stride + 1), -np.inf)
        for k, i, j in np.ndindex(*out.shape):
            for a, b in itertools.product(range(size), range(size)):
                y, z = -(padding // 2) + i * stride + a, -(padding // 2) + j * stride + b
                if 0 <= y < h and 0 <= z < w:
                    out[k, i, j] = max(out[k, i, j], x[k, y, z])
        return out

    def avg(self, x: Array, o: dict[str, Any]) -> Array:
        return np.asarray(x.mean((1, 2), keepdims=True))

    def rout(self, x: Array, o: dict[str, Any]) -> Array:
        parts = [self.values[int(word)] for word in str(o["layers"]).split(",")]
        parts = [np.split(part, o.get("groups", 1))[o.get("group_id", 0)] for part in parts]
        return np.asarray(np.concatenate(parts))

    def shor(self, x: Array, o: dict[str, Any]) -> Array:
        out, other = x.copy(), self.values[int(o["from"])]
        other = other[:, :: other.shape[1] // x.shape[1], :: other.shape[2] // x.shape[2]]
        least = min(len(out), len(other))
        out[:least] += other[:least]
        return ACTIVATED[o["activation"]](out)

    def upsa(self, x: Array, o: dict[str, Any]) -> Array:
        return x.repeat(o["stride"], 1).repeat(o["stride"], 2)

    def reor(self, x: Array, o: dict[str, Any]) -> Array:
        (c, h, w), stride = x.shape, o["stride"]
        source, out, depth = x.ravel(), np.zeros(x.size), c // stride**2
        for k, j, i in np.ndindex(c, h, w):
            offset = k // depth
            y, z = j * stride + offset // stride, i * stride + offset % stride
            out[i + w * (j + h * k)] = source[z + w * stride * (y + h * stride * (k % depth))]
        return out.reshape(c * stride**2, h // stride, w // stride)

    def crop(self, x: Array, o: dict[str, Any]) -> Array:
        top, left = (x.shape[1] - o["crop_height"]) // 2, (x.shape[2] - o["crop_width"]) // 2
        return x[:, top : top + o["crop_height"], left : left + o["crop_width"]] * 2 - 1

    def soft(self, x: Array, o: dict[str, Any]) -> Array:
        e = np.exp(x.ravel() / o.get("temperature", 1))
        return np.asarray(e / e.sum())

    def drop(self, x: Array, o: dict[str, Any]) -> Array:
        return x

    cost = drop

    def yolo(self, x: Array, o: dict[str, Any]) -> Array:
        mask = [int(word) for word in o["mask"].split(",")]
        boxes, scale = x.reshape(len(mask), 5 + o["classes"], *x.shape[1:]).copy(), o.get("scale_x_y", 1)
        for place in (0, 1, *range(4, 5 + o["classes"])):
            boxes[:, place] = ACTIVATED["logistic"](boxes[:, place])
        boxes[:, :2] = boxes[:, :2] * scale - 0.5 * (scale - 1)
        anchors = np.array([float(word) for word in o["anchors"].split(",")])
        attributes = np.array([len(mask), *x.shape, o["classes"], o["num"]])
        out = boxes.reshape(x.shape)
        self.detections = [out, np.array(mask), anchors, attributes, *self.detections]
        return out

    def regi(self, x: Array, o: dict[str, Any]) -> Array:
        boxes = x.reshape(o["num"], 5 + o["classes"], *x.shape[1:]).copy()
        for place in (0, 1) if o.get("background") else (0, 1, 4):
            boxes[:, place] = ACTIVATED["logistic"](boxes[:, place])
        first = 4 if o.get("background") else 5
        e = np.exp(boxes[:, first:])
        boxes[:, first:] = e / e.sum(1, keepdims=True)
        anchors = np.array([float(word) for word in o["anchors"].split(",")])
        out = boxes.reshape(x.shape)
        self.detections = [
            out,
            anchors,
            np.array([o["num"], *x.shape, o["classes"], o["coords"], o.get("background", 0)]),
        ]
        return out


def image() -> Array:
    return np.random.default_rng(3).uniform(-1, 1, SIZE).astype(np.float32)


def check(found: list[Array], wanted: list[Array]) -> None:
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        if want.dtype.kind == "i":
            assert got.dtype == np.int32
        want = want if got.ndim == want.ndim else want[None]
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_give_what_darknets_formulas_give(name: str) -> None:
    reference = Reference(NETWORKS[name], image()[0])
    module, params = relay.frontend.from_darknet(text_of(NETWORKS[name]), weights=reference.file)
    result = evaluate(module["main"], [image(), *params.values()])
    check(list(result) if isinstance(result, tuple) else [result], reference.outputs)


def test_old_files_store_products_by_input() -> None:
    for version in ((0, 1), (0, 1001)):
        reference = Reference(CLASSIFIER, image()[0], version)
        module, params = relay.frontend.from_darknet(text_of(CLASSIFIER), SIZE, weights=reference.file)
        check([evaluate(module["main"], [image(), *params.values()])], reference.outputs)


@pytest.mark.parametrize("named", ["net.cfg", "net.weights"])
def test_files_are_compiled_and_run(named: str, tmp_path: Path) -> None:
    reference = Reference(TINY, image()[0])
    (tmp_path / "net.cfg").write_text(text_of(TINY))
    (tmp_path / "net.weights").write_bytes(reference.file)
    model, package, inputs, outputs = (str(tmp_path / name) for name in (named, "m.tar", "in.npz", "out.npz"))
    np.savez(inputs, data=image())
    assert main(["compile", model, "--target", "llvm", "-o", package]) == 0
    assert main(["run", package, "-i", inputs, "-o", outputs]) == 0
    with np.load(outputs) as found:
        check([found[f"output_{k}"] for k in range(8)], reference.outputs)


def test_a_script_of_the_relay_era_reads_boxes_by_their_attributes() -> None:
    reference = Reference(TINY, image()[0])
    shape = {"data": SIZE}
    module, params = relay.frontend.from_darknet(text_of(TINY), dtype="float32", shape=shape, weights=reference.file)
    library = relay.build(module, target="llvm", params=params)
    session = armillary.contrib.graph_executor.GraphModule(library["default"](armillary.cpu(0)))
    session.set_input("data", image())
    session.run()
    for k in range(2):
        attributes = session.get_output(4 * k + 3).numpy()
        boxes = session.get_output(4 * k).numpy()
        boxes = boxes.reshape((attributes[0], attributes[1] // attributes[0], attributes[2], attributes[3]))
        assert boxes.shape == (2, 7, 8 - 4 * k, 8 - 4 * k)
        assert session.get_output(4 * k + 1).numpy().tolist() == [[0, 1], [2, 3]][k]


def test_mistakes_are_named(tmp_path: Path) -> None:
    from_darknet, whole = relay.frontend.from_darknet, Reference(TINY, image()[0]).file
    with pytest.raises(ModelError, match=r"got c_void_p(.|\n)*from_darknet\('net.cfg', weights='net.weights'\)"):
        from_darknet(ctypes.c_void_p())
    with pytest.raises(ModelError, match=r"weights= is wanted"):
        from_darknet(text_of(TINY))
    (tmp_path / "net.cfg").write_text(text_of(TINY))
    with pytest.raises(ModelError, match=r"cannot read the file: No such file(.|\n)*net.weights"):
        from_darknet(tmp_path / "net.cfg")
    with pytest.raises(ModelError, match=r"ends early: layer 13 \[convolutional\] reads 84 values, 83 are left"):
        from_darknet(text_of(TINY), weights=whole[:-4])
    with pytest.raises(ModelError, match="8 bytes are left behind the weights of 15 layers"):
        from_darknet(text_of(TINY), weights=whole + b"12345678")
    with pytest.raises(UnsupportedError, match="not known: crnn, gru"):
        from_darknet(text_of([("gru", {}), ("crnn", {})]), weights=whole)
    with pytest.raises(UnsupportedError, match=r"layer 0 \[convolutional\]: xnor=1 is not supported"):
        from_darknet(text_of([("conv", {"xnor": 1})]), weights=whole)
    with pytest.raises(ModelError, match=r"layer 0 \[route\]: layers=-1, wanted layers before this one"):
        from_darknet(text_of([("route", {"layers": -1})]), weights=whole)
    with pytest.raises(ModelError, match="does not begin with"):
        from_darknet("[yolo]\n", weights=whole)
    with pytest.raises(ModelError, match="3 channels, wanted 1 anchors of 25 values"):
        from_darknet(text_of([("yolo", {"anchors": "1,2"})]), weights=whole)
    with pytest.raises(ModelError, match="the one input is 'data', got 'image'"):
        from_darknet(text_of(TINY), {"image": SIZE}, weights=whole)
    with pytest.raises(TypeMismatch, match=r"layer 0 \[convolutional\]"):
        from_darknet(text_of([("conv", {"size": 99})]), weights=bytes(16) + bytes(4 * (1 + 3 * 99 * 99)))


def test_damaged_files_end_in_our_errors() -> None:
    random = np.random.default_rng(11)
    for layers in (TINY, REGION, CLASSIFIER):
        text, whole = text_of(layers), Reference(layers, image()[0]).file
        for _ in range(60):
            letters = list(text)
            for place in random.integers(0, len(text), 3):
                letters[place] = random.choice(list("0123456789-,=[]\n.x"))
            damaged = bytearray(whole[: int(random.integers(0, len(whole)))] if random.integers(2) else whole)
            for place in random.integers(0, 40, 2):
                damaged[min(place, len(damaged) - 1)] = int(random.integers(256))
            try:
                relay.frontend.from_darknet("".join(letters) + "\n", weights=bytes(damaged))
            except ArmillaryError:
                continue
