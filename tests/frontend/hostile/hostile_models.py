"""ONNX models of a few kilobytes that ask for much, for nothing, or for what cannot be.

In: nothing. Out: `MODELS`, functions by name that make a model, as a message or as bytes. Invariant: each is under
10 KB, and is compiled or refused within 60 s and 2 GB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

F, I32, I64, BOOL, STRING = (
    TensorProto.FLOAT,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.STRING,
)
info, node = helper.make_tensor_value_info, helper.make_node
Weights: TypeAlias = dict[str, "np.ndarray | int | float | Sequence[int] | TensorProto"]
MODELS: dict[str, Callable[[], ModelProto | bytes]] = {}


def tensors(weights: Weights) -> list[TensorProto]:
    """Initialisers; whole numbers are int64, others float32."""
    made = []
    for name, value in weights.items():
        if isinstance(value, TensorProto):
            value.name = name
            made.append(value)
            continue
        array = np.asarray(value)
        made.append(numpy_helper.from_array(array.astype(np.float32) if array.dtype == np.float64 else array, name))
    return made


def model(
    nodes: Sequence[NodeProto],
    shape: Sequence[int | str] | None = (2, 3),
    weights: Weights | None = None,
    *,
    opset: int = 18,
    kind: int = F,
    outputs: Sequence[str | ValueInfoProto] = ("y",),
    **more: object,
) -> ModelProto:
    """A model that reads x (unless `shape` is None) and gives y."""
    inputs = [] if shape is None else [info("x", kind, list(shape))]
    results = [info(o, F, None) if isinstance(o, str) else o for o in outputs]
    graph = helper.make_graph(list(nodes), "g", inputs, results, tensors(weights or {}))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **more)


def hostile(name: str) -> Callable[[Callable[[], ModelProto | bytes]], Callable[[], ModelProto | bytes]]:
    """Keep a function that makes a model under a name."""

    def keep(make: Callable[[], ModelProto | bytes]) -> Callable[[], ModelProto | bytes]:
        MODELS[name] = make
        return make

    return keep


def one(name: str, op: str, names: str, weights: Weights | None = None, **options: object) -> None:
    """A model of one node: `names` are its inputs; `shape`, `opset` and `outputs` are the model's, the rest its own."""
    own = {k: options.pop(k) for k in ("shape", "opset", "kind", "outputs", "domain") if k in options}
    domain = str(own.pop("domain", ""))
    outputs = [o if isinstance(o, str) else o.name for o in own.get("outputs", ("y",))]  # type: ignore[attr-defined]
    inputs = ["" if n == "-" else n for n in names.split()]
    MODELS[name] = lambda: model([node(op, inputs, outputs, domain=domain, **options)], weights=weights, **own)  # type: ignore[arg-type]


def filled(name: str, size: str, value: float = 1.0) -> NodeProto:
    """A node that makes a tensor of equal numbers whose shape is `size`."""
    return node("ConstantOfShape", [size], [name], value=numpy_helper.from_array(np.array([value], np.float32)))


def body(name: str, nodes: Sequence[NodeProto], inputs: str, outputs: str, kinds: str = "ibf bf") -> GraphProto:
    """A body of a loop: names, and a letter for the type of each."""
    types = {"i": I64, "b": BOOL, "f": F}
    first, last = kinds.split()
    scalars = {"i": [], "b": []}
    ins = [info(n, types[k], scalars.get(k)) for n, k in zip(inputs.split(), first, strict=True)]
    outs = [info(n, types[k], scalars.get(k)) for n, k in zip(outputs.split(), last, strict=True)]
    return helper.make_graph(list(nodes), name, ins, outs)


# --- loops, branches, functions ---------------------------------------------------------------------------------------


def loop_tower(depth: int, trips: int) -> ModelProto:
    """Loops in one another that all run: the state is a tensor that is added to."""
    inner = node("Add", ["s0", "s0"], ["t0"])
    for level in range(depth):
        keep = node("Identity", [f"c{level}"], [f"d{level}"])
        made = body(f"b{level}", [keep, inner], f"i{level} c{level} s{level}", f"d{level} t{level}")
        names = ("x", "y") if level == depth - 1 else (f"s{level + 1}", f"t{level + 1}")
        inner = node("Loop", ["n", "go", names[0]], [names[1]], body=made)
    return model([inner], (2,), {"n": trips, "go": np.array(True)})


MODELS["loops in loops that run"] = lambda: loop_tower(12, 100)
MODELS["loops in loops with no trip"] = lambda: loop_tower(12, 0)
MODELS["loops in loops of 2^62 trips"] = lambda: loop_tower(3, 1 << 62)


@hostile("a loop that collects 2^40 rows")
def _rows() -> ModelProto:
    nodes = [node("Identity", ["c"], ["d"]), node("Identity", ["s"], ["t"]), node("Relu", ["s"], ["row"])]
    loop = node("Loop", ["n", "go", "x"], ["z", "y"], body=body("b", nodes, "i c s", "d t row", "ibf bff"))
    return model([loop], (2,), {"n": 1 << 40, "go": np.array(True)})


@hostile("a loop over constants whose state doubles")
def _doubling() -> ModelProto:
    nodes = [node("Identity", ["c"], ["d"]), node("Concat", ["s", "s"], ["t"], axis=0)]
    loop = node("Loop", ["n", "go", "w"], ["z"], body=body("b", nodes, "i c s", "d t"))
    size = node("Shape", ["z"], ["y"])
    return model([loop, size], None, {"n": 60, "go": np.array(True), "w": np.ones(3)}, outputs=[info("y", I64, None)])


@hostile("a loop over constants of 10^9 trips")
def _long_constant_loop() -> ModelProto:
    nodes = [node("Identity", ["c"], ["d"]), node("Mul", ["s", "s"], ["t"])]
    loop = node("Loop", ["n", "go", "w"], ["z"], body=body("b", nodes, "i c s", "d t"))
    return model([loop, node("Add", ["x", "z"], ["y"])], (1,), {"n": 10**9, "go": np.array(True), "w": np.ones(1)})


@hostile("a loop over constants of 1,000 trips, each a product of matrices")
def _loop_of_products() -> ModelProto:
    nodes = [node("Identity", ["c"], ["d"]), node("MatMul", ["s", "s"], ["t"])]
    loop = node("Loop", ["n", "go", "w"], ["z"], body=body("b", nodes, "i c s", "d t"))
    made = [filled("w", "size", 0.0), loop, node("ReduceSum", ["z"], ["r"], keepdims=0), node("Add", ["x", "r"], ["y"])]
    return model(made, (1,), {"n": 1000, "go": np.array(True), "size": [1500, 1500]})


def scans(depth: int) -> ModelProto:
    """Scans over two rows in one another."""
    inner = node("Relu", ["r0"], ["o0"])
    for level in range(1, depth + 1):
        made = helper.make_graph(
            [inner], f"b{level}", [info(f"r{level - 1}", F, None)], [info(f"o{level - 1}", F, None)]
        )
        inner = node("Scan", [f"r{level}"], [f"o{level}"], body=made, num_scan_inputs=1)
    inner.input[0], inner.output[0] = "x", "y"
    return model([inner], (2,) * depth)


MODELS["scans in scans"] = lambda: scans(20)


def branches(depth: int, condition: str = "c") -> ModelProto:
    """Branches in branches, both sides alike: 2^depth of them if they are written out."""

    def graph(level: int, side: str) -> GraphProto:
        name = f"v{level}{side}"
        if level == 0:
            return helper.make_graph([node("Neg", ["x"], [name])], f"g{name}", [], [info(name, F, None)])
        inner = node("If", [condition], [name], then_branch=graph(level - 1, side + "t"), else_branch=leaf(side))
        return helper.make_graph([inner], f"g{name}", [], [info(name, F, None)])

    def leaf(side: str) -> GraphProto:
        name = f"l{side}"
        return helper.make_graph([node("Abs", ["x"], [name])], f"g{name}", [], [info(name, F, None)])

    choose = node("If", [condition], ["y"], then_branch=graph(depth, "t"), else_branch=leaf("e"))
    made = model([node("ReduceMax", ["x"], ["m"], keepdims=0), node("Cast", ["m"], ["c"], to=BOOL), choose], (3,))
    return made


MODELS["thirty branches in one another"] = lambda: branches(30)


@hostile("a body that reads what comes later")
def _late_capture() -> ModelProto:
    graphs = [helper.make_graph([node("Neg", ["late"], [n])], n, [], [info(n, F, None)]) for n in ("a", "b")]
    choose = node("If", ["go"], ["y"], then_branch=graphs[0], else_branch=graphs[1])
    return model([choose, node("Relu", ["x"], ["late"])], (2,), {"go": np.array(True)})


@hostile("a body that makes a name of the graph around it")
def _shadow() -> ModelProto:
    graphs = [
        helper.make_graph([node("Neg", ["x"], ["z"]), node("Abs", ["z"], [n])], n, [], [info(n, F, None)])
        for n in ("a", "b")
    ]
    choose = node("If", ["c"], ["w"], then_branch=graphs[0], else_branch=graphs[1])
    nodes = [
        node("Relu", ["x"], ["z"]),
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Cast", ["m"], ["c"], to=BOOL),
        choose,
        node("Add", ["w", "z"], ["y"]),
    ]
    return model(nodes, (2,))


def functions(calls: dict[str, Sequence[str]], start: str) -> ModelProto:
    """Local functions of one input and output that call others in turn."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    made = []
    for name, called in calls.items():
        values = ["a", *(f"v{k}" for k in range(1, len(called))), "b"]
        nodes = [
            node(f, [values[k]], [values[k + 1]], domain="own" if f in calls else "") for k, f in enumerate(called)
        ]
        made.append(helper.make_function("own", name, ["a"], ["b"], nodes, opsets))
    return model([node(start, ["x"], ["y"], domain="own")], functions=made)


MODELS["a function that calls itself"] = lambda: functions({"f": ["f", "f"]}, "f")
MODELS["two functions that call each other"] = lambda: functions({"f": ["g"], "g": ["Relu", "f"]}, "f")
MODELS["functions that call ten others each"] = lambda: functions(
    {f"f{k}": [f"f{k + 1}"] * 10 for k in range(9)} | {"f9": ["Relu"]}, "f0"
)
MODELS["sixty functions in a row"] = lambda: functions(
    {f"f{k}": [f"f{k + 1}", "Abs"] for k in range(60)} | {"f60": ["Neg"]}, "f0"
)


@hostile("a function that has the name of an operator")
def _named_relu() -> ModelProto:
    opsets = [helper.make_opsetid("", 18)]
    own = helper.make_function("", "Relu", ["a"], ["b"], [node("Relu", ["a"], ["b"])], opsets)
    return model([node("Relu", ["x"], ["y"])], functions=[own])


@hostile("a function of 900 results that it does not make")
def _many_results() -> ModelProto:
    names = [f"{k}" for k in range(900)]
    own = helper.make_function("own", "f", ["a"], names, [], [helper.make_opsetid("", 18)])
    return model([node("f", ["x"], ["y"], domain="own")], functions=[own])


# --- large results of small files -------------------------------------------------------------------------------------

one(
    "an einsum of 52 letters",
    "Einsum",
    "x",
    equation="abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ->a",
    shape=(1,) * 52,
)
one("an einsum whose result is 2^40", "Einsum", "x x x x", equation="ab,cd,ef,gh->abcdefgh", shape=(32, 32))
one("an einsum of forty factors", "Einsum", " ".join(["x"] * 40), equation=",".join(["ab"] * 40) + "->a", shape=(9, 9))


@hostile("an einsum of constants, a chain of products of 1,000")
def _einsum_chain() -> ModelProto:
    chain = node("Einsum", ["w"] * 6, ["z"], equation="ab,bc,cd,de,ef,fg->ag")
    made = [filled("w", "size"), chain, node("ReduceSum", ["z"], ["r"], keepdims=0), node("Add", ["x", "r"], ["y"])]
    return model(made, (1,), {"size": [1000, 1000]})


def constant_work(nodes: Sequence[NodeProto], weights: Weights, opset: int = 18) -> Callable[[], ModelProto]:
    """What constants alone give (a tensor z), added up and added to x."""
    after = [
        node("Cast", ["z"], ["zf"], to=F),
        node("ReduceSum", ["zf"], ["sum"], keepdims=0),
        node("Add", ["x", "sum"], ["y"]),
    ]
    return lambda: model([*nodes, *after], (1,), weights, opset=opset)


MODELS["a constant einsum of three matrices"] = constant_work(
    [filled("w", "size"), node("Einsum", ["w"] * 3, ["z"], equation="ab,bc,cd->ad")], {"size": [12, 12]}
)
MODELS["a shape that a product of matrices gives"] = lambda: model(
    [
        filled("w", "size"),
        node("MatMul", ["w", "w"], ["z"]),
        node("ReduceMax", ["z"], ["m"], keepdims=0),
        node("Cast", ["m"], ["n"], to=I64),
        node("Unsqueeze", ["n", "axis"], ["s"]),
        node("Expand", ["x", "s"], ["y"]),
    ],
    (1,),
    {"size": [12, 12], "axis": [0]},
)
MODELS["a product of constant matrices of 6,000"] = constant_work(
    [filled("w", "size"), node("MatMul", ["w", "w"], ["z"])], {"size": [6000, 6000]}
)
MODELS["a constant convolution of a million taps"] = constant_work(
    [filled("w", "size"), filled("d", "small"), node("Conv", ["d", "w"], ["z"], pads=[999_999, 999_999])],
    {"size": [1, 1, 1_000_000], "small": [1, 1, 2]},
)
MODELS["a constant transposed convolution of a million taps"] = constant_work(
    [filled("w", "size"), filled("d", "small"), node("ConvTranspose", ["d", "w"], ["z"])],
    {"size": [1, 1, 1_000_000], "small": [1, 1, 2]},
)
MODELS["constant convolutions of many channels"] = constant_work(
    [filled("w", "size"), filled("d", "data"), node("Conv", ["d", "w"], ["z"], pads=[1, 1, 1, 1])],
    {"size": [512, 512, 3, 3], "data": [1, 512, 128, 128]},
)
MODELS["constant pooling by a window of 1,000,000"] = constant_work(
    [
        filled("d", "data"),
        node("MaxPool", ["d"], ["z"], kernel_shape=[500_000], pads=[499_999, 499_999]),
    ],
    {"data": [1, 1, 1_000_000]},
)
MODELS["constant pooling by large squares"] = constant_work(
    [filled("d", "data"), node("AveragePool", ["d"], ["z"], kernel_shape=[700, 700])], {"data": [1, 2, 2000, 2000]}
)
MODELS["constant boxes, 100,000, none overlapping enough"] = constant_work(
    [
        filled("b", "boxes"),
        filled("s", "scores"),
        node("NonMaxSuppression", ["b", "s", "most", "iou"], ["z"]),
    ],
    {"boxes": [1, 100_000, 4], "scores": [1, 1, 100_000], "most": np.array([100_000]), "iou": np.array([1.0])},
)
MODELS["constant TopK of 30 million"] = constant_work(
    [filled("d", "data"), node("TopK", ["d", "k"], ["v", "z"])], {"data": [30_000_000], "k": [30_000_000]}
)
MODELS["a constant cumulative sum of 100 million"] = constant_work(
    [filled("d", "data"), node("CumSum", ["d", "axis"], ["z"])], {"data": [100_000_000], "axis": 0}
)
MODELS["constant NonZero of 60 million"] = constant_work(
    [filled("d", "data"), node("NonZero", ["d"], ["z"])], {"data": [60_000_000]}
)
MODELS["constant Unique of 60 million"] = constant_work(
    [node("Range", ["zero", "n", "step"], ["d"]), node("Unique", ["d"], ["z"])],
    {"zero": 0.0, "n": 6e7, "step": 1.0},
)
MODELS["a constant DFT of a prime length"] = constant_work(
    [filled("d", "data"), node("DFT", ["d"], ["z"], axis=1)], {"data": [1, 3_999_971, 1]}
)
MODELS["a constant LSTM of 100,000 steps"] = constant_work(
    [
        filled("d", "data"),
        filled("w", "ws"),
        filled("r", "rs"),
        node("LSTM", ["d", "w", "r"], ["z"], hidden_size=64),
    ],
    {"data": [100_000, 1, 16], "ws": [1, 256, 16], "rs": [1, 256, 64]},
)
MODELS["a constant that is resized with weights for each element"] = constant_work(
    [filled("d", "data"), node("Resize", ["d", "", "", "to"], ["z"], mode="cubic", antialias=1)],
    {"data": [1, 1, 4000, 4000], "to": [1, 1, 2000, 2000]},
)
MODELS["a constant grid of 50 million places"] = constant_work(
    [filled("d", "data"), filled("g", "grid", 0.1), node("GridSample", ["d", "g"], ["z"])],
    {"data": [1, 1, 50, 50], "grid": [1, 5000, 5000, 2]},
    opset=20,
)
MODELS["a constant determinant of 3,000"] = constant_work(
    [filled("d", "data"), node("Det", ["d"], ["z"])], {"data": [4, 3000, 3000]}
)
MODELS["a constant scatter of 20 million"] = constant_work(
    [
        filled("d", "data"),
        node("ConstantOfShape", ["data"], ["i"], value=numpy_helper.from_array(np.array([0], np.int64))),
        node("ScatterElements", ["d", "i", "d"], ["z"], reduction="add"),
    ],
    {"data": [20_000_000]},
)

one("a picture of 2^20 squared", "Resize", "x - - s", {"s": [1, 1, 1 << 20, 1 << 20]}, shape=(1, 1, 2, 2))
one("a picture resized to 2^62", "Resize", "x - - s", {"s": [1, 1, 1 << 62, 1]}, shape=(1, 1, 2, 2))
one("a picture scaled by infinity", "Resize", "x - s", {"s": np.array([1, 1, np.inf, 1.0])}, shape=(1, 1, 2, 2))
one("a picture scaled by no number", "Resize", "x - s", {"s": np.array([1, 1, np.nan, 1.0])}, shape=(1, 1, 2, 2))
one(
    "a picture that shrinks from a long row",
    "Resize",
    "x - - s",
    {"s": [1, 1, 1, 7]},
    shape=(1, 1, 1, 50_000_000),
    mode="cubic",
    antialias=1,
)
one(
    "a region of interest of a picture that is 1e30 wide",
    "Resize",
    "x roi - s",
    {"roi": np.array([0, 0, -1e30, 0, 1, 1, 1e30, 1.0]), "s": [1, 1, 4, 4]},
    shape=(1, 1, 2, 2),
    coordinate_transformation_mode="tf_crop_and_resize",
)
one("a margin of 2^63 - 1", "Pad", "x p", {"p": [(1 << 63) - 1, 0, 0, 0]})
one("a margin that takes more than there is", "Pad", "x p", {"p": [-5, 0, -5, 0]})
one("a reflected margin of 2^24", "Pad", "x p", {"p": [0, 1 << 24, 0, 1 << 24]}, mode="reflect")
one("a wrapped margin of 10 million", "Pad", "x p", {"p": [0, 10**7, 0, 0]}, mode="wrap", opset=19)
one("tiles by 2^62 each", "Tile", "x r", {"r": [1 << 62, 1 << 62]})
one("tiles below none", "Tile", "x r", {"r": [-1, 2]})
one("tiles of 64 axes", "Tile", "x r", {"r": [2] * 64}, shape=(1,) * 64)
one("an expansion to 2^60", "Expand", "x s", {"s": [1 << 30, 1 << 30, 1, 1]})
one("an expansion to forty axes", "Expand", "x s", {"s": [2] * 38 + [2, 3]})
one("one-hot of depth 2^62", "OneHot", "x d v", {"d": 1 << 62, "v": np.array([0.0, 1.0])}, kind=I64)
one("one-hot of depth -1", "OneHot", "x d v", {"d": -1, "v": np.array([0.0, 1.0])}, kind=I64)
one("a range by steps of 1e-30", "Range", "a b c", {"a": 0.0, "b": 1.0, "c": 1e-30}, shape=None)
one("a range by steps of nothing", "Range", "a b c", {"a": 0, "b": 5, "c": 0}, shape=None)
one("a range of no numbers", "Range", "a b c", {"a": np.nan, "b": np.inf, "c": 1.0}, shape=None)
one("the largest of 2^62", "TopK", "x k", {"k": [1 << 62]}, outputs=("y", "i"))
one("a table of 2^40 words", "Gather", "w x", {"w": TensorProto(dims=[1 << 40, 4], data_type=F)}, kind=I64)
one("a table without data", "Add", "x w", {"w": TensorProto(dims=[1 << 20, 1 << 10], data_type=F)})
one("a table of negative size", "Add", "x w", {"w": TensorProto(dims=[-1, 3], data_type=F)})
one("a table whose size overflows", "Add", "x w", {"w": TensorProto(dims=[1 << 32, 1 << 32], data_type=F)})
one("a table of 10 million zeros as an input", "NonZero", "x", shape=(10_000_000,))
one("an identity of 10^5 squared", "EyeLike", "x", shape=(100_000, 100_000))
one("a window of filters of 10^9", "HannWindow", "n", {"n": 10**9}, shape=None)
one("a lower triangle of 2^31", "Trilu", "x", shape=(46_000, 46_000))
one("a shape of 2^62 by 0", "Reshape", "x s", {"s": [1 << 62, 0]}, shape=(0, 0), allowzero=1)
one("a constant of 2^62 by 0", "ConstantOfShape", "s", {"s": [1 << 62, 1 << 62, 0]}, shape=None)
one("a shape of two unknowns", "Reshape", "x s", {"s": [-1, -1]})
one("data of 2^31 by 2^31 columns", "Relu", "x", shape=(1 << 31, 1 << 31))
one("data of 2^62 rows and none", "Relu", "x", shape=(1 << 62, 0, 1 << 62))

# --- windows ----------------------------------------------------------------------------------------------------------


def window(name: str, op: str, shape: Sequence[int], weight: Sequence[int] | None = None, **attributes: object) -> None:
    """A convolution whose weights are an input, or a pooling."""
    names = ["x"] if weight is None else ["x", "w"]

    def make() -> ModelProto:
        made = model([node(op, names, ["y"], **attributes)], shape)
        if weight is not None:
            made.graph.input.append(info("w", F, list(weight)))
        return made

    MODELS[name] = make


window("a million taps on two positions", "Conv", (1, 1, 2), (1, 1, 1_000_000), pads=[999_999, 999_999])
window("a million taps turned about two positions", "ConvTranspose", (1, 1, 2), (1, 1, 1_000_000))
window("taps of 1,000 squared on a point", "ConvTranspose", (1, 1, 1, 1), (1, 1, 1000, 1000), strides=[7, 7])
window(
    "strides of 2^31 and dilations of 2^31",
    "Conv",
    (1, 1, 9, 9),
    (1, 1, 1, 1),
    strides=[2**31] * 2,
    dilations=[2**31] * 2,
)
window("dilations of 2^62", "Conv", (1, 1, 9, 9), (1, 1, 3, 3), dilations=[1 << 62] * 2)
window("dilations of a million in a wide margin", "Conv", (1, 1, 9), (1, 1, 9), dilations=[10**6], pads=[4 * 10**6] * 2)
window("a transposed one by strides of 2^40", "ConvTranspose", (1, 1, 9, 9), (1, 1, 3, 3), strides=[1 << 40] * 2)
window("a transposed one by dilations of a million", "ConvTranspose", (1, 1, 9), (1, 1, 9), dilations=[10**6])
window("a group for each of 65,536 channels", "Conv", (1, 65536, 2, 2), (65536, 1, 3, 3), group=65536, pads=[1] * 4)
window("2^31 groups", "Conv", (1, 1 << 31, 1, 1), (1 << 31, 1, 1, 1), group=1 << 31)
window("no group", "Conv", (1, 4, 5, 5), (4, 4, 3, 3), group=0)
window("three groups of four channels", "Conv", (1, 4, 5, 5), (4, 1, 3, 3), group=3)
window("negative strides", "Conv", (1, 4, 5, 5), (4, 4, 3, 3), strides=[-1, -1])
window("a kernel of no taps", "Conv", (1, 4, 5, 5), (4, 4, 0, 0))
window("a convolution over thirty axes", "Conv", (1, 1, *(2,) * 28), (1, 1, *(2,) * 28))
window("a kernel of 63 squared with many channels", "Conv", (1, 64, 64, 64), (64, 64, 63, 63), pads=[31] * 4)
window("pooling by 2^24", "MaxPool", (1, 1, 4), kernel_shape=[1 << 24], pads=[(1 << 24) - 3] * 2)
window("pooling by a million", "AveragePool", (1, 1, 1_000_000), kernel_shape=[500_000])
window("pooling by 3,000 squared", "MaxPool", (1, 1, 3500, 3500), kernel_shape=[3000, 3000])
window("pooling by dilations of 2^40", "MaxPool", (1, 1, 9, 9), kernel_shape=[2, 2], dilations=[1 << 40] * 2)
window("pooling by powers of 2^31 - 1", "LpPool", (1, 1, 9, 9), kernel_shape=[3, 3], p=2**31 - 1)
window("pooling by windows of nothing", "AveragePool", (1, 1, 9, 9), kernel_shape=[0, 0])
window("regions of 2^20 squared", "MaxRoiPool", (1, 1, 9, 9), (1, 5), pooled_shape=[1 << 20, 1 << 20])
window("columns to a picture of 2^40", "Col2Im", (1, 4, 9), None)
window("a norm over a neighbourhood of 2^30", "LRN", (1, 8, 4, 4), size=2**30 - 1)

# --- long and wide graphs ---------------------------------------------------------------------------------------------


@hostile("joined to sixty times itself, four times")
def _concat_tower() -> ModelProto:
    nodes = [node("Concat", [f"v{k}"] * 60, [f"v{k + 1}"], axis=0) for k in range(4)]
    return model([node("Relu", ["x"], ["v0"]), *nodes, node("ReduceSum", ["v4"], ["y"])], (1, 1))


@hostile("split into 400 parts and joined")
def _wide_split() -> ModelProto:
    names = [f"p{k}" for k in range(400)]
    return model([node("Split", ["x"], names, axis=0, num_outputs=400), node("Concat", names, ["y"], axis=0)], (400, 2))


@hostile("parts split and joined again and again")
def _split_tower() -> ModelProto:
    nodes = []
    for k in range(30):
        names = [f"p{k}_{i}" for i in range(16)]
        nodes.append(node("Split", [f"v{k}"], names, axis=0, num_outputs=16))
        nodes.append(node("Concat", names[::-1], [f"v{k + 1}"], axis=0))
    return model([node("Relu", ["x"], ["v0"]), *nodes, node("Neg", ["v30"], ["y"])], (16, 2))


@hostile("a value that is added to itself a hundred times")
def _powers() -> ModelProto:
    nodes = [node("Mul", [f"v{k}", f"v{k}"], [f"v{k + 1}"]) for k in range(120)]
    return model([node("Sigmoid", ["x"], ["v0"]), *nodes, node("Neg", ["v120"], ["y"])])


@hostile("neighbours that are added up, of neighbours, of neighbours")
def _stencils() -> ModelProto:
    nodes, weights = [], {"p": [0, 1, 0, 1], "a": [0], "b": [-2], "axis": [1], "c": [2], "big": [1 << 40]}
    for k in range(24):
        nodes += [
            node("Pad", [f"v{k}", "p"], [f"w{k}"], mode="edge"),
            node("Slice", [f"w{k}", "a", "b", "axis"], [f"l{k}"]),
            node("Slice", [f"w{k}", "c", "big", "axis"], [f"r{k}"]),
            node("Add", [f"l{k}", f"r{k}"], [f"v{k + 1}"]),
        ]
    return model([node("Relu", ["x"], ["v0"]), *nodes, node("Neg", ["v24"], ["y"])], (2, 64), weights)


@hostile("reshapes and transpositions of twenty axes")
def _transpositions() -> ModelProto:
    nodes = [node("Transpose", [f"v{k}"], [f"v{k + 1}"], perm=[*range(1, 20), 0]) for k in range(30)]
    return model([node("Relu", ["x"], ["v0"]), *nodes, node("Neg", ["v30"], ["y"])], (2,) * 20)


@hostile("a sum of 2,000 inputs that are one")
def _wide_sum() -> ModelProto:
    return model([node("Sum", ["x"] * 2000, ["y"])])


@hostile("a hundred results, each of all before")
def _triangle() -> ModelProto:
    nodes = [node("Sum", [f"v{i}" for i in range(max(0, k - 8), k + 1)], [f"v{k + 1}"]) for k in range(100)]
    return model([node("Exp", ["x"], ["v0"]), *nodes, node("Neg", ["v100"], ["y"])])
