"""Expressions of a script: what of Python's syntax the language has, with what Python decides by truth symbolic.

In: a syntax tree, what its names stand for, and `reach`, which says what `value.name` is. Out: a value: an expression,
a buffer, a region, a term, a number. Invariant: the tree is walked by a table of nodes, never given to Python; what is
no row of the table is refused, and so are numbers of more than 64 bits and lists of more than 65,536 parts. `and`,
`or`, `not`, comparisons in chains and `x if c else y` give expressions where their parts are; a slice of a buffer is a
region of it.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

from armillary.errors import ParseError, TypeMismatch
from armillary.tir import build
from armillary.tir.blocks.block import BufferRegion
from armillary.tir.expr import BufferLoad, Expr, IterVar, Ramp, Range
from armillary.tir.simplify import simplify
from armillary.tir.stmt import Buffer

Reach = Callable[[object, str], object]
_BITS, _PARTS, _DEPTH, _STEPS = 64, 65_536, 200, 1_000_000
_BINARY: dict[type[ast.operator], Callable[..., object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.MatMult: operator.matmul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[..., object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: operator.contains(b, a),
    ast.NotIn: lambda a, b: not operator.contains(b, a),
}
_UNARY: dict[type[ast.unaryop], Callable[..., object]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}


def evaluate(tree: ast.expr, names: Mapping[str, object], reach: Reach) -> object:
    """The value of an expression."""
    return _Evaluator(names, reach, count()).value(tree)


class _Evaluator:
    """One expression: a method for each node of the language."""

    def __init__(self, names: Mapping[str, object], reach: Reach, steps: Iterator[int], depth: int = 0) -> None:
        self.names, self.reach, self.steps, self.depth = names, reach, steps, depth

    def inside(self, names: Mapping[str, object]) -> _Evaluator:
        """The same expression where more names are known; its steps are counted on."""
        return _Evaluator({**self.names, **names}, self.reach, self.steps, self.depth)

    def value(self, node: ast.expr) -> object:
        row = _NODES.get(type(node))
        if row is None:
            raise ParseError(f"{type(node).__name__} is not part of the language", hint="name the value outside of it")
        self.depth += 1
        if self.depth > _DEPTH:
            raise ParseError(f"an expression is nested more than {_DEPTH} deep", hint="give its parts names")
        if next(self.steps) > _STEPS:  # lambdas that call themselves through lists
            raise ParseError(f"an expression takes more than {_STEPS} steps to evaluate", hint="write loops")
        result = row(self, node)
        self.depth -= 1
        return result if isinstance(node, ast.Name | ast.Attribute) else _within_bounds(result)

    def values(self, nodes: Sequence[ast.expr]) -> list[object]:
        """Each value; `*parts` stands for the parts."""
        result: list[object] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                result.extend(_parts_of(self.value(node.value)))
            else:
                result.append(self.value(node))
        return result

    def name(self, node: ast.Name) -> object:
        if node.id not in self.names:
            raise ParseError(f"name {node.id!r} is not defined")
        return self.names[node.id]

    def attribute(self, node: ast.Attribute) -> object:
        return self.reach(self.value(node.value), node.attr)

    def call(self, node: ast.Call) -> object:
        function = self.value(node.func)
        if not callable(function):
            raise TypeMismatch(f"{type(function).__name__!r} object is not callable")
        named: dict[str, object] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            named |= {keyword.arg: value} if keyword.arg is not None else dict(value)  # type: ignore[call-overload]
        return function(*self.values(node.args), **named)

    def unary(self, node: ast.UnaryOp) -> object:
        operand = self.value(node.operand)
        return _not(operand) if isinstance(node.op, ast.Not) else _UNARY[type(node.op)](operand)

    def binary(self, node: ast.BinOp) -> object:
        left, right = self.value(node.left), self.value(node.right)
        _check_size(node.op, left, right)
        return _BINARY[type(node.op)](left, right)

    def compare(self, node: ast.Compare) -> object:
        sides = [self.value(node.left), *map(self.value, node.comparators)]
        pairs = [_COMPARE[type(op)](sides[k], sides[k + 1]) for k, op in enumerate(node.ops)]
        return pairs[0] if len(pairs) == 1 else _and(*pairs)

    def index(self, node: ast.expr) -> object:
        if isinstance(node, ast.Tuple):
            return tuple(self.index(part) for part in node.elts)
        if isinstance(node, ast.Slice):
            return slice(*(None if p is None else self.value(p) for p in (node.lower, node.upper, node.step)))
        return self.value(node)

    def dictionary(self, node: ast.Dict) -> object:
        result: dict[object, object] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            part = self.value(value)
            result |= {self.value(key): part} if key is not None else dict(part)  # type: ignore[call-overload]
        return result

    def text(self, node: ast.JoinedStr) -> str:
        """An f-string of texts and numbers."""
        parts = [p.value if isinstance(p, ast.FormattedValue) and p.format_spec is None else p for p in node.values]
        values = [self.value(p) for p in parts]
        if not all(isinstance(v, str | int | float) for v in values):
            raise ParseError("a text is joined of something other than texts and numbers")
        return "".join(map(str, values))

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> object:
        return list(self._each(node.elt, node.generators))

    def _each(self, element: ast.expr, loops: Sequence[ast.comprehension]) -> Iterator[object]:
        if not loops:
            yield self.value(element)
            return
        loop = loops[0]
        for part in _parts_of(self.value(loop.iter)):
            inner = self.inside(_bound(loop.target, part))
            if all(inner.value(test) for test in loop.ifs):
                yield from inner._each(element, loops[1:])

    def function(self, node: ast.Lambda) -> object:
        """`lambda x, y: …`, such as the combiner of a reduction."""
        params = [p.arg for p in node.args.args]

        def call(*args: object) -> object:
            if len(args) != len(params):
                raise TypeMismatch(f"{len(args)} arguments for a lambda of {len(params)}")
            return self.inside(dict(zip(params, args, strict=True))).value(node.body)

        return call


_NODES: dict[type[ast.expr], Callable[..., object]] = {
    ast.Constant: lambda e, n: n.value,
    ast.Name: _Evaluator.name,
    ast.Attribute: _Evaluator.attribute,
    ast.Call: _Evaluator.call,
    ast.UnaryOp: _Evaluator.unary,
    ast.BinOp: _Evaluator.binary,
    ast.Compare: _Evaluator.compare,
    ast.BoolOp: lambda e, n: (_and if isinstance(n.op, ast.And) else _or)(*map(e.value, n.values)),
    ast.IfExp: lambda e, n: _choose(e.value(n.test), e.value(n.body), e.value(n.orelse)),
    ast.Subscript: lambda e, n: item_of(e.value(n.value), e.index(n.slice)),
    ast.Tuple: lambda e, n: tuple(e.values(n.elts)),
    ast.List: lambda e, n: e.values(n.elts),
    ast.Dict: _Evaluator.dictionary,
    ast.JoinedStr: _Evaluator.text,
    ast.ListComp: _Evaluator.comprehension,
    ast.GeneratorExp: _Evaluator.comprehension,
    ast.Lambda: _Evaluator.function,
}


def _bound(target: ast.expr, part: object) -> dict[str, object]:
    """What the names of a comprehension stand for."""
    if isinstance(target, ast.Name):
        return {target.id: part}
    if isinstance(target, ast.Tuple) and len(target.elts) == len(parts := _parts_of(part)):
        return {name: value for t, p in zip(target.elts, parts, strict=True) for name, value in _bound(t, p).items()}
    raise ParseError(f"{ast.unparse(target)!r:.60} does not take the parts of a list")


def _parts_of(value: object) -> Sequence[object]:
    if isinstance(value, list | tuple | range | dict):
        return list(value)
    raise ParseError(f"{type(value).__name__} has no parts that are known when parsing", hint="a list or a tuple")


def _check_size(op: ast.operator, left: object, right: object) -> None:
    """Refuse what would be too large before it is computed; what numbers give is looked at afterwards."""
    if isinstance(left, int) and isinstance(right, int):
        power = right * max(abs(left).bit_length() - 1, 0) if isinstance(op, ast.Pow) else 0
        shift = right if isinstance(op, ast.LShift) and left else 0
        if max(power, shift) > _BITS:
            raise ParseError(f"a number of more than {_BITS} bits", hint="use constants that fit 64 bits")
    texts = [v for v in (left, right) if isinstance(v, str | bytes | list | tuple)]
    if texts and isinstance(op, ast.Mult):
        times = next((v for v in (left, right) if isinstance(v, int)), 1)
        if len(texts[0]) * times > _PARTS:
            raise ParseError(f"a list or text of more than {_PARTS} parts", hint="write a loop")
    if isinstance(left, str | bytes) and isinstance(op, ast.Mod):
        raise ParseError("% formats no texts here", hint="write the text, or an f-string of texts and numbers")


def _within_bounds(value: object) -> object:
    """The value, if it is a number of at most 64 bits or a list with at most 65,536 parts, at all depths."""
    if isinstance(value, int) and value.bit_length() > _BITS:
        raise ParseError(f"a number of more than {_BITS} bits", hint="use constants that fit 64 bits")
    if isinstance(value, str | bytes) and len(value) > _PARTS:
        raise ParseError(f"a text of more than {_PARTS} characters")
    if isinstance(value, list | tuple | dict):
        count, waiting = 0, [value]
        while waiting:
            part = waiting.pop()
            inner = part.values() if isinstance(part, dict) else part
            count += len(part)
            if count > _PARTS:
                raise ParseError(f"a list of more than {_PARTS} parts", hint="write a loop")
            waiting.extend(p for p in inner if isinstance(p, list | tuple | dict))
    return value


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
        message = f"buffer {value.name} has {len(value.shape)} dimensions, got {len(places)} indices"
        raise TypeMismatch(message)
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
