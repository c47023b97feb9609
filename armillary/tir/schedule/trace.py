"""What was done to a schedule: `schedule.trace`, which prints as Python, is stored as JSON and repeats itself.

    for line in schedule.trace.as_python(): print(line)     # b0 = sch.get_block(name="C", func_name="main")
    schedule.trace.apply_to_schedule(tir.Schedule(function), remove_postproc=False)

In: calls of primitives, recorded by `primitive`. Out: instructions with the numbers that were drawn. Invariant: handles
that an instruction takes come from one before it; what failed is not recorded. The JSON has the old form: pairs
[kind, inputs, attributes, outputs], then [instruction, decision], where handles are names.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from armillary.base.json_types import JsonValue
from armillary.errors import ScheduleError
from armillary.tir import expr as E
from armillary.tir.analysis import free_vars
from armillary.tir.schedule.handles import BlockRV, LoopRV
from armillary.tir.simplify import simplify
from armillary.tir.substitute import substitute_expr

if TYPE_CHECKING:
    from armillary.tir.schedule.state import State
_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S", bound="State")
Value = JsonValue  # what primitives take, handles and numbers besides
Provider = Callable[["Instruction", Sequence[Value], Sequence[Value], Value], Value]
_LOOKS = ("get_", "sample_")
KINDS: dict[str, InstructionKind] = {}


class InstructionKind:
    """A primitive: which of its parameters are handles (`inputs`; "*name" is a list) and which are not (`attrs`)."""

    def __init__(self, method: Callable[..., object]) -> None:
        self.method = method.__name__
        self.name = "".join(part.capitalize() for part in self.method.split("_"))
        rows = list(inspect.signature(method).parameters.values())[1:]
        self.parameters = {row.name: row for row in rows}
        handles = [row for row in rows if "RV" in str(row.annotation)]
        self.inputs = tuple(f"*{row.name}" if _is_list(row) else row.name for row in handles)
        self.gives_list = str(inspect.signature(method).return_annotation).startswith("list")
        self.attrs = tuple(row.name for row in rows if row not in handles and row.name != "decision")

    @property
    def is_pure(self) -> bool:
        """Whether it only looks."""
        return self.method.startswith(_LOOKS)

    @staticmethod
    def get(name: str) -> InstructionKind:
        """The kind of a name like "ComputeAt"."""
        if name not in KINDS:
            raise ScheduleError(f"there is no primitive {name!r}", hint=f"there are: {', '.join(sorted(KINDS))}")
        return KINDS[name]


def _is_list(row: inspect.Parameter) -> bool:
    return row.kind is row.VAR_POSITIONAL or "Sequence" in str(row.annotation)


class Instruction:
    """One call: `inputs` are handles and numbers, `attrs` are what else the primitive takes, `outputs` its handles."""

    def __init__(
        self, kind: InstructionKind, inputs: Sequence[Value], attrs: Sequence[Value], outputs: Sequence[Value]
    ) -> None:
        self.kind, self.inputs, self.attrs, self.outputs = kind, list(inputs), list(attrs), list(outputs)

    def arguments(self) -> tuple[list[Value], dict[str, Value]]:
        """What the method is called with: positions, and values by name."""
        named: dict[str, Value] = dict(zip(self.kind.attrs, self.attrs, strict=False))
        positions: list[Value] = []
        rest = list(self.inputs)
        for name in self.kind.inputs:
            if not name.startswith("*"):
                named[name] = rest.pop(0)
            elif self.kind.parameters[name[1:]].kind is inspect.Parameter.VAR_POSITIONAL:
                positions, rest = rest, []
            else:
                is_one = len(rest) == 1 and not str(self.kind.parameters[name[1:]].annotation).startswith("Sequence")
                named[name[1:]], rest = rest[0] if is_one else rest, []
        return positions, named

    def line(self, names: Mapping[Value, str], decision: Value = None) -> str:
        """The call as Python."""
        positions, named = self.arguments()
        order = [name for name in self.kind.parameters if name in named]
        parts = [_text(v, names) for v in positions] + [f"{name}={_text(named[name], names)}" for name in order]
        parts += [f"decision={_text(decision, names)}"] if decision is not None else []
        results = ", ".join(names.get(v, "_") for v in self.outputs)
        results += "," if len(self.outputs) == 1 and self.kind.gives_list else ""
        return f"{f'{results} = ' if results else ''}sch.{self.kind.method}({', '.join(parts)})"

    def same_as(self, other: Instruction) -> bool:
        """Whether both are one call."""
        return self is other

    def __str__(self) -> str:
        return self.line({})


def _text(value: Value, names: Mapping[Value, str]) -> str:
    if isinstance(value, BlockRV | LoopRV | E.Var):
        return names.get(value, "_")
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(v, names) for v in value)}]"
    if isinstance(value, E.Expr):
        renamed = {v: E.Var(names.get(v, "_"), v.dtype) for v in free_vars(value)}
        return str(substitute_expr(value, dict(renamed)))
    return json.dumps(value) if isinstance(value, str) else str(value)


class Trace:
    """Instructions in order; `decisions` are the numbers drawn, by instruction."""

    def __init__(self, insts: Iterable[Instruction], decisions: Mapping[Instruction, Value]) -> None:
        self.insts, self.decisions = list(insts), dict(decisions)

    def get_decision(self, inst: Instruction) -> Value:
        """What an instruction drew; None where it draws nothing."""
        return self.decisions.get(inst)

    def append(self, inst: Instruction, decision: Value = None) -> None:
        """Add an instruction."""
        self.insts.append(inst)
        if decision is not None:
            self.decisions[inst] = decision

    def pop(self) -> Instruction | None:
        """Take the last instruction off; None where there is none."""
        if not self.insts:
            return None
        last = self.insts.pop()
        self.decisions.pop(last, None)
        return last

    def _parts(self, remove_postproc: bool) -> list[Instruction]:
        marks = [k for k, inst in enumerate(self.insts) if inst.kind.method == "enter_postproc"]
        return self.insts[: marks[0]] if remove_postproc and marks else self.insts

    def apply_to_schedule(
        self, sch: State, remove_postproc: bool = False, decision_provider: Provider | None = None
    ) -> None:
        """Call every primitive again; `decision_provider(instruction, inputs, attrs, decision)` may decide anew."""
        env: dict[Value, Value] = {}
        for inst in self._parts(remove_postproc):
            own = Instruction(inst.kind, [_moved(v, env) for v in inst.inputs], inst.attrs, inst.outputs)
            positions, named = own.arguments()
            decision = self.decisions.get(inst)
            if decision_provider is not None and decision is not None:
                decision = decision_provider(inst, own.inputs, own.attrs, decision)
            if decision is not None:
                named["decision"] = decision
            outputs = _listed(getattr(sch, inst.kind.method)(*positions, **named))
            if len(outputs) != len(inst.outputs):
                message = (
                    f"{inst.kind.method} gives {len(outputs)} results here, {len(inst.outputs)} where it was traced"
                )
                raise ScheduleError(message, hint="apply a trace to the function that it was recorded on")
            env.update(zip(inst.outputs, outputs, strict=True))

    def as_python(self, remove_postproc: bool = False) -> list[str]:
        """A Python statement for each instruction, over a schedule `sch`."""
        parts = self._parts(remove_postproc)
        names = _names(parts)
        return [inst.line(now, self.decisions.get(inst)) for inst, now in zip(parts, names, strict=True)]

    def as_json(self, remove_postproc: bool = False) -> list[Value]:
        """Lists and texts: instructions, then the decisions by number of instruction."""
        rows, decisions = [], []
        parts = self._parts(remove_postproc)
        for number, (inst, names) in enumerate(zip(parts, _names(parts), strict=True)):
            outputs = [names[v] for v in inst.outputs]
            attrs = [_plain(inst, v) for v in inst.attrs]
            rows.append([inst.kind.name, [_quoted(inst, v, names) for v in inst.inputs], attrs, outputs])
            if inst in self.decisions:
                decisions.append([number, self.decisions[inst]])
        return [rows, decisions]

    @staticmethod
    def apply_json_to_schedule(json_obj: Value, sch: State) -> None:
        """Repeat what `as_json` gave on a schedule."""
        try:
            rows, decisions = json_obj
            drawn = {int(number): decision for number, decision in decisions}
            trace, env = Trace([], {}), dict[str, Value]()
            for number, (name, inputs, attrs, outputs) in enumerate(rows):
                results = [BlockRV(str(number), text) for text in outputs]  # any handle: replaced when applied
                own = [_unquoted(v, env) for v in inputs]
                trace.append(Instruction(InstructionKind.get(name), own, attrs, results), drawn.get(number))
                env.update(zip(outputs, results, strict=True))
        except (TypeError, ValueError) as error:
            raise ScheduleError(f"this is not the JSON of a trace: {error}", hint="Trace.as_json() writes it") from None
        trace.apply_to_schedule(sch)

    def with_decision(self, inst: Instruction, decision: Value, remove_postproc: bool = False) -> Trace:
        """The trace with another number drawn."""
        return Trace(self._parts(remove_postproc), {**self.decisions, inst: decision})

    def simplified(self, remove_postproc: bool = False) -> Trace:
        """The trace without what looks at handles that nothing uses."""
        used: set[Value] = set()
        rest: list[Instruction] = []
        for inst in reversed(self._parts(remove_postproc)):
            if not inst.kind.is_pure or any(v in used for v in inst.outputs):
                rest.insert(0, inst)
                for value in inst.inputs:
                    used |= {value} if isinstance(value, BlockRV | LoopRV) else set()
                    used |= set(free_vars(value)) if isinstance(value, E.Expr) else set()
        return Trace(rest, {inst: d for inst, d in self.decisions.items() if inst in rest})

    def show(self, style: str | None = None, black_format: bool = False) -> None:
        """Print it as Python."""
        del style, black_format
        print(self)

    def __str__(self) -> str:
        head = "# from armillary import tir\ndef apply_trace(sch: tir.Schedule) -> None:"
        return "\n".join([head, *(f"  {line}" for line in self.as_python() or ["pass"])])


def _names(parts: Sequence[Instruction]) -> list[dict[Value, str]]:
    """What handles are called at each instruction: b0, l1, v2, numbered in their order."""
    names: dict[Value, str] = {}
    rows, count = [], 0
    for inst in parts:
        for value in inst.outputs:
            letter = "b" if isinstance(value, BlockRV) else "l" if isinstance(value, LoopRV) else "v"
            names[value] = f"{letter}{count}"
            count += 1
        rows.append(dict(names))
    return rows


def _moved(value: Value, env: Mapping[Value, Value]) -> Value:
    if isinstance(value, E.Expr):
        return substitute_expr(value, {v: env[v] for v in free_vars(value) if v in env})
    return env.get(value, value) if isinstance(value, BlockRV | LoopRV) else value


def _plain(inst: Instruction, value: Value) -> Value:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, E.IntImm | E.FloatImm):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(inst, v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inst, v) for v in value]
    raise ScheduleError(
        f"{inst.kind.method}: a trace with {type(value).__name__} has no JSON", hint="as_python prints it"
    )


def _quoted(inst: Instruction, value: Value, names: Mapping[Value, str]) -> Value:
    if isinstance(value, str):
        return json.dumps(value)
    return _plain(inst, value) if not isinstance(value, BlockRV | LoopRV | E.Expr) else _text(value, names)


def _unquoted(value: Value, env: Mapping[str, Value]) -> Value:
    if not isinstance(value, str) or value in env:
        return env.get(value, value) if isinstance(value, str) else value
    return json.loads(value)


def _listed(result: Value) -> list[Value]:
    if result is None:
        return []
    return list(result) if isinstance(result, list | tuple) else [result]


def primitive(
    method: Callable[Concatenate[_S, _P], _R],
) -> Callable[Concatenate[_S, _P], _R]:
    """A method of a schedule whose calls are traced; it sees values for sampled numbers, and blocks for their names."""
    kind = InstructionKind(method)
    KINDS[kind.name] = kind
    signature = inspect.signature(method)

    @functools.wraps(method)
    def recorded(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        if self.depth:
            return method(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        values = {name: _named_block(self, kind, name, v) for name, v in list(bound.arguments.items())[1:]}
        before, self.depth = self.mod, 1
        try:
            bound.arguments.update({name: _known(self, v) for name, v in values.items()})
            result: _R = method(*bound.args, **bound.kwargs)
        except BaseException:
            self.mod, self.decision = before, None  # what is done in part is not done
            raise
        finally:
            self.depth = 0
        _record(self, kind, values, result)
        return result

    return recorded


def _named_block(schedule: State, kind: InstructionKind, name: str, value: Value) -> Value:
    if "BlockRV" not in str(kind.parameters[name].annotation):
        return value
    if isinstance(value, list | tuple):
        return [schedule.get_block(v) if isinstance(v, str) else v for v in value]
    return schedule.get_block(value) if isinstance(value, str) else value


def _known(schedule: State, value: Value) -> Value:
    """A sampled number, or an expression over such, as its value."""
    if isinstance(value, list | tuple):
        return type(value)(_known(schedule, v) for v in value)
    if isinstance(value, E.Expr) and free_vars(value) and set(free_vars(value)) <= set(schedule.drawn):
        number = simplify(substitute_expr(value, {v: schedule.drawn[v] for v in free_vars(value)}))
        return number.value if isinstance(number, E.IntImm) else number
    return value


def _record(schedule: State, kind: InstructionKind, values: Mapping[str, Value], result: object) -> None:
    inputs: list[Value] = []
    for name in kind.inputs:
        value = values[name.removeprefix("*")]
        is_many = name.startswith("*") and isinstance(value, list | tuple)
        inputs += value if is_many else [] if name.startswith("*") and value is None else [value]
    outputs = _listed(result)
    inst = Instruction(kind, inputs, [values[name] for name in kind.attrs], outputs)
    schedule.trace.append(inst, schedule.decision)
    schedule.decision = None
