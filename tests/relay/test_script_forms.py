"""Forms of old scripts: computes by layout, symbolic and missing types, executors per shape, stages' layouts."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import relay, te, tir, topi
from armillary.errors import ArmillaryError, ConfigError, ScheduleError, TargetError, TypeMismatch, UnsupportedError
from armillary.relay import dataflow_pattern as dfp
from armillary.topi.padding import get_pad_tuple


def test_symbolic_dimensions_are_the_same_wherever_they_are_written() -> None:
    n = te.var("n")
    x = relay.var("x", relay.TensorType((n, 4), "float32"))
    both = relay.transform.InferType()(armillary.IRModule.from_expr(relay.Function([x], relay.add(x, x))))
    assert both["main"].ret_type is None or str(both["main"].ret_type) == "Tensor[(n, 4), float32]"
    joined = relay.Function([x], relay.concatenate([x, x], axis=1)).body.checked_type
    assert joined.shape == (x.checked_type.shape[0], 8)
    assert x.checked_type.shape[0] == n and x.checked_type.shape[0] != te.var("n")
    with pytest.raises(TypeMismatch):
        relay.TensorType((te.var("f", "float32"),), "float32")


def test_an_executor_compiles_once_for_each_shape_and_agrees_with_the_interpreter() -> None:
    x = relay.var("x", shape=(relay.Any(), 3))
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.relu(x) + relay.const(1.0)))
    compiled = relay.create_executor("vm", module, armillary.cpu(), "llvm").evaluate()
    interpreted = relay.create_executor("debug", module, armillary.cpu(), "llvm").evaluate()
    for rows in (2, 5, 2):
        value = np.random.default_rng(rows).standard_normal((rows, 3)).astype("float32")
        np.testing.assert_array_equal(compiled(value).numpy(), np.maximum(value, 0) + 1)
        np.testing.assert_array_equal(interpreted(value).numpy(), np.maximum(value, 0) + 1)
    with pytest.raises(ArmillaryError):
        compiled(np.zeros((2, 4), "float32"))
    with pytest.raises(TypeMismatch, match="got 0 arguments, wanted 1"):
        compiled()


def test_operators_type_variables_that_have_no_type() -> None:
    data = relay.var("data", shape=(1, 3, 8, 8))
    weight, gamma = relay.var("weight"), relay.var("gamma")
    conv = relay.nn.conv2d(data, weight, channels=6, kernel_size=(3, 3))
    norm = relay.nn.batch_norm(conv, gamma, relay.var("beta"), relay.var("mean"), relay.var("var"))[0]
    assert norm.checked_type.shape == (1, 6, 6, 6)
    assert weight.checked_type.shape == (6, 3, 3, 3) and gamma.checked_type.shape == (6,)


def test_functions_take_type_parameters_before_attributes() -> None:
    x = relay.var("x", shape=(2,))
    function = relay.Function([x], x, None, [], {"Primitive": 1})
    assert function.attrs["Primitive"] == 1 and function.type_params == ()
    of_any = relay.Function([x], x, None, [relay.TypeVar("t")], {"Primitive": 1})
    assert of_any.attrs["Primitive"] == 1 and of_any.type_params == (relay.TypeVar("t"),)


def test_constants_and_attributes_read_as_scripts_read_them() -> None:
    held = relay.const(np.arange(3, dtype="float32")).data
    assert type(held.numpy()) is np.ndarray and type(held + 1) is np.ndarray
    attrs = relay.nn.softmax(relay.var("x", shape=(2, 3)), axis=1).attrs
    assert attrs["axis"] == 1 and dict(**attrs) == {"axis": 1}
    with pytest.raises(KeyError):
        attrs["axes"]


def test_topi_convolutions_by_layout_compute_the_same() -> None:
    image = np.random.default_rng(0).standard_normal((1, 6, 6, 2)).astype("float32")
    filters = np.random.default_rng(1).standard_normal((3, 3, 2, 4)).astype("float32")
    data, kernel = te.placeholder((1, 6, 6, 2), name="data"), te.placeholder((3, 3, 2, 4), name="kernel")
    result = topi.nn.conv2d_nhwc(data, kernel, 1, "SAME", 1)
    run = armillary.build(te.create_schedule(result.op), [data, kernel, result], "llvm")
    out = armillary.nd.empty((1, 6, 6, 4))
    run(armillary.nd.array(image), armillary.nd.array(filters), out)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), (1, 2))
    np.testing.assert_allclose(out.numpy(), np.einsum("nhwcij,ijco->nhwo", windows, filters), rtol=1e-4, atol=1e-5)
    assert get_pad_tuple("SAME", (2, 3)) == (1, 1, 0, 1)
    with pytest.raises(TypeMismatch, match="unknown"):
        get_pad_tuple("HALF", (2, 3))


def test_a_stage_in_another_layout_computes_the_same() -> None:
    a = te.placeholder((4, 8), name="a")
    b = te.compute((4, 8), lambda i, j: a[i, j] * 2, name="b")
    c = te.compute((4, 8), lambda i, j: b[i, j] + 1, name="c")
    schedule = te.create_schedule(c.op)
    axes = schedule[b].transform_layout(lambda i, j: [j // 4, i, j % 4])
    assert len(axes) == 3
    value = np.arange(32, dtype="float32").reshape(4, 8)
    out = armillary.nd.empty((4, 8))
    armillary.build(schedule, [a, c], "llvm")(armillary.nd.array(value), out)
    np.testing.assert_array_equal(out.numpy(), value * 2 + 1)
    for gap in (lambda i, j: [i, j // 3, j % 3], lambda i, j: [i, i], lambda i, j: [i + j]):
        with pytest.raises(ScheduleError, match="transform_layout"):
            te.create_schedule(c.op)[b].transform_layout(gap)


def test_executors_list_their_options_and_check_their_types() -> None:
    assert relay.backend.Executor.list_registered() == ["graph", "aot"]
    assert relay.backend.Runtime.list_registered_options("crt") == {"system-lib": "runtime.BoxBool"}
    runtime = relay.backend.Runtime("crt", {"system-lib": True})
    assert str(runtime) == "crt" and "system-lib" in runtime and "link-params" not in runtime
    with pytest.raises(ConfigError, match=r'should have type "runtime.BoxBool" but instead found "runtime.String"'):
        relay.backend.Runtime("crt", {"system-lib": "yes"})


def test_infix_operators_and_sequences_are_read() -> None:
    read = relay.parse_expr
    assert armillary.ir.structural_equal(read("1 * 1 + 1"), read("(1 * 1) + 1"))
    assert armillary.ir.structural_equal(read("1 + 2 * 3"), relay.const(1) + relay.const(2) * relay.const(3))
    assert not armillary.ir.structural_equal(read("1 * 1 + 1"), read("1 * (1 + 1)"))
    assert isinstance(read("(); ()"), relay.Let) and read("--10").data == 10
    assert read("fn (%x) { %x }").params[0].type_annotation is None
    assert read("nn.relu") is relay.op.get("nn.relu")


def test_patterns_see_products_and_quotients_however_they_are_written() -> None:
    a, b, c = (dfp.wildcard() for _ in range(3))
    x, y, z = (relay.var(name, shape=(2,)) for name in "xyz")
    pattern = dfp.is_op("divide")(a * b, c)
    for written in (x * y / z, x * (y / z), (x / z) * y):
        assert pattern.match(written)
    assert not pattern.match(x / (y * z))


def test_a_pattern_may_contain_itself() -> None:
    inner = dfp.wildcard()
    chain = dfp.is_op("nn.relu")(inner)
    inner.redirect_to(chain | dfp.is_var())
    x = relay.var("x", shape=(2,))
    assert chain.match(relay.nn.relu(relay.nn.relu(x)))
    assert not chain.match(relay.nn.relu(relay.exp(x)))


def test_operators_of_scalars_are_expressions() -> None:
    n, m = te.var("n"), te.var("m")
    assert isinstance(topi.add(n, m), tir.PrimExpr)
    assert isinstance(topi.greater(n, 1), tir.PrimExpr)
    assert str(te.placeholder((2, 2), name="A").astype("int8").dtype) == "int8"


def test_every_refusal_is_a_runtime_error() -> None:
    with pytest.raises(RuntimeError, match="unknown dtype"):
        relay.var("x", shape=(1,), dtype="floaty")
    with pytest.raises(NotImplementedError, match="defines no visit_var"):
        relay.ExprFunctor().visit(relay.var("x", shape=()))


def test_targets_say_what_their_processors_have() -> None:
    features = armillary.target.Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1").features
    assert features.is_aarch64 and features.has_asimd and features.has_dotprod and not features.has_sme
    assert not armillary.target.Target("opencl").features.has_asimd
    with pytest.raises(AttributeError, match="has no feature 'has_wings'"):
        features.has_wings  # noqa: B018


def test_sparse_shapes_segments_and_frames_of_unknown_sizes_are_compiled_for_what_is_given() -> None:
    x = relay.var("x", shape=(relay.Any(), 3))
    ids = relay.var("ids", shape=(relay.Any(),), dtype="int32")
    run = relay.create_executor("vm").evaluate(relay.Function([x, ids], relay.segment_sum(x, ids, 3)))
    values = np.arange(12, dtype="float32").reshape(4, 3)
    found = run(values, np.array([0, 2, 2, 0], "int32")).numpy()
    assert (found == [values[0] + values[3], np.zeros(3), values[1] + values[2]]).all()
    with pytest.raises(UnsupportedError, match="known shapes"):
        relay.create_executor("graph").evaluate(relay.Function([x, ids], relay.segment_sum(x, ids)))(
            values, [0, 1, 1, 0]
        )
    wave = relay.var("wave", shape=(1, relay.Any()))
    frames = relay.create_executor("vm").evaluate(relay.Function([wave], relay.stft(wave, 4, 2)))
    signal = np.arange(8, dtype="float32")[None]
    wanted = np.stack([np.fft.rfft(signal[0, k : k + 4]) for k in (0, 2, 4)], 1)
    np.testing.assert_allclose(frames(signal).numpy()[0], np.stack([wanted.real, wanted.imag], -1), atol=1e-5)


def test_generic_functions_are_chosen_by_the_keys_of_the_target() -> None:
    target = armillary.target

    @target.generic_func
    def chosen(data: int) -> int:
        return data + 1

    chosen.register(["cuda", "gpu"])(lambda data: data + 2)
    chosen.register(lambda data: data + 10, "cpu")
    assert chosen(1) == 2
    with target.Target("llvm"):
        assert chosen(1) == 11
    with target.Target("cuda"):
        assert chosen(1) == 3
    with pytest.raises(ConfigError, match="has a function for 'gpu'"):
        chosen.register(lambda data: data, "gpu")
    target.override_native_generic_func("own")(lambda data: -data)
    assert target.get_native_generic_func("own")(3) == -3
    with pytest.raises(ConfigError, match="no function for None, and no default"):
        target.get_native_generic_func("another")(3)


def test_devices_are_named_by_kind_and_number_in_one_text() -> None:
    assert armillary.device("cl:1") == armillary.device("opencl", 1) == armillary.device(dev_type="cl", dev_id=1)
    assert armillary.device(1, 0) == armillary.cpu(0) and not armillary.device("sdaccel").exist
    for text in ("cpu:?", "cpu:0:0"):
        with pytest.raises(TargetError, match="unknown device kind"):
            armillary.device(text)


def test_boxes_that_overlap_better_ones_go() -> None:
    boxes = np.array([[[0, 0.8, 1, 20, 25, 45], [1, 0.7, 30, 60, 50, 80], [2, 0.9, 35, 61, 52, 79]]], "float32")
    x = relay.var("x", shape=(1, 3, 6))
    counted = relay.vision.get_valid_counts(x, 0.75, 0, 1)
    kept = relay.vision.non_max_suppression(counted[1], counted[0], counted[2], force_suppress=True)
    numbers, count = relay.create_executor("graph").evaluate(relay.Function([x], kept.astuple()))(boxes)
    assert numbers.numpy().tolist() == [[2, 0, -1]] and count.numpy().tolist() == [[2]]


def test_the_largest_of_many_values_and_sizes_of_elements() -> None:
    n = te.var("n")
    assert tir.max(3, 1, 7, 5) == 7 and tir.min(3, 1, 7) == 1
    assert isinstance(tir.max(n, 1, 2), tir.Max)
    assert armillary.DataType("float16x4").itemsize() == 8 and armillary.cpu().available_global_memory is None


def test_a_dimension_that_is_a_whole_float_is_a_number() -> None:
    made = te.compute((64 / 8, 4), lambda i, j: i + j, name="made")
    assert topi.get_const_tuple(made.shape) == (8, 4)
    with pytest.raises(TypeMismatch, match=r"a dimension is 2\.5"):
        te.compute((20 / 8,), lambda i: i)


def test_a_call_takes_the_types_of_its_arguments_before_the_span() -> None:
    x = relay.var("x", shape=(2,))
    span = (x + x).span
    for made in (
        relay.Call(relay.op.get("negative"), [x], None, [x.checked_type], span),
        relay.Call(relay.op.get("negative"), [x], None, [x.checked_type]),
        relay.Call(relay.op.get("negative"), [x], None, None, span),
    ):
        assert made.checked_type == x.checked_type and made.span == span


def test_a_target_tells_its_architecture() -> None:
    texts = ("cuda", "cuda -arch=sm_80", "llvm")
    assert [armillary.target.Target(text).arch for text in texts] == ["sm_50", "sm_80", ""]
    with pytest.raises(UnsupportedError, match="CUTLASS makes CUDA kernels"):
        relay.op.contrib.cutlass.partition_for_cutlass(armillary.IRModule())
    with pytest.raises(UnsupportedError, match="CUTLASS makes CUDA kernels"):
        armillary.contrib.cutlass.finalize_modules(None)
