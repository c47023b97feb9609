"""Records what MXNet 1.9.1 computes: `python record.py` where it is installed (numpy below 1.24) writes these files.

Out: operators.npz (symbols, shapes and outputs of single operators), tiny-symbol.json, tiny-0000.params and tiny.npz (a
network that Gluon exported). Values of inputs and parameters are drawn by `draws`, from the case's name.
"""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
_UNARY = [
    "abs",
    "exp",
    "floor",
    "ceil",
    "trunc",
    "fix",
    "round",
    "rint",
    "sign",
    "sigmoid",
    "relu",
    "erf",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "arctan",
    "arcsinh",
    "square",
    "cbrt",
    "softsign",
    "expm1",
    "negative",
    "radians",
    "degrees",
    "hard_sigmoid",
    "BlockGrad",
    "logical_not",
]
_OF_POSITIVE = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "rcbrt", "reciprocal", "arccosh"]
_BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "mod",
    "maximum",
    "minimum",
    "equal",
    "not_equal",
    "greater",
    "greater_equal",
    "lesser",
    "lesser_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
]


def draws(name: str, shapes: dict[str, list[int]]) -> dict[str, np.ndarray]:
    """An array for each name: numbers of ids, lengths and indices are whole, variances positive."""
    random = np.random.RandomState(zlib.crc32(name.encode()))
    found = {}
    for key, shape in shapes.items():
        values = random.uniform(-2, 2, shape)
        if "var" in key or "positive" in key:
            values = random.uniform(0.5, 2, shape)
        if "index" in key or "length" in key:
            values = random.randint(1, 4, shape)
        if key.startswith("boxes"):  # class, score, corners
            low, size = random.uniform(0, 0.6, (*shape[:-1], 2)), random.uniform(0.1, 0.4, (*shape[:-1], 2))
            head = [
                random.randint(0, 2, (*shape[:-1], 1)),
                random.permutation(np.prod(shape[:-1])).reshape(*shape[:-1], 1) / 20 + 0.1,
            ]
            values = np.concatenate([*head, low, low + size], -1)
        found[key] = values.astype("float32")
    return found


def cases(s):  # mxnet.symbol
    """(name, symbol, shapes of the inputs that do not follow)."""
    x, y, z = s.var("x"), s.var("y"), s.var("z")
    image, seq, wide = {"x": (2, 4, 9, 8)}, {"x": (5, 2, 6)}, {"x": (2, 3, 4)}
    for name in _UNARY:
        yield name, getattr(s, name)(x), wide
    for name in _OF_POSITIVE:
        yield name, getattr(s, name)(s.var("positive") + 1.0), {"positive": (2, 3)}
    yield "arcsin", s.arcsin(x * 0.4) + s.arccos(x * 0.4) + s.arctanh(x * 0.4), wide
    yield "binary", s.elemwise_add(x, y) * y - x / (y + 5.0), {**wide, "y": (2, 3, 4)}
    for name in _BINARY:
        yield f"broadcast_{name}", getattr(s, f"broadcast_{name}")(s.round(x), s.round(y)), {**wide, "y": (1, 3, 1)}
    yield "broadcast_power", s.broadcast_power(s.var("positive"), y), {"positive": (2, 3), "y": (1, 3)}
    yield "scalars", s.maximum(2.0 - x, 1.0 / (x + 4.0)) + (x > 0.5) * (x <= 1.0) + (x != 0.0) + x % 3.0, wide
    positive = s.var("positive")
    yield "scalar_power", positive**2.0 + 2.0**positive, {"positive": (3, 4)}
    yield "add_n", s.add_n(x, y, z), {**wide, "y": (2, 3, 4), "z": (2, 3, 4)}
    yield "smooth_l1", s.smooth_l1(x, scalar=2.0), wide
    yield "clip", s.clip(x, a_min=-0.5, a_max=1.0), wide
    yield "cast", s.Cast(s.Cast(x, dtype="int32"), dtype="float32"), wide
    yield "where", s.where(x > 0.0, x, y), {**wide, "y": (2, 3, 4)}
    yield "like", s.zeros_like(x) + s.ones_like(x), wide
    conv = {"kernel": (3, 3), "num_filter": 6}
    yield "conv", s.Convolution(x, stride=(2, 1), pad=(1, 1), name="c", **conv), image
    yield "conv_groups", s.Convolution(x, num_group=2, dilate=(2, 2), no_bias=True, name="c", **conv), image
    yield "conv1d", s.Convolution(x, kernel=(3,), num_filter=5, name="c"), {"x": (2, 3, 9)}
    yield "conv3d", s.Convolution(x, kernel=(2, 2, 2), num_filter=3, name="c"), {"x": (1, 2, 4, 4, 4)}
    yield "deconv", s.Deconvolution(x, stride=(2, 2), pad=(1, 1), adj=(1, 1), name="c", **conv), image
    yield "deconv_bias", s.Deconvolution(x, stride=(2, 1), num_group=2, no_bias=False, name="c", **conv), image
    pool = {"kernel": (3, 2), "stride": (2, 2)}
    for kind in ("max", "avg", "sum"):
        yield f"pool_{kind}", s.Pooling(x, pool_type=kind, pad=(1, 1), **pool), image
        yield f"pool_global_{kind}", s.Pooling(x, pool_type=kind, global_pool=True, kernel=(1, 1)), image
    for kind in ("max", "avg"):
        yield (
            f"pool_full_{kind}",
            s.Pooling(x, pool_type=kind, pooling_convention="full", kernel=(3, 3), stride=(2, 2)),
            image,
        )
    yield (
        "pool_full_pad",
        s.Pooling(x, pool_type="avg", pooling_convention="full", kernel=(3, 3), stride=(2, 2), pad=(1, 1)),
        {"x": (1, 2, 8, 8)},
    )
    yield "pool_without_pad", s.Pooling(x, pool_type="avg", pad=(1, 1), count_include_pad=False, **pool), image
    yield "pool1d", s.Pooling(x, pool_type="max", kernel=(2,), stride=(2,)), {"x": (2, 3, 9)}
    yield "adaptive", s.contrib.AdaptiveAvgPooling2D(x, output_size=(3, 4)), image
    yield "dense", s.FullyConnected(x, num_hidden=5, name="f"), wide
    yield "dense_rows", s.FullyConnected(x, num_hidden=5, flatten=False, name="f"), wide
    yield "dense_no_bias", s.FullyConnected(x, num_hidden=5, no_bias=True, name="f"), wide
    for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
        yield f"act_{kind}", s.Activation(x, act_type=kind), wide
    for kind in ("leaky", "elu", "selu", "gelu", "prelu"):
        yield f"leaky_{kind}", s.LeakyReLU(x, act_type=kind, name="l"), wide
    yield "batch_norm", s.BatchNorm(x, fix_gamma=False, name="b"), image
    yield "batch_norm_fixed", s.BatchNorm(x, name="b"), image
    yield "instance_norm", s.InstanceNorm(x, name="n"), image
    yield "layer_norm", s.LayerNorm(x, name="n"), wide
    yield "group_norm", s.GroupNorm(x, num_groups=2, name="n"), image
    yield "lrn", s.LRN(x, nsize=3), image
    for mode in ("instance", "channel", "spatial"):
        yield f"l2_{mode}", s.L2Normalization(x, mode=mode), image
    yield "dropout", s.Dropout(x), wide
    yield "softmax", s.softmax(x, axis=1, temperature=2.0) + s.log_softmax(x) + s.softmin(x), wide
    yield "softmax_activation", s.SoftmaxActivation(x, mode="channel"), image
    yield "softmax_output", s.SoftmaxOutput(x, name="softmax"), {"x": (3, 5)}
    yield "softmax_multi", s.SoftmaxOutput(x, multi_output=True, name="softmax"), image
    yield "logistic", s.LogisticRegressionOutput(x, name="out"), {"x": (3, 5)}
    yield "upsampling", s.UpSampling(x, scale=2, sample_type="nearest"), image
    yield "bilinear", s.contrib.BilinearResize2D(x, height=13, width=5), image
    yield "pad", s.Pad(x, mode="constant", pad_width=(0, 0, 0, 0, 1, 2, 3, 0), constant_value=1.5), image
    yield "pad_edge", s.Pad(x, mode="edge", pad_width=(0, 0, 0, 0, 1, 2, 3, 0)), image
    yield "pad_reflect", s.Pad(x, mode="reflect", pad_width=(0, 0, 0, 0, 1, 2, 3, 0)), image
    scores = s.contrib.interleaved_matmul_selfatt_qk(x, heads=2)
    yield "attention", s.contrib.interleaved_matmul_selfatt_valatt(x, s.softmax(scores), heads=2), {"x": (5, 3, 24)}
    across = s.contrib.interleaved_matmul_encdec_qk(x, y, heads=2)
    yield (
        "attention_across",
        s.contrib.interleaved_matmul_encdec_valatt(y, s.softmax(across), heads=2),
        {"x": (4, 3, 8), "y": (5, 3, 16)},
    )
    yield "div_sqrt_dim", s.contrib.div_sqrt_dim(x), wide
    yield "flatten", s.Flatten(x), image
    for shape, reverse in (
        ((-1, 6), False),
        ((0, -1), False),
        ((-2,), False),
        ((0, -3), False),
        ((-4, 1, -1, -2), False),
        ((0, -4, 3, -1, 0), False),
        ((-1, 0), True),
    ):
        yield (
            f"reshape{shape}{reverse}",
            s.Reshape(x, shape=shape, reverse=reverse),
            {"x": (2, 3, 4)} if len(shape) < 5 else {"x": (2, 6, 4)},
        )
    yield "transpose", s.transpose(x), wide
    yield "transpose_axes", s.transpose(x, axes=(1, 0, 2)), wide
    yield "swap", s.SwapAxis(x, dim1=0, dim2=2), wide
    yield "expand", s.squeeze(s.expand_dims(x, axis=1), axis=1), wide
    yield "concat", s.Concat(x, y, dim=1), {**wide, "y": (2, 2, 4)}
    yield "stack", s.stack(x, y, axis=1), {**wide, "y": (2, 3, 4)}
    parts = s.SliceChannel(x, num_outputs=3, axis=1, squeeze_axis=True)
    yield "split", s.Group([parts[2], parts[0]]), wide
    pieces = s.split_v2(x, (1, 3), axis=2)
    yield "split_v2", s.Group([pieces[0], pieces[1], pieces[2]]), wide
    yield "slice", s.slice(x, begin=(0, None, 3), end=(None, 2, 0), step=(1, 1, -1)), wide
    yield "slice_axis", s.slice_axis(x, axis=-1, begin=1, end=None), wide
    yield "slice_like", s.slice_like(x, y, axes=(1, 2)), {**wide, "y": (1, 2, 3)}
    yield "crop", s.Crop(x, h_w=(4, 5), center_crop=True), image
    yield "tile", s.tile(x, reps=(2, 1, 2)), wide
    yield "repeat", s.repeat(x, repeats=2, axis=1), wide
    yield "reverse", s.reverse(x, axis=(0, 2)), wide
    yield "broadcast_axis", s.broadcast_axis(x, axis=1, size=3), {"x": (2, 1, 4)}
    yield "broadcast_to", s.broadcast_to(x, shape=(0, 3, 4)), {"x": (2, 1, 4)}
    yield "broadcast_like", s.broadcast_like(x, y), {"x": (2, 1, 4), "y": (2, 3, 4)}
    yield "depth", s.space_to_depth(s.depth_to_space(x, block_size=2), block_size=4), {"x": (1, 8, 4, 4)}
    yield "embedding", s.Embedding(s.var("index"), input_dim=5, output_dim=3, name="e"), {"index": (2, 4)}
    yield "take", s.take(x, s.var("index"), axis=1), {"x": (2, 5, 3), "index": (2, 2)}
    yield "pick", s.pick(x, s.var("index"), axis=1), {"x": (2, 5, 3), "index": (2, 3)}
    yield "gather_nd", s.gather_nd(x, s.var("index")), {"x": (5, 5, 2), "index": (2, 3)}
    yield "one_hot", s.one_hot(s.var("index"), depth=5, on_value=2.0, off_value=-1.0), {"index": (3,)}
    yield (
        "made",
        s.broadcast_add(s.broadcast_add(x, s.arange(1, 9, step=2)), s.contrib.arange_like(x, axis=1)),
        {"x": (3, 4)},
    )
    for name in ("SequenceMask", "SequenceLast", "SequenceReverse"):
        yield name, getattr(s, name)(x, s.var("length"), use_sequence_length=True), {**seq, "length": (2,)}
    for name in ("sum", "mean", "prod", "max", "min"):
        yield name, getattr(s, name)(x, axis=(1, 2)), wide
        yield f"{name}_all", getattr(s, name)(x), wide
    yield "sum_exclude", s.sum(x, axis=1, exclude=True, keepdims=True), wide
    yield "norm", s.norm(x, axis=1) + s.norm(x, ord=1, axis=1), wide
    yield "argmax", s.argmax(x, axis=1) + s.argmin(x, axis=1), wide
    yield "argsort", s.argsort(x, axis=1), wide
    yield "sort", s.sort(x, axis=1, is_ascend=False), wide
    yield "topk", s.Group(list(s.topk(x, axis=2, k=2, ret_typ="both"))), wide
    yield "dot", s.dot(x, y, transpose_b=True), {"x": (3, 4), "y": (5, 4)}
    yield "batch_dot", s.batch_dot(x, y, transpose_a=True), {"x": (2, 3, 4), "y": (2, 3, 5)}
    yield "gemm2", s.linalg.gemm2(x, y, transpose_b=True, alpha=0.5), {"x": (2, 3, 4), "y": (2, 5, 4)}
    yield "cumsum", s.cumsum(x, axis=1), wide
    yield "prior", s.contrib.MultiBoxPrior(x, sizes=(0.3, 0.6), ratios=(1, 2)), {"x": (1, 2, 3, 4)}
    yield (
        "box_iou",
        s.contrib.box_iou(
            s.slice_axis(s.var("boxes"), axis=-1, begin=2, end=6),
            s.slice_axis(s.var("boxes2"), axis=-1, begin=2, end=6),
        ),
        {"boxes": (4, 6), "boxes2": (3, 6)},
    )
    yield (
        "box_nms",
        s.contrib.box_nms(
            s.var("boxes"), overlap_thresh=0.2, valid_thresh=0.3, id_index=0, score_index=1, coord_start=2
        ),
        {"boxes": (1, 12, 6)},
    )
    for mode in ("lstm", "gru", "rnn_relu", "rnn_tanh"):
        for both in (False, True):
            given = [s.var(name) for name in ("weights", "state")]
            cell = {"state_cell": s.var("cell")} if mode == "lstm" else {}
            net = s.RNN(
                x,
                *given,
                **cell,
                state_size=3,
                num_layers=2,
                mode=mode,
                bidirectional=both,
                state_outputs=True,
                name="r",
            )
            yield f"{mode}_{both}", s.Group(list(net)), seq


def record() -> None:
    import mxnet as mx

    names, arrays = [], {}
    for name, symbol, shapes in cases(mx.sym):
        arguments, _, states = symbol.infer_shape(**shapes)
        every = dict(zip(symbol.list_arguments(), arguments)) | dict(zip(symbol.list_auxiliary_states(), states))
        values = {key: mx.nd.array(v) for key, v in draws(name, every).items()}
        stateful = {key: values[key] for key in symbol.list_auxiliary_states()}
        plain = {key: values[key] for key in symbol.list_arguments()}
        outputs = symbol.bind(mx.cpu(), plain, aux_states=stateful).forward(is_train=False)
        names.append({"name": name, "symbol": json.loads(symbol.tojson()), "shapes": every, "outputs": len(outputs)})
        for k, output in enumerate(outputs):
            arrays[f"{name}:{k}"] = output.asnumpy()
    np.savez_compressed(
        FOLDER / "operators.npz", cases=np.frombuffer(zlib.compress(json.dumps(names).encode(), 9), "u1"), **arrays
    )
    block = network(mx)
    image = draws("tiny", {"x": [2, 3, 16, 16]})["x"]
    block(mx.nd.array(image))
    for key, p in block.collect_params().items():
        p.set_data(mx.nd.array(draws("tiny", {key: p.shape})[key] * (1 if "var" in key else 0.3)))
    result = block(mx.nd.array(image)).asnumpy()
    block.export(str(FOLDER / "tiny"))
    np.savez_compressed(FOLDER / "tiny.npz", data=image, result=result)


def network(mx):
    """A residual network of the model zoo's blocks, made small."""
    from mxnet.gluon.model_zoo.vision.resnet import BasicBlockV1, ResNetV1

    net = ResNetV1(BasicBlockV1, [1, 1], [4, 4, 8], classes=5, thumbnail=True, prefix="tiny_")
    net.initialize()
    net.hybridize()
    return net


if __name__ == "__main__":
    sys.exit(record())
