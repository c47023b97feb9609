"""Damaged and hostile inputs, made from good ones by a seeded generator.

In: a seed. Out: (name, bytes) pairs for each kind of outside bytes the package reads: ONNX models, parameter blobs,
graph JSON, descriptors, package tars. Invariant: the same seed gives the same corpus; nothing is stored in the tree.
"""

from __future__ import annotations

import io
import json
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from armillary.artifact import save_params

SEED = 20_240
Item = tuple[str, bytes]
_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
_CONVERTED = ("test_Conv2d_groups", "test_BatchNorm2d_eval", "test_Linear", "test_ConvTranspose2d", "test_Softmax")


def good_models() -> dict[str, bytes]:
    """Small real models: those of the light zoo and some single layers."""
    files = sorted((_DATA / "light").glob("*.onnx"), key=lambda f: f.stat().st_size)[:6]
    files += [_DATA / "pytorch-converted" / name / "model.onnx" for name in _CONVERTED]
    return {(f.stem if f.stem != "model" else f.parent.name): f.read_bytes() for f in files}


def damaged(data: bytes, rng: random.Random) -> Iterator[Item]:
    """Cut short, bits flipped, a span zeroed, spans doubled, removed, exchanged."""
    size = len(data)
    for _ in range(5):
        cut = rng.randrange(1, size)
        yield f"cut@{cut}", data[:cut]
    for _ in range(6):
        copy = bytearray(data)
        places = [rng.randrange(size) for _ in range(rng.choice((1, 1, 3, 20)))]
        for place in places:
            copy[place] ^= 1 << rng.randrange(8)
        yield f"flip@{places[0]}", bytes(copy)
    start, length = rng.randrange(size), rng.randrange(1, 64)
    yield f"zero@{start}", data[:start] + bytes(min(length, size - start)) + data[start + length :]
    yield f"double@{start}", data[:start] + data[start : start + length] * 2 + data[start + length :]
    yield f"remove@{start}", data[:start] + data[start + length :]


def onnx_corpus() -> Iterator[Item]:
    """Damage to the bytes of good models."""
    rng = random.Random(SEED)
    for name, data in good_models().items():
        yield from ((f"{name}:{what}", bad) for what, bad in damaged(data, rng))


def hostile_models() -> Iterator[Item]:
    """Well-formed protobuf whose content is wrong: each must be refused."""
    rng = random.Random(SEED + 1)
    for name, data in good_models().items():
        for change in (
            _drop_initializer,
            _rename_input,
            _swap_types,
            _huge_dims,
            _make_cycle,
            _unknown_op,
            _drop_output,
        ):
            proto = ModelProto.FromString(data)
            if change(proto, rng):
                yield f"{name}:{change.__name__.lstrip('_')}", proto.SerializeToString()


def _drop_initializer(proto: ModelProto, rng: random.Random) -> bool:
    read = {name for node in proto.graph.node for name in node.input}
    held = [i for i, t in enumerate(proto.graph.initializer) if t.name in read]
    if not held:
        return False
    index = rng.choice(held)
    name = proto.graph.initializer[index].name
    del proto.graph.initializer[index]
    for i, value in reversed(list(enumerate(proto.graph.input))):
        if value.name == name:
            del proto.graph.input[i]
    return True


def _rename_input(proto: ModelProto, rng: random.Random) -> bool:
    node = rng.choice([n for n in proto.graph.node if n.input])
    node.input[0] = "no such value"
    return True


def _swap_types(proto: ModelProto, rng: random.Random) -> bool:
    proto.graph.input[0].type.tensor_type.elem_type = rng.choice([TensorProto.STRING, TensorProto.COMPLEX64, 99])
    return True


def _huge_dims(proto: ModelProto, rng: random.Random) -> bool:
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_value = rng.choice([1 << 40, -7, 1 << 62])
    return bool(proto.graph.input[0].type.tensor_type.shape.dim)


def _make_cycle(proto: ModelProto, rng: random.Random) -> bool:
    last, first = proto.graph.node[-1], next(n for n in proto.graph.node if n.input)
    first.input[0] = last.output[0]
    return True


def _unknown_op(proto: ModelProto, rng: random.Random) -> bool:
    proto.graph.node[-1].op_type = "Frobnicate"
    return True


def _drop_output(proto: ModelProto, rng: random.Random) -> bool:
    del proto.graph.output[:]
    return True


def bomb_models() -> Iterator[Item]:
    """A few bytes that ask for a great deal of memory."""
    dims = numpy_helper.from_array(np.array([1 << 20, 1 << 20, 1 << 10]), "n")
    nodes = [helper.make_node("ConstantOfShape", ["n"], ["big"]), helper.make_node("Add", ["x", "big"], ["y"])]
    yield "constant-of-shape", _model(nodes, [dims])
    reshape = [helper.make_node("Expand", ["x", "n"], ["big"]), helper.make_node("ReduceSum", ["big"], ["y"])]
    yield "expand", _model(reshape, [dims])
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 31, 1 << 31])
    yield "initialiser", _model([helper.make_node("Add", ["x", "w"], ["y"])], [weight])
    deep = [helper.make_node("Concat", [f"t{i}"] * 8, [f"t{i + 1}"], axis=0) for i in range(24)]
    yield (
        "doubling",
        _model([helper.make_node("Identity", ["x"], ["t0"]), *deep, helper.make_node("Neg", ["t24"], ["y"])], []),
    )


def _model(nodes: list[Any], weights: list[TensorProto]) -> bytes:
    make = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "bomb", [make("x", 1, [1])], [make("y", 1, None)], weights)
    data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    return data


def params_corpus() -> Iterator[Item]:
    """Damage to a parameter blob, and lies in its header."""
    rng = random.Random(SEED + 2)
    blob = save_params({"w": np.arange(12, dtype=np.float32).reshape(3, 4), "bias": np.ones(3, np.int8)})
    for _ in range(3):
        yield from (item for item in damaged(blob, rng) if item[1] != blob)
    for offset in range(0, min(len(blob), 160), 8):
        for lie in (2**63 - 1, 2**40):
            yield f"lie@{offset}={lie}", blob[:offset] + lie.to_bytes(8, "little") + blob[offset + 8 :]


def graph_json() -> dict[str, Any]:
    """A small good graph."""
    call = {"func_name": "fused_add", "flatten_data": "0", "num_inputs": "2", "num_outputs": "1"}
    return {
        "nodes": [
            {"op": "null", "name": "x", "inputs": []},
            {"op": "null", "name": "p0", "inputs": []},
            {"op": "tvm_op", "name": "add", "inputs": [[0, 0, 0], [1, 0, 0]], "attrs": call},
        ],
        "arg_nodes": [0, 1],
        "heads": [[2, 0, 0]],
        "attrs": {
            "shape": ["list_shape", [[2, 3], [3], [2, 3]]],
            "dltype": ["list_str", ["float32"] * 3],
            "storage_id": ["list_int", [0, 1, 2]],
        },
        "node_row_ptr": [0, 1, 2, 3],
    }


def graph_json_corpus() -> Iterator[Item]:
    """Graph JSON cut short, and with each value replaced by something wrong."""
    text = json.dumps(graph_json())
    rng = random.Random(SEED + 3)
    for _ in range(10):
        cut = rng.randrange(1, len(text) - 1)
        yield f"cut@{cut}", text[:cut].encode()
    for path in list(_paths(graph_json())):
        for wrong in (-1, 1 << 70, None, "x" * 10, [], {}):
            broken = graph_json()
            _assign(broken, path, wrong)
            if path[-1] not in ("name", "func_name", "flatten_data") or not isinstance(wrong, str):
                yield f"{'.'.join(map(str, path))}={str(wrong)[:12]}", json.dumps(broken).encode()
    yield "deep", b"[" * 100_000
    yield "not-utf8", b"\xff\xfe{}"


def _paths(value: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*prefix, key)
        yield from _paths(inner, (*prefix, key))


def _assign(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def tar_corpus() -> Iterator[Item]:
    """Package tars: damaged bytes, members that escape, links, devices, duplicates, lies about sizes."""
    rng = random.Random(SEED + 4)
    good = _tar(
        [("mod.so", b"\x7fELF" + bytes(60)), ("mod.json", json.dumps(graph_json()).encode()), ("mod.params", b"")]
    )
    for _ in range(2):
        yield from damaged(good, rng)
    for evil in ("../evil.so", "/tmp/evil.so", "a/../../evil", "mod.so/../../evil", "..", "mod.so\n"):
        yield f"member {evil!r}", _tar([(evil, b"x")])
        yield f"extra {evil!r}", _tar([("mod.so", b"x"), ("mod.json", b"{}"), ("mod.params", b""), (evil, b"x")])
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
        yield f"kind {kind!r}", _tar([("mod.so", b"")], kind)
    yield "twice", _tar([("mod.so", b"a"), ("mod.so", b"b"), ("mod.json", b"{}"), ("mod.params", b"")])
    yield "missing", _tar([("mod.json", b"{}")])
    yield "empty", _tar([])
    head = bytearray(_tar([("mod.so", b"x")])[:512])
    head[124:136] = b"77777777777\0"
    head[148:156] = b" " * 8
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    yield "size of 8 GiB", bytes(head) + bytes(1024)


def _tar(members: list[tuple[str, bytes]], kind: bytes = tarfile.REGTYPE) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            info.size = len(data) if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()
