"""Nodes of the run program.

Grammar:

    program   = Program(sizes, values, body)
    statement = Call(function, inputs, outputs) | Move(kind, inputs, output)
              | If(condition, then, otherwise, outputs) | Loop(limit, going, states, body, outputs)
              | Bind(size, value) | Equal(sides, owners) | Variant(inputs, body) | Yield(values) | Return(values)

A statement names values; a value has a type, whose sizes are extents (base/extent.py), and a storage: how long it lives
and where it lies. Invariant: plain data, equal by structure. `Yield` ends a branch or the body of a loop, `Return` the
program or a variant. Statements have the name of the layer that they compute, for profiles and messages.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias, Union

from armillary.base.extent import Known, Size
from armillary.base.record import record


class Lifetime(Enum):
    """How long a value lives, and who gives it."""

    INPUT = "input"  # set by the caller, kept from run to run
    STATE = "state"  # kept from run to run, and written by runs; zero at first
    CONSTANT = "constant"  # a parameter of the package
    PREPARED = "prepared"  # computed once, when constants are set
    SIZED = "sized"  # computed when sizes are bound to other values
    TRANSIENT = "transient"  # of one run
    OUTPUT = "output"  # of one run, in memory of its own


LEAVES = (Lifetime.INPUT, Lifetime.STATE, Lifetime.CONSTANT)  # of what no statement computes
BEFORE_RUNS = (Lifetime.PREPARED, Lifetime.SIZED)  # of what statements compute, but not in every run


@record(slots=True)
class Storage:
    """Where a value lies: its lifetime, a device (0: the only one), a memory scope, and a place in the arena.

    `place` is a byte offset where it was planned when compiling, -1 for memory of its own, None where sizes decide;
    values of one `slot` show the same memory. An image has a `width` in pixels, of all values in its slot.
    """

    lifetime: Lifetime
    slot: int
    place: int | None = -1
    device: int = 0
    scope: str = "global"
    width: int = 0


@record(slots=True)
class Value:
    """A tensor of the program; `label` is what callers set it by, where that is not its name."""

    name: str
    dtype: str
    shape: tuple[Known, ...]
    storage: Storage
    label: str | None = None

    @property
    def key(self) -> str:
        """What callers set it by."""
        return self.name if self.label is None else self.label


@record(slots=True)
class Call:
    """Run a compiled function; its arguments are the inputs, then the outputs."""

    function: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str = ""


@record(slots=True)
class Move:
    """What computes nothing.

    `view`: the input's memory in another shape; `join`: inputs one after another; `copy`: to memory of its own, maybe
    on another device; `write`: into a state, which nothing reads after that.
    """

    kind: str
    inputs: tuple[str, ...]
    output: str
    name: str = ""


@record(slots=True)
class If:
    """Run one of two bodies; what its yield names becomes the outputs."""

    condition: str
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]
    outputs: tuple[str, ...]
    name: str = ""


@record(slots=True)
class Loop:
    """Run the body while `going` holds, at most `limit` times.

    `outputs` are the states, the scans (rows collected from each iteration, `trips` of them), the number of iterations
    and whether it goes on; the body reads these as they are, and yields going on, new states and a row of each scan.
    """

    limit: str
    going: str
    states: tuple[str, ...]
    body: tuple[Statement, ...]
    outputs: tuple[str, ...]
    trips: int = -1
    name: str = ""


@record(slots=True)
class Bind:
    """Give a named size the number that a value holds: what has the size in its shape comes behind it."""

    size: str
    value: str
    name: str = ""


@record(slots=True)
class Equal:
    """Refuse to go on unless two extents are equal; `owners` say whose axes they are."""

    sides: tuple[Known, Known]
    owners: tuple[str, str]
    name: str = ""


@record(slots=True)
class Variant:
    """What runs where these inputs have the shapes of what was set; its body ends in a return.

    Variants stand at the end of a program that has several; they share what comes before them.
    """

    inputs: tuple[str, ...]
    body: tuple[Statement, ...]


@record(slots=True)
class Yield:
    """The end of a branch or of a loop's body."""

    values: tuple[str, ...]
    name: str = ""


@record(slots=True)
class Return:
    """The end of the program or of a variant: its outputs, in order."""

    values: tuple[str, ...]


Statement: TypeAlias = Union[Call, Move, If, Loop, Bind, Equal, Variant, Yield, Return]  # noqa: UP007 (a value, also in 3.10)


@record(slots=True)
class Program:
    """Sizes that inputs or data give, values (inputs and states, constants, computed ones), statements in order."""

    sizes: tuple[Size, ...]
    values: tuple[Value, ...]
    body: tuple[Statement, ...]

    def value(self, name: str) -> Value:
        """A value by its name; KeyError where there is none."""
        return next(v for v in self.values if v.name == name)


def reads(statement: Statement) -> tuple[str, ...]:
    """The values that a statement itself reads, bodies not counted."""
    match statement:
        case Call(_, inputs, _) | Move(_, inputs, _):
            return inputs
        case If(condition):
            return (condition,)
        case Loop(limit, going, states):
            return (limit, going, *states)
        case Bind(_, value):
            return (value,)
        case Yield(values) | Return(values):
            return values
    return ()


def writes(statement: Statement) -> tuple[str, ...]:
    """The values that a statement gives."""
    match statement:
        case Call(_, _, outputs) | If(_, _, _, outputs) | Loop(_, _, _, _, outputs):
            return outputs
        case Move(_, _, output):
            return (output,)
    return ()


def bodies(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The statements inside a statement."""
    match statement:
        case If(_, then, otherwise):
            return then, otherwise
        case Loop(_, _, _, body) | Variant(_, body):
            return (body,)
    return ()
