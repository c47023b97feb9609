"""Types, evaluation, analysis, patterns, layouts and user names of the graph language."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from armillary import relay
from armillary.base.data_layout import choose_block, layout
from armillary.errors import Span, TypeMismatch
from armillary.ir import IRModule
from armillary.relay import dataflow_pattern as dfp
from armillary.relay.analysis import all_vars, bound_vars, free_vars, op_frequency, post_order_visit
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Expr, Function, If, Let, Tuple, TupleGetItem, Var, const, var
from armillary.relay.infer import infer_type
from armillary.relay.types import FuncType, TupleType, tensor_type
from armillary.relay.walk import not_primitive, post_order

X = var("x", shape=(2, 3))


# --- types ----------------------------------------------------------------------------------------------------------


def test_type_of_a_chain_of_10000_calls() -> None:
    e: Expr = X
    for _ in range(10_000):
        e = relay.nn.relu(e)
    assert infer_type(Function((X,), e)) == FuncType((tensor_type((2, 3)),), tensor_type((2, 3)))


def test_let_gives_its_variable_the_type_of_the_value() -> None:
    v = Var("v")
    assert Let(v, X, Tuple((v, v))).checked_type == TupleType((tensor_type((2, 3)),) * 2)


def test_recursive_global_function_has_its_declared_type() -> None:
    module = IRModule()
    n = var("n", shape=(), dtype="int32")
    module["f"] = Function((n,), n, n.type_annotation)
    name = module.get_global_var("f")
    step = Call(name, (relay.subtract(n, const(1)),))
    module["f"] = Function((n,), If(relay.less_equal(n, const(0)), n, step), n.type_annotation)
    assert infer_type(module["f"], module) == FuncType((tensor_type((), "int32"),), tensor_type((), "int32"))
    assert evaluate(module["f"], [np.int32(500)], module) == 0


def bad_expressions() -> list[tuple[Expr, str]]:
    cond, name = var("c", shape=(), dtype="bool"), IRModule({"f": Function((X,), X)}).get_global_var("f")
    return [
        (TupleGetItem(X, 0), "field 0 of a value that is no tuple"),
        (TupleGetItem(Tuple((X,)), 1), "field 1 of a tuple of 1 fields"),
        (Var("y"), "variable %y has no type"),
        (relay.nn.relu(Tuple((X, X))), "nn.relu: input 'data'"),
        (relay.add(X, var("y", shape=(4,))), "add: the shapes do not broadcast"),
        (If(X, X, X), r"the condition is Tensor\[\(2, 3\), float32\]"),
        (If(cond, X, relay.sum(X)), "the branches differ"),
        (Call(X, (X,)), "wanted a function"),
        (Call(name, (X,)), "only within its module"),
        (Call(Function((X,), X), (cond,)), r"argument 0: got Tensor\[\(\), bool\]"),
        (Call(Function((X,), X), ()), "got 0 arguments, wanted 1"),
        (Function((X,), X, tensor_type((9,))), "declared result"),
        (Let(Var("v", tensor_type((9,))), X, X), "let %v: got"),
    ]


@pytest.mark.parametrize(("expr", "message"), bad_expressions())
def test_ill_typed_expression_says_what_is_wrong(expr: Expr, message: str) -> None:
    with pytest.raises(TypeMismatch, match=message):
        _ = expr.checked_type


def test_type_error_names_the_place_in_the_model() -> None:
    spanned = Call(relay.op.get("add"), (X, var("y", shape=(4,))), None, Span("m.onnx", "Add_7"))
    with pytest.raises(TypeMismatch, match=r"m\.onnx: Add_7"):
        _ = spanned.checked_type


# --- evaluation and binding -----------------------------------------------------------------------------------------


def test_only_the_chosen_branch_is_evaluated() -> None:
    c = var("c", shape=(), dtype="bool")
    unbound = var("never", shape=(2, 3))
    assert evaluate(Function((c,), If(c, const(1.0), relay.sum(unbound))), [np.bool_(True)]) == 1


def test_inner_functions_see_the_values_around_them() -> None:
    p, f = var("p", shape=()), Var("f")
    outer = var("o", shape=())
    body = Let(f, Function((p,), relay.add(p, outer)), relay.add(Call(f, (const(1.0),)), Call(f, (const(2.0),))))
    assert evaluate(Function((outer,), body), [np.float32(10)]) == 23


@pytest.mark.parametrize("inputs", [[], {"y": 1}, {}, [1, 2]])
def test_wrong_inputs_are_refused(inputs: object) -> None:
    with pytest.raises(TypeMismatch, match="evaluate:"):
        evaluate(Function((X,), X), inputs)  # type: ignore[arg-type]


def test_bound_parameters_become_constants() -> None:
    w = var("w", shape=(2, 3))
    bound = relay.build_module.bind_params_by_name(Function((X, w), relay.add(X, w)), {"w": np.ones((2, 3), "float32")})
    assert [p.name_hint for p in bound.params] == ["x"]
    np.testing.assert_array_equal(evaluate(bound, [np.ones((2, 3), "float32")]), np.full((2, 3), 2, "float32"))
    with pytest.raises(TypeMismatch, match="%w: got"):
        relay.bind_params_by_name(Function((X, w), w), {"w": np.ones(3, "float32")})


# --- analysis -------------------------------------------------------------------------------------------------------


def test_variables_are_told_apart() -> None:
    v, y = Var("v"), var("y", shape=(2, 3))
    f = Function((X,), Let(v, relay.add(X, y), v))
    assert free_vars(f) == [y]
    assert set(bound_vars(f)) == {X, v}
    assert set(all_vars(f)) == {X, y, v}
    assert op_frequency(f) == {"add": 1}


def test_a_function_keeps_its_order_and_ends_with_its_last_use() -> None:
    inner = Function((x := var("x", shape=(2, 3)),), relay.nn.relu(x), None, (("Primitive", 1),))
    function = Function((X,), relay.add(Call(inner, (X,)), relay.nn.relu(X)))
    first = post_order(function, not_primitive)
    assert first == post_order(function, lambda e: e is not inner) and first[-1] is function and x not in first
    assert post_order(function).index(x) >= 0, "another question has another answer"
    first.clear()  # it is the caller's
    assert len(post_order(function, not_primitive)) == len(post_order(function)) - 2
    left = weakref.ref(function)
    gc.disable()  # which would find a function that holds itself
    try:
        del function
        assert left() is None
    finally:
        gc.enable()


def test_post_order_visit_sees_operators_and_arguments_first() -> None:
    seen: list[object] = []
    call = relay.nn.relu(X)
    post_order_visit(call, seen.append)
    assert seen[-1] is call
    assert relay.op.get("nn.relu") in seen
    assert X in seen


# --- patterns -------------------------------------------------------------------------------------------------------


def conv_bias_relu(activation: bool = True) -> Expr:
    x, w = var("data", shape=(1, 3, 8, 8)), const(np.ones((4, 3, 3, 3), "float32"))
    y = relay.nn.bias_add(relay.nn.conv2d(x, w, padding=(1, 1)), const(np.ones(4, "float32")))
    return relay.nn.relu(y) if activation else y


def conv_pattern() -> dfp.DFPattern:
    conv = dfp.is_op("nn.conv2d")(dfp.wildcard(), dfp.is_constant())
    biased = dfp.is_op("nn.bias_add")(conv, dfp.is_constant())
    return biased.optional(lambda p: dfp.is_op("nn.relu")(p))


def test_optional_part_matches_with_and_without() -> None:
    assert conv_pattern().match(conv_bias_relu(True))
    assert conv_pattern().match(conv_bias_relu(False))
    assert not conv_pattern().match(relay.nn.relu(X))


def test_commutative_operators_match_either_way_round() -> None:
    pattern = dfp.is_op("add")(dfp.is_op("nn.relu")(dfp.wildcard()), dfp.is_var("x"))
    assert pattern.match(relay.add(relay.nn.relu(X), X))
    assert pattern.match(relay.add(X, relay.nn.relu(X)))
    assert not (dfp.is_op("subtract")(dfp.is_constant(), dfp.wildcard())).match(relay.subtract(X, const(1.0)))


def test_one_pattern_stands_for_one_expression() -> None:
    same = dfp.wildcard()
    assert dfp.is_op("add")(same, same).match(relay.add(X, X))
    assert not dfp.is_op("add")(same, same).match(relay.add(X, relay.nn.relu(X)))


def test_attributes_dtypes_and_shapes_narrow_a_pattern() -> None:
    conv = conv_bias_relu().args[0].args[0]  # type: ignore[attr-defined]
    pattern = dfp.is_op("nn.conv2d")(dfp.wildcard(), dfp.wildcard())
    assert pattern.has_attr({"padding": [1, 1]}).match(conv)
    assert not pattern.has_attr({"padding": [0, 0]}).match(conv)
    assert dfp.has_shape((1, 4, 8, 8)).match(conv)
    assert dfp.wildcard().has_dtype("float32").match(conv)
    assert not dfp.has_dtype("int8", pattern).match(conv)


def test_tuples_and_alternatives_match() -> None:
    pair = Tuple((X, relay.nn.relu(X)))
    assert dfp.is_tuple([dfp.is_var(), dfp.wildcard()]).match(pair)
    assert not dfp.is_tuple([dfp.is_var()]).match(pair)
    assert dfp.is_tuple_get_item(dfp.is_tuple(), 1).match(TupleGetItem(pair, 1))
    either = dfp.is_op("exp")(dfp.wildcard()) | dfp.is_op("nn.relu")(dfp.wildcard())
    assert either.match(relay.exp(X))
    assert either.match(relay.nn.relu(X))


def test_dominator_needs_every_way_to_end_at_the_parent() -> None:
    conv, path = dfp.is_op("nn.relu")(dfp.wildcard()), dfp.is_op("exp")(dfp.wildcard())
    diamond = dfp.dominates(conv, path, dfp.is_op("add")(dfp.wildcard(), dfp.wildcard()))
    base = relay.nn.relu(X)
    assert diamond.match(relay.add(relay.exp(base), relay.exp(relay.exp(base))))
    assert not diamond.match(relay.add(relay.exp(base), X))


class DoubleNegation(dfp.DFPatternCallback):
    def __init__(self) -> None:
        super().__init__()
        self.x = dfp.wildcard()
        self.pattern = dfp.is_op("negative")(dfp.is_op("negative")(self.x))

    def callback(self, pre: Expr, post: Expr, node_map: object) -> Expr:
        return node_map[self.x][0]  # type: ignore[index, no-any-return]


def test_callbacks_rewrite_until_nothing_matches() -> None:
    e: Expr = X
    for _ in range(101):
        e = relay.negative(e)
    done = dfp.rewrite(DoubleNegation(), Function((X,), e))
    assert op_frequency(done) == {"negative": 1}


def test_pattern_misuse_is_refused() -> None:
    with pytest.raises(TypeMismatch, match="pattern is not set"):
        dfp.rewrite(dfp.DFPatternCallback(), X)
    with pytest.raises(TypeMismatch, match="expected a pattern"):
        dfp.match("conv2d", X)  # type: ignore[arg-type]


# --- layouts and names ----------------------------------------------------------------------------------------------


def test_layout_knows_axes_blocks_and_shapes() -> None:
    blocked = layout("OIHW4i16o")
    assert (blocked.whole, blocked.axes, blocked.block("O"), blocked.block("H")) == ("OIHW", "OIHWio", 16, 0)
    assert blocked.shape((32, 8, 3, 3), layout("OIHW")) == (2, 2, 3, 3, 4, 16)
    assert layout("NCHW8c").with_block("C", 4) is layout("NCHW4c")
    with pytest.raises(TypeMismatch, match="no multiple of 16"):
        blocked.shape((30, 8, 3, 3), layout("OIHW"))


@pytest.mark.parametrize("text", ["", "NCHWc", "4N", "NN", "NHW4c", "NC HW", "N-C"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(TypeMismatch, match="is not a layout"):
        layout(text)


BLOCKS = [(64, 16, 16), (24, 16, 8), (3, 16, 1), (10, 8, 5), (7, 4, 0), (1, 8, 1)]


@pytest.mark.parametrize(("channels", "lanes", "block"), BLOCKS)
def test_block_divides_the_channels(channels: int, lanes: int, block: int) -> None:
    assert choose_block(channels, lanes) == block


def test_user_names_resolve() -> None:
    assert relay.nn.conv2d.op.name == "nn.conv2d"
    assert relay.var("a", shape=(1,)).name_hint == "a"
    assert relay.TensorType((1, 2), "int8") == tensor_type((1, 2), "int8")
    assert relay.Any() == tensor_type((None,)).shape[0]
    assert "add" in dir(relay)
    assert "conv2d" in dir(relay.nn)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = relay.nonsense
    with pytest.raises(AttributeError, match=r"relay\.nn\.nonsense"):
        _ = relay.nn.nonsense
