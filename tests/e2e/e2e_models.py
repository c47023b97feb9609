"""Networks for the end-to-end tests, with inputs and the right answers.

The light ONNX networks come with their outputs; their weights are constants, so those outputs hardly depend on the
image. `with_random_weights` makes outputs that do; onnxruntime or the float64 reference then says what is right.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from armillary import relay
from armillary.driver.build import build
from armillary.driver.library import GraphLibrary
from armillary.ir import IRModule
from armillary.relay import testing
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Function
from armillary.relay.op import is_call
from armillary.transform import PassContext

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
SEED = 20260
Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


def light_model(name: str) -> Any:
    """A network of the ONNX package, by name."""
    return onnx.load(LIGHT / f"light_{name}.onnx")


def stored_output(name: str) -> Array:
    """The output that lies beside the network."""
    return numpy_helper.to_array(onnx.TensorProto.FromString((LIGHT / f"light_{name}_output_0.pb").read_bytes()))


def light_inputs(model: Any) -> Arrays:
    """The inputs the stored outputs belong to: 0, 1/n, 2/n, …"""
    weights = {item.name for item in model.graph.initializer}
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    return {k: _ramp(shape) for k, shape in shapes.items() if k not in weights}


def _ramp(shape: list[int]) -> Array:
    count = int(np.prod(shape))
    return (np.arange(count, dtype=np.float32) / np.float32(count)).reshape(shape)


def with_random_weights(model: Any, gain: float = 1.0) -> Any:
    """The network with drawn weights, kept at a scale that neither fades nor explodes, and without its last softmax.

    `gain` scales the weights of products: sums along many shortcuts may otherwise grow beyond float16.
    """
    rng = np.random.default_rng(SEED)
    shapes = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    roles = {name: (n.op_type, k) for n in model.graph.node for k, name in enumerate(n.input)}
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:]
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            shape = tuple(int(d) for d in shapes[node.input[0]])
            value = _drawn(rng, shape, *roles[node.output[0]], gain)
            made.graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
        elif node.op_type == "Softmax" and node is model.graph.node[-1]:
            made.graph.node.append(helper.make_node("Identity", node.input, node.output))
        else:
            made.graph.node.append(node)
    for item in made.graph.initializer:  # the weights that are spelled out
        if item.data_type == onnx.TensorProto.FLOAT and item.name in roles:
            array = numpy_helper.to_array(item)
            item.CopyFrom(numpy_helper.from_array(_drawn(rng, array.shape, *roles[item.name], gain), item.name))
    return made


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], op: str, position: int, gain: float) -> Array:
    if op == "BatchNormalization" and position in (1, 4):  # scale, variance
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if op in ("Conv", "Gemm") and position == 1:
        fan_in = np.prod(shape[1:])
        return (rng.standard_normal(shape, np.float32) * np.float32(gain * np.sqrt(2.0 / fan_in))).astype(np.float32)
    return (rng.standard_normal(shape, np.float32) * np.float32(0.1)).astype(np.float32)


def by_onnxruntime(model: Any, inputs: Arrays) -> Array:
    """The first output, by onnxruntime on one thread."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, inputs)[0])


def import_light(model: Any) -> tuple[IRModule, Arrays]:
    """A light network as a relay module."""
    shapes = {name: list(array.shape) for name, array in light_inputs(model).items()}
    return relay.frontend.from_onnx(model, shapes)


def compile_light(model: Any, target: str = "llvm", level: int = 3) -> GraphLibrary:
    """A light network, built."""
    module, params = import_light(model)
    return compiled(module, params, target, level)


def compiled(module: IRModule, params: Arrays, target: str = "llvm", level: int = 3, **context: Any) -> GraphLibrary:
    """Build at a level."""
    with PassContext(opt_level=level, **context):
        return build(module, target, params=params)


def run(library: Any, inputs: Arrays) -> Array:
    """The first output of a fresh executor of a compiled or loaded library."""
    graph = library["default"]()
    for name, value in inputs.items():
        graph.set_input(name, value)
    graph.run()
    return np.array(graph.get_output(0).numpy())


def workload(name: str, **options: Any) -> tuple[IRModule, Arrays, Arrays]:
    """A network of relay.testing, a last softmax left out: module, parameters (normalisation drawn too), inputs."""
    module, made = getattr(testing, name).get_workload(**{"batch_size": 1, **options})
    main = module["main"]
    if is_call(main.body, "nn.softmax"):
        module = IRModule.from_expr(Function(main.params, main.body.args[0]))
    rng = np.random.default_rng(SEED)
    params = {k: _adjusted(k, v.numpy(), rng) for k, v in made.items()}
    shape = main.params[0].checked_type.static
    return module, params, {"data": rng.uniform(-1, 1, shape).astype(np.float32)}


def _adjusted(name: str, value: Array, rng: np.random.Generator) -> Array:
    if name.endswith(("gamma", "moving_var")):
        return rng.uniform(0.5, 1.5, value.shape).astype(np.float32)
    if name.endswith(("beta", "moving_mean", "bias")):
        return (0.1 * rng.standard_normal(value.shape)).astype(np.float32)
    return value


def in_double(module: IRModule, params: Arrays, inputs: Arrays) -> Array:
    """The graph evaluated by the reference in float64."""
    return np.asarray(evaluate(module, {k: v.astype(np.float64) for k, v in {**params, **inputs}.items()}))


def relative_error(got: Array, want: Array) -> float:
    """The largest difference over the largest value; `want` must not be all but constant."""
    assert got.shape == want.shape
    assert np.isfinite(want).all() and want.std() > 1e-3 * abs(want).max(), "this output tells nothing"
    return float(abs(got - want).max() / abs(want).max())
