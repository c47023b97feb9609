"""Strategies of scripts: an operator is computed and scheduled as the script says, for the target's keys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import armillary
from armillary import relay, te, topi
from armillary.contrib import graph_executor
from armillary.errors import ConfigError
from armillary.relay.op import LEGALIZE_RULES, Kind, Op, OpStrategy, strategy

TY = relay.TensorType((4, 6), "float32")
DATA = np.arange(24, dtype="float32").reshape(4, 6) - 12


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    for key in ("FTVMStrategy", "FTVMCompute"):
        LEGALIZE_RULES.get(key, {}).clear()


def run(body: relay.Expr, x: relay.Var, target: str = "llvm", level: int = 3) -> np.ndarray:
    with armillary.transform.PassContext(opt_level=level):
        library = relay.build(armillary.IRModule.from_expr(relay.Function([x], body)), target)
    module = graph_executor.GraphModule(library["default"](armillary.cpu()))
    module.set_input(x.name_hint, DATA if x.checked_type == TY else np.ones(x.checked_type.static, "float32"))
    module.run()
    return module.get_output(0).numpy()


def own(name: str) -> relay.op.Op:
    op = relay.op.op.register(name)
    op.set_num_inputs(1)
    op.add_argument("data", "Tensor", "The data.")
    op.add_type_rel("Identity")
    relay.op.register_pattern(name, relay.op.OpPattern.ELEMWISE)
    return op


def test_an_operator_of_a_scripts_own_is_computed_by_its_strategy_and_fuses() -> None:
    op, seen = own("strategy_scale"), []

    def compute(attrs: object, inputs: list[te.Tensor], out_type: relay.TensorType) -> list[te.Tensor]:
        assert attrs is None and out_type == TY
        return [te.compute(out_type.shape, lambda i, j: inputs[0][i, j] * 3.0, name="scaled")]

    def schedule(attrs: object, outs: list[te.Tensor], target: armillary.target.Target) -> te.Schedule:
        seen.append((len(outs), target.kind.name))
        made = te.create_schedule([t.op for t in outs])
        made[outs[0]].reorder(*reversed(made[outs[0]].op.axis))
        return made

    @relay.op.register_strategy("strategy_scale")
    def rule(attrs: object, inputs: object, out_type: object, target: object) -> OpStrategy:
        made = OpStrategy()
        made.add_implementation(strategy.wrap_topi_compute(topi.abs), strategy.naive_schedule, name="other", plevel=1)
        made.add_implementation(compute, schedule, name="own", plevel=15)
        return made

    x = relay.var("x", TY)
    np.testing.assert_array_equal(run(relay.Call(op, [x]), x), DATA * 3)
    assert (1, "llvm") in seen
    np.testing.assert_array_equal(run(relay.exp(relay.Call(op, [relay.abs(x)])) * 0.0 + 1.0, x), DATA * 0 + 1)


def test_a_known_operator_is_taken_over_and_the_keys_of_the_target_choose() -> None:
    @armillary.target.generic_func
    def rule(attrs: object, inputs: object, out_type: object, target: object) -> OpStrategy:
        made = OpStrategy()
        made.add_implementation(strategy.wrap_topi_compute(lambda x: topi.add(x, 1.0)), strategy.naive_schedule)
        return made

    @rule.register("board")
    def of_board(attrs: object, inputs: object, out_type: object, target: object) -> OpStrategy:
        made = OpStrategy()
        made.add_implementation(strategy.wrap_topi_compute(lambda x: topi.add(x, 2.0)), None)
        return made

    x = relay.var("x", TY)
    relay.op.register_strategy("nn.relu", rule, level=11)
    np.testing.assert_array_equal(run(relay.nn.relu(x), x), DATA + 1)
    np.testing.assert_array_equal(run(relay.nn.relu(x), x, "llvm -keys=board,cpu"), DATA + 2)
    relay.op.get("nn.relu").reset_attr("FTVMStrategy")
    np.testing.assert_array_equal(run(relay.nn.relu(x), x), np.maximum(DATA, 0))  # and not what a cache holds


def test_a_convolution_with_a_strategy_keeps_its_layout() -> None:
    shapes = []

    @relay.op.register_strategy("nn.conv2d")
    def rule(attrs: object, inputs: list[te.Tensor], out_type: relay.TensorType, target: object) -> OpStrategy:
        shapes.append([tuple(map(int, t.shape)) for t in inputs])
        made = OpStrategy()

        def compute(attrs: object, inputs: list[te.Tensor], out_type: relay.TensorType) -> list[te.Tensor]:
            return [te.compute(out_type.shape, lambda *i: inputs[0](*i[:1], 0, *i[2:]) + 5.0, name="odd")]

        made.add_implementation(compute)
        return made

    x = relay.var("x", shape=(1, 16, 8, 8))
    weight = relay.const(np.ones((16, 16, 1, 1), "float32"))
    np.testing.assert_array_equal(run(relay.nn.relu(relay.nn.conv2d(x, weight)), x), np.full((1, 16, 8, 8), 6.0))
    assert shapes[0] == [(1, 16, 8, 8), (16, 16, 1, 1)]


def test_a_compute_alone_gets_the_targets_schedule_and_a_schedule_may_follow() -> None:
    op, x = own("strategy_compute"), relay.var("x", TY)
    with pytest.raises(ConfigError, match="has no compute"):
        relay.op.register_schedule("strategy_compute", topi.generic.schedule_injective)

    @relay.op.register_compute("strategy_compute")
    def compute(attrs: object, inputs: list[te.Tensor], out_type: relay.TensorType) -> list[te.Tensor]:
        return [topi.negative(inputs[0])]

    relay.op.register_injective_schedule("strategy_compute")
    np.testing.assert_array_equal(run(relay.Call(op, [x]), x, level=0), -DATA)
    relay.op.register_schedule("strategy_compute", topi.generic.schedule_injective)
    np.testing.assert_array_equal(run(relay.Call(op, [x]), x), -DATA)


def test_what_is_no_strategy_is_told() -> None:
    x = relay.var("x", TY)
    with pytest.raises(ConfigError, match="wanted a function"):
        OpStrategy().add_implementation(3)  # type: ignore[arg-type]
    relay.op.register_strategy("nn.relu", lambda *_: OpStrategy())
    with pytest.raises(ConfigError, match="offers no implementation"):
        run(relay.nn.relu(x), x)


def test_kernels_of_a_scripts_operators_are_not_read_from_the_cache() -> None:
    op, x = Op("cached_scale", kind=Kind.ELEMENTWISE, inputs=("x",)), relay.var("x", TY)
    op.infer(lambda attrs, x: x)
    for factor in (2.0, 3.0):
        op.compute(lambda attrs, x, by=factor: te.compute(te.static_shape(x), lambda *i: x(*i) * by, tag="elemwise"))
        np.testing.assert_array_equal(run(op(x), x), DATA * factor)


def test_batch_norm_reaches_a_strategy_where_simplify_inference_is_off() -> None:
    def compute(attrs: relay.op.Attrs, ins: list[te.Tensor], out_type: object) -> list[te.Tensor]:
        x, gamma, beta, mean, variance = ins
        norm = te.compute(
            x.shape, lambda n, c: (x[n, c] - mean[c]) / te.sqrt(variance[c] + attrs.epsilon) * gamma[c] + beta[c]
        )
        return [norm, te.compute(mean.shape, lambda c: mean[c]), te.compute(mean.shape, lambda c: variance[c])]

    def rule(attrs: object, inputs: object, out_type: object, target: object) -> OpStrategy:
        made = OpStrategy()
        made.add_implementation(compute, None, name="norm.own")
        return made

    strategy.register_strategy("nn.batch_norm", rule)
    x = relay.var("x", shape=(4, 6))
    scale, shift, mean, variance = (np.full(6, value, "float32") for value in (2, 1, 3, 4))
    body = relay.nn.batch_norm(x, *map(relay.const, (scale, shift, mean, variance)))[0]
    with armillary.transform.PassContext(opt_level=3, disabled_pass=["SimplifyInference"]):
        module, _ = relay.optimize(relay.Function([x], body), "llvm")
        library = relay.build(relay.Function([x], body), "llvm")
    assert "nn.batch_norm" in str(module)
    runner = graph_executor.GraphModule(library["default"](armillary.cpu()))
    runner.run(x=DATA)
    np.testing.assert_allclose(runner.get_output(0).numpy(), (DATA - 3) / 2.000001 * 2 + 1, rtol=1e-5, atol=1e-5)


def test_own_operators_have_strategies_too() -> None:
    x, w = te.placeholder((1, 3, 8, 8), name="x"), te.placeholder((4, 3, 3, 3), name="w")
    data, weight = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    call, target = relay.nn.conv2d(data, weight, kernel_size=(3, 3), channels=4), armillary.target.Target("llvm")
    rule = relay.op.get("nn.conv2d").get_attr("FTVMStrategy")
    made = rule(call.attrs, [x, w], None, target).implementations[0]
    outputs = made.compute(call.attrs, [x, w], None)
    function = armillary.build(made.schedule(call.attrs, outputs, target), [x, w, *outputs], target)
    result = np.zeros((1, 4, 6, 6), np.float32)
    function(np.ones((1, 3, 8, 8), np.float32), np.ones((4, 3, 3, 3), np.float32), result)
    assert (result == 27).all()
    lowered = armillary.get_global_func("relay.backend.lower_call")(call, [x, w], target)
    assert lowered.implementation.name == made.name


def test_keys_of_the_target_choose_the_strategy() -> None:
    """As in `generic_func`: `for k in target.keys`; where no key has a rule, the build's own holds."""
    calls: list[str] = []

    @relay.op.strategy.log_softmax_strategy.register(["my_board", "mali"])
    def on_board(attrs: object, inputs: object, out_type: object, target: armillary.target.Target) -> OpStrategy:
        calls.append(str(target.kind.name))
        made = OpStrategy()
        made.add_implementation(lambda a, tensors, t: [topi.negative(tensors[0])], name="log_softmax.board")
        return made

    x = relay.var("x", shape=(8,))
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.log_softmax(x)))
    data = np.linspace(-1, 1, 8, dtype="float32")
    for target, wanted in (("llvm", data - np.log(np.exp(data).sum())), ("llvm -keys=my_board,cpu", -data)):
        run = graph_executor.GraphModule(relay.build(module, target)["default"](armillary.cpu()))
        run.run(x=data)
        np.testing.assert_allclose(run.get_output(0).numpy(), wanted, rtol=1e-5)
        assert bool(calls) == ("my_board" in target)
    with armillary.target.Target("llvm"):
        attrs = module["main"].body.attrs
        own = relay.op.strategy.log_softmax_strategy(attrs, [te.placeholder((8,))], None, "llvm")
    assert "board" not in own.best().name


def test_strategies_have_the_names_of_scripts() -> None:
    assert relay.op.strategy.x86.conv2d_strategy_cpu is not None
    assert relay.op.strategy.generic.dense_strategy is relay.op.strategy.dense_strategy
    with pytest.raises(AttributeError, match="no_such_strategy"):
        _ = relay.op.strategy.no_such_strategy
