"""Which parts of a graph a pattern's matches take: the outermost ones, never a value that somebody else reads."""

from __future__ import annotations

from armillary import relay
from armillary.relay.dataflow_pattern import DFPattern, DFPatternCallback, is_op, rewrite, wildcard
from armillary.relay.expr import Expr
from armillary.relay.structural import assert_structural_equal

X, Y = relay.var("x", shape=(4,)), relay.var("y", shape=(4,))


class _Wrapped(DFPatternCallback):
    """A relu around what matches."""

    def __init__(self, pattern: DFPattern) -> None:
        super().__init__(rewrite_once=True)
        self.pattern = pattern

    def callback(self, pre: Expr, post: Expr, node_map: object) -> Expr:
        return relay.nn.relu(post)


def test_a_pattern_that_contains_itself_takes_a_whole_chain() -> None:
    again = wildcard()
    chain = is_op("exp")(again)
    again.redirect_to(chain | is_op("tanh")(wildcard()))
    graph = relay.exp(relay.exp(relay.exp(relay.tanh(X))))
    assert_structural_equal(rewrite(_Wrapped(chain), graph), relay.nn.relu(graph))


def test_a_value_that_somebody_else_reads_is_no_part_of_a_match() -> None:
    inner = relay.tanh(X)
    graph = relay.Tuple([relay.exp(inner), relay.sqrt(inner)])
    pattern = is_op("exp")(is_op("tanh")(wildcard()))
    assert rewrite(_Wrapped(pattern), graph) is graph


def test_a_value_that_only_the_matchs_own_root_sees_again_is_part_of_it() -> None:
    inner = relay.add(X, Y)
    graph = relay.multiply(inner, relay.sigmoid(inner))
    function = is_op("multiply")(is_op("add")(wildcard(), wildcard()), wildcard()).partition(graph).op
    assert isinstance(function, relay.Function)
    assert function.get_attr("PartitionedFromPattern") == "add_multiply_"


def test_arguments_stand_in_the_order_in_which_the_expression_names_them() -> None:
    graph = relay.multiply(Y, relay.subtract(X, relay.var("z", shape=(4,))))
    call = is_op("multiply")(wildcard(), is_op("subtract")(wildcard(), wildcard())).partition(graph)
    assert [arg.name_hint for arg in call.args] == ["y", "x", "z"]


def test_a_bias_on_the_way_from_a_dominator_is_fed_by_nobody() -> None:
    pattern = is_op("exp")(wildcard()).dominates(is_op("tanh")(wildcard()), is_op("add")(wildcard(), wildcard()))
    assert pattern.match(relay.exp(relay.add(relay.tanh(X), Y)))
    assert not pattern.match(relay.exp(relay.add(X, Y)))


def test_a_field_of_a_tuple_expression_is_the_field_itself() -> None:
    untyped = relay.var("u")
    pair = relay.Tuple([untyped, X])
    assert pair[0] is untyped
    assert pair[-1] is X
