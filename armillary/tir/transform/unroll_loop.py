"""`unroll-loop`: loops marked unrolled, and small ones where a pragma or the configuration asks, become straight code.

In: For(kind=UNROLLED), `attr pragma_auto_unroll_max_step = n`, `attr pragma_unroll_explicit = 0|1`, the configuration
`tir.UnrollLoop`. Out: the body once per iteration with the index a folded constant. Invariant: no UNROLLED loop of
constant extent is left unless unrolling was asked to be implicit (then the emitter is told by the loop kind); a loop
that would give more than MAX_STATEMENTS statements stays a loop, and so does a long one that only moves what is read
and written: from IDLE_CODE statements on around another loop, else from LONG_CODE on (LONG_TEXT where C is written).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from armillary.base.node import Node, replace
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, nodes_of, uses_var
from armillary.tir.substitute import fresh_copy, map_stmt, substitute, users_of
from armillary.tir.transform.loop_pass import prim_pass, with_body
from armillary.transform import PassContext, register_config_option

MAX_STATEMENTS = 16384
UNROLL_COUNT = "pragma_unroll_count"  # an annotation: how many turns an emitter asks a compiler to write out
IDLE_CODE = 128  # statements up to which a loop is unrolled on request, whatever it is for
LONG_CODE = 2048  # statements up to which one is whose variable picks no register and decides nothing
LONG_TEXT = 256  # the same where a C compiler reads them: gcc 12 takes 26 s for 600 vectors in one block, 2 s for 120


@dataclass(frozen=True)
class UnrollOptions:
    """When a loop that is not marked is unrolled: it gives at most `auto_max_step` statements and holds fewer than
    `auto_max_depth` loops, or it has at most `auto_max_extent` iterations. Without `explicit_unroll` it is only marked,
    and the code generator unrolls it; `unroll_local_access` unrolls loops that index local buffers, whatever the rest.
    """

    auto_max_step: int = 0
    auto_max_depth: int = 8
    auto_max_extent: int = 0
    explicit_unroll: bool = True
    unroll_local_access: bool = False


UNROLL_LOOP = register_config_option("tir.UnrollLoop", dict, asdict(UnrollOptions()), "which loops unroll-loop unrolls")


def unroll_loop(func: S.PrimFunc, long_code: int = LONG_CODE) -> S.PrimFunc:
    """Repeat the bodies of unrolled loops; `long_code` bounds what is gained by no register and no decision.

    for i in range(2) unrolled { B[i] = A[i] }  ->  B[0] = A[0]  B[1] = A[1]
    """
    settings = PassContext.current().get(UNROLL_LOOP)
    body, _ = _Unroller(long_code).stmt(func.body, UnrollOptions(**settings))
    return with_body(func, body)


@dataclass(frozen=True)
class _Size:
    statements: int  # that run
    depth: int
    code: int  # statements that are there, after unrolling


class _Unroller:
    """Rebuilds a statement; the second result is its size."""

    def __init__(self, long_code: int) -> None:
        self.long_code = long_code

    def stmt(self, item: S.Stmt, options: UnrollOptions) -> tuple[S.Stmt, _Size]:
        if isinstance(item, S.AttrStmt):
            return self.attr(item, options)
        if isinstance(item, S.For):
            return self.loop(item, options)
        sizes: list[_Size] = []

        def visit(s: S.Stmt) -> S.Stmt:
            result, size = self.stmt(s, options)
            sizes.append(size)
            return result

        mapped = map_stmt(item, lambda e: e, visit)
        own = 1 if isinstance(item, S.BufferStore | S.Evaluate) else 0
        statements, code = own + sum(s.statements for s in sizes), own + sum(s.code for s in sizes)
        return mapped, _Size(statements, max((s.depth for s in sizes), default=0), code)

    def attr(self, item: S.AttrStmt, options: UnrollOptions) -> tuple[S.Stmt, _Size]:
        value = build.as_int(item.value)
        if item.key == "pragma_auto_unroll_max_step" and value is not None:
            return self.stmt(item.body, _replace_options(options, auto_max_step=value))
        if item.key == "pragma_unroll_explicit" and value is not None:
            return self.stmt(item.body, _replace_options(options, explicit_unroll=bool(value)))
        body, size = self.stmt(item.body, options)
        return replace(item, body=body), size

    def loop(self, item: S.For, options: UnrollOptions) -> tuple[S.Stmt, _Size]:
        body, inner = self.stmt(item.body, options)
        extent = build.as_int(item.extent)
        total = inner.statements * (extent or 1)
        size = _Size(total, inner.depth + 1, inner.code)
        repeated = _Size(total, inner.depth + 1, inner.code * (extent or 1))
        is_marked = item.kind is S.LoopKind.UNROLLED
        # an index of registers must be a constant, and a border be known: there the code counts, elsewhere all the
        # statements that would run
        is_needed = is_marked and total > MAX_STATEMENTS and (_indexes_local(item) or _decides(item))
        weight = repeated.code if is_needed else total
        if extent is None or weight > MAX_STATEMENTS:
            kind = S.LoopKind.SERIAL if is_marked else item.kind
            return replace(item, body=body, kind=kind), size
        if is_marked and repeated.code > IDLE_CODE and self._is_idle(item, repeated.code):
            return replace(item, body=body, kind=S.LoopKind.SERIAL), size
        if is_marked:
            return _repeat(item, body, extent), repeated
        is_small = total <= options.auto_max_step and inner.depth < options.auto_max_depth
        is_short = extent <= options.auto_max_extent or (options.unroll_local_access and _indexes_local(item))
        if item.kind is S.LoopKind.SERIAL and (is_small or is_short):
            if not options.explicit_unroll:
                return replace(item, body=body, kind=S.LoopKind.UNROLLED), size
            return _repeat(item, body, extent), repeated
        return replace(item, body=body), size

    def _is_idle(self, item: S.For, code: int) -> bool:
        """Whether only places in memory depend on the loop variable, and the work is in a loop inside, or long."""
        has_loop = any(isinstance(n, S.For) and n.kind is S.LoopKind.SERIAL for n in all_statements(item.body))
        return (
            (has_loop or code > self.long_code)
            and not _indexes_local(item)
            and not any(uses_var(tested, item.var) for n in nodes_of(item.body) for tested in _tests(n))
        )


def _indexes_local(item: S.For) -> bool:
    """Whether the loop variable picks an element of a local buffer."""
    accesses = (n for n in nodes_of(item.body) if isinstance(n, S.BufferStore | E.BufferLoad))
    return any(n.buffer.scope == "local" and any(uses_var(i, item.var) for i in n.indices) for n in accesses)


def _tests(item: Node) -> tuple[E.Expr, ...]:
    """What a node decides by."""
    if isinstance(item, S.IfThenElse | E.Select):
        return (item.condition,)
    return item.args[:1] if isinstance(item, E.Call) and item.name in ("likely", "if_then_else") else ()


def _decides(item: S.For) -> bool:
    """Whether a `likely` condition asks for the loop variable."""
    calls = (n for n in nodes_of(item.body) if isinstance(n, E.Call) and n.name == "likely")
    return any(uses_var(a, item.var) for n in calls for a in n.args)


def _replace_options(options: UnrollOptions, **changes: object) -> UnrollOptions:
    return UnrollOptions(**{**options.__dict__, **changes})


def _repeat(item: S.For, body: S.Stmt, extent: int) -> S.Stmt:
    if extent <= 0:
        return S.Evaluate(build.const(0))
    inside = list(all_statements(body))
    names: set[Node] = {item.var, *(s.var for s in inside if isinstance(s, S.For | S.LetStmt))}
    names |= {s.buffer for s in inside if isinstance(s, S.Allocate)}
    users = users_of(body, names)
    parts = []
    for k in range(extent):
        chosen: dict[E.Var, E.Expr] = {item.var: build.add(item.min, build.const(k, item.var.dtype))}
        is_copy = len(names) > 1 and k > 0
        parts.append(fresh_copy(body, chosen, users) if is_copy else substitute(body, chosen, users))
    return S.seq(*parts)


UnrollLoop = prim_pass("unroll-loop", "tir.UnrollLoop")(unroll_loop)
