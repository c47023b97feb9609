"""Natural numbers of relay.testing: expressions, values, and the functions over them."""

from __future__ import annotations

import pytest

from armillary import relay
from armillary.errors import TypeMismatch
from armillary.relay.adt.evaluate import ConstructorValue
from armillary.relay.adt.module import find_type
from armillary.relay.prelude import Prelude
from armillary.relay.testing import add_nat_definitions, count, make_nat_expr, make_nat_value


@pytest.fixture
def prelude() -> Prelude:
    result = Prelude()
    add_nat_definitions(result)
    return result


def _evaluated(prelude: Prelude, expr: relay.Expr) -> int:
    number: int = count(prelude, relay.create_executor("debug", mod=prelude.mod).evaluate(expr))
    return number


def test_numbers_are_counted_as_expressions_and_values(prelude: Prelude) -> None:
    for n in (0, 1, 7):
        assert _evaluated(prelude, make_nat_expr(prelude, n)) == n == count(prelude, make_nat_value(prelude, n))
    assert [part.name_hint for part in find_type(prelude.mod, "nat")[1].constructors] == ["Z", "S"]


def test_functions_over_numbers(prelude: Prelude) -> None:
    double, add = (prelude.mod.get_global_var(name) for name in ("nat_double", "nat_add"))
    assert _evaluated(prelude, add(make_nat_expr(prelude, 3), make_nat_expr(prelude, 4))) == 7
    assert _evaluated(prelude, double(double(make_nat_expr(prelude, 2)))) == 8
    four = relay.Call(prelude.mod.get_global_var("nat_iterate"), [double, make_nat_expr(prelude, 2)])
    assert _evaluated(prelude, relay.Call(four, [make_nat_expr(prelude, 3)])) == 12


def test_what_is_no_number_is_refused(prelude: Prelude) -> None:
    with pytest.raises(TypeMismatch, match="got -1, wanted a natural number"):
        make_nat_expr(prelude, -1)
    with pytest.raises(TypeMismatch, match="wanted a value of nat"):
        count(prelude, ConstructorValue(2, (), find_type(prelude.mod, "Tree")[1].constructors[0]))
