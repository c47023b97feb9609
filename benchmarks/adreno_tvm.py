"""The layers that `adreno.py` compares, and what Apache TVM makes of them: OpenCL C from its pip wheel.

    PYTHON_WITH_TVM benchmarks/adreno_tvm.py FOLDER

In: nothing; needs a Python of its own with apache-tvm 0.27. Out: FOLDER/NAME.cl for each layer in float32 whose source
that version makes. Convolutions of one group are on blocks of four channels, as its pipeline for Adreno GPUs asks;
depthwise ones, pooling and dense layers, which it refuses there, are in plain layout. Invariant: a layer's kernels are
those of its `conv2d`, `pool2d` or `matmul`; a kernel of padding beside them is not counted against it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple


class Layer(NamedTuple):
    """Input (N, C, H, W) and weight (O, I, KH, KW; none: pooling), stride, padding, groups."""

    data: tuple[int, ...]
    weight: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    groups: int = 1


def _conv(c: int, o: int, size: int, kernel: int, stride: int = 1) -> Layer:
    return Layer((1, c, size, size), (o, c, kernel, kernel), stride, kernel // 2)


def _depthwise(c: int, size: int, stride: int = 1) -> Layer:
    return Layer((1, c, size, size), (c, 1, 3, 3), stride, 1, c)


LAYERS: dict[str, Layer] = {
    "resnet50_conv1x1_64_64_56": _conv(64, 64, 56, 1),
    "resnet50_conv1x1_64_256_56": _conv(64, 256, 56, 1),
    "resnet50_conv1x1_256_64_56": _conv(256, 64, 56, 1),
    "resnet50_conv3x3_64_64_56": _conv(64, 64, 56, 3),
    "resnet50_conv3x3_128_128_56_s2": _conv(128, 128, 56, 3, 2),
    "resnet50_conv1x1_512_128_28": _conv(512, 128, 28, 1),
    "resnet50_conv3x3_128_128_28": _conv(128, 128, 28, 3),
    "resnet50_conv1x1_128_512_28": _conv(128, 512, 28, 1),
    "resnet50_conv3x3_256_256_28_s2": _conv(256, 256, 28, 3, 2),
    "resnet50_conv1x1_1024_256_14": _conv(1024, 256, 14, 1),
    "resnet50_conv3x3_256_256_14": _conv(256, 256, 14, 3),
    "resnet50_conv1x1_256_1024_14": _conv(256, 1024, 14, 1),
    "resnet50_conv3x3_512_512_14_s2": _conv(512, 512, 14, 3, 2),
    "resnet50_conv1x1_2048_512_7": _conv(2048, 512, 7, 1),
    "resnet50_conv3x3_512_512_7": _conv(512, 512, 7, 3),
    "resnet50_conv1x1_512_2048_7": _conv(512, 2048, 7, 1),
    "mobilenetv2_conv1x1_16_96_112": _conv(16, 96, 112, 1),
    "mobilenetv2_conv1x1_96_24_56": _conv(96, 24, 56, 1),
    "mobilenetv2_conv1x1_24_144_56": _conv(24, 144, 56, 1),
    "mobilenetv2_conv1x1_144_32_28": _conv(144, 32, 28, 1),
    "mobilenetv2_conv1x1_32_192_28": _conv(32, 192, 28, 1),
    "mobilenetv2_conv1x1_64_384_14": _conv(64, 384, 14, 1),
    "mobilenetv2_conv1x1_384_64_14": _conv(384, 64, 14, 1),
    "mobilenetv2_conv1x1_96_576_14": _conv(96, 576, 14, 1),
    "mobilenetv2_conv1x1_576_160_7": _conv(576, 160, 7, 1),
    "mobilenetv2_conv1x1_160_960_7": _conv(160, 960, 7, 1),
    "mobilenetv2_conv1x1_320_1280_7": _conv(320, 1280, 7, 1),
    "mobilenetv2_depthwise_96_112_s2": _depthwise(96, 112, 2),
    "mobilenetv2_depthwise_144_56": _depthwise(144, 56),
    "mobilenetv2_depthwise_192_28": _depthwise(192, 28),
    "mobilenetv2_depthwise_384_14": _depthwise(384, 14),
    "mobilenetv2_depthwise_960_7": _depthwise(960, 7),
    "resnet50_dense_2048_1000": Layer((1, 2048), (1000, 2048)),
    "mobilenetv2_dense_1280_1000": Layer((1, 1280), (1000, 1280)),
}


def _module(layer: Layer) -> Any:  # Any: TVM's modules have no types here
    import numpy as np
    from tvm import relax

    blocked = len(layer.data) == 4 and layer.groups == 1
    data, weight = layer.data, layer.weight
    if blocked:
        data = (data[0], data[1] // 4, *data[2:], 4)
        weight = (weight[0] // 4, *weight[1:], 4)
    x, w = relax.Var("x", relax.TensorType(data, "float32")), relax.const(np.ones(weight, "float32"))
    layouts = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4o", "out_layout": "NCHW4c"} if blocked else {}
    options = {"strides": layer.stride, "padding": layer.padding, "groups": layer.groups, **layouts}
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            if len(data) == 2:
                made = builder.emit(relax.op.linear(x, w))
            else:
                made = builder.emit(relax.op.nn.conv2d(x, w, **options))
            result = builder.emit_output(builder.emit(relax.op.nn.relu(made)))
        builder.emit_func_output(result)
    return builder.get()


def _source(layer: Layer) -> str:
    import tvm
    from tvm.relax.backend.adreno import pipeline

    keys = ["adreno", "opencl", "gpu", *(["texture"] if len(layer.data) == 4 and layer.groups == 1 else [])]
    target = tvm.target.Target(tvm.target.Target({"kind": "opencl", "device": "adreno", "keys": keys}), "llvm")
    module = _module(layer)
    with target:
        for step in pipeline.legalize_passes(target):
            if step.info.name != "ConvertLayout":  # it ends the process; the layouts are there already
                module = step(module)
    rest = tvm.transform.Sequential([*pipeline.dataflow_lower_passes(target), *pipeline.finalize_passes(target)])
    found: list[str] = []

    def visit(part: Any) -> None:
        if part.kind == "opencl":
            found.append(part.inspect_source())
        for inner in part.imports:
            visit(inner)

    visit(tvm.compile(module, target, relax_pipeline=rest).mod)
    return "\n".join(found)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, layer in LAYERS.items():
        try:
            (folder / f"{name}.cl").write_text(_source(layer))
        except Exception as error:  # what a version of TVM refuses is told
            print(f"{name}: {' '.join(str(error).split())[-200:]}", flush=True)


if __name__ == "__main__":
    main()
