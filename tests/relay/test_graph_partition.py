"""Partitioning for external libraries, mixed precision, and the passes that undo what importers write."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import relay
from armillary.errors import ConfigError, TypeMismatch, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.analysis import op_frequency
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Expr, Function, If, Tuple, const, var
from armillary.relay.offload_tables import get_pattern_table, register_pattern_table, register_support, why_not
from armillary.relay.parser import parse
from armillary.relay.pattern import is_constant, is_op, partition, wildcard
from armillary.relay.walk import post_order

T = relay.transform
X = np.random.default_rng(5).standard_normal((1, 4, 6, 6)).astype("float32")
for _name in ("nn.relu", "add", "negative", "nn.max_pool2d", "split"):
    register_support("test_lib", _name, lambda call: True)
register_support("other_lib", "exp", lambda call: True)


def weights(*shape: int) -> Expr:
    return const((0.3 * np.random.default_rng(sum(shape)).standard_normal(shape)).astype("float32"))


def same(after: IRModule, before: IRModule, rtol: float = 1e-5) -> None:
    np.testing.assert_allclose(evaluate(after, [X]), evaluate(before, [X]), rtol=rtol, atol=rtol)
    assert parse(after.astext()).astext() == after.astext()


def functions(module: IRModule, attribute: str) -> list[Function]:
    found = [e for _, f in module.items() for e in post_order(f) if isinstance(e, Function)]
    return [f for f in found if f.get_attr(attribute) is not None]


# --- patterns -------------------------------------------------------------------------------------------------------


def conv_block(x: Expr) -> Expr:
    y = relay.nn.conv2d(x, weights(4, 4, 3, 3), padding=(1, 1))
    return relay.nn.relu(relay.add(y, weights(4, 1, 1)))


CONV = is_op("nn.conv2d")(wildcard(), is_constant())
CONV_BIAS_RELU = is_op("nn.relu")(is_op("add")(CONV, is_constant()))


def test_composites_take_constants_inside_and_compute_the_same() -> None:
    before = IRModule.from_expr(conv_block(conv_block(var("x", shape=X.shape))))
    after = T.MergeComposite([("lib.conv", CONV_BIAS_RELU)])(before)
    same(after, before)
    made = functions(after, "Composite")
    assert [f.get_attr("Composite") for f in made] == ["lib.conv"] * 2
    assert made[0].get_attr("PartitionedFromPattern") == "nn.conv2d_add_nn.relu_"
    assert all(len(f.params) == 1 for f in made)
    assert T.MergeComposite([("lib.conv", CONV_BIAS_RELU)])(after) is after


def test_earlier_rows_win_and_checks_can_refuse() -> None:
    before = IRModule.from_expr(relay.nn.max_pool2d(conv_block(var("x", shape=X.shape))))
    relu = is_op("nn.relu")(wildcard())
    rows = [("lib.block", CONV_BIAS_RELU, lambda e: False), ("lib.conv", CONV), ("lib.relu", relu)]
    after = T.MergeComposite(rows)(before)
    same(after, before)
    assert {f.get_attr("Composite") for f in functions(after, "Composite")} == {"lib.conv", "lib.relu"}


def test_match_whose_inner_value_is_used_elsewhere_is_left_alone() -> None:
    conv = relay.nn.conv2d(var("x", shape=X.shape), weights(4, 4, 1, 1))
    body = relay.add(relay.nn.relu(conv), conv)
    assert partition(is_op("nn.relu")(CONV), body) is body


def test_overlapping_matches_go_to_the_last_in_the_graph() -> None:
    body = relay.negative(relay.negative(relay.negative(var("x", shape=X.shape))))
    pattern = is_op("negative")(is_op("negative")(wildcard()))
    result = pattern.partition(body, {"Composite": "two"})
    assert op_frequency(result)["negative"] == 3
    assert isinstance(result, Call) and isinstance(result.op, Function)
    np.testing.assert_array_equal(evaluate(IRModule.from_expr(result), [X]), -X)


def test_optional_parts_and_dominated_paths_go_inside() -> None:
    x = var("x", shape=X.shape)
    body = relay.nn.relu(relay.nn.conv2d(x, weights(4, 4, 1, 1)))
    pattern = CONV.optional(lambda p: is_op("nn.relu")(p))
    (made,) = functions(IRModule.from_expr(partition(pattern, body, {"Composite": "c"})), "Composite")
    assert op_frequency(made) == {"nn.conv2d": 1, "nn.relu": 1}
    diamond_conv = relay.nn.conv2d(x, weights(4, 4, 1, 1))
    diamond = relay.add(relay.exp(diamond_conv), relay.tanh(diamond_conv))
    path = wildcard().has_attr({"TOpPattern": 0})
    found = partition(is_op("add")(wildcard(), wildcard()).dominates(CONV, path), diamond, {"Composite": "d"})
    (made,) = functions(IRModule.from_expr(found), "Composite")
    assert op_frequency(made) == {"add": 1, "exp": 1, "nn.conv2d": 1, "tanh": 1}
    np.testing.assert_allclose(evaluate(IRModule.from_expr(found), [X]), evaluate(IRModule.from_expr(diamond), [X]))


def test_pattern_tables_are_found_by_the_name_of_the_library() -> None:
    @register_pattern_table("table_lib")
    def rows() -> list[tuple[str, object]]:
        return [("table_lib.conv", CONV_BIAS_RELU)]

    assert len(get_pattern_table("table_lib")) == 1
    module = T.MergeComposite("table_lib")(IRModule.from_expr(conv_block(var("x", shape=X.shape))))
    annotated = T.AnnotateTarget("table_lib")(module)
    assert op_frequency(annotated)["annotation.compiler_end"] == 1
    with pytest.raises(ConfigError, match="there is no pattern table for 'nobody'"):
        T.MergeComposite("nobody")(module)
    with pytest.raises(ConfigError, match="expected \\(name, pattern\\)"):
        T.MergeComposite([("x", 3)])(module)
    with pytest.raises(ConfigError, match="name at least one library"):
        T.AnnotateTarget([])(module)


# --- regions --------------------------------------------------------------------------------------------------------


def partitioned(body: Expr, merge: bool = True, **options: object) -> IRModule:
    before = IRModule.from_expr(body)
    module = T.AnnotateTarget(["test_lib", "other_lib"])(before)
    same(module, before)
    if merge:
        module = T.MergeCompilerRegions()(module)
        same(module, before)
        assert T.MergeCompilerRegions()(module).astext() == module.astext()
    module = T.PartitionGraph(**options)(module)
    same(module, before)
    assert "annotation" not in module.astext()
    assert T.PartitionGraph()(module) is module
    return module


def test_each_call_is_a_function_without_merging_and_one_with() -> None:
    body = relay.sigmoid(relay.negative(relay.nn.relu(relay.sigmoid(var("x", shape=X.shape)))))
    assert len(partitioned(body, merge=False)) == 3
    module = partitioned(body)
    assert list(module) == ["main", "tvmgen_default_test_lib_main_0"]
    lifted = module["tvmgen_default_test_lib_main_0"]
    attrs = {"Compiler": "test_lib", "Primitive": 1, "Inline": 1, "global_symbol": "tvmgen_default_test_lib_main_0"}
    assert dict(lifted.attrs) == attrs


def test_regions_with_a_way_between_them_through_another_stay_apart() -> None:
    x = var("x", shape=X.shape)
    first = relay.nn.relu(x)
    module = partitioned(relay.add(first, relay.sigmoid(first)))
    assert len(module) == 3
    module = partitioned(relay.add(first, relay.negative(first)))
    assert len(module) == 2


def test_regions_of_two_libraries_and_several_results() -> None:
    x = var("x", shape=X.shape)
    first = relay.nn.relu(x)
    second = relay.negative(first)
    body = relay.add(relay.sigmoid(first), relay.exp(second))
    module = partitioned(body)
    compilers = [f.get_attr("Compiler") for _, f in module.items() if f.get_attr("Compiler")]
    assert sorted(compilers) == ["other_lib", "test_lib", "test_lib"]
    assert any(isinstance(f.body, Tuple) for _, f in module.items())


def test_tuples_between_calls_of_a_library_stay_inside() -> None:
    parts = relay.split(var("x", shape=X.shape), 2, axis=1)
    body = relay.add(parts[0], parts[1])
    assert len(partitioned(body)) == 2


def test_constants_go_inside_or_stay_outside_as_asked() -> None:
    body = relay.add(var("x", shape=X.shape), weights(4, 1, 1))
    (inside,) = [f for _, f in partitioned(body).items() if f.get_attr("Compiler")]
    (outside,) = [f for _, f in partitioned(body, bind_constants=False).items() if f.get_attr("Compiler")]
    assert (len(inside.params), len(outside.params)) == (1, 2)


def test_inline_puts_library_functions_where_they_are_called_unopened() -> None:
    module = partitioned(relay.negative(var("x", shape=X.shape)))
    after = T.Inline()(module)
    assert list(after) == ["main"]
    (made,) = functions(after, "Compiler")
    assert op_frequency(made) == {"negative": 1}
    np.testing.assert_array_equal(evaluate(after, [X]), -X)


def test_a_value_that_leaves_its_region_unmarked_is_refused() -> None:
    x = var("x", shape=(2,))
    inner = relay.nn.relu(relay.annotation.compiler_begin(x, compiler="l"))
    end = relay.annotation.compiler_end(relay.exp(inner), compiler="l")
    with pytest.raises(TypeMismatch, match="leaves it without compiler_end"):
        T.PartitionGraph()(IRModule.from_expr(relay.add(end, inner)))


def test_regions_that_depend_on_each_other_are_refused() -> None:
    begin, end = relay.annotation.compiler_begin, relay.annotation.compiler_end
    x = var("x", shape=(2,))
    first = relay.nn.relu(begin(x, compiler="l"))
    around = relay.sigmoid(end(first, compiler="l"))
    body = end(relay.add(first, begin(around, compiler="l")), compiler="l")
    with pytest.raises(TypeMismatch, match="two regions depend on each other"):
        T.PartitionGraph()(IRModule.from_expr(body))


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_keep_their_results_when_partitioned(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool: list[Expr] = [var("x", shape=X.shape)]
    unary = (relay.nn.relu, relay.negative, relay.sigmoid, relay.tanh)
    for _ in range(25):
        a, b = (pool[int(rng.integers(max(0, len(pool) - 5), len(pool)))] for _ in range(2))
        pool.append(relay.add(a, b) if rng.random() < 0.4 else unary[int(rng.integers(4))](a))
    partitioned(relay.tanh(pool[-1]))


def composite_module() -> IRModule:
    """Two composites in a row that share their weights; the first one's value is used twice."""
    x, w, b = var("x", shape=X.shape), weights(4, 4, 3, 3), weights(4, 1, 1)

    def block(value: Expr) -> Expr:
        return relay.nn.relu(relay.add(relay.nn.conv2d(value, w, padding=(1, 1)), b))

    first = block(x)
    return IRModule.from_expr(relay.add(relay.tanh(block(first)), first))


@pytest.mark.parametrize(
    ("order", "libraries"),
    [
        (("InferType", "MergeComposite", "AnnotateTarget", "MergeCompilerRegions", "PartitionGraph"), 1),
        (("MergeComposite", "AnnotateTarget", "InferType", "MergeCompilerRegions", "PartitionGraph", "InferType"), 1),
        (("MergeComposite", "AnnotateTarget", "PartitionGraph"), 2),
        (("MergeComposite", "AnnotateTarget", "PartitionGraph", "MergeCompilerRegions", "PartitionGraph"), 2),
        (("MergeComposite", "AnnotateTarget", "AnnotateTarget", "MergeCompilerRegions", "PartitionGraph"), 1),
    ],
)
def test_the_four_passes_work_on_composites_in_every_order_of_the_texts(order: tuple[str, ...], libraries: int) -> None:
    arguments = {"MergeComposite": [("shared_lib.conv", CONV_BIAS_RELU)], "AnnotateTarget": "shared_lib"}
    before = composite_module()
    module = before
    for name in order:
        module = getattr(T, name)(*([arguments[name]] if name in arguments else []))(module)
        same(module, before)
    assert [len(functions(module, key)) for key in ("Compiler", "Composite")] == [libraries, 2]
    assert op_frequency(IRModule.from_expr(module["main"])) == {"tanh": 1, "add": 1}


def test_predicates_answer_none_or_a_reason_or_a_bool() -> None:
    module = IRModule.from_expr(relay.exp(relay.negative(var("x", shape=X.shape))))
    row = ("a.exp", is_op("exp")(wildcard()))
    for verdict, count in ((None, 1), (True, 1), ("only float16", 0), (False, 0), ("", 0)):
        merged = T.MergeComposite([(*row, lambda e, verdict=verdict: verdict)])(module)
        assert len(functions(merged, "Composite")) == count
        register_support("reason_lib", "negative", lambda call, verdict=verdict: verdict)
        assert op_frequency(T.AnnotateTarget("reason_lib")(module)).get("annotation.compiler_end", 0) == count
    call = module["main"].body
    assert why_not("reason_lib", call) == "reason_lib has no such operator"
    register_support("reason_lib", "exp", lambda call: "only float16")
    assert why_not("reason_lib", call) == "only float16"


# --- mixed precision ------------------------------------------------------------------------------------------------


def casts(module: IRModule) -> int:
    return op_frequency(module).get("cast", 0)


def test_contractions_and_followers_are_half_and_sums_stay_whole() -> None:
    body = relay.nn.softmax(relay.nn.batch_flatten(conv_block(conv_block(var("x", shape=X.shape)))))
    before = IRModule.from_expr(body)
    after = T.FoldConstant()(T.ToMixedPrecision("float16")(before))
    same(after, before, 2e-2)
    assert casts(after) == 2  # the input, and the argument of softmax
    assert evaluate(after, [X]).dtype == np.float32
    assert T.ToMixedPrecision()(after).astext() == after.astext()


def test_output_is_half_unless_asked_otherwise() -> None:
    before = IRModule.from_expr(conv_block(var("x", shape=X.shape)))
    assert evaluate(T.ToMixedPrecision()(before), [X]).dtype == np.float16
    kept = T.ToMixedPrecision(keep_orig_output_dtype=True)(before)
    assert evaluate(kept, [X]).dtype == np.float32
    same(kept, before, 2e-2)


def test_accumulation_type_can_be_set_per_operator() -> None:
    before = IRModule.from_expr(relay.nn.conv2d(var("x", shape=X.shape), weights(4, 4, 3, 3)))
    after = T.ToMixedPrecision(conversions={"nn.conv2d": (0, "float32", "float16")})(before)
    conv = next(e for e in post_order(after["main"]) if isinstance(e, Call) and e.op.name == "nn.conv2d")
    assert conv.attrs.out_dtype == "float32"
    assert evaluate(after, [X]).dtype == np.float16


def test_graph_of_sensitive_operators_is_returned_as_it_is() -> None:
    module = IRModule.from_expr(relay.nn.softmax(relay.exp(var("x", shape=X.shape))))
    assert T.ToMixedPrecision()(module) is module


def test_cheap_operators_over_inputs_and_constants_are_half() -> None:
    before = IRModule.from_expr(relay.nn.relu(relay.add(var("x", shape=X.shape), weights(4, 1, 1))))
    after = T.ToMixedPrecision()(before)
    assert evaluate(after, [X]).dtype == np.float16
    same(T.ToMixedPrecision(keep_orig_output_dtype=True)(before), before, 2e-2)


def test_bounds_that_half_precision_lacks_stay_whole() -> None:
    clipped = IRModule.from_expr(relay.clip(var("x", shape=X.shape), -128000.0, 128000.0))
    assert T.ToMixedPrecision("float16")(clipped) is clipped
    assert casts(T.ToMixedPrecision("bfloat16")(clipped)) == 1
    half = T.ToMixedPrecision()(IRModule.from_expr(relay.clip(var("x", shape=X.shape), 0.0, float("inf"))))
    assert casts(half) == 1


def test_operator_without_category_is_an_error_a_warning_or_left_alone() -> None:
    before = IRModule.from_expr(relay.round(relay.nn.conv2d(var("x", shape=X.shape), weights(4, 4, 1, 1))))
    with pytest.raises(UnsupportedError, match="operator round has no category"):
        T.ToMixedPrecision(missing_op_mode=0)(before)
    with pytest.warns(UserWarning, match="operator round has no category"):
        T.ToMixedPrecision(missing_op_mode=1)(before)
    after = T.ToMixedPrecision(missing_op_mode=2)(before)
    assert evaluate(after, [X]).dtype == np.float32
    with pytest.raises(ConfigError, match="missing_op_mode is 0"):
        T.ToMixedPrecision(missing_op_mode=3)(before)
    with pytest.raises(ConfigError, match="'int8' is not one of"):
        T.ToMixedPrecision("int8")(before)


def test_branches_and_tuples_see_types_that_fit() -> None:
    x, flag = var("x", shape=X.shape), var("flag", shape=(), dtype="bool")
    conv = relay.nn.conv2d(x, weights(4, 4, 1, 1))
    joined = relay.concatenate([conv, relay.nn.relu(conv)], axis=1)
    body = If(flag, relay.nn.relu(joined), relay.exp(joined))
    before = IRModule.from_expr(Function((flag, x), body))
    after = T.ToMixedPrecision()(before)
    for value in (True, False):
        want, got = (evaluate(m, [np.bool_(value), X]) for m in (before, after))
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)


# --- what importers write -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paddings", "crops", "padding", "flattens"),
    [
        (((2, 2), (2, 2)), ((0, 0), (0, 0)), (0, 0), True),
        (((2, 4), (3, 3)), ((0, 2), (0, 0)), (0, 0), True),
        (((1, 1), (0, 0)), ((0, 0), (0, 0)), (1, 1), True),
        (((0, 0), (0, 0)), ((1, 0), (0, 0)), (0, 0), False),
    ],
)
def test_convolution_of_interleaved_batches_is_a_dilated_one(
    paddings: tuple, crops: tuple, padding: tuple[int, int], flattens: bool
) -> None:
    x = relay.transpose(var("x", shape=X.shape), (0, 2, 3, 1))
    spread = relay.nn.space_to_batch_nd(x, block_shape=(2, 2), paddings=paddings)
    conv = relay.nn.conv2d(spread, weights(2, 2, 4, 5), padding=padding, data_layout="NHWC", kernel_layout="HWIO")
    before = IRModule.from_expr(relay.nn.batch_to_space_nd(conv, block_shape=(2, 2), crops=crops))
    after = T.FlattenAtrousConv()(before)
    assert ("nn.space_to_batch_nd" not in op_frequency(after)) == flattens
    same(after, before)


def test_strided_convolution_of_interleaved_batches_stays() -> None:
    x = relay.transpose(var("x", shape=X.shape), (0, 2, 3, 1))
    spread = relay.nn.space_to_batch_nd(x, block_shape=(2, 2), paddings=((0, 0), (0, 0)))
    conv = relay.nn.conv2d(spread, weights(1, 1, 4, 5), strides=(2, 2), data_layout="NHWC", kernel_layout="HWIO")
    module = IRModule.from_expr(relay.nn.batch_to_space_nd(conv, block_shape=(2, 2), crops=((0, 0), (0, 0))))
    assert T.FlattenAtrousConv()(module) is module


def test_shapes_of_known_tensors_become_constants_and_attributes() -> None:
    x = var("x", shape=(2, 6))
    model = relay.zeros_like(relay.reshape(x, (3, 4)))
    before = IRModule.from_expr(Tuple((relay.add(relay.reshape_like(x, model), model), relay.shape_of(model))))
    after = T.DynamicToStatic()(before)
    assert op_frequency(after).keys() <= {"add", "reshape", "zeros"}
    data = np.arange(12, dtype="float32").reshape(2, 6)
    for got, want in zip(evaluate(after, [data]), evaluate(before, [data]), strict=True):
        np.testing.assert_array_equal(got, want)
