"""Expressions of a script: Python's own evaluation over expressions, with what Python decides by truth made symbolic.

In: a syntax tree and what its names stand for. Out: a value: an expression, a buffer, a region, a term, a number.
Invariant: `and`, `or`, `not`, comparisons in chains and `x if c else y` give expressions where their parts are; a slice
of a buffer is a region of it; nothing but what the script names is run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from armillary.errors import TypeMismatch
from armillary.tir import build
from armillary.tir.blocks.block import BufferRegion
from armillary.tir.expr import BufferLoad, Expr, IterVar, Ramp, Range
from armillary.tir.simplify import simplify
from armillary.tir.stmt import Buffer

_AND, _OR, _NOT, _IF, _ITEM = "__script_and", "__script_or", "__script_not", "__script_if", "__script_item"


def evaluate(tree: ast.expr, names: Mapping[str, object]) -> object:
    """The value of an expression."""
    wanted = ast.fix_missing_locations(ast.Expression(_Symbolic().visit(tree)))
    scope = {**names, _AND: _and, _OR: _or, _NOT: _not, _IF: _choose, _ITEM: item_of}
    return eval(compile(wanted, "<script>", "eval"), scope)


class _Symbolic(ast.NodeTransformer):
    """Puts functions in the place of what Python decides by truth."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        return _call(_AND if isinstance(node.op, ast.And) else _OR, *(self.visit(v) for v in node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            return _call(_NOT, self.visit(node.operand))
        return ast.UnaryOp(node.op, self.visit(node.operand))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        sides = [self.visit(node.left), *(self.visit(c) for c in node.comparators)]
        pairs = [ast.Compare(sides[k], [op], [sides[k + 1]]) for k, op in enumerate(node.ops)]
        return pairs[0] if len(pairs) == 1 else _call(_AND, *pairs)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        return _call(_IF, self.visit(node.test), self.visit(node.body), self.visit(node.orelse))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return _call(_ITEM, self.visit(node.value), self._index(node.slice))

    def _index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self._index(e) for e in node.elts], ast.Load())
        if isinstance(node, ast.Slice):
            parts = [ast.Constant(None) if p is None else self.visit(p) for p in (node.lower, node.upper, node.step)]
            return ast.Call(ast.Name("slice", ast.Load()), parts, [])
        made = self.visit(node)
        assert isinstance(made, ast.expr), "an index is an expression"
        return made


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def _and(*values: object) -> object:
    if any(isinstance(v, Expr) for v in values):
        return build.all_of(*map(as_expr, values))
    return next((v for v in values if not v), values[-1])


def _or(*values: object) -> object:
    if any(isinstance(v, Expr) for v in values):
        return build.any_of(*map(as_expr, values))
    return next((v for v in values if v), values[-1])


def _not(value: object) -> object:
    return build.logical_not(value) if isinstance(value, Expr) else not value


def _choose(test: object, value: object, other: object) -> object:
    if isinstance(test, Expr):
        return build.if_then_else(test, as_expr(value), as_expr(other))
    return value if test else other


def item_of(value: object, index: object) -> object:
    """`value[index]`: of a buffer an element, a vector (`A[0:8:1]`, or a vector as index) or a region."""
    if isinstance(value, BufferRegion):
        raise TypeMismatch(f"a region of {value.buffer.name} is indexed again")
    if not isinstance(value, Buffer):
        return value[index]  # type: ignore[index]  # whatever Python value the script names
    places = index if isinstance(index, tuple) else tuple(index) if isinstance(index, list) else (index,)
    if len(places) != len(value.shape):
        told = f"buffer {value.name} has {len(value.shape)} dimensions, got {len(places)} indices"
        raise TypeMismatch(told)
    if any(isinstance(p, slice) and p.step is None for p in places):
        return BufferRegion(value, tuple(_range(p, size) for p, size in zip(places, value.shape, strict=True)))
    return BufferLoad(value, tuple(index_of(p) for p in places))


def index_of(place: object) -> Expr:
    """One index of an access: an expression, or `begin:end:step`, which is a vector (as is `begin:end` of a store)."""
    if not isinstance(place, slice):
        return as_expr(place)
    begin, step = (
        as_expr(0 if place.start is None else place.start),
        1 if place.step is None else build.as_int(place.step),
    )
    count = build.as_int(simplify(build.sub(as_expr(place.stop), begin)))
    if count is None or step is None or step < 1 or count % step:
        raise TypeMismatch("a vector of a buffer wants constant lengths, begin:end:step")
    return Ramp(begin, build.const(step, begin.dtype), count // step)


def _range(place: object, size: Expr) -> Range:
    if isinstance(place, slice):
        begin = build.const(0, size.dtype) if place.start is None else as_expr(place.start)
        end = size if place.stop is None else as_expr(place.stop)
        return Range.from_min_extent(begin, simplify(build.sub(end, begin)))
    point = as_expr(place)
    return Range.from_min_extent(point, build.const(1, point.dtype))


def as_expr(value: object) -> Expr:
    """A value of the script as an expression."""
    if isinstance(value, IterVar):
        return value.var
    if isinstance(value, Buffer | BufferRegion) and not getattr(value, "shape", (1,)):
        return BufferLoad(value, ())  # type: ignore[arg-type]  # a buffer without dimensions
    return build.convert(value)  # type: ignore[arg-type]  # refuses what is no number
