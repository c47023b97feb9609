"""A function cut into modules that can run one after the other, as stages of a pipeline.

In: a function and where to cut it: after which calls of which operators. Out: modules, in order. Invariant: run in
order they compute what the function computes. A value that a later module reads is an output of the module that makes
it, in the order of the first uses, and an input `data_n_<number>` of each module that reads it, numbered in the order
of the uses; variables and constants stay with the modules that use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.base.boundary import boundary
from armillary.errors import ConfigError, TypeMismatch, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.analysis import free_vars
from armillary.relay.binding import bind_params_by_name
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.op import Op
from armillary.relay.types import TupleType
from armillary.relay.walk import copy_type, map_children, post_order

_Cut = Mapping[str, str | int]


@boundary("graph_split", arguments=True)
def graph_split(
    expr: Function,
    split_conf: Sequence[_Cut],
    params: Mapping[str, object] | None = None,  # arrays
) -> list[IRModule]:
    """Cut after the call number `op_index` (from 0) of the operator `op_name`, for each row of `split_conf` in turn."""
    if not isinstance(expr, Function):
        raise TypeMismatch(f"graph_split: got {type(expr).__name__}, wanted a relay function")
    function = bind_params_by_name(expr, params) if params else expr
    calls = [e for e in post_order(function.body, lambda e: not isinstance(e, Function)) if _is_value(e)]
    return _Parts(_numbered(calls, list(split_conf)), len(split_conf) + 1).cut(calls, function.body)


def _is_value(expr: Expr) -> bool:
    """Whether it is a call; variables, constants, tuples and their fields belong to nobody."""
    if isinstance(expr, Call):
        return True
    if isinstance(expr, Var | Constant | Tuple | TupleGetItem | Function | Op):
        return False
    raise UnsupportedError(
        f"graph_split: {type(expr).__name__} is no call of an operator",
        hint="cut a function without lets, branches and loops; relay.transform.ToGraphNormalForm removes lets",
    )


def _numbered(calls: Sequence[Expr], cuts: list[_Cut]) -> dict[Expr, int]:
    """The module of each call."""
    counts: dict[str, int] = {}
    part, parts = 0, dict[Expr, int]()
    for call in calls:
        parts[call] = part
        if isinstance(call, Call) and isinstance(call.op, Op):
            counts[call.op.name] = counts.get(call.op.name, -1) + 1
        if cuts and counts.get(str(cuts[0]["op_name"]), -1) >= int(cuts[0]["op_index"]) and call is not calls[-1]:
            cuts.pop(0)
            part += 1
    if cuts:
        name, number = cuts[0]["op_name"], cuts[0]["op_index"]
        hint = "numbers count from 0 in the order of computation, and the last call ends the function by itself"
        raise ConfigError(f"graph_split: there is no call {number} of {name} to cut after", hint=hint)
    return parts


class _Parts:
    """Modules being made: the values of each, and which of them others read."""

    def __init__(self, part_of: Mapping[Expr, int], count: int) -> None:
        self.part_of, self.count, self.inputs = part_of, count, 0
        self.parts_of_values: list[dict[tuple[Expr, int], Expr]] = [{} for _ in range(count)]  # (call, its field or -1)
        self.read: list[dict[tuple[Expr, int], Expr]] = [{} for _ in range(count)]  # outputs

    def cut(self, calls: Sequence[Expr], result: Expr) -> list[IRModule]:
        """The modules of the parts, in the order in which they run."""
        last: list[Expr] = [result] * self.count
        for call in calls:
            part = self.part_of[call]
            new = map_children(call, lambda e, part=part: self.value(e, part))  # type: ignore[misc]
            self.parts_of_values[part][call, -1] = copy_type(new, call)
            last[part] = new
        last[-1] = self.value(result, self.count - 1)
        modules = []
        for body, read in zip(last, self.read, strict=True):
            outputs = list(read.values()) or [body]
            body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
            modules.append(IRModule.from_expr(Function(tuple(free_vars(body)), body)))
        return modules

    def value(self, expr: Expr, part: int) -> Expr:
        """What stands for an expression inside a module."""
        match expr:
            case Tuple():
                return Tuple(tuple(self.value(field, part) for field in expr.fields))
            case TupleGetItem(tuple_value=Tuple() as whole):
                return self.value(whole.fields[expr.index], part)
            case TupleGetItem():
                return self._read(expr.tuple_value, expr.index, part)
            case Call():
                return self._read(expr, -1, part)
        return expr

    def _read(self, call: Expr, index: int, part: int) -> Expr:
        """A call's value, or a field of it, as a module sees it."""
        values, owner = self.parts_of_values[part], self.part_of.get(call, part)
        if owner == part:
            whole = values.get((call, -1), call)
            return whole if index < 0 else TupleGetItem(whole, index)
        ty = call.checked_type
        if index < 0 and isinstance(ty, TupleType):
            return Tuple(tuple(self._read(call, k, part) for k in range(len(ty.fields))))
        if (call, index) not in values:
            kind = ty if index < 0 else ty.fields[index]  # type: ignore[attr-defined]
            values[call, index] = Var(f"data_n_{self.inputs}", kind)
            self.inputs += 1
            if (call, index) not in self.read[owner]:
                self.read[owner][call, index] = self._read(call, index, owner)
        return values[call, index]
