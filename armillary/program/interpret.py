"""What a run program means, over numpy.

In: a program, its inputs and constants by name, and for each function it calls what that computes. Out: its outputs.
Invariant: nothing of places is looked at: a program whose places are right computes the same, and verify.py says
whether they are. Sizes are those of the inputs, and what `bind` gives; an
input that does not fit is refused before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.base.extent import Size, as_size, evaluate
from armillary.errors import ExecutionError, TypeMismatch
from armillary.program.nodes import (
    Bind,
    Call,
    Equal,
    If,
    Lifetime,
    Loop,
    Move,
    Program,
    Return,
    Statement,
    Value,
    Variant,
    Yield,
)

Function = Callable[..., "Sequence[Array]"]  # of the values of sizes by name, then the inputs' arrays


def interpret(
    program: Program,
    arrays: Mapping[str, Array],
    functions: Mapping[str, Function],
    states: MutableMapping[str, Array] | None = None,
) -> list[Array]:
    """The outputs for inputs and constants by name; `states` are read, zero where they are missing, and replaced."""
    inputs = [v for v in program.values if v.storage.lifetime in (Lifetime.INPUT, Lifetime.CONSTANT)]
    program, inputs = _variant(program, inputs, arrays)
    run = _Run(program, functions, _sizes(program, inputs, arrays))
    for value in inputs:
        run.set(value.name, arrays[value.key])
    states = {} if states is None else states
    own = [v for v in program.values if v.storage.lifetime is Lifetime.STATE]
    for value in own:
        run.set(value.name, states.get(value.key, np.zeros(run.shape(value.name), DType(value.dtype).numpy)))
    outputs = run.body(program.body)
    for value in own:
        last = [v.name for v in program.values if v.storage.slot == value.storage.slot and v.name in run.arrays]
        states[value.key] = run.arrays[last[-1]]  # a call that changes it in place gives it another name
    return outputs


def _variant(program: Program, inputs: list[Value], arrays: Mapping[str, Array]) -> tuple[Program, list[Value]]:
    """The program of the variant that takes the arrays' shapes, and its inputs; without variants the program itself."""
    variants = [s for s in program.body if isinstance(s, Variant)]
    if not variants:
        return program, inputs
    shared = program.body[: -len(variants)]
    for variant in variants:
        own = [v for v in inputs if v.storage.lifetime is Lifetime.CONSTANT or v.name in variant.inputs]
        if all(v.key not in arrays or arrays[v.key].shape == v.shape for v in own):
            return replace(program, body=(*shared, *variant.body)), own
    shapes = ", ".join(f"{name}: {list(array.shape)}" for name, array in arrays.items())
    raise TypeMismatch(f"no variant takes inputs of these shapes: {shapes}"[:200])


def _sizes(program: Program, inputs: Sequence[Value], arrays: Mapping[str, Array]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for value in inputs:
        if value.key not in arrays:
            raise ExecutionError(f"input {value.key} was never set")
        shape = arrays[value.key].shape
        if len(shape) != len(value.shape):
            raise TypeMismatch(f"{value.name}: {len(shape)} axes given, {len(value.shape)} wanted")
        for axis, (dim, got) in enumerate(zip(value.shape, shape)):
            size = as_size(dim)
            if size is not None and not (size.low <= got <= size.high and got % size.step == 0):
                raise TypeMismatch(f"{value.name}: axis {axis} is {size.name} = {got}, outside its bounds")
            if size is not None and sizes.setdefault(size.name, got) != got:
                raise ExecutionError(f"two inputs disagree on the size {size.name}: {sizes[size.name]} and {got}")
    return sizes


class _Run:
    def __init__(self, program: Program, functions: Mapping[str, Function], sizes: dict[str, int]) -> None:
        self.values = {v.name: v for v in program.values}
        self.bounds = {size.name: size for size in program.sizes}
        self.functions, self.sizes = functions, sizes
        self.arrays: dict[str, Array] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value for these sizes."""
        return tuple(evaluate(dim, self.sizes) for dim in self.values[name].shape)

    def set(self, name: str, array: Array) -> None:
        """Give a value its array, which has its shape."""
        if array.shape != self.shape(name):
            raise TypeMismatch(f"{name}: shape {array.shape} given, {self.shape(name)} wanted")
        self.arrays[name] = array

    def body(self, statements: Sequence[Statement]) -> list[Array]:
        """Run statements up to a yield or the return; what that names."""
        for statement in statements:
            match statement:
                case Yield(values) | Return(values):
                    return [self.arrays[name] for name in values]
                case Call(function, inputs, outputs):
                    results = self.functions[function](self.sizes, *(self.arrays[name] for name in inputs))
                    for name, array in zip(outputs, results, strict=True):
                        self.set(name, array)
                case Move(_, inputs, output):
                    flat = [np.ascontiguousarray(self.arrays[name]).reshape(-1) for name in inputs]
                    self.set(output, np.concatenate(flat).reshape(self.shape(output)))
                case Bind(size, value):
                    self.bind(self.bounds[size], int(self.arrays[value].reshape(())))
                case Equal():
                    self.compare(statement)
                case If(condition, then, otherwise, outputs):
                    taken = then if bool(self.arrays[condition].reshape(())) else otherwise
                    for name, array in zip(outputs, self.body(taken), strict=True):
                        self.set(name, array.reshape(self.shape(name)))
                case Loop():
                    self.loop(statement)
        return []

    def bind(self, size: Size, value: int) -> None:
        """Give a size its value."""
        if not (size.low <= value <= size.high and value % size.step == 0):
            raise ExecutionError(f"the data says {size.name} = {value}, outside its bounds {size.low} to {size.high}")
        self.sizes[size.name] = value

    def compare(self, equal: Equal) -> None:
        """Refuse extents that differ."""
        (a, b), (of_a, of_b) = (evaluate(side, self.sizes) for side in equal.sides), equal.owners
        if a != b:
            text = f"{of_a} is {equal.sides[0]} = {a}, but {of_b} is {equal.sides[1]} = {b}"
            raise ExecutionError(f"{equal.name}: {text}: they must be equal")

    def loop(self, loop: Loop) -> None:
        """Run a loop: see nodes.Loop for what its body reads and yields."""
        states, count, going = len(loop.states), 0, bool(self.arrays[loop.going].reshape(()))
        limit = int(self.arrays[loop.limit].reshape(()))
        for name, first in zip(loop.outputs, loop.states):
            self.set(name, self.arrays[first].reshape(self.shape(name)))
        scans = loop.outputs[states:-2]
        most = self.shape(scans[0])[0] if scans else loop.trips
        limit = min(limit, most) if most >= 0 else limit
        for name in scans:
            self.set(name, np.zeros(self.shape(name), self.values[name].dtype))
        while True:
            self.arrays[loop.outputs[-2]], self.arrays[loop.outputs[-1]] = np.array(count), np.array(going)
            if not going or count >= limit:
                return
            again, *results = self.body(loop.body)
            for name, row in zip(scans, results[states:], strict=True):
                self.arrays[name] = np.array(self.arrays[name])
                self.arrays[name].reshape(most, -1)[count] = row.reshape(-1)
            for name, array in zip(loop.outputs, results[:states]):
                self.set(name, array.reshape(self.shape(name)))
            count, going = count + 1, bool(again.reshape(()))
