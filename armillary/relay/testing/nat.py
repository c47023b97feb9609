"""Natural numbers as a data type, for tests of programs: 2 is `S(S(Z))`.

In: a `Prelude` whose module has the type (`add_nat_definitions`). Out: numbers as expressions and as values, and values
as integers. Invariant: a number is at least 0. The type and its functions `nat_double`, `nat_add`, `nat_iterate`:
relay/adt/std/nat.txt.
"""

from __future__ import annotations

from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch
from armillary.relay.adt import Constructor
from armillary.relay.adt.evaluate import ConstructorValue
from armillary.relay.adt.module import find_type
from armillary.relay.expr import Expr
from armillary.relay.prelude import Prelude


@boundary("add_nat_definitions", arguments=True)
def add_nat_definitions(prelude: Prelude) -> None:
    """Add the type `nat` and its functions to the prelude's module."""
    prelude.mod.import_from_std("nat.rly")


def _forms(prelude: Prelude) -> tuple[Constructor, Constructor]:
    """Zero, and the successor of a number."""
    zero, successor = find_type(prelude.mod, "nat")[1].constructors
    return zero, successor


def _checked(name: str, n: int) -> int:
    if not isinstance(n, int) or n < 0:
        raise TypeMismatch(f"{name}: got {n!r}, wanted a natural number")
    return n


@boundary("make_nat_expr", arguments=True)
def make_nat_expr(prelude: Prelude, n: int) -> Expr:
    """The number `n` as an expression, `n` calls of S around Z."""
    zero, successor = _forms(prelude)
    result: Expr = zero()
    for _ in range(_checked("make_nat_expr", n)):
        result = successor(result)
    return result


@boundary("make_nat_value", arguments=True)
def make_nat_value(prelude: Prelude, n: int) -> ConstructorValue:
    """The number `n` as a value, to be handed to an evaluated function."""
    zero, successor = _forms(prelude)
    result = ConstructorValue(zero.tag, (), zero)
    for _ in range(_checked("make_nat_value", n)):
        result = ConstructorValue(successor.tag, (result,), successor)
    return result


@boundary("count", arguments=True)
def count(prelude: Prelude, n: ConstructorValue) -> int:
    """The integer that a value of `nat` stands for. TypeMismatch for another value."""
    zero, successor = _forms(prelude)
    total = 0
    while isinstance(n, ConstructorValue) and n.tag == successor.tag and len(n.fields) == 1:
        total, (n,) = total + 1, n.fields
    if not isinstance(n, ConstructorValue) or n.tag != zero.tag:
        raise TypeMismatch(f"count: got {n!r}, wanted a value of nat")
    return total
