"""Every graph pass keeps what a graph computes, prints what it makes, is idempotent and survives deep graphs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from armillary import ir, relay
from armillary.base.node import structural_equal
from armillary.errors import ConfigError, TypeMismatch, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.analysis import op_frequency
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Expr, Function, If, Let, TupleGetItem, Var, const, var
from armillary.relay.offload_tables import register_support
from armillary.relay.op import Op, get_op
from armillary.relay.parser import parse
from armillary.relay.pattern import is_op, wildcard
from armillary.relay.transform.pipeline import optimize
from armillary.relay.walk import not_primitive, post_order
from armillary.runtime import cpu
from armillary.transform import Pass, PassContext, Sequential

AVX = "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu"
NEON = "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu"
T = relay.transform
for _name in ("nn.relu", "add", "negative", "nn.conv2d"):
    register_support("chain_lib", _name, lambda call: True)
register_support("other_chain_lib", "nn.relu", lambda call: True)
PASSES = {
    "InferType": T.InferType(),
    "SimplifyInference": T.SimplifyInference(),
    "FoldConstant": T.FoldConstant(),
    "FoldScaleAxis": T.FoldScaleAxis(),
    "EliminateCommonSubexpr": T.EliminateCommonSubexpr(),
    "CanonicalizeOps": T.CanonicalizeOps(),
    "CanonicalizeCast": T.CanonicalizeCast(),
    "SimplifyExpr": T.SimplifyExpr(),
    "ToBasicBlockNormalForm": T.ToBasicBlockNormalForm(),
    "CombineParallelConv2D": T.CombineParallelConv2D(2),
    "CombineParallelDense": T.CombineParallelDense(2),
    "CombineParallelBatchMatmul": T.CombineParallelBatchMatmul(2),
    "AlterOpLayout": T.AlterOpLayout(AVX),
    "AlterOpLayoutNeon": T.AlterOpLayout(NEON),
    "ConvertLayout": T.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}),
    "FuseOps": T.FuseOps(-1),
    "FuseOpsNone": T.FuseOps(0),
    "Inline": T.Inline(),
    "Legalize": T.Legalize(),
    "QnnLegalize": relay.qnn.transform.Legalize(),
    "QnnCanonicalize": relay.qnn.transform.CanonicalizeOps(),
    "PlanDevices": T.PlanDevices(),
    "BackwardFoldScaleAxis": T.BackwardFoldScaleAxis(),
    "ForwardFoldScaleAxis": T.ForwardFoldScaleAxis(),
    "ToANormalForm": T.ToANormalForm(),
    "ToGraphNormalForm": Sequential([T.ToANormalForm(), T.ToGraphNormalForm()]),
    "DeadCodeElimination": T.DeadCodeElimination(),
    "DeadCodeEliminationInlining": Sequential([T.ToANormalForm(), T.DeadCodeElimination(inline_once=True)]),
    "DefuseOps": Sequential([T.FuseOps(3), T.DefuseOps()]),
    "LabelOps": T.LabelOps(),
    "FastMath": T.FastMath(),
    "RemoveUnusedFunctions": T.RemoveUnusedFunctions(["main"]),
    "SimplifyExprPostAlterOp": T.SimplifyExprPostAlterOp(),
    "DynamicToStatic": T.DynamicToStatic(),
    "FlattenAtrousConv": T.FlattenAtrousConv(),
    "MergeComposite": T.MergeComposite([("chain_lib.relu", is_op("nn.relu")(is_op("add")(wildcard(), wildcard())))]),
    "AnnotateTarget": T.AnnotateTarget("chain_lib"),
    "MergeCompilerRegions": Sequential([T.AnnotateTarget("chain_lib"), T.MergeCompilerRegions()]),
    "PartitionGraph": Sequential([T.AnnotateTarget("chain_lib"), T.MergeCompilerRegions(), T.PartitionGraph()]),
    "PartitionGraphUnmerged": Sequential([T.AnnotateTarget("other_chain_lib"), T.PartitionGraph()]),
}


class Builder:
    """Random small networks from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def values(self, *shape: int) -> Expr:
        return const(self.rng.standard_normal(shape).astype("float32"))

    def positive(self, *shape: int) -> Expr:
        return const(self.rng.uniform(0.5, 1.5, shape).astype("float32"))

    def channels(self, x: Expr) -> int:
        return x.checked_type.shape[1]

    def step(self, x: Expr, pool: list[Expr]) -> Expr:
        nn, c = relay.nn, self.channels(x)
        kind = int(self.rng.integers(12))
        if kind <= 2:
            out = int(self.rng.choice([4, 5, 8, 16, 24]))
            return nn.conv2d(x, self.values(out, c, 3, 3), padding=(1, 1))
        if kind == 3:
            return nn.conv2d(x, self.values(c, 1, 3, 3), padding=(1, 1), groups=c)
        if kind == 4:
            norm = nn.batch_norm(x, *(self.positive(c) for _ in range(4)))
            return TupleGetItem(norm, 0)
        if kind == 5:
            return nn.bias_add(x, self.values(c))
        if kind == 6:
            return relay.multiply(x, self.positive(c, 1, 1))
        if kind == 7:
            same = [p for p in pool if p.checked_type == x.checked_type]
            return relay.add(x, same[int(self.rng.integers(len(same)))]) if same else nn.relu(x)
        if kind == 8:
            return relay.concatenate([x, relay.sigmoid(x)], axis=1)
        if kind == 9:
            gate = relay.sigmoid(nn.conv2d(nn.global_avg_pool2d(x), self.values(c, c, 1, 1)))
            return relay.multiply(x, gate)
        if kind == 10:
            return relay.add(relay.multiply(x, const(1.0)), const(0.5))
        return nn.relu(x)

    def module(self, length: int) -> IRModule:
        x = var("x", shape=(1, 3, 6, 6))
        pool: list[Expr] = [x]
        for _ in range(length):
            pool.append(self.step(pool[-1], pool))
            if self.channels(pool[-1]) > 48:
                pool.append(relay.nn.conv2d(pool[-1], self.values(8, self.channels(pool[-1]), 1, 1)))
        return IRModule.from_expr(relay.nn.batch_flatten(relay.nn.max_pool2d(pool[-1], (2, 2), (2, 2))))


def outputs(module: IRModule) -> np.ndarray:
    x = np.random.default_rng(7).standard_normal((1, 3, 6, 6)).astype("float32")
    return evaluate(module, [x])


def check_same(before: IRModule, after: IRModule, seed: int) -> None:
    want, got = outputs(before), outputs(after)
    scale = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(got / scale, want / scale, rtol=1e-4, atol=2e-5, err_msg=f"seed {seed}")


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("seed", range(6))
def test_pass_keeps_results_is_idempotent_and_its_output_prints_and_parses(name: str, seed: int) -> None:
    before = Builder(seed).module(10)
    after = PASSES[name](before)
    check_same(before, after, seed)
    assert PASSES[name](after).astext() == after.astext(), f"not idempotent, seed {seed}"
    parsed = parse(after.astext())
    assert parsed.astext() == after.astext(), f"seed {seed}"
    assert structural_equal(parsed["main"], after["main"]), f"seed {seed}"


@pytest.mark.parametrize("level", range(5))
@pytest.mark.parametrize("target", [AVX, NEON])
def test_pipeline_keeps_results_at_every_level(level: int, target: str) -> None:
    for seed in range(20, 28):
        before = Builder(seed).module(14)
        with PassContext(opt_level=level):
            after = optimize(before, target)
        check_same(before, after, seed)
        calls = post_order(after["main"].body, not_primitive)
        assert not any(isinstance(e, Call) and isinstance(e.op, Op) for e in calls), f"an unfused call, seed {seed}"


def test_pass_returns_its_input_when_there_is_nothing_to_do() -> None:
    module = T.InferType()(IRModule.from_expr(relay.nn.relu(var("x", shape=(2, 2)))))
    makes_something = ("Fuse", "Annotate", "Merge", "Partition", "ToANormal", "ToGraph", "DeadCodeEliminationI", "Def")
    for name in sorted(n for n in PASSES if not n.startswith(makes_something)):
        assert PASSES[name](module) is module, name


DEPTH = 2000  # twice the recursion limit


def chain(name: str) -> Expr:
    x = e = var("x", shape=(1, 4, 2, 2))
    for k in range(DEPTH):
        e = relay.nn.relu(e) if name == "FuseOps" or k % 2 else relay.add(e, const(np.float32(k % 3 + 1)))
    return Function((x,), e)


@pytest.mark.parametrize("name", PASSES)
def test_pass_survives_a_chain_of_2000_calls(name: str) -> None:
    module = IRModule.from_expr(chain("mixed"))
    after = PASSES[name](module)
    assert parse(after.astext()).astext() == after.astext()


@pytest.mark.parametrize("name", PASSES)
def test_pass_survives_2000_lets(name: str) -> None:
    x = var("x", shape=(2,))
    names = [Var(f"v{k}") for k in range(DEPTH)]
    body: Expr = names[-1]
    for k in reversed(range(DEPTH)):
        body = Let(names[k], relay.negative(names[k - 1] if k else x), body)
    module = PASSES[name](IRModule.from_expr(Function((x,), body)))
    np.testing.assert_array_equal(evaluate(module, [np.ones(2, "float32")]), np.ones(2, "float32"))


@pytest.mark.parametrize("step", [lambda x: x + relay.const(1.0), lambda x: relay.tanh(x) * relay.const(2.0)])
def test_a_long_chain_of_elementwise_calls_becomes_kernels_that_can_be_lowered(step: Callable[[Expr], Expr]) -> None:
    x = relay.var("x", shape=(2, 5))
    y: Expr = x
    for _ in range(160):
        y = step(y) - x
    values = np.linspace(-1, 1, 10, dtype=np.float32).reshape(2, 5)
    module = IRModule.from_expr(relay.Function([x], y))
    graph = relay.build(module, "llvm")["default"](cpu(0))
    graph.set_input("x", values)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), evaluate(module, {"x": values}), rtol=1e-4, atol=1e-4)


def test_fused_kernels_respect_max_depth() -> None:
    with PassContext(config={"relay.FuseOps.max_depth": 10}):
        module = T.FuseOps()(IRModule.from_expr(chain("FuseOps")))
    sizes = [sum(op_frequency(e.body).values()) for e in post_order(module["main"]) if isinstance(e, Function)]
    assert max(sizes[:-1]) <= 10


def test_convolution_fuses_with_bias_residual_and_relu() -> None:
    b = Builder(0)
    x, r = var("x", shape=(1, 4, 6, 6)), var("r", shape=(1, 4, 6, 6))
    y = relay.nn.conv2d(x, b.values(4, 4, 3, 3), padding=(1, 1))
    y = relay.nn.relu(relay.add(relay.add(y, b.values(4, 1, 1)), r))
    module = T.FuseOps(3)(IRModule.from_expr(y))
    assert sum(isinstance(e, Function) and e.get_attr("Primitive") == 1 for e in post_order(module["main"])) == 1


def test_value_with_two_consumers_is_computed_once_by_its_own_kernel() -> None:
    b = Builder(0)
    x = var("x", shape=(1, 4, 6, 6))
    y = relay.nn.conv2d(x, b.values(4, 4, 1, 1))
    left, right = relay.nn.conv2d(y, b.values(4, 4, 1, 1)), relay.nn.max_pool2d(y, (1, 1))
    module = T.FuseOps(3)(IRModule.from_expr(relay.add(left, right)))
    assert op_frequency(module)["nn.conv2d"] == 2


def test_batch_norm_disappears_into_the_convolution() -> None:
    b = Builder(1)
    x = var("x", shape=(1, 3, 6, 6))
    y = relay.nn.conv2d(x, b.values(8, 3, 3, 3), padding=(1, 1))
    y = relay.nn.relu(TupleGetItem(relay.nn.batch_norm(y, *(b.positive(8) for _ in range(4))), 0))
    module = IRModule.from_expr(y)
    after = module
    for each in (
        T.SimplifyInference(),
        T.FoldConstant(),
        T.CanonicalizeOps(),
        T.FoldConstant(),
        T.FoldScaleAxis(),
        T.SimplifyExpr(),
    ):
        after = each(after)
    assert op_frequency(after) == {"add": 1, "nn.conv2d": 1, "nn.relu": 1}
    np.testing.assert_allclose(outputs(after), outputs(module), rtol=1e-4, atol=1e-5)


def test_scale_before_a_convolution_is_folded_through_relu_only_when_positive() -> None:
    b = Builder(2)
    x = var("x", shape=(1, 3, 6, 6))
    for factor, count in ((b.positive(3, 1, 1), 0), (b.values(3, 1, 1), 1)):
        y = relay.nn.conv2d(relay.nn.relu(relay.multiply(x, factor)), b.values(8, 3, 3, 3), padding=(1, 1))
        module = IRModule.from_expr(y)
        after = T.FoldScaleAxis()(module)
        assert op_frequency(after).get("multiply", 0) == count
        np.testing.assert_allclose(outputs(after), outputs(module), rtol=1e-4, atol=1e-5)


def test_scale_of_a_large_weight_of_halves_is_folded_only_if_it_stays_one() -> None:
    halves = np.random.default_rng(4).standard_normal((128, 128, 1, 1)).astype("float16").astype("float32")
    x = var("x", shape=(1, 128, 6, 6))
    for factor, count in ((0.25, 0), (0.3, 1)):
        scale = const(np.full((128, 1, 1), factor, "float32"))
        after = T.FoldScaleAxis()(IRModule.from_expr(relay.multiply(relay.nn.conv2d(x, const(halves)), scale)))
        assert op_frequency(after).get("multiply", 0) == count


def test_scale_of_a_value_that_others_use_stays() -> None:
    b = Builder(3)
    x = var("x", shape=(1, 3, 6, 6))
    y = relay.nn.conv2d(x, b.values(3, 3, 1, 1))
    module = IRModule.from_expr(relay.add(relay.multiply(y, b.positive(3, 1, 1)), y))
    assert T.FoldScaleAxis()(module) is module


def test_fold_constant_leaves_huge_results_alone() -> None:
    huge = relay.broadcast_to(const(1.0), (1 << 14, 1 << 14))
    module = IRModule.from_expr(relay.add(var("x", shape=(1,)), huge))
    assert T.FoldConstant()(module) is module


def test_fold_constant_leaves_nothing_subnormal_of_what_vanishes() -> None:
    scores = np.array([0, -80, -90, -95, -200], np.float32)
    product = relay.multiply(relay.const(np.array([-1e-30, 1e-30, 2], np.float32)), const(1e-9))
    row, scaled = (
        T.FoldConstant()(IRModule.from_expr(call))["main"].body.data
        for call in (relay.nn.softmax(const(scores)), product)
    )
    assert row[1] > 0 and list(row[2:]) == [0, 0, 0]
    assert list(scaled[:2]) == [0, 0] and np.signbit(scaled[0]) and scaled[2] == np.float32(2) * np.float32(1e-9)


def test_fold_constant_takes_branches_and_lets_of_constants() -> None:
    x, v = var("x", shape=()), Var("v")
    body = Let(v, const(2.0), If(relay.greater(v, const(1.0)), relay.multiply(x, relay.add(v, v)), x))
    module = T.FoldConstant()(IRModule.from_expr(Function((x,), body)))
    assert op_frequency(module) == {"multiply": 1}
    assert evaluate(module, [np.float32(3)]) == 12


def test_blocked_convolutions_need_no_transform_between_them() -> None:
    b = Builder(4)
    y: Expr = var("x", shape=(1, 3, 6, 6))
    for _ in range(4):
        y = relay.nn.conv2d(y, b.values(16, y.checked_type.shape[1], 3, 3), padding=(1, 1))
        y = relay.nn.relu(relay.add(y, b.values(16, 1, 1)))
        y = relay.nn.max_pool2d(y, (1, 1))
    module = T.FoldConstant()(T.AlterOpLayout(AVX)(IRModule.from_expr(y)))
    counts = op_frequency(module)
    assert counts["nn.contrib_conv2d_NCHWc"] == 4
    assert counts["layout_transform"] == 1  # at the end; the image comes in as blocks of one channel


def test_shared_work_of_branches_is_bound_outside() -> None:
    c, x = var("c", shape=(), dtype="bool"), var("x", shape=())
    shared = relay.negative(x)
    module = IRModule.from_expr(Function((c, x), If(c, relay.nn.relu(shared), shared)))
    after = T.ToBasicBlockNormalForm()(module)
    assert isinstance(after["main"].body, Let)
    for flag in (True, False):
        want = evaluate(module, [np.bool_(flag), np.float32(2)])
        assert evaluate(after, [np.bool_(flag), np.float32(2)]) == want


def test_parallel_convolutions_become_one() -> None:
    b = Builder(5)
    x = var("x", shape=(1, 3, 6, 6))
    branches = [relay.nn.conv2d(x, b.values(n, 3, 3, 3)) for n in (4, 8, 5)]
    module = IRModule.from_expr(relay.concatenate([relay.nn.relu(e) for e in branches], axis=1))
    after = T.CombineParallelConv2D(3)(module)
    assert op_frequency(after)["nn.conv2d"] == 1
    np.testing.assert_allclose(outputs(after), outputs(module), rtol=1e-5, atol=1e-5)
    assert T.CombineParallelConv2D(4)(module) is module


def test_unused_functions_go_and_called_ones_stay() -> None:
    x = var("x", shape=(2,))
    module = IRModule({"used": Function((x,), relay.exp(x), x.type_annotation), "unused": Function((x,), x)})
    module["main"] = Function((x,), Call(module.get_global_var("used"), (x,)))
    assert set(T.RemoveUnusedFunctions(["main"])(module)) == {"main", "used"}
    inlined = IRModule({"used": module["used"].with_attr("Inline", 1)})
    inlined["main"] = Function((x,), Call(inlined.get_global_var("used"), (x,)))
    assert op_frequency(T.Inline()(inlined)["main"]) == {"exp": 1}


def test_label_is_the_same_for_equal_kernels() -> None:
    x = var("x", shape=(2,))
    module = T.LabelOps()(T.FuseOps(0)(IRModule.from_expr(relay.exp(relay.exp(x)))))
    labels = {e.get_attr("hash") for e in post_order(module["main"]) if isinstance(e, Function)} - {None}
    assert len(labels) == 1


def test_misuse_is_refused_with_the_reason() -> None:
    with pytest.raises(UnsupportedError, match=r"nn\.lrn cannot be converted"):
        T.ConvertLayout({"nn.lrn": ["NHWC"]})(IRModule.from_expr(var("x", shape=(1,))))
    with pytest.raises(ConfigError, match="desired_layouts is empty"):
        T.UseLayouts({})(IRModule.from_expr(var("x", shape=(1,))))
    with pytest.raises(TypeMismatch, match="is not a layout"):
        T.ConvertLayout({"nn.conv2d": ["4N"]})(IRModule.from_expr(var("x", shape=(1,))))
    with pytest.raises(AttributeError, match="has no pass 'FoldConstants'"):
        _ = T.FoldConstants
    with pytest.raises(ConfigError, match="unknown option"):
        T.FoldConstant(nonsense=1)
    with pytest.raises(UnsupportedError, match="there is no operator"):
        get_op("nn.conv9d")


def test_passes_are_found_by_name() -> None:
    assert isinstance(T.FuseOps(), Pass)
    assert T.CombineParallelConv2D(3).info.opt_level == 4
    assert T.FoldConstant().name == "FoldConstant"


def test_a_variable_whose_type_is_to_be_found_equals_one_that_states_it() -> None:
    def named(annotation: relay.Type | None) -> Expr:
        name = relay.Var("y", annotation)
        return relay.Function([], relay.Let(name, relay.const(1.5), name))

    stated = named(relay.TensorType((), "float32"))
    assert ir.structural_equal(named(relay.IncompleteType()), stated)
    assert ir.structural_equal(relay.transform.ToANormalForm()(IRModule.from_expr(relay.const(1.5)))["main"], stated)
    assert not ir.structural_equal(named(relay.TensorType((), "float64")), stated)
