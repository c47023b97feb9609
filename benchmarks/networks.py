"""The benchmarks' networks as ONNX files, made here: nothing is downloaded.

In: a name, a batch size, an image side. Out: an ONNX file with seeded He-initialised weights and unfolded batch norms,
as a training framework would export it. Invariant: the same name and sizes give the same bytes; parameter counts are
those of the published architectures (a test checks them).

    python benchmarks/networks.py resnet18 --side 224 --folder build/benchmarks
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(__file__).resolve().parents[1] / "build" / "benchmarks"
_OPSET, _IR_VERSION, _CLASSES = 17, 8, 1000
_FILE_LIMIT = 1.5e9  # bytes of one layer; protobuf holds 2 GiB at most
_MOBILE = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
_VGG = [64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0]


@dataclass(frozen=True)
class Flow:
    """A tensor on its way through the network: its name and its channels."""

    name: str
    channels: int


class Builder:
    """Collects the nodes and weights of one network."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, operator: str, inputs: Sequence[str], channels: int, **attributes: Any) -> Flow:  # Any: by operator
        """Add a node."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=f"n_{name}", **attributes))
        return Flow(name, channels)

    def weight(self, array: Any) -> str:  # Any: array-likes
        """Add a weight."""
        name = f"w_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def normal(self, shape: Sequence[int], fan_in: int) -> Any:  # Any: an array
        """He initialisation: keeps the scale of activations from layer to layer."""
        return self.random.standard_normal(shape) * math.sqrt(2.0 / fan_in)

    def conv(
        self, x: Flow, out: int, kernel: int, stride: int = 1, pad: int = 0, groups: int = 1, bias: bool = False
    ) -> Flow:
        """A convolution."""
        per_group = x.channels // groups
        inputs = [x.name, self.weight(self.normal((out, per_group, kernel, kernel), per_group * kernel * kernel))]
        if bias:
            inputs.append(self.weight(0.1 * self.random.standard_normal(out)))
        return self.node(
            "Conv", inputs, out, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, group=groups
        )

    def norm(self, x: Flow, gain: float = 1.0) -> Flow:
        """A batch normalisation; `gain` below 1 keeps sums of branches from growing."""
        draw = self.random.standard_normal
        rows = (gain * self.random.uniform(0.8, 1.2, x.channels), 0.1 * draw(x.channels), 0.1 * draw(x.channels))
        variance = self.random.uniform(0.8, 1.25, x.channels)
        names = [x.name, *map(self.weight, (*rows, variance))]
        return self.node("BatchNormalization", names, x.channels, epsilon=1e-5)

    def relu(self, x: Flow) -> Flow:
        """A rectifier."""
        return self.node("Relu", [x.name], x.channels)

    def relu6(self, x: Flow) -> Flow:
        """A rectifier that saturates at 6."""
        return self.node("Clip", [x.name, self.weight(0.0), self.weight(6.0)], x.channels)

    def max_pool(self, x: Flow, kernel: int, stride: int, pad: int = 0, ceil: bool = False) -> Flow:
        """A maximum over windows."""
        sizes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        return self.node("MaxPool", [x.name], x.channels, ceil_mode=int(ceil), **sizes)

    def pooled(self, x: Flow) -> Flow:
        """The mean of each channel, flat."""
        return self.flat(self.node("GlobalAveragePool", [x.name], x.channels), x.channels)

    def flat(self, x: Flow, size: int) -> Flow:
        """Everything behind the batch as one axis."""
        return self.node("Flatten", [x.name], size, axis=1)

    def dense(self, x: Flow, out: int) -> Flow:
        """A fully connected layer."""
        names = [x.name, self.weight(self.normal((out, x.channels), x.channels)), self.weight(np.zeros(out))]
        return self.node("Gemm", names, out, transB=1)

    def unit(self, x: Flow, out: int, kernel: int, stride: int = 1, groups: int = 1, mobile: bool = False) -> Flow:
        """Convolution, normalisation, rectifier."""
        y = self.norm(self.conv(x, out, kernel, stride, kernel // 2, groups))
        return self.relu6(y) if mobile else self.relu(y)


def _resnet(blocks: Sequence[int], bottleneck: bool) -> Callable[[Builder, Flow, int], Flow]:
    def body(net: Builder, x: Flow, _side: int) -> Flow:
        x = net.max_pool(net.unit(x, 64, 7, 2), 3, 2, 1)
        for stage, count in enumerate(blocks):
            for index in range(count):
                stride = 2 if stage and index == 0 else 1
                x = _block(net, x, 64 << stage, stride, bottleneck)
        return net.dense(net.pooled(x), _CLASSES)

    return body


def _block(net: Builder, x: Flow, width: int, stride: int, bottleneck: bool) -> Flow:
    out = width * (4 if bottleneck else 1)
    if bottleneck:
        y = net.conv(net.unit(net.unit(x, width, 1), width, 3, stride), out, 1)
    else:
        y = net.conv(net.unit(x, width, 3, stride), out, 3, 1, 1)
    y = net.norm(y, 0.5)
    if stride != 1 or x.channels != out:
        x = net.norm(net.conv(x, out, 1, stride))
    return net.relu(net.node("Add", [y.name, x.name], out))


def _mobilenet(net: Builder, x: Flow, _side: int) -> Flow:
    x = net.unit(x, 32, 3, 2, mobile=True)
    for out, stride in _MOBILE:
        x = net.unit(x, x.channels, 3, stride, x.channels, mobile=True)
        x = net.unit(x, out, 1, mobile=True)
    return net.dense(net.pooled(x), _CLASSES)


def _squeezenet(net: Builder, x: Flow, _side: int) -> Flow:
    def fire(x: Flow, squeeze: int, expand: int) -> Flow:
        x = net.relu(net.conv(x, squeeze, 1, bias=True))
        parts = (net.conv(x, expand, 1, bias=True), net.conv(x, expand, 3, 1, 1, bias=True))
        return net.node("Concat", [net.relu(part).name for part in parts], 2 * expand, axis=1)

    x = net.max_pool(net.relu(net.conv(x, 64, 3, 2, bias=True)), 3, 2, ceil=True)
    x = net.max_pool(fire(fire(x, 16, 64), 16, 64), 3, 2, ceil=True)
    x = net.max_pool(fire(fire(x, 32, 128), 32, 128), 3, 2, ceil=True)
    for squeeze in (48, 48, 64, 64):
        x = fire(x, squeeze, 4 * squeeze)
    return net.pooled(net.relu(net.conv(x, _CLASSES, 1, bias=True)))


def _vgg(net: Builder, x: Flow, side: int) -> Flow:
    for out in _VGG:
        x = net.relu(net.conv(x, out, 3, 1, 1, bias=True)) if out else net.max_pool(x, 2, 2)
    flat = x.channels * (side // 32) ** 2
    if not 0 < flat * 4096 * 4 < _FILE_LIMIT:
        gigabytes = f"the first dense layer of vgg16 would take {flat * 4096 * 4 / 1e9:.1f} GB"
        raise SystemExit(f"vgg16 at side {side}: {gigabytes}; sides from 32 to 415 fit an ONNX file")
    x = net.flat(x, flat)
    return net.dense(net.relu(net.dense(net.relu(net.dense(x, 4096)), 4096)), _CLASSES)


NETWORKS: dict[str, Callable[[Builder, Flow, int], Flow]] = {
    "resnet18": _resnet((2, 2, 2, 2), False),
    "resnet50": _resnet((3, 4, 6, 3), True),
    "mobilenet_v1": _mobilenet,
    "squeezenet1_1": _squeezenet,
    "vgg16": _vgg,
}


def build(name: str, batch: int = 1, side: int = 224) -> onnx.ModelProto:
    """The model of a network."""
    net = Builder(sum(map(ord, name)))
    result = NETWORKS[name](net, Flow("input", 3), side)
    net.nodes[-1].output[0] = "output"
    x = helper.make_tensor_value_info("input", TensorProto.FLOAT, [batch, 3, side, side])
    y = helper.make_tensor_value_info("output", TensorProto.FLOAT, [batch, result.channels])
    graph = helper.make_graph(net.nodes, name, [x], [y], net.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = _IR_VERSION
    return model


def network_file(name: str, batch: int = 1, side: int = 224, folder: Path = FOLDER) -> Path:
    """The file of a network, written now if it is not there."""
    if name not in NETWORKS:
        raise SystemExit(f"there is no network {name!r}: give an .onnx file or one of {', '.join(NETWORKS)}")
    path = folder / f"{name}_b{batch}_s{side}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".part")
        onnx.save(build(name, batch, side), str(partial))
        partial.replace(path)
    return path


def main() -> None:
    """Write networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=f"of: {', '.join(NETWORKS)}")
    parser.add_argument("--batch", type=int, default=1, help="default: 1")
    parser.add_argument("--side", type=int, default=224, help="default: 224")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: build/benchmarks")
    args = parser.parse_args()
    if args.batch < 1 or args.side < 1:
        parser.error(f"--batch {args.batch} --side {args.side}: both must be at least 1")
    for name in args.networks:
        path = network_file(name, args.batch, args.side, args.folder)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
