"""An operator of TFLite as rules see it, and the tables of the rules.

In: `@tflite("CONV_2D", options="padding:b stride_w:i …")` in a file of rules/. Out: the rule of an operator
(`TFLITE_RULES`). Invariant: `options` names the fields of the operator's options in the order of the schema, each with
its letter of `struct` (`[i`: a vector) and its default; an option that a rule did not name is an error of ours. A rule
returns one expression or a list of them; `@in_integers` rules take operators whose tensors are affine integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.errors import Span, UnsupportedError
from armillary.frontend.folding.fold import Folder
from armillary.frontend.tflite.flatbuffer import Table
from armillary.frontend.tflite.schema import Graph, Tensor
from armillary.frontend.values import dtype_of, op, scalar, shape_of
from armillary.relay.expr import Expr, const
from armillary.relay.lazy_registry import LazyRegistry

ACTIVATIONS = ("none", "relu", "relu_n1_to_1", "relu6", "tanh", "sign_bit")
PADDINGS = ("SAME", "VALID")
SUB_GRAPHS = {"WHILE": (0, 1), "IF": (0, 1), "CALL": (0,)}  # fields of options that number graphs of the file


class Walk(Protocol):
    """What control flow needs of the import in progress."""

    def graph_at(self, number: int) -> Graph:
        """A graph of the file."""

    def body(self, number: int, inputs: Sequence[Expr]) -> list[Expr]:
        """What a graph gives for these inputs."""


@record(eq=False)
class TfliteNode:
    """One operator with typed inputs; `reads` and `writes` are the tensors that the file describes."""

    op: str
    name: str
    inputs: Sequence[Expr | None]
    reads: Sequence[Tensor | None]
    writes: Sequence[Tensor]
    between: Sequence[Tensor]
    options: Table | None
    custom: memoryview
    folder: Folder
    span: Span
    walk: Walk

    @property
    def x(self) -> Expr:
        return self.input(0)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first input."""
        return shape_of(self.x)

    @property
    def present(self) -> list[Expr]:
        """The inputs that are there."""
        return [x for x in self.inputs if x is not None]

    def has(self, index: int) -> bool:
        """Whether an input is there."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int) -> Expr:
        """An input that has to be there."""
        result = self.inputs[index] if index < len(self.inputs) else None
        return self.refuse(f"it lacks its input {index}") if result is None else result

    def read(self, index: int) -> Tensor:
        """What the file says of an input that has to be there."""
        result = self.reads[index] if index < len(self.reads) else None
        return self.refuse(f"it lacks its input {index}") if result is None else result

    def value(self, index: int, what: str) -> Array:
        """The numbers of an input, which have to be known."""
        numbers = self.folder.value(self.input(index))
        if numbers is None:
            self.refuse(f"{what} is computed from the network's inputs", "it has to be known when compiling")
        return np.asarray(numbers)

    def wholes(self, index: int, what: str) -> tuple[int, ...]:
        """The numbers of an input as integers."""
        return tuple(int(n) for n in self.value(index, what).reshape(-1))

    def option(self, name: str) -> int | float | bool:
        """An option by the name that the rule gave it."""
        field, form, default = OPTIONS[self.op][name]
        return default if self.options is None else self.options.number(field, form, default)

    def whole(self, name: str) -> int:
        """An option that is a whole number."""
        return int(self.option(name))

    def vector(self, name: str) -> tuple[int, ...] | None:
        """An option that is a vector, or None where it is absent."""
        field = OPTIONS[self.op][name][0]
        return self.options.wholes(field) if self.options is not None and self.options.has(field) else None

    def one_of(self, name: str, words: Sequence[str]) -> str:
        """An option that counts in a list of words."""
        number = self.whole(name)
        return words[number] if 0 <= number < len(words) else self.refuse(f"{name} is {number}")

    def activated(self, value: Expr) -> Expr:
        """A result behind the activation that the options name."""
        name = self.one_of("activation", ACTIVATIONS)
        if name in _LIMITS:
            return op("clip", value, a_min=_LIMITS[name][0], a_max=_LIMITS[name][1])
        if name == "none":
            return value
        return self.refuse("the activation SIGN_BIT") if name == "sign_bit" else op(f"{_NAMES[name]}", value)

    def number(self, value: float, like: Expr | None = None) -> Expr:
        """A number in the type of the first input, or of `like`."""
        return scalar(value, dtype_of(self.x if like is None else like))

    def refuse(self, what: str, hint: str = "") -> NoReturn:
        """Raise UnsupportedError about this operator."""
        raise UnsupportedError(f"{self.op} {self.name!r}: {what}", span=self.span, hint=hint)


_LIMITS = {"relu6": (0.0, 6.0), "relu_n1_to_1": (-1.0, 1.0)}
_NAMES = {"relu": "nn.relu", "tanh": "tanh"}
TfliteRule = Callable[[TfliteNode], Expr | list[Expr]]
Field = tuple[int, str, float]
TFLITE_RULES: LazyRegistry[str, TfliteRule] = LazyRegistry(lambda name: f"tflite:{name.replace(' ', ':')}")
INTEGER_RULES: LazyRegistry[str, TfliteRule] = LazyRegistry(lambda name: f"tflite-integer:{name.replace(' ', ':')}")
OPTIONS: dict[str, dict[str, Field]] = {}


def tflite(*names: str, options: str = "") -> Callable[[TfliteRule], TfliteRule]:
    """Register the rule of operators in real numbers, or of any that only move numbers."""

    fields = {word.partition(":")[0]: _field(k, word) for k, word in enumerate(options.split())}
    OPTIONS.update(dict.fromkeys(names, fields))
    return TFLITE_RULES.register(*names)


in_integers = INTEGER_RULES.register  # the rule of operators in affine integers; options are those of the other rule


def _field(number: int, word: str) -> Field:
    form, _, default = word.partition(":")[2].partition("=")
    return number, form, float(default or 0)


def real(x: Expr, tensor: Tensor) -> Expr:
    """The real numbers that affine integers stand for."""
    return op("qnn.dequantize", x, const(tensor.scale), const(tensor.zero.astype(np.int32)), axis=tensor.axis)
