"""Sizes that the data says: numbers that a model computes when it runs, and that decide a shape.

In: an integer tensor of a few elements that shapes or positions are read from. Out: its elements as ints and extents:
arithmetic over sizes is done on them, and what is computed becomes a named size of its own, with the call of
`bind_size` that gives it its value (ops/shape/bind_size.py). Invariant: one value is one size, also where the model
computes it twice; what is bound in the body of a loop has its value for one iteration, and is no size outside.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable

import numpy as np

from armillary.base.extent import LARGEST, Extent, bounds, size, sizes_of, typical
from armillary.base.names import Names, identifier
from armillary.errors import UnsupportedError
from armillary.frontend.folding.size_values import RULES, size_value
from armillary.ops._deferred import by_name
from armillary.relay.analysis import free_vars
from armillary.relay.analysis.bind_sizes import attr_sizes, bind_attrs
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from armillary.relay.op import Array, Op
from armillary.relay.types import TensorType
from armillary.relay.walk import children, map_children, post_order

_MOST = 16  # elements that are sizes of their own
_USUAL = 100  # of what is found in data, where nothing tells more
_LONG_HINT = 64  # calls: a longer computation is not tried for a typical value
_NAMES = ("bind_size", "cast", "reshape", "run_after", "strided_slice", "take")
bind_size, cast, reshape, run_after, strided_slice, take = map(by_name, _NAMES)


class DataSizes:
    """The sizes of one model that its data says; `taken` are the names of its other sizes, `outer` the ids of variables
    that lie outside of all loops.
    """

    def __init__(self, taken: Iterable[str], outer: Container[int]) -> None:
        self.binds: dict[str, Expr] = {}  # calls of bind_size, by the name of the size
        self.inner: set[str] = set()  # names of those that are bound in the body of a loop
        self._names, self._outer = Names(taken), outer
        self._numbers: dict[int, tuple[Expr, int]] = {}  # by id: a number for each value, equal where values are
        self._known: dict[object, int] = {}
        self._sizes: dict[tuple[int, int], Extent] = {}  # by the number of a value, and element

    def size(self, count: Expr, what: str, low: int = 0, high: int = LARGEST, hint: int = 0) -> Extent:
        """A new size that gets the value of `count`, one integer, when it is computed."""
        name = self._names.fresh(identifier(f"{what.lower()}_{len(self.binds) + 1}"))
        high = max(low, min(high, LARGEST))
        result = size(name, low, high, 1, max(low, min(hint or _USUAL, high)))
        number = cast(reshape(count, ()), dtype="int64")
        if not self.is_outside(number):
            self.inner.add(name)
        self.binds[name] = bind_size(number, size=result)
        return result

    def cut(self, values: Expr, axis: int, count: Expr, what: str) -> Expr:
        """The first `count` of a tensor that a kernel has written at its largest size."""
        ty = values.checked_type
        if not isinstance(ty, TensorType):
            raise UnsupportedError(f"expected a tensor, got {ty}")
        extent = self.size(count, what, 0, bounds(ty.known[axis])[1], min(_USUAL, typical(ty.known[axis])))
        return strided_slice(self.ordered(values, extent), begin=(0,), end=(extent,), strides=(1,), axes=(axis,))

    def ordered(self, root: Expr, extent: Extent) -> Expr:
        """The expression, computed once the sizes of an extent are known."""
        for name in sizes_of([extent]):
            root = run_after(self.binds[name], root) if name in self.binds else root
        return root

    def elements(self, expr: Expr, what: str, low: int = 0) -> Array | None:
        """The elements as ints and extents; None where they are not known and cannot be sizes."""
        value = size_value(expr)
        if value is not None:
            return value
        ty = expr.checked_type
        if not isinstance(ty, TensorType) or not ty.dtype.is_int or not all(isinstance(d, int) for d in ty.shape):
            return None
        folded = self._folded(expr, what, low)
        if folded is not None:
            return folded
        count = math.prod(ty.static)
        if isinstance(expr, Var | Tuple) or count > _MOST:
            return None
        flat, hints = reshape(expr, (-1,)), self._typical(expr, count)
        result = np.empty(count, object)
        for k in range(count):
            key = (self._number(expr), k)
            if key not in self._sizes:
                element = take(flat, Constant(np.array(k)), axis=0)
                self._sizes[key] = self.size(element, what, low, hint=hints[k])
            result[k] = self._sizes[key]
        return result.reshape(ty.static)

    def is_outside(self, expr: Expr) -> bool:
        """Whether an expression is computed outside of the bodies of loops."""
        return all(id(e) in self._outer for e in free_vars(expr))

    def _folded(self, expr: Expr, what: str, low: int) -> Array | None:
        """Arithmetic and moves of elements, done on extents."""
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.name not in RULES:
            return None
        if expr.op.name == "subtract" and not self.is_outside(expr):
            return None  # corners of boxes, which may be negative, as no size is
        arguments = [self._argument(arg, what, low) for arg in expr.args]
        if any(a is None for a in arguments):
            return None
        result = RULES[expr.op.name](expr, arguments)  # type: ignore[arg-type]  # none of them is None
        return None if result is None else np.asarray(result, object)

    def _argument(self, arg: Expr, what: str, low: int) -> Array | list[Array] | None:
        if not isinstance(arg, Tuple):
            return self.elements(arg, what, low)
        parts = [self.elements(field, what, low) for field in arg.fields]
        return None if any(p is None for p in parts) else parts  # type: ignore[return-value]  # none of them is None

    def _number(self, expr: Expr) -> int:
        """A number that two expressions have in common where they compute the same from the same."""
        for e in post_order(expr, lambda e: id(e) not in self._numbers):
            if id(e) not in self._numbers:
                key: object = id(e)
                parts = tuple(self._numbers[id(child)][1] for child in children(e))
                if isinstance(e, Call) and isinstance(e.op, Op) and not e.op.stateful:
                    key = (e.op.name, e.attrs, parts)
                elif isinstance(e, Constant) and e.nbytes <= 64:
                    key = (str(e.data.dtype), e.data.shape, e.data.tobytes())
                elif isinstance(e, Tuple | TupleGetItem):
                    key = (type(e), getattr(e, "index", 0), parts)
                self._numbers[id(e)] = e, self._known.setdefault(key, len(self._known))
        return self._numbers[id(expr)][1]

    def _typical(self, expr: Expr, count: int) -> list[int]:
        """What elements usually are, where they follow from sizes alone."""
        parts = post_order(expr)
        if len(parts) > _LONG_HINT or any(isinstance(e, Var) for e in parts):
            return [0] * count
        memo: dict[int, Expr] = {}
        for e in parts:
            new = map_children(e, lambda child: memo.get(id(child), child))
            if isinstance(new, Call) and new.attrs is not None:
                values = {n: s.typical for n, s in sizes_of(attr_sizes(new.attrs)).items()}
                new = Call(new.op, new.args, bind_attrs(new.attrs, values))
            memo[id(e)] = new
        return [max(0, int(v)) for v in np.reshape(evaluate(memo[id(expr)]), -1)]
