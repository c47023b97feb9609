"""What runs where, and why not: the report on a partitioned module.

In: a partitioned module and names of libraries. Out: an `OffloadReport` with a row per function of a library and per
call that stays. Invariant: a reason is what the predicate of the library says now of that call: asked in the order of
its patterns, the first whose form fits answers; where none fits, what a pattern wants around the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from armillary.base.record import record
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, TupleGetItem
from armillary.relay.offload_tables import Row, get_pattern_table, has_pattern_table, predicate_of, why_not
from armillary.relay.op import Op
from armillary.relay.pattern import CallPattern, ConstantPattern, DFPattern, ExprPattern, match
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
    """Rows in the order of the graph; `asked`: the libraries."""

    rows: tuple[ReportRow, ...]
    asked: tuple[str, ...] = ()

    @property
    def offloaded(self) -> tuple[ReportRow, ...]:
        return tuple(row for row in self.rows if row.where)

    @property
    def kept(self) -> tuple[ReportRow, ...]:
        return tuple(row for row in self.rows if not row.where)

    def __str__(self) -> str:
        if not self.asked:
            return "nothing is offloaded: the target names no library"
        lines = [f"{len(self.offloaded)} functions offloaded, {len(self.kept)} calls kept"]
        for row in self.rows:
            name = f" {row.name}" if row.name else ""
            lines.append(f"  {row.what}{name}: {row.where or row.reason}")
        return "\n".join(lines)


def offload_report(module: IRModule, libraries: Sequence[str] = ()) -> OffloadReport:
    """Say of every call of a partitioned module where it runs; libraries: by default those that were asked."""
    functions = {name: f for name, f in module.items() if isinstance(f, Function)}
    compilers = {str(f.get_attr("Compiler")) for f in functions.values() if f.get_attr("Compiler")}
    asked = tuple(libraries) or module.asked or tuple(sorted(compilers))
    rows: list[ReportRow] = []
    for function in functions.values():
        if not_primitive(function):
            rows += [row for call, root in _calls(function) if (row := _row(call, root, functions, asked)) is not None]
    return OffloadReport(tuple(rows), asked)


def _calls(function: Function) -> Iterator[tuple[Call, Expr]]:
    """The calls, each with what patterns end in: the call, or a field of the tuple that it gives."""
    order = post_order(function, not_primitive)
    fields_of = {id(e.tuple_value): e for e in order if isinstance(e, TupleGetItem)}
    return ((e, fields_of.get(id(e), e)) for e in order if isinstance(e, Call))


def _row(call: Call, root: Expr, functions: dict[str, Function], libraries: Sequence[str]) -> ReportRow | None:
    target = functions.get(getattr(call.op, "name_hint", ""), call.op)
    if isinstance(target, Function) and target.get_attr("Compiler"):
        symbol = str(target.get_attr("global_symbol", ""))
        return ReportRow(_contents(target), str(target.get_attr("Compiler")), symbol, "")
    if not isinstance(call.op, Op):
        return None
    name = call.span.name if call.span is not None and call.span.name else ""
    reasons = {library: _reason(library, call, root) for library in libraries}
    message = "; ".join(reasons.values() if len(reasons) == 1 else (f"{k}: {v}" for k, v in reasons.items()))
    return ReportRow(call.op.name, "", name, message or "no library was asked")


def _contents(function: Function) -> str:
    """The composites and operators of a library's function, in order."""
    names = []
    for expr in post_order(function.body, not_primitive):
        if isinstance(expr, Call):
            names.append(str(expr.op.get_attr("Composite", "")) if isinstance(expr.op, Function) else expr.op.name)
    return " ".join(names)


def _reason(library: str, call: Call, root: Expr) -> str:
    """Why a library does not take a call that `root` ends in: what the checks of its patterns say, else its table."""
    rows = get_pattern_table(library) if has_pattern_table(library) else ()
    fitting = [check for _, pattern, *check in rows if _fits(pattern, root)]
    for check in fitting:
        message = refusal(check[0](root)) if check and check[0] is not None else None
        if message is not None:
            return message
    message = why_not(library, call)
    assert isinstance(call.op, Op), "asked of operators"
    if message is not None and predicate_of(library, call.op) is not None:
        return message
    if message is None or fitting:
        return "switched off, or its inner values are used elsewhere"
    return _around(library, rows, call, call.op) or message


def _around(library: str, rows: Sequence[Row], call: Call, op: Op) -> str:
    """Why patterns that have the operator of a call do not fit; "" where there are none."""
    forms = [(name, form) for name, pattern, *_ in rows for form in _forms(pattern, op, set())]
    computed = [place for _, form in forms for place in _computed(form, call)][:1]
    if computed and all(_computed(form, call) for _, form in forms):
        return f"argument {computed[0]} of {op.name} is computed, wanted a constant"
    names = dict.fromkeys(name if "." in name else f"{library}.{name}" for name, _ in forms)
    return f"{library} takes it only within {', '.join(names)}" if names else ""


def _forms(pattern: object, op: Op, seen: set[int]) -> Iterator[CallPattern]:
    """The calls of an operator that a pattern is made of."""
    parts: tuple[object, ...] = pattern if isinstance(pattern, tuple) else ()
    if isinstance(pattern, DFPattern) and id(pattern) not in seen:
        seen.add(id(pattern))
        parts = tuple(getattr(pattern, f.name) for f in fields(pattern))
        if isinstance(pattern, CallPattern) and isinstance(pattern.op, ExprPattern) and pattern.op.expr is op:
            yield pattern
    for part in parts:
        yield from _forms(part, op, seen)


def _computed(form: CallPattern, call: Call) -> list[int]:
    """The places of arguments that are to be constants, and are not."""
    pairs = enumerate(zip(form.args or (), call.args, strict=False))
    return [n for n, (wanted, got) in pairs if isinstance(wanted, ConstantPattern) and not isinstance(got, Constant)]


def _fits(pattern: object, expr: Expr) -> bool:
    return match(pattern, expr) is not None  # type: ignore[arg-type]
