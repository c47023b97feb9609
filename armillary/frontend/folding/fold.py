"""Folding at import: shape arithmetic and small tables become constants as soon as they are met.

In: the expression an import rule returned. Out: the same expression with spans on its calls and with every small call
of constants evaluated by the operators' references. Invariant: an expression is settled once (sharing is kept), and
nothing large or slow is evaluated unless a rule asks for the value; the fold-constant pass does the rest later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from armillary.base.node import map_children, post_order, replace
from armillary.budgets import FOLDED_BYTES, FOLDED_OPERATIONS, GROWTH
from armillary.errors import InternalError, Span, UnsupportedError
from armillary.frontend.folding.data_sizes import DataSizes
from armillary.frontend.folding.size_values import fold_sizes, size_value
from armillary.relay.analysis.bind_sizes import attr_sizes
from armillary.relay.call_budgets import check_call, operations
from armillary.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from armillary.relay.op import Array, Kind, Op
from armillary.relay.types import TensorType, Type, tensor_fields
from armillary.relay.walk import children

_SMALL_RESULT = 1 << 16  # elements
_SMALL_INPUT = 1 << 20
_SMALL_CONTRACTION = 1 << 12  # references of convolutions are plain loops


class Folder:
    """Settles expressions, and knows the values of those made of constants alone."""

    def __init__(self) -> None:
        self.weights: dict[int, Array] = {}  # by id: values of parameters kept as variables
        self.stand_ins: dict[int, tuple[Var, Expr]] = {}  # by id: variables of loop bodies, and the values outside
        self._settled: dict[int, tuple[Expr, Expr]] = {}  # by id; the first expression is held so that ids stay unique
        self._closed: dict[int, Expr] = {}  # held for the same reason
        self._quantised: set[int] = set()  # by id: closed expressions that come from integers by qnn.dequantize
        self._slow: set[int] = set()  # by id: closed expressions that only a rule's question evaluates
        self._values: dict[int, Any] = {}  # by id of a closed expression: an array or a tuple of arrays
        self.outer: set[int] = set()  # by id: variables that are inputs and weights of the model
        self.data_sizes = DataSizes((), self.outer)
        self.given = self._computed = 0  # bytes of the model's constants, and of those computed from them
        self.made = 0  # of the latter, those that rules made

    def settle(self, root: Expr, span: Span) -> Expr:
        """`root` with spans, and with what is small and constant evaluated."""
        for item in post_order(root, lambda n: id(n) not in self._settled):
            if id(item) not in self._settled and isinstance(item, Expr):
                self._settle_one(item, span)
        return self._settled[id(root)][1]

    def _settle_one(self, item: Expr, span: Span) -> None:
        if isinstance(item, Constant):
            self._count_made(item, span)
        new = map_children(item, lambda child: self._settled[id(child)][1] if id(child) in self._settled else child)
        if not isinstance(new, Expr):
            raise InternalError(f"settling changed an expression into {type(new).__name__}")
        if isinstance(new, Call) and new.span is None:
            new = replace(new, span=span)
        new = self._simplified(new)
        self._settled[id(item)] = (item, new)
        self._settled[id(new)] = (new, new)

    def _simplified(self, expr: Expr) -> Expr:
        if isinstance(expr, TupleGetItem) and isinstance(expr.tuple_value, Tuple):
            return expr.tuple_value.fields[expr.index]
        if not self._is_closed(expr):
            return self._with_sizes(expr)
        self._closed[id(expr)] = expr
        if self._is_slow(expr):
            self._slow.add(id(expr))
        elif self._is_quantised(expr):
            self._quantised.add(id(expr))  # weights stay integers for the passes that compute with them
        elif isinstance(expr, Call | TupleGetItem) and self._is_cheap(expr):
            value = self.value(expr)
            if isinstance(value, np.ndarray):
                constant = Constant(value, expr.span)
                self._closed[id(constant)] = constant
                return constant
        return expr

    def _with_sizes(self, expr: Expr) -> Expr:
        """Shape arithmetic over named sizes, done; the expression itself where it is none."""
        result = fold_sizes(expr) if isinstance(expr, Call) else None
        if isinstance(result, Constant):
            self._closed[id(result)] = result
        return expr if result is None else result

    def _is_closed(self, expr: Expr) -> bool:
        match expr:
            case Constant():
                return True
            case Tuple(fields=fields):
                return all(id(field) in self._closed for field in fields)
            case TupleGetItem(tuple_value=inner):
                return id(inner) in self._closed
            case Call(op=Op() as op, args=args):
                pure = op.reference_rule is not None and not op.stateful and not has_sizes(expr)
                return pure and all(id(arg) in self._closed for arg in args)
        return False

    def _is_slow(self, expr: Expr) -> bool:
        """Whether a closed expression takes more than the budget, or reads one that does."""
        is_long = isinstance(expr, Call) and operations(expr) > FOLDED_OPERATIONS.limit
        return is_long or any(id(part) in self._slow for part in children(expr))

    def _is_quantised(self, expr: Expr) -> bool:
        is_source = isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == "qnn.dequantize"
        return is_source or any(id(part) in self._quantised for part in children(expr))

    def _is_cheap(self, expr: Call | TupleGetItem) -> bool:
        inputs = sum(_elements(arg.checked_type) for arg in expr.args) if isinstance(expr, Call) else 0
        heavy = isinstance(expr, Call) and expr.op.kind >= Kind.CONTRACTION
        limit = _SMALL_CONTRACTION if heavy else _SMALL_INPUT
        return _elements(expr.checked_type) <= _SMALL_RESULT and inputs <= limit

    def value(self, expr: Expr | None) -> Any:  # Any: an array, a tuple of arrays, or None when not known
        """The value of an expression of constants (computed now if need be) or of a weight; else None."""
        if expr is None or id(expr) in self.weights:
            return None if expr is None else self.weights[id(expr)]
        if isinstance(expr, Constant):
            return expr.data
        if id(expr) not in self._closed:
            return None
        self._refuse_huge(expr)
        for item in post_order(expr, lambda n: id(n) not in self._values):
            if isinstance(item, Expr) and not isinstance(item, Op) and id(item) not in self._values:
                self._values[id(item)] = self._evaluated(item)
        return self._values[id(expr)]

    def is_known(self, expr: Expr) -> bool:
        """Whether the value of an expression is, or can be, computed when importing."""
        return isinstance(expr, Constant) or id(expr) in self._closed or (isinstance(expr, Tuple) and not expr.fields)

    def variables(self, exprs: Iterable[Expr]) -> frozenset[str]:
        """Names of the graph's inputs that expressions depend on, also through the bodies of loops."""
        pending, names, seen = list(exprs), set[str](), set[int]()
        while pending:
            for v in post_order(pending.pop(), lambda e: id(e) not in seen):
                if isinstance(v, Var) and id(v) not in seen:
                    outer = self.stand_ins.get(id(v))
                    names.update(() if outer else (v.name_hint,))
                    pending += [outer[1]] if outer else []
                seen.add(id(v))
        return frozenset(names - {"number", "going"})

    def _refuse_huge(self, expr: Expr) -> None:
        """A model of a few bytes can describe constants that fill the memory."""
        for item in post_order(expr, lambda n: id(n) not in self._values):
            if isinstance(item, Call) and id(item) not in self._values:
                check_call(item)

    def give(self, constant: Constant) -> Constant:
        """A constant of the model: what is computed is held against it."""
        self.given += constant.nbytes
        self._settled[id(constant)] = (constant, constant)
        self._closed[id(constant)] = constant
        return constant

    def _count_made(self, constant: Constant, span: Span) -> None:
        """A constant that a rule made; all that were made live until the import ends."""
        self.made += constant.nbytes
        self._computed += constant.nbytes
        FOLDED_BYTES.check(self._computed, "constants of an import rule", span, GROWTH * self.given)

    def _count(self, call: Call) -> None:
        """What a call gives is computed next."""
        self._computed += sum(t.nbytes for t in tensor_fields(call.checked_type))
        FOLDED_BYTES.check(self._computed, f"folding {call.op.name}", call.span, GROWTH * self.given)
        FOLDED_OPERATIONS.check(operations(call), f"folding {call.op.name}", call.span)

    def _evaluated(self, expr: Expr) -> Any:
        match expr:
            case Constant(data=data):
                return data
            case Tuple(fields=fields):
                return tuple(self._values[id(field)] for field in fields)
            case TupleGetItem(tuple_value=inner, index=index):
                return self._values[id(inner)][index]
            case Call(op=Op() as op, args=args, attrs=attrs):
                self._count(expr)
                with np.errstate(all="ignore"):
                    result = op.evaluate(attrs, [self._values[id(arg)] for arg in args])
                return _as_typed(result, expr.checked_type)
        raise InternalError(f"{type(expr).__name__} is no constant expression")


def has_sizes(call: Call) -> bool:
    """Whether the attributes of a call are known only when a program runs."""
    return call.attrs is not None and any(True for _ in attr_sizes(call.attrs))


def _as_typed(result: Any, ty: Type) -> Any:
    if not isinstance(ty, TensorType):
        return tuple(_as_typed(r, t) for r, t in zip(result, tensor_fields(ty), strict=True))
    array = np.ascontiguousarray(np.asarray(result).astype(ty.dtype.numpy, copy=False))
    return array.reshape(np.shape(result))


def _elements(ty: Type) -> int:
    return sum(math.prod(t.typical) for t in tensor_fields(ty))


class NeedsValue(UnsupportedError):
    """A node needs, when compiling, a value that depends on these graph inputs."""

    def __init__(self, error: UnsupportedError, inputs: frozenset[str]) -> None:
        super().__init__(error.message, span=error.span, hint=error.hint)
        self.inputs = inputs


class Known(Sequence["Array | None"]):
    """The values of a node's inputs, each computed when first read; `unknown` collects what was asked in vain."""

    def __init__(self, folder: Folder, inputs: Iterable[Expr | None]) -> None:
        self._folder, self._inputs = folder, list(inputs)
        self.unknown: list[Expr] = []

    def needed_inputs(self) -> frozenset[str]:
        """Names of the variables behind the values asked in vain."""
        return self._folder.variables(self.unknown)

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, index: Any) -> Any:  # Any: int or slice
        if isinstance(index, slice):
            return [self._value(x) for x in self._inputs[index]]
        return self._value(self._inputs[index])

    def __iter__(self) -> Iterator[Array | None]:
        return (self._value(x) for x in self._inputs)

    def sizes(self, index: int, what: str = "", low: int = 0) -> Array | None:
        """The value of an input as ints and extents over named sizes, if it is known.

        With `what`, a word for names, what is computed becomes sizes of its own, of at least `low`.
        """
        expr = self._inputs[index]
        value = None if expr is None else size_value(expr)
        if value is None and what and expr is not None and not self._folder.is_known(expr):
            value = self._folder.data_sizes.elements(expr, what, low)
        return self._value(expr) if value is None else value

    def _value(self, expr: Expr | None) -> Any:
        value = self._folder.value(expr)
        if value is None and expr is not None:
            self.unknown.append(expr)
        return value
