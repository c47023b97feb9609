"""`common-subexpr-elim-tir`: what several statements compute from the same variables is computed once.

In: any loop program. Out: lets in front of the bodies where a repeated expression's variables become known. Invariant:
only expressions that read no memory, call nothing with effects and cannot fault move; values do not change. Off below
opt_level 4: code generators do the same, and see more where an index is written out (docs/decisions/pass-defaults.md).
Configuration: `tir.disable_cse_tir`, `tir.enable_equiv_terms_in_cse_tir` (a + b and b + a are one).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from armillary.base.node import children, post_order, replace
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import has_loads, is_pure, is_unsafe
from armillary.tir.substitute import map_all, map_stmt
from armillary.tir.transform.loop_pass import prim_pass, with_body
from armillary.transform import PassContext, register_config_option

DISABLE_CSE = register_config_option("tir.disable_cse_tir", bool, False, "never share sub-expressions of loops")
EQUIVALENT_TERMS = register_config_option(
    "tir.enable_equiv_terms_in_cse_tir", bool, False, "sub-expressions that differ in the order of operands are one"
)
_LEAVES = (E.Var, E.IntImm, E.FloatImm, E.StringImm)
_COMMUTATIVE = (E.Add, E.Mul, E.Min, E.Max, E.EQ, E.NE, E.And, E.Or)


def common_subexpr_elim_tir(func: S.PrimFunc) -> S.PrimFunc:
    """Name what is repeated.

    A[n * 4 + 1] = 0.0  B[n * 4 + 1] = 1.0  ->  let cse_v1: int32 = n * 4 + 1 { A[cse_v1] = 0.0  B[cse_v1] = 1.0 }
    """
    context = PassContext.current()
    if context.get(DISABLE_CSE):
        return func
    numbering = _Numbering(context.get(EQUIVALENT_TERMS))
    return with_body(func, _Sharing(numbering).scope(func.body))


@dataclass
class _Numbering:
    """Equal numbers for structurally equal expressions."""

    ignores_order: bool
    table: dict[Hashable, int] = field(default_factory=dict)
    known: dict[int, tuple[E.Expr, int]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    kept: list[E.Expr] = field(default_factory=list)  # their ids are keys

    def __call__(self, item: E.Expr) -> int:
        for part in post_order(item):
            if isinstance(part, E.Expr) and id(part) not in self.known:
                self.known[id(part)] = (part, self.table.setdefault(self._key(part), len(self.table)))
        return self.known[id(item)][1]

    def written(self, root: E.Expr) -> Counter[int]:
        """How often each number but a leaf's is written below `root`; what is shared counts for each reader."""
        self(root)
        order = [part for part in post_order(root) if isinstance(part, E.Expr)]
        ways = Counter({id(root): 1})
        counts: Counter[int] = Counter()
        for item in reversed(order):
            counts[self.known[id(item)][1]] += 0 if isinstance(item, _LEAVES) else ways[id(item)]
            for part in children(item):
                ways[id(part)] += ways[id(item)]
        return counts

    def size(self, root: E.Expr) -> int:
        """Nodes of an expression; what is shared counts for each reader."""
        for item in post_order(root):
            if id(item) not in self.sizes and isinstance(item, E.Expr):
                self.sizes[id(item)] = 1 + sum(self.sizes.get(id(part), 0) for part in children(item))
                self.kept.append(item)
        return self.sizes[id(root)]

    def _key(self, item: E.Expr) -> Hashable:
        if isinstance(item, E.Var | E.BufferLoad):
            return id(item)  # two loads may read different values
        if isinstance(item, E.IntImm | E.FloatImm | E.StringImm):
            return type(item), str(item.dtype), repr(item.value)
        inside = [self.known[id(c)][1] for c in children(item) if isinstance(c, E.Expr)]
        if self.ignores_order and isinstance(item, _COMMUTATIVE):
            inside.sort()
        name = item.name if isinstance(item, E.Call) else getattr(item, "lanes", "")
        return type(item), str(item.dtype), name, tuple(inside)


@dataclass
class _Sharing:
    number: _Numbering
    made: int = 0

    def scope(self, body: S.Stmt) -> S.Stmt:
        """`body` with its repeated expressions named in front of it, then the same for the scopes inside."""
        chosen = self._choose(body)
        if chosen:
            names = {number: self._fresh(expr) for number, expr in chosen}
            inner = map_all(body, lambda e: self._name(e, names, None))
            body = self._inside(inner)
            for number, expr in reversed(chosen):
                value = _rebuilt(expr, lambda e, n=number: self._name(e, names, n))
                body = S.LetStmt(names[number], value, body)
            return body
        return self._inside(body)

    def _inside(self, item: S.Stmt) -> S.Stmt:
        if isinstance(item, S.For | S.LetStmt):
            return replace(item, body=self.scope(item.body))
        return map_stmt(item, lambda e: e, self._inside)

    def _fresh(self, expr: E.Expr) -> E.Var:
        self.made += 1
        return E.Var(f"cse_v{self.made}", expr.dtype)

    def _name(self, item: E.Expr, names: dict[int, E.Var], own: int | None) -> E.Expr | None:
        if isinstance(item, _LEAVES):
            return None
        number = self.number(item)
        return names.get(number) if number != own else None

    def _choose(self, body: S.Stmt) -> list[tuple[int, E.Expr]]:
        """Expressions that occur at least twice and whose variables are known in front of `body`, smallest first."""
        bound = {n.var for n in post_order(body) if isinstance(n, S.For | S.LetStmt | E.Let)}
        counts: Counter[int] = Counter()
        shared: dict[int, E.Expr] = {}
        for root in _roots(body):
            counts.update(self.number.written(root))
            for part in _expressions(root):
                shared.setdefault(self.number(part), part)
        able = {n: e for n, e in shared.items() if counts[n] > 1 and _can_move(e, bound)}
        return self._largest_first(able, counts)

    def _largest_first(self, able: dict[int, E.Expr], counts: Counter[int]) -> list[tuple[int, E.Expr]]:
        """Take the large ones first: what occurs only inside them then occurs once."""
        sizes = {n: self.number.size(e) for n, e in able.items()}
        chosen: list[tuple[int, E.Expr]] = []
        for number in sorted(able, key=lambda n: -sizes[n]):
            if counts[number] < 2:
                continue
            chosen.append((number, able[number]))
            saved = counts[number] - 1
            for inner, times in self.number.written(able[number]).items():
                if inner != number:
                    counts[inner] -= saved * times
        return sorted(chosen, key=lambda row: sizes[row[0]])


def _rebuilt(item: E.Expr, rule: object) -> E.Expr:
    """An expression with smaller named ones replaced."""
    mapped = map_all(S.Evaluate(item), rule)  # type: ignore[arg-type]
    assert isinstance(mapped, S.Evaluate), "map_all keeps the kind of a statement"
    return mapped.value


def _roots(body: S.Stmt) -> Iterator[E.Expr]:
    """The expressions that statements evaluate."""
    roots: list[E.Expr] = []

    def visit(item: S.Stmt) -> S.Stmt:
        return map_stmt(item, lambda e: roots.append(e) or e, visit)  # type: ignore[func-returns-value]

    visit(body)
    return iter(roots)


def _expressions(root: E.Expr) -> Iterator[E.Expr]:
    """Every expression below `root` that is no leaf, once, from the outside and the right."""
    seen: set[int] = set()
    stack: list[E.Expr] = [root]
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, _LEAVES):
            continue
        seen.add(id(item))
        yield item
        stack.extend(c for c in children(item) if isinstance(c, E.Expr))


def _can_move(item: E.Expr, bound: set[E.Var]) -> bool:
    if item.dtype.lanes > 1 or item.dtype.code in ("handle", "string", "void") or not is_pure(item):
        return False
    if has_loads(item) or is_unsafe(item) or (isinstance(item, E.Call) and item.name == "likely"):
        return False
    return not any(isinstance(n, E.Let) or n in bound for n in post_order(item) if isinstance(n, E.Var | E.Let))


CommonSubexprElimTIR = prim_pass("common-subexpr-elim-tir", "tir.CommonSubexprElimTIR", 4)(common_subexpr_elim_tir)
