"""ONNX models of a few kilobytes that are none, or that point at what is not theirs.

In: nothing. Out: further entries of `MODELS` (hostile_models.py). Invariant: as there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hostile_models import BOOL, I64, MODELS, STRING, F, hostile, info, model, node
from onnx import ModelProto, TensorProto, helper, numpy_helper


@hostile("two nodes that make one name")
def _double_name() -> ModelProto:
    return model([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])])


@hostile("a node that makes an input")
def _made_input() -> ModelProto:
    return model([node("Relu", ["x"], ["x"]), node("Neg", ["x"], ["y"])])


@hostile("two nodes that read each other")
def _cycle() -> ModelProto:
    return model([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Neg", ["a"], ["y"])])


@hostile("a node that reads itself")
def _self_cycle() -> ModelProto:
    return model([node("Add", ["x", "y"], ["y"])])


@hostile("two inputs of one name")
def _double_input() -> ModelProto:
    made = model([node("Relu", ["x"], ["y"])])
    made.graph.input.append(info("x", I64, [9]))
    return made


@hostile("two tables of one name")
def _double_table() -> ModelProto:
    made = model([node("Add", ["x", "w"], ["y"])], weights={"w": np.ones((2, 3))})
    made.graph.initializer.append(numpy_helper.from_array(np.ones(7, np.int64), "w"))
    return made


@hostile("a graph without nodes")
def _no_nodes() -> ModelProto:
    return model([], outputs=("x",))


@hostile("a graph without results")
def _no_results() -> ModelProto:
    return model([node("Relu", ["x"], ["y"])], outputs=())


@hostile("a result that nothing makes")
def _no_source() -> ModelProto:
    return model([node("Relu", ["x"], ["z"])])


@hostile("a result without a name")
def _nameless() -> ModelProto:
    return model([node("Relu", ["x"], [""])], outputs=("",))


@hostile("operator set 2^62")
def _far_opset() -> ModelProto:
    return model([node("Relu", ["x"], ["y"])], opset=1 << 62)


@hostile("operator set -1")
def _negative_opset() -> ModelProto:
    return model([node("Relu", ["x"], ["y"])], opset=-1)


@hostile("no operator set")
def _no_opset() -> ModelProto:
    made = model([node("Relu", ["x"], ["y"])])
    del made.opset_import[:]
    return made


@hostile("operator set 18 and 7")
def _two_opsets() -> ModelProto:
    made = model([node("Relu", ["x"], ["y"])])
    made.opset_import.append(helper.make_opsetid("", 7))
    return made


@hostile("a format of the year 3000")
def _far_format() -> ModelProto:
    made = model([node("Relu", ["x"], ["y"])])
    made.ir_version = 1 << 40
    return made


def outside(name: str, location: str, offset: str = "0", length: str = "24") -> None:
    """A table whose numbers are in another file."""

    def make() -> ModelProto:
        table = TensorProto(dims=[2, 3], data_type=F, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", location), ("offset", offset), ("length", length)):
            table.external_data.add(key=key, value=value)
        return model([node("Add", ["x", "w"], ["y"])], weights={"w": table})

    MODELS[name] = make


outside("numbers of the system's users", "/etc/passwd")
outside("numbers above the folder", "../../../../../../etc/passwd")
outside("numbers of a device", "/dev/zero")
outside("numbers of no file", "none.bin")
outside("numbers of a file of 2^60 bytes", "none.bin", length=str(1 << 60))
outside("numbers before a file", "none.bin", offset="-8")
outside("numbers of a file without a name", "")
outside("numbers at a place that is no number", "none.bin", offset="x")


@hostile("strings")
def _strings() -> ModelProto:
    return model([node("Identity", ["x"], ["y"])], kind=STRING, outputs=[info("y", STRING, None)])


@hostile("a table of strings")
def _string_table() -> ModelProto:
    table = TensorProto(dims=[2], data_type=STRING, string_data=[b"\xff\xfe", b"a" * 2000])
    return model([node("Equal", ["w", "w"], ["y"])], None, {"w": table}, outputs=[info("y", BOOL, None)])


def sparse(dims: Sequence[int], indices: np.ndarray) -> ModelProto:
    """A constant of one number at a place of a sparse tensor."""
    values = numpy_helper.from_array(np.ones(len(indices), np.float32), "v")
    made = helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "i"), list(dims))
    return model([node("Constant", [], ["w"], sparse_value=made), node("Add", ["x", "w"], ["y"])], (1,))


MODELS["a sparse table of 2^40"] = lambda: sparse([1 << 20, 1 << 20], np.array([5], np.int64))
MODELS["a sparse table with a place outside"] = lambda: sparse([4, 4], np.array([99], np.int64))
MODELS["a sparse table with a place before"] = lambda: sparse([4, 4], np.array([-1], np.int64))
MODELS["a sparse table of negative size"] = lambda: sparse([-4, 4], np.array([[0, 0]], np.int64))


@hostile("a sparse initialiser of 2^40")
def _sparse_initialiser() -> ModelProto:
    made = model([node("Add", ["x", "w"], ["y"])], (1,))
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    places = numpy_helper.from_array(np.array([7], np.int64), "i")
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [1 << 40]))
    return made


@hostile("a sequence that holds a tensor 1,000 times")
def _sequences() -> ModelProto:
    nodes = [node("SequenceConstruct", ["x"] * 1000, ["s0"])]
    return model([*nodes, node("SequenceAt", ["s0", "at"], ["y"])], weights={"at": 1 << 40})


@hostile("a map over a sequence of 3,000")
def _map() -> ModelProto:
    inner = helper.make_graph([node("Exp", ["e"], ["f"])], "m", [info("e", F, None)], [info("f", F, None)])
    nodes = [
        node("SplitToSequence", ["x"], ["s"], axis=0),
        node("SequenceMap", ["s"], ["t"], body=inner),
        node("ConcatFromSequence", ["t"], ["y"], axis=0),
    ]
    return model(nodes, (3000, 2))


@hostile("a sequence that is a result")
def _sequence_result() -> ModelProto:
    return model(
        [node("SequenceConstruct", ["x"], ["y"])], outputs=[helper.make_tensor_sequence_value_info("y", F, None)]
    )


@hostile("an attribute that is a graph where a number belongs")
def _odd_attribute() -> ModelProto:
    graph = helper.make_graph([], "e", [], [])
    return model([node("Softmax", ["x"], ["y"], axis=graph)])


@hostile("a slope of 3e38")
def _far_attribute() -> ModelProto:
    return model([node("LeakyRelu", ["x"], ["y"], alpha=3e38)])


@hostile("an axis of 2^62")
def _far_axis() -> ModelProto:
    return model([node("Softmax", ["x"], ["y"], axis=1 << 62)])


@hostile("an axis of -2^63")
def _far_negative_axis() -> ModelProto:
    return model([node("Flatten", ["x"], ["y"], axis=-(1 << 63))])


@hostile("a flattened axis beyond the last")
def _far_flat_axis() -> ModelProto:
    return model([node("Flatten", ["x"], ["y"], axis=3)])


@hostile("bytes that say that 2^62 follow")
def _far_length() -> bytes:
    return b"\x3a" + b"\xff" * 8 + b"\x3f" + b"abc"


@hostile("messages in messages")
def _nested_bytes() -> bytes:
    data = b""
    for _ in range(2000):
        size, head = len(data), bytearray()
        while size > 127:
            head.append(size & 127 | 128)
            size >>= 7
        head.append(size)
        data = b"\x3a" + bytes(head) + data
    return data


@hostile("half a model")
def _half() -> bytes:
    whole = model([node("Relu", ["x"], ["y"])]).SerializeToString()
    return whole[: len(whole) // 2]


@hostile("graphs in attributes, twenty deep")
def _deep_graphs() -> ModelProto:
    made = helper.make_graph([node("Neg", ["x"], ["o"])], "b", [], [info("o", F, None)])
    for _ in range(20):
        choose = node("If", ["go"], ["o"], then_branch=made, else_branch=helper.make_graph([], "e", [], []))
        made = helper.make_graph([choose], "b", [], [info("o", F, None)])
    return model([node("If", ["go"], ["y"], then_branch=made, else_branch=made)], (2,), {"go": np.array(True)})
