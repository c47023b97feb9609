"""What runs where, and why not: the report on a partitioned module.

In: a partitioned module and names of libraries. Out: an `OffloadReport` with a row per function of a library and per
call that stays. Invariant: a reason is what the predicate of the library says now of that call: asked in the order of
its patterns, the first whose form fits answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from armillary.base.record import record
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.offload_tables import get_pattern_table, why_not
from armillary.relay.op import Op
from armillary.relay.pattern import match
from armillary.relay.pattern.partition import refusal
from armillary.relay.walk import not_primitive, post_order


@record
class ReportRow:
    """A function of a library, or a call that stays: `where` is the library's name, or ""."""

    what: str  # operators, or composites
    where: str
    name: str  # the function's symbol, or what the model calls the operator
    reason: str  # why it stays


@record
class OffloadReport:
    """Rows in the order of the graph."""

    rows: tuple[ReportRow, ...]

    @property
    def offloaded(self) -> tuple[ReportRow, ...]:
        return tuple(row for row in self.rows if row.where)

    @property
    def kept(self) -> tuple[ReportRow, ...]:
        return tuple(row for row in self.rows if not row.where)

    def __str__(self) -> str:
        lines = [f"{len(self.offloaded)} functions offloaded, {len(self.kept)} calls kept"]
        for row in self.rows:
            name = f" {row.name}" if row.name else ""
            lines.append(f"  {row.what}{name}: {row.where or row.reason}")
        return "\n".join(lines)


def offload_report(module: IRModule, libraries: Sequence[str] = ()) -> OffloadReport:
    """Say of every call of a partitioned module where it runs; libraries: by default those it has functions of."""
    functions = {name: f for name, f in module.items() if isinstance(f, Function)}
    found = {str(f.get_attr("Compiler")) for f in functions.values() if f.get_attr("Compiler")}
    asked = tuple(libraries) or tuple(sorted(found))
    rows: list[ReportRow] = []
    for function in functions.values():
        if not_primitive(function):
            rows += [row for call in _calls(function) if (row := _row(call, functions, asked)) is not None]
    return OffloadReport(tuple(rows))


def _calls(function: Function) -> Iterator[Call]:
    return (e for e in post_order(function, not_primitive) if isinstance(e, Call))


def _row(call: Call, functions: dict[str, Function], libraries: Sequence[str]) -> ReportRow | None:
    target = functions.get(getattr(call.op, "name_hint", ""), call.op)
    if isinstance(target, Function) and target.get_attr("Compiler"):
        symbol = str(target.get_attr("global_symbol", ""))
        return ReportRow(_contents(target), str(target.get_attr("Compiler")), symbol, "")
    if not isinstance(call.op, Op):
        return None
    name = call.span.name if call.span is not None and call.span.name else ""
    reasons = {library: _reason(library, call) for library in libraries}
    told = "; ".join(reasons.values() if len(reasons) == 1 else (f"{k}: {v}" for k, v in reasons.items()))
    return ReportRow(call.op.name, "", name, told or "no library was asked")


def _contents(function: Function) -> str:
    """The composites and operators of a library's function, in order."""
    names = []
    for expr in post_order(function.body, not_primitive):
        if isinstance(expr, Call):
            names.append(str(expr.op.get_attr("Composite", "")) if isinstance(expr.op, Function) else expr.op.name)
    return " ".join(names)


def _reason(library: str, call: Call) -> str:
    """Why a library does not take a call: what the checks of its patterns say, else what its table says."""
    for _, pattern, *check in get_pattern_table(library):
        if _fits(pattern, call) and check and check[0] is not None:
            told = refusal(check[0](call))
            if told is not None:
                return told
    told = why_not(library, call)
    return told if told is not None else "switched off, or its inner values are used elsewhere"


def _fits(pattern: object, expr: Expr) -> bool:
    return match(pattern, expr) is not None  # type: ignore[arg-type]
