"""What scripts of the Relay era pass and expect: layouts, defaults, forms of arguments."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import armillary
from armillary import relay, te, tir
from armillary.errors import ArmillaryError, TypeMismatch
from armillary.relay.dataflow_pattern import CallPattern, is_op, wildcard
from armillary.transform import PassContext, module_pass

X = np.arange(6, dtype=np.float32).reshape(2, 3)
KINDS = ("debug", "graph")


def _run(kind: str, function: relay.Function, *args: Any) -> Any:  # Any: NDArrays
    return relay.create_executor(kind, armillary.IRModule.from_expr(function)).evaluate()(*args)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("align", [False, True])
def test_grids_have_their_coordinates_second(kind: str, align: bool) -> None:
    random = np.random.default_rng(0)
    data, grid = random.random((2, 3, 5, 7), np.float32), random.uniform(-1.2, 1.2, (2, 4, 6, 2)).astype(np.float32)
    given = helper.make_tensor_value_info
    node = helper.make_node("GridSample", ["x", "g"], ["y"], align_corners=int(align))
    graph = helper.make_graph(
        [node],
        "g",
        [given("x", TensorProto.FLOAT, data.shape), given("g", TensorProto.FLOAT, grid.shape)],
        [given("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": data, "g": grid})[0]
    x, g = relay.var("x", shape=data.shape), relay.var("g", shape=(2, 2, 4, 6))
    function = relay.Function([x, g], relay.image.grid_sample(x, g, align_corners=align))
    got = _run(kind, function, data, np.ascontiguousarray(grid.transpose(0, 3, 1, 2)))
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("half_pixel", [0, 0, 0, 0, 1, 1, 1, 2]),
        ("asymmetric", [0, 0, 0, 1, 1, 1, 2, 2]),
        ("align_corners", [0, 0, 1, 1, 1, 1, 2, 2]),
    ],
)
def test_the_nearest_neighbour_is_below_unless_corners_are_aligned(kind: str, mode: str, wanted: list[int]) -> None:
    x = relay.var("x", shape=(1, 1, 3))
    body = relay.image.resize1d(x, (8,), method="nearest_neighbor", coordinate_transformation_mode=mode)
    got = _run(kind, relay.Function([x], body), np.arange(3, dtype=np.float32).reshape(1, 1, 3)).numpy().ravel()
    assert got.tolist() == wanted


@pytest.mark.parametrize("equal", [True, False])
def test_executors_take_constants_as_arguments(equal: bool) -> None:
    i, j = (relay.var("i", shape=(), dtype="int32") for _ in range(2))
    function = relay.Function([i, j], relay.equal(i, j))
    assert bool(_run("debug", function, relay.const(3), relay.const(3 if equal else 4)).numpy()) is equal
    x = relay.var("x", shape=(2, 3))
    for kind in KINDS:
        got = _run(kind, relay.Function([x], relay.negative(x)), relay.const(X))
        np.testing.assert_array_equal(got.numpy(), -X)
    with pytest.raises(TypeMismatch, match="an argument is object, wanted an array"):
        _run("debug", function, object(), 3)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.uint8(5), "uint8"),
        (np.float64(0.1), "float64"),
        (np.int16(-3), "int16"),
        (np.bool_(True), "bool"),
        (5, "int32"),
        (0.5, "float32"),
        (1 << 40, "int64"),
    ],
)
def test_immediates_keep_the_type_of_numpy(value: Any, dtype: str) -> None:
    made = tir.const(value)
    assert (made.dtype, made.value) == (dtype, value)


def test_bits_of_bfloat16_are_copied_as_they_are() -> None:
    bits = np.array([0x3F80, 0xC000, 0x4049], np.uint16)
    tensor = armillary.nd.empty((3,), "bfloat16")
    for fill in (lambda: tensor.copyfrom(bits), lambda: tensor.__setitem__(slice(None), bits)):
        tensor.copyfrom(np.zeros(3, np.float32))
        fill()
        assert tensor.numpy().astype(np.float32).tolist() == [1.0, -2.0, 3.140625]
    assert tensor.copyfrom(np.array([1, 2, 3])).numpy().astype(np.float32).tolist() == [1, 2, 3]
    x = relay.var("x", shape=(3,), dtype="bfloat16")
    graph = relay.build(relay.Function([x], relay.cast(x, "float32")), "llvm")["default"]()
    for value in (bits, bits.view(ml_dtypes.bfloat16)):
        graph.set_input("x", value)
        graph.run()
        assert graph.get_output(0).numpy().tolist() == [1.0, -2.0, 3.140625]


def test_results_may_be_tuples_in_tuples() -> None:
    x = relay.var("x", shape=(2, 3))
    function = relay.Function([x], relay.Tuple([relay.Tuple([x, relay.negative(x)]), relay.nn.relu(x)]))
    (first, second), third = _run("debug", function, X)
    (fourth, fifth), sixth = _run("graph", function, X)
    flat = [fourth, fifth, sixth]
    for level in range(4):
        with PassContext(opt_level=level):
            graph = relay.build(function, "llvm")["default"]()
        graph.set_input("x", X)
        graph.run()
        flat += [graph.get_output(k) for k in range(graph.get_num_outputs())]
    wanted = [X, -X, X] * 6
    for got, want in zip([first, second, third, *flat], wanted, strict=True):
        np.testing.assert_array_equal(got.numpy(), want)


def test_a_call_pattern_without_arguments_matches_any() -> None:
    x = relay.var("x", shape=(2, 3))
    assert CallPattern(wildcard(), None).match(relay.add(x, x))
    assert not CallPattern(wildcard(), None).match(x)
    assert CallPattern(is_op("exp"), None).match(relay.exp(x))
    assert not CallPattern(is_op("exp"), None).match(relay.add(x, x))


def test_mirror_pad_takes_the_widths_second() -> None:
    x = relay.var("x", shape=(2, 3))
    for widths in (((1, 0), (0, 2)), [[1, 0], [0, 2]]):
        got = _run("graph", relay.Function([x], relay.nn.mirror_pad(x, widths, "REFLECT")), X)
        np.testing.assert_array_equal(got.numpy(), np.pad(X, widths, mode="reflect"))


def test_types_may_be_given_as_lists() -> None:
    part = relay.TensorType((1,), "float32")
    assert relay.TupleType([part, part]) == relay.TupleType((part, part))
    assert hash(relay.FuncType([part], part)) == hash(relay.FuncType((part,), part))


def test_attributes_of_functions_may_be_immediates() -> None:
    x = relay.var("x", shape=(2, 3))
    inner = relay.Function([x], relay.negative(x)).with_attr("Primitive", tir.IntImm("int32", 1))
    inner = inner.with_attr("name", tir.StringImm("kernel"))
    assert (inner.get_attr("Primitive"), inner.get_attr("name")) == (1, "kernel")
    y = relay.var("y", shape=(2, 3))
    np.testing.assert_array_equal(_run("graph", relay.Function([y], relay.Call(inner, [y])), X).numpy(), -X)


def test_classes_become_passes() -> None:
    x = relay.var("x", shape=(2, 3))

    @relay.transform.function_pass(opt_level=1)
    class Scaled:
        """Multiplies results."""

        def __init__(self, factor: float) -> None:
            self.factor = factor

        def transform_function(self, function: Any, module: Any, context: Any) -> Any:
            body = relay.multiply(function.body, relay.const(self.factor))
            return relay.Function(function.params, body)

    @module_pass(opt_level=0)
    class Kept:
        def transform_module(self, module: Any, context: Any) -> Any:
            return module

    made = Scaled(3.0)
    assert (made.factor, made.info.name, Scaled.__doc__) == (3.0, "Scaled", "Multiplies results.")
    assert isinstance(made, Scaled) and isinstance(made, armillary.transform.Pass)
    module = Kept()(armillary.transform.Sequential([made])(armillary.IRModule.from_expr(relay.Function([x], x))))
    np.testing.assert_array_equal(_run("debug", module["main"], X).numpy(), 3 * X)


def test_workloads_fill_statistics_by_their_names() -> None:
    data, *rest = (
        relay.var(n, shape=s)
        for n, s in zip(("data", "g_gamma", "b_beta", "bn_mean", "bn_var"), ((1, 3, 8, 8), *((3,),) * 4), strict=True)
    )
    _, params = relay.testing.create_workload(relay.Function([data, *rest], relay.nn.batch_norm(data, *rest)[0]))
    assert [params[n].numpy().tolist() for n in ("bn_mean", "bn_var")] == [[0.0] * 3, [1.0] * 3]


def test_te_constants_keep_the_type_of_numpy() -> None:
    assert te.const(np.int64(3)).dtype == "int64"


@pytest.mark.parametrize("lengths", [[0, 2, 4], [0, 0, 0]])
@pytest.mark.parametrize(("kind", "gates"), [("GRU", 3), ("LSTM", 4), ("RNN", 1)])
def test_recurrent_sequences_may_have_no_steps(kind: str, gates: int, lengths: list[int]) -> None:
    random, given = np.random.default_rng(gates), helper.make_tensor_value_info
    w, r, x = (random.random(shape, np.float32) for shape in ((1, gates * 5, 2), (1, gates * 5, 5), (4, 3, 2)))
    node = helper.make_node(kind, ["x", "w", "r", "", "s"], ["y", "last"], hidden_size=5)
    inputs = [given("x", TensorProto.FLOAT, [4, 3, 2]), given("s", TensorProto.INT32, [3])]
    weights = [numpy_helper.from_array(value, name) for value, name in ((w, "w"), (r, "r"))]
    outputs = [given(name, TensorProto.FLOAT, None) for name in ("y", "last")]
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    feeds = {"x": x, "s": np.array(lengths, np.int32)}
    module, params = relay.frontend.from_onnx(model)
    run = relay.build(module, "llvm", params=params)["default"]()
    for name, value in feeds.items():
        run.set_input(name, value)
    run.run()
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    for k, value in enumerate(wanted):
        np.testing.assert_allclose(run.get_output(k).numpy(), value, rtol=1e-4, atol=1e-5)


def test_operators_of_back_ends_are_not_shown_but_found_by_their_old_names() -> None:
    assert [name for name in dir(relay.nn) if "contrib" in name] == [
        "contrib_conv2d_NCHWc",
        "contrib_dense_pack",
        "contrib_depthwise_conv2d_NCHWc",
    ]
    assert "nn" in dir(relay) and not {"opencl", "cpu"} & set(dir(relay))
    old_text = relay.fromtext("def @main(%w: Tensor[(16), int8]) { nn.contrib_widen(%w) }")
    assert "cpu.widen(%w)" in old_text.astext()
    old = relay.nn.contrib_widen(relay.var("w", shape=(16,), dtype="int8"))
    assert old.op.name == "cpu.widen" and relay.op.get("nn.contrib_conv2d_NCHWc_bf16").name == "cpu.conv2d_NCHWc_bf16"
    with pytest.raises(ArmillaryError, match=r"no operator 'nn\.contrib_winograd'"):
        relay.op.get("nn.contrib_winograd")
    x, w = relay.var("x", shape=(1, 1, 4, 4, 8)), relay.var("w", shape=(2, 1, 3, 3, 8, 8))
    call = relay.nn.contrib_conv2d_nchwc(x, w, data_layout="NCHW8c", kernel_layout="OIHW8i8o")
    assert call.checked_type.static == (1, 2, 2, 2, 8)


@pytest.mark.parametrize("width", [((-1, -1), (2, -2), (0, 3)), ((0, 0), (-1, 4), (-2, -1))])
def test_negative_widths_of_a_border_cut(width: tuple[tuple[int, int], ...]) -> None:
    x = relay.var("x", shape=(3, 4, 5))
    data = np.arange(60, dtype="float32").reshape(3, 4, 5)
    got = relay.create_executor("graph").evaluate(relay.Function([x], relay.nn.pad(x, width, 1.5)))(data).numpy()
    cut = data[tuple(slice(max(-b, 0), n + min(a, 0)) for (b, a), n in zip(width, data.shape, strict=True))]
    np.testing.assert_array_equal(got, np.pad(cut, [(max(b, 0), max(a, 0)) for b, a in width], constant_values=1.5))


def test_a_border_cuts_no_more_than_there_is() -> None:
    x = relay.var("x", shape=(3, 4))
    with pytest.raises(TypeMismatch, match=r"cuts more from axis 1 than its 4 elements"):
        relay.nn.pad(x, ((0, 0), (-3, -2)))


def test_one_number_in_an_array_is_a_number() -> None:
    call = relay.nn.pad(relay.var("x", shape=(3,)), ((1, 1),), relay.const(np.array([2], "int8")))
    assert call.attrs.pad_value == 2


def test_texts_always_say_the_size_of_a_window() -> None:
    call = relay.nn.max_pool2d(relay.var("x", shape=(1, 2, 8, 8)), pool_size=(1, 1))
    assert "pool_size=[1, 1]" in call.astext()
    assert armillary.ir.structural_equal(relay.parse_expr(call.astext()), call, map_free_vars=True)


def test_a_size_times_a_whole_number_is_one_however_it_is_written() -> None:
    h = te.size_var("h")
    rounded = armillary.tir.Cast("int32", te.round(h * armillary.tir.const(2.0, "float64")))
    assert relay.TensorType((rounded,)) == relay.TensorType((h * 2,))
    half = armillary.tir.Cast("int32", te.round(h * armillary.tir.const(0.5, "float64")))
    assert relay.TensorType((half,)) != relay.TensorType((h,))


@pytest.mark.parametrize(
    ("data", "kernel", "shape", "weight"),
    [
        ("NCHW", "OIHW", (1, 8, 9, 9), (16, 8, 3, 3)),
        ("NCHW4c", "OIHW2i4o", (1, 2, 9, 9, 4), (4, 4, 3, 3, 2, 4)),
        ("NHWC4c", "HWIO1i2o", (1, 9, 9, 2, 4), (3, 3, 8, 8, 1, 2)),
        ("NCHW4n4c", "OIHW4o4i", (1, 2, 9, 9, 4, 4), (4, 2, 3, 3, 4, 4)),
    ],
)
def test_a_weight_without_a_type_has_that_of_its_layout(
    data: str, kernel: str, shape: tuple[int, ...], weight: tuple[int, ...]
) -> None:
    x, w = relay.var("x", shape=shape), relay.var("w")
    y = relay.nn.conv2d(x, w, kernel_size=(3, 3), channels=16, data_layout=data, kernel_layout=kernel)
    module = relay.transform.InferType()(armillary.IRModule.from_expr(relay.Function([x, w], y)))
    assert module["main"].params[1].checked_type == relay.TensorType(weight)


def test_texts_give_the_value_of_a_border_behind_the_data() -> None:
    text = """def @main(%x: Tensor[(3,), float32], %v: Tensor[(), float32]) {
      %0 = nn.pad(%x, 2f, pad_width=[[0, 1]]);
      nn.pad(%0, %v, pad_width=[[1, 0]])
    }"""
    got = relay.create_executor("debug", relay.parse(text)).evaluate()(X[0], np.float32(7)).numpy()
    np.testing.assert_array_equal(got, [7, *X[0], 2])
    with pytest.raises(ArmillaryError, match=r"nn.pad: expected 1 arguments \('data',\), got 3"):
        relay.parse("def @main(%x: Tensor[(3,), float32]) { nn.pad(%x, 2f, 3f, pad_width=[[0, 1]]) }")


def test_constant_weights_without_a_value_sum_to_one() -> None:
    data, weight = relay.var("data", shape=(2, 8)), relay.var("w_weight", shape=(5, 8))
    network = relay.Function([data, weight], relay.nn.dense(data, weight))
    constant = relay.testing.init.Constant
    for made, each in ((constant(), 1 / 40), (constant(0.5), 0.5)):
        _, params = relay.testing.create_workload(network, made)
        assert np.allclose(params["w_weight"].numpy(), each)
