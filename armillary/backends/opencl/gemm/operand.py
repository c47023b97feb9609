"""One side of a product on its way to shared memory: who loads which elements, and how many at once.

In: a factor as an expression, the places of a group's tile, its work-items. Out: statements that load a step's
elements into registers, and that store them to shared memory, where the places of a term are neighbours. Halves that
are summed in float are widened there, as a conversion would wait for the load. Invariant: elements beside the product
are 0. Four neighbours are loaded at once where memory has them side by side, along the
terms or along the places.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.backends.opencl.extents import places as places_of
from armillary.backends.opencl.gemm.tile import LANES, line
from armillary.backends.opencl.written.elements import Elements
from armillary.base.dtype import DType
from armillary.base.extent import Known, divides
from armillary.base.node import post_order
from armillary.base.record import record
from armillary.codegen.opencl.half_bits import widened
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import uses_var
from armillary.tir.extents import to_expr
from armillary.tir.simplify import Simplifier
from armillary.tir.substitute import substitute_expr

Factor = Callable[[E.Expr, E.Expr], E.Expr]  # of a place and a term


@record
class Way:
    """How a side lies in memory: `along` its terms or its places, four at once or one by one."""

    along_terms: bool
    lanes: int


def simplified(elements: Elements, factor: Factor, places: Known, terms: Known) -> Factor:
    """The factor, simplified while places and terms are variables: sums that they become hide what are neighbours."""
    place, term = E.Var("place", E.INT32), E.Var("term", E.INT32)
    ranges = {place: places_of(places), term: places_of(terms)}
    form = elements.with_ranges(ranges, lambda: factor(place, term))
    return lambda at, of: substitute_expr(form, {place: at, term: of})


def way_of(elements: Elements, factor: Factor, places: Known, terms: Known) -> Way:
    """The way to load a factor."""
    place, term = E.Var("place", E.INT32), E.Var("term", E.INT32)
    ranges = {place: places_of(places), term: places_of(terms)}
    element = elements.with_ranges(ranges, lambda: factor(place, term))
    steps = {v: steps_along(element, v) for v in (term, place)}
    for variable, size in ((term, terms), (place, places)):
        if steps[variable] == {1} and divides(LANES, size) and _is_even(element, variable):
            return Way(variable is term, LANES)
    return Way(steps[place] != {1}, 1)


def steps_along(element: E.Expr, variable: E.Var) -> set[int]:
    """How far apart in memory neighbours lie along a variable, over all reads; 0 where that is not one number."""
    steps = set()
    for load in (n for n in post_order(element) if isinstance(n, E.BufferLoad)):
        if uses_var(load.indices[0], variable):
            form = Simplifier().linear(load.indices[0])
            others = any(uses_var(atom, variable) for atom in form.terms if atom is not variable)
            steps.add(0 if others else form.terms.get(variable, 0))
    return steps


def _is_even(element: E.Expr, variable: E.Var) -> bool:
    """Whether each read of four neighbours begins at a multiple of four, and nothing else differs among them."""
    for load in (n for n in post_order(element) if isinstance(n, E.BufferLoad)):
        form = Simplifier().linear(load.indices[0])
        uneven = [atom for atom, step in form.terms.items() if step % LANES and atom is not variable]
        if uses_var(load.indices[0], variable) and (uneven or form.constant % LANES):
            return False
    return variable not in post_order(element, lambda n: not isinstance(n, E.BufferLoad))


@record
class Side:
    """A side of a tile: its factor, how many places the product and the tile have of it, where the tile begins."""

    name: str
    factor: Factor
    way: Way
    total: Known  # places of the product
    places: int  # of the tile
    step: int  # terms
    begin: E.Expr  # the tile's first place
    item: E.Expr  # the number of a work-item among those that load
    items: int
    registers: S.Buffer

    @property
    def parts(self) -> int:
        """Loads of a work-item for each step."""
        return self.places * self.step // (self.items * self.way.lanes)


def registers_of(name: str, places: int, step: int, items: int, dtype: DType) -> S.Buffer:
    """Where a work-item keeps what it loaded."""
    return S.Buffer(f"{name}_next", (T.const(places * step // items),), dtype, "local")


def _spot(side: Side, part: int) -> tuple[E.Expr, E.Expr]:
    """The place and the term, of the tile, of a load."""
    number = T.add(side.item, part * side.items)
    if side.way.along_terms:
        across = side.step // side.way.lanes
        return T.floordiv(number, across), T.mul(T.floormod(number, across), side.way.lanes)
    across = side.places // side.way.lanes
    return T.mul(T.floormod(number, across), side.way.lanes), T.floordiv(number, across)


def load(side: Side, first: E.Expr, terms: E.Expr, *, whole: bool) -> S.Stmt:
    """Load what a step beginning with term `first` has; `whole`: the step does not go beyond term `terms`."""
    statements = []
    zero = T.const(0, side.registers.dtype)
    for part in range(side.parts):
        place, term = _spot(side, part)
        place, term = T.add(side.begin, place), T.add(first, term)
        tests = [] if divides(side.places, side.total) else [T.less(place, to_expr(side.total))]
        tests += [] if whole else [T.less(term, terms)]
        lane = E.Var("lane", E.INT32)
        at = (place, T.add(term, lane)) if side.way.along_terms else (T.add(place, lane), term)
        value = side.factor(*at)
        if tests:
            value = T.if_then_else(T.all_of(*tests), value, zero)
        target = T.add(lane, part * side.way.lanes)
        store = S.BufferStore(side.registers, value, (target,))
        kind = S.LoopKind.VECTORIZED if side.way.lanes > 1 else S.LoopKind.UNROLLED
        statements.append(S.For(lane, T.const(0), T.const(side.way.lanes), kind, store))
    return S.seq(*statements)


def put(side: Side, shared: S.Buffer, offset: E.Expr) -> S.Stmt:
    """Store what was loaded to shared memory, from `offset` on."""
    statements: list[S.Stmt] = []
    for part in range(side.parts):
        place, term = _spot(side, part)
        lanes = side.way.lanes

        def where(lane: int, place: E.Expr = place, term: E.Expr = term) -> E.Expr:
            at = (place, T.add(term, lane)) if side.way.along_terms else (T.add(place, lane), term)
            return T.add(offset, T.add(T.mul(at[1], line(side.places)), at[0]))

        def loaded(at: E.Expr) -> E.Expr:
            value = E.BufferLoad(side.registers, (at,))
            return value if value.dtype.element == shared.dtype else widened(value)

        if lanes > 1 and not side.way.along_terms:
            value = loaded(E.Ramp(T.const(part * lanes), T.const(1), lanes))
            statements.append(S.BufferStore(shared, value, (E.Ramp(where(0), T.const(1), lanes),)))
            continue
        for lane in range(lanes):
            statements.append(S.BufferStore(shared, loaded(T.const(part * lanes + lane)), (where(lane),)))
    return S.seq(*statements)
