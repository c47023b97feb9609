"""Passes and networks that scripts of the Relay era ask for by name."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.errors import TargetError
from armillary.relay.dataflow_pattern import is_op, wildcard
from armillary.relay.testing import run_opt_pass, synthetic

IMAGE = relay.var("x", shape=(1, 2, 6, 6))
WEIGHT = relay.var("w", shape=(2, 2, 3, 3))


def _same(before: relay.Expr, after: relay.Expr) -> None:
    """Both compute the same."""
    arrays = [np.random.default_rng(k).standard_normal((1, 2, 6, 6)).astype("float32") for k in range(1)]
    arrays += [np.random.default_rng(9).standard_normal((2, 2, 3, 3)).astype("float32")]
    results = []
    for expr in (before, after):
        free = relay.analysis.free_vars(expr)
        run = relay.create_executor("debug").evaluate(relay.Function(free, expr))
        results.append(run(*(arrays[v is WEIGHT] for v in free)).numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-5)


FOLDED = {
    "conv": (0.0, lambda x: relay.nn.conv2d(x, WEIGHT, padding=(1, 0))),
    "max": (float(np.finfo("float32").min), lambda x: relay.nn.max_pool2d(x, pool_size=(3, 3))),
    "avg": (0.0, lambda x: relay.nn.avg_pool2d(x, pool_size=(3, 3))),
    "avg of padding alone": (0.0, lambda x: relay.nn.avg_pool2d(x, pool_size=(2, 2))),
    "counted": (0.0, lambda x: relay.nn.avg_pool2d(x, pool_size=(4, 4), padding=(1, 1), count_include_pad=True)),
}


@pytest.mark.parametrize("name", FOLDED)
def test_padding_in_front_is_folded(name: str) -> None:
    value, make = FOLDED[name]
    before = make(relay.nn.pad(IMAGE, ((0, 0), (0, 0), (1, 2), (0, 1)), value))
    after = run_opt_pass(before, relay.transform.FoldExplicitPadding())
    assert "nn.pad" not in str(after)
    _same(before, after)


@pytest.mark.parametrize("widths", [((0, 0), (1, 0), (0, 0), (0, 0))])
def test_padding_that_counts_stays(widths: object) -> None:
    kept = relay.transform.FoldExplicitPadding()
    for before in (
        relay.nn.max_pool2d(relay.nn.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (0, 0)), 0.0), pool_size=(2, 2)),
        relay.nn.avg_pool2d(relay.nn.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (0, 0)), 1.0), pool_size=(2, 2)),
        relay.nn.avg_pool2d(relay.nn.pad(IMAGE, ((0, 0), (0, 0), (2, 1), (0, 0))), pool_size=(2, 2), padding=(1, 1)),
        relay.nn.max_pool2d(relay.nn.pad(IMAGE, widths, -3.5e38), pool_size=(2, 2)),
        relay.nn.conv2d(relay.nn.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (0, 0)), pad_mode="edge"), WEIGHT),
    ):
        assert "nn.pad" in str(run_opt_pass(before, kept))


def test_division_by_constants_is_a_product_but_not_by_zero() -> None:
    passed = relay.transform.DivToMul()
    made = run_opt_pass(relay.divide(IMAGE, relay.const(np.array([1.5, 4.0, 1, 1, 1, 1], "float32"))), passed)
    assert made.op.name == "multiply" and made.args[1].data[1] == 0.25
    assert run_opt_pass(relay.divide(IMAGE, relay.const(0.0)), passed).op.name == "divide"
    whole = relay.var("i", shape=(2,), dtype="int32")
    assert run_opt_pass(relay.divide(whole, relay.const(3, "int32")), passed).op.name == "divide"


def test_the_synthetic_network_compiles() -> None:
    module, params = synthetic.get_workload()
    library = relay.build(module, "llvm", params=params)
    executor = armillary.contrib.graph_executor.GraphModule(library["default"](armillary.cpu()))
    executor.run(data=np.ones((1, 3, 24, 12), "float32"))
    assert executor.get_output(0).shape == (1, 8)


def test_attributes_may_be_expressions_of_known_values() -> None:
    other = relay.var("y", shape=(4, 18))
    assert relay.reshape(IMAGE, relay.shape_of(other)).checked_type.shape == (4, 18)
    assert relay.zeros(relay.const(np.array([2, 3])) * relay.const(2, "int64"), "float32").checked_type.shape == (4, 6)
    unknown = relay.reshape(IMAGE, relay.var("s", shape=(2,), dtype="int64"))
    assert unknown.op.name == "dynamic" and unknown.checked_type.ndim == 2


def test_attributes_of_operators() -> None:
    armillary.ir.register_op_attr("exp", "of_a_test", 5)
    assert relay.op.get("exp").get_attr("of_a_test") == 5 and relay.op.get("log").get_attr("of_a_test") is None
    relay.op.get("exp").reset_attr("of_a_test")
    assert not relay.op.get("exp").has_attr("of_a_test") and relay.op.get("exp").num_inputs == 1


def test_programs_are_equal_whether_types_are_written_or_inferred() -> None:
    plain = relay.Function([IMAGE], relay.nn.relu(IMAGE))
    written = relay.Function([IMAGE], relay.nn.relu(IMAGE), IMAGE.checked_type)
    assert armillary.ir.structural_equal(plain, written)
    assert armillary.ir.structural_hash(plain) == armillary.ir.structural_hash(written)
    a = relay.Function([IMAGE], relay.nn.relu(IMAGE), None, {"A": 1, "B": 2})
    b = relay.Function([IMAGE], relay.nn.relu(IMAGE), None, {"B": 2, "A": 1})
    c = relay.Function([IMAGE], relay.nn.relu(IMAGE), None, {"B": 2, "A": 3})
    assert armillary.ir.structural_equal(a, b) and armillary.ir.structural_hash(a) == armillary.ir.structural_hash(b)
    assert not armillary.ir.structural_equal(a, c)


def test_targets_that_nothing_is_generated_for_have_names() -> None:
    target = armillary.target.cuda("v100", arch="sm_70")
    assert target.kind.name == "cuda" and target.keys == ("cuda", "gpu") and target.get_target_device_type() == 2
    with pytest.raises(armillary.TVMError, match="cuda"):
        relay.build(relay.Function([IMAGE], relay.nn.relu(IMAGE)), target)


def test_patterns_partition_what_has_no_types_yet() -> None:
    pattern = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))
    x, y = relay.var("x"), relay.var("y")
    made = pattern.partition(relay.nn.relu(x + y), {"Composite": "lib.add"})
    assert made.op.get_attr("Composite") == "lib.add" and made.args == (x, y) and made.op.ret_type is None
    assert wildcard()(None).match(relay.add(x, y)) and wildcard()(None).match(relay.exp(x))


def test_executors_take_parameters_of_one_name_and_constants_are_made_of_ndarrays() -> None:
    a, b = relay.var("x", shape=(2,)), relay.var("x", shape=(2,))
    run = relay.create_executor("graph").evaluate(relay.Function([a, b], relay.subtract(a, b)))
    np.testing.assert_array_equal(run(np.ones(2, "float32"), np.zeros(2, "float32")).numpy(), [1, 1])
    held = relay.Constant(armillary.nd.array(np.array([1.5, 2], "float32")))
    assert held.checked_type.shape == (2,) and held.data[0] == 1.5


def test_a_kernel_size_that_does_not_fit_leaves_the_weight_untyped() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8))
    with pytest.raises(armillary.TVMError, match="has no type"):
        relay.nn.conv2d(x, relay.var("w"), channels=4, kernel_size=(3, 3, 3)).checked_type  # noqa: B018


def test_old_homes_of_names_hold_them_all() -> None:
    for name in ("bind_params_by_name", "build", "create_executor", "optimize"):
        assert callable(getattr(relay.build_module, name))


def test_parallel_dense_layers_as_one_batched_product():
    rng = np.random.default_rng(0)
    x, odd = relay.var("x", shape=(3, 4)), relay.var("odd", shape=(6, 4))
    weights = [relay.var(f"w{k}", shape=(5, 4)) for k in range(2)]
    offsets = [relay.var(f"b{k}", shape=(5,)) for k in range(2)]
    found = [relay.nn.relu(relay.nn.dense(x, w) + b) for w, b in zip(weights, offsets, strict=True)]
    params = [x, odd, *weights, *offsets]
    module = armillary.IRModule.from_expr(relay.Function(params, relay.Tuple([*found, relay.nn.dense(x, odd)])))
    after = relay.transform.CombineParallelDense(2)(module)
    text = after.astext()
    assert text.count("nn.batch_matmul") == text.count("nn.relu") == text.count("nn.dense(") == 1
    values = [rng.random(p.checked_type.static, "float32") for p in params]
    one, other = (relay.create_executor("graph", mod=m).evaluate()(*values) for m in (module, after))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)
    apart = relay.transform.CombineParallelDense(2, to_batch=False)(module)
    assert apart.astext().count("nn.dense(") == 1 and "batch_matmul" not in apart.astext()


def test_few_numbers_lie_in_their_kernel_where_parameters_are_linked() -> None:
    x = relay.var("x", shape=(10, 2))
    places = relay.const(np.array([[0, 3], [1, 0]]), dtype="int64")
    body = relay.nn.relu(relay.gather_nd(x, places)) * relay.const(np.array([2, 3], "float32"))
    data = np.random.default_rng(1).standard_normal((10, 2)).astype("float32")
    for is_linked in (False, True):
        with armillary.transform.PassContext(opt_level=3, config={"relay.FuseOps.link_params": is_linked}):
            fused = relay.transform.FuseOps()(relay.transform.InferType()(armillary.IRModule.from_expr(body)))
            run = relay.create_executor("graph", mod=armillary.IRModule.from_expr(body)).evaluate()
        assert ("%p1" in str(fused)) is not is_linked
        np.testing.assert_allclose(run(data).numpy(), np.maximum(data[[0, 3], [1, 0]], 0) * [2, 3])


def test_collapse_sum_like_takes_the_shape_where_it_is_known() -> None:
    x, like = relay.var("x", shape=(3, 3)), relay.var("y", shape=(3,))
    text = str(run_opt_pass(relay.collapse_sum_like(x, like), relay.transform.SimplifyExpr()))
    assert "collapse_sum_to(%x, shape=[3])" in text


def test_notes_of_devices_take_names_and_tell_virtual_devices() -> None:
    x = relay.var("x")
    note = relay.annotation.on_device(x, "cuda", constrain_result=True)
    assert note.attrs.virtual_device.device_type_int == 2 and note.attrs.virtual_device.virtual_device_id == 0
    free = relay.annotation.on_device(x, "cuda", constrain_result=False, constrain_body=False)
    assert free.attrs.virtual_device.device_type_int == -1
    copy = relay.device_copy(x, "opencl", armillary.cpu())
    assert (copy.attrs.src_virtual_device.device_type, copy.attrs.dst_virtual_device.device_type) == (4, 1)
    with pytest.raises(TargetError, match="unknown device kind 'bogus'"):
        relay.annotation.on_device(x, "bogus")
