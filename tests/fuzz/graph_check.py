"""Run one graph beside the reference: what came of it, as a record.

In: a function and its inputs, or the text of both. Out: an `Outcome`: `agrees`, or how it failed (wrong result,
refused, error), with the level and a signature that a shrinker can hold on to. Invariant: the reference interpreter
(relay/evaluate.py) and the value with error bars are computed apart and must be equal to the bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import graph_values
import numpy as np
from graph_values import Array, Inconsistent, Reject, Value, compared, difference

from armillary.backend.compiled import Engine
from armillary.errors import ArmillaryError, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Constant, Function, Tuple
from armillary.relay.parser import parse


@dataclass(frozen=True)
class Outcome:
    """`kind`: agrees, wrong, refused, error, inconsistent, rejected; `signature` names the failure without details."""

    kind: str
    signature: str = ""
    detail: str = ""
    elements: int = 0

    @property
    def failed(self) -> bool:
        return self.kind not in ("agrees", "rejected")


def leaves(value: Value) -> list[Value]:
    """The tensors of a value, left to right."""
    if value.is_tensor:
        return [value]
    return [leaf for k in range(len(value.base)) for leaf in leaves(graph_values.field(value, k))]


def check(function: Function, inputs: dict[str, Array], levels: Sequence[int], target: str, seed: int = 0) -> Outcome:
    """Evaluate, compile at each level, run, compare."""
    try:
        with _quiet():
            want = graph_values.of_function(function, inputs, seed)
            reference = evaluate(function, inputs)
    except Reject as reason:
        return Outcome("rejected", str(reason))
    except Inconsistent as reason:
        return Outcome("inconsistent", str(reason)[:60], str(reason))
    wanted = leaves(want)
    for have, same in zip(_arrays(reference), wanted, strict=True):
        if have.tobytes() != np.asarray(same.base).tobytes():
            return Outcome("inconsistent", "interpreter", "the interpreter and the evaluation node by node differ")
    total = 0
    for level in levels:
        outcome = check_level(function, inputs, wanted, level, target)
        if outcome.failed:
            return outcome
        total += outcome.elements
    return Outcome("agrees", elements=total) if total else Outcome("rejected", "nothing to compare")


def check_level(
    function: Function, inputs: dict[str, Array], wanted: Sequence[Value], level: int, target: str
) -> Outcome:
    """Compile at one level and compare each output."""
    where = f"{target} level {level}"
    try:
        got = Engine(IRModule({"main": function}), target, level)(_leaf_inputs(inputs))
    except UnsupportedError as error:
        return Outcome("refused", f"refused: {error.message[:50]}", f"{where}: {error}")
    except ArmillaryError as error:
        return Outcome("error", f"{type(error).__name__}: {error.message[:50]}", f"{where}: {error}")
    except Exception as error:
        return Outcome("error", f"{type(error).__name__}: {str(error)[:40]}", f"{where}: {error!r}"[:2000])
    if len(got) != len(wanted):
        return Outcome("wrong", "wrong number of outputs", f"{where}: {len(got)} outputs, wanted {len(wanted)}")
    for k, (array, value) in enumerate(zip(got, wanted, strict=True)):
        problem = difference(array, value)
        if problem is not None:
            return Outcome("wrong", f"wrong at level {level}", f"{where}: output {k}: {problem}")
    return Outcome("agrees", elements=sum(map(compared, wanted)))


def _leaf_inputs(inputs: dict[str, Array]) -> dict[str, Array]:
    return dict(inputs)


def _arrays(value: Any) -> list[Array]:
    return [a for v in value for a in _arrays(v)] if isinstance(value, tuple | list) else [np.asarray(value)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


# --- as text --------------------------------------------------------------------------------------------------------


def to_text(function: Function, inputs: dict[str, Array]) -> str:
    """A module of two functions: `main`, and `inputs`, whose result is what main is called with."""
    constants = tuple(
        Constant(np.ascontiguousarray(inputs[p.name_hint]).reshape(inputs[p.name_hint].shape)) for p in function.params
    )
    return IRModule({"main": function, "inputs": Function((), Tuple(constants))}).astext()


def from_text(text: str) -> tuple[Function, dict[str, Array]]:
    """The function and inputs of a text."""
    module = parse(text)
    main = module["main"]
    values = evaluate(module["inputs"])
    return main, {p.name_hint: v for p, v in zip(main.params, values, strict=True)}


def check_text(text: str, levels: Sequence[int], target: str) -> Outcome:
    """Check a graph that is given as text."""
    return check(*from_text(text), levels, target)
