"""What a run program computes before runs, and what leaves it: lifetimes that follow from its statements.

In: a program whose computed values are all transient. Out: the program whose values are prepared where they depend on
constants alone, sized where they depend on constants and sizes of inputs, and outputs where a return names them or
their memory. Invariant: a prepared value is computed from constants and prepared values by what computes the same at
every call, in no branch and no loop; the runtime runs such statements when constants are set
(runtime/native/arm_load.c). Most never get here, because fold-constant has evaluated them: what is left makes a package
larger (weights for Winograd) or is beyond its limits. Sized values (positions, their biases) are computed when sizes
are bound to other values (runtime/native/arm_sizes.c), in memory of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from armillary.program.nodes import (
    Bind,
    Call,
    Lifetime,
    Move,
    Program,
    Return,
    Statement,
    Value,
    Variant,
    reads,
    writes,
)

# The sizes that a function, by name, computes with; None where two calls may differ for another reason.
SizesOf = Callable[[str], Collection[str] | None]


def prepare(program: Program, sizes_of: SizesOf) -> Program:
    """The program whose computed values have their lifetimes."""
    slots = {v.name: v.storage.slot for v in program.values}
    returned = {slots[name] for name in returned_values(program.body)}
    bound = {s.size for s in program.body if isinstance(s, Bind)}
    early = {v.name: Lifetime.CONSTANT for v in program.values if v.storage.lifetime is Lifetime.CONSTANT}
    for statement in _outside_of_control(program.body):
        if all(name in early for name in reads(statement)):
            lifetime = _lifetime(statement, {early[name] for name in reads(statement)}, sizes_of, bound)
            if lifetime is Lifetime.SIZED and any(slots[name] in returned for name in writes(statement)):
                continue  # callers may put their own memory in its place
            early.update((name, lifetime) for name in writes(statement) if lifetime is not None)

    def lifetime_of(value: Value) -> Lifetime:
        if value.storage.lifetime is not Lifetime.TRANSIENT:
            return value.storage.lifetime
        usual = Lifetime.OUTPUT if value.storage.slot in returned else Lifetime.TRANSIENT
        return early.get(value.name, usual)

    values = (replace(v, storage=replace(v.storage, lifetime=lifetime_of(v))) for v in program.values)
    return replace(program, values=tuple(values))


def _lifetime(
    statement: Statement, inputs: Collection[Lifetime], sizes_of: SizesOf, bound: Collection[str]
) -> Lifetime | None:
    """Of what a statement computes from constants, prepared and sized values; None where it belongs to a run."""
    of_sizes = Lifetime.SIZED in inputs
    if isinstance(statement, Move):
        if statement.kind == "view":
            return Lifetime.SIZED if of_sizes else Lifetime.PREPARED
        return Lifetime.PREPARED if statement.kind == "join" and not of_sizes else None
    sizes = sizes_of(statement.function) if isinstance(statement, Call) else None
    if sizes is None or not set(sizes).isdisjoint(bound):
        return None
    if not sizes:
        return None if of_sizes else Lifetime.PREPARED
    return Lifetime.SIZED


def returned_values(body: Sequence[Statement]) -> Iterator[str]:
    """What a program or its variants return."""
    for statement in body:
        if isinstance(statement, Return):
            yield from statement.values
        elif isinstance(statement, Variant):
            yield from returned_values(statement.body)


def _outside_of_control(body: Sequence[Statement]) -> Iterator[Statement]:
    for statement in body:
        if isinstance(statement, Variant):
            yield from _outside_of_control(statement.body)
        else:
            yield statement
