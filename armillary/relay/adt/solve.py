"""Type inference by unification, for programs whose types are not found from the leaves up.

In: an expression or function and its module. Out: the type, and each node's own in its hidden slot. Used where
relay/infer.py meets what it cannot type: parameters without types, recursion without a declared result, polymorphic
functions, data types, matches, references, global functions as values. Each node gets a type with holes; what nodes
say of one another fills them; calls of operators wait until their arguments are known. Invariant: nothing is guessed: a
hole that stays is an error that names the variable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.base.dtype import DType
from armillary.errors import Span, TypeMismatch
from armillary.ir import GlobalVar, IRModule
from armillary.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    RefCreate,
    RefRead,
    RefWrite,
)
from armillary.relay.adt.types import GlobalTypeVar, RefType, TypeCall, TypeData, replaced, with_parts
from armillary.relay.adt.types import parts as parts_of
from armillary.relay.expr import Call, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from armillary.relay.infer import infer_type, is_compatible
from armillary.relay.op import Op
from armillary.relay.op.facts import Fact
from armillary.relay.types import FuncType, IncompleteType, TensorType, TupleType, Type
from armillary.relay.walk import post_order

_UNIT = TupleType(())
_FLAG = TensorType((), DType("bool"))


class Hole(Type):
    """A type that is not known yet; `found` is what it turned out to be."""

    __slots__ = ("resolution",)

    def __init__(self) -> None:
        self.resolution: Type | None = None

    def __str__(self) -> str:
        return "_" if self.resolution is None else str(self.resolution)


def solve(root: Expr, module: IRModule | None) -> Type:
    """The type of an expression or a function of the module."""
    solver = Solver(module)
    solver.add(root)
    solver.finish()
    result = solver.whole(solver.type_of(root))
    if result is None:
        solver.refuse_untyped()
        raise TypeMismatch(f"the type {solver.shown(solver.type_of(root))} is not determined", span=solver.span(root))
    return result


class Solver:
    """Types with holes of all nodes, and what has to wait for a hole."""

    def __init__(self, module: IRModule | None) -> None:
        self.module = module
        self.types: dict[int, Type] = {}
        self.retained: list[Expr] = []  # nodes whose ids are above
        self.waiting: list[Callable[[], bool]] = []  # each says whether it is done
        self.untyped: list[Var] = []
        self.globals: dict[str, Type] = {}

    # --- nodes --------------------------------------------------------------------------------------------------------

    def add(self, root: Expr) -> None:
        """What the nodes below `root` say."""
        order = post_order(root)
        bound = {id(e.var): e.value for e in order if isinstance(e, Let)}
        for expr in order:
            self.retained.append(expr)
            if hasattr(expr, "_type"):
                self.unify(self.type_of(expr), expr.checked_type, expr)
                continue
            if isinstance(expr, Var) and id(bound.get(id(expr))) in self.types:
                self.unify(self.type_of(expr), self.types[id(bound[id(expr)])], expr)
            rule = _RULES.get(type(expr))
            if rule is not None:
                rule(self, expr)
            else:
                self.unify(self.type_of(expr), infer_type(expr, self.module), expr)

    def type_of(self, expr: Expr | GlobalVar) -> Type:
        """The type of a node, a hole at first."""
        if isinstance(expr, GlobalVar):
            return self.global_type(expr)
        return self.types.setdefault(id(expr), Hole())

    def global_type(self, name: GlobalVar) -> Type:
        """The type of a function of the module; one without a written type is inferred along."""
        known = self.globals.get(name.name_hint)
        if known is not None:
            return known
        if self.module is None:
            raise TypeMismatch(f"@{name.name_hint}: a call of a global function has a type only within its module")
        function = self.module[name]
        if not isinstance(function, Function):
            raise TypeMismatch(f"@{name.name_hint} is not a relay function but a {type(function).__name__}")
        written = [p.type_annotation for p in function.params]
        if function.ret_type is not None and all(t is not None for t in written):
            ty: Type = FuncType(tuple(t for t in written if t), function.ret_type, function.type_params)
            self.globals[name.name_hint] = ty
            return ty
        self.globals[name.name_hint] = self.type_of(function)
        if not any(e is function for e in self.retained):
            self.add(function)
        return self.globals[name.name_hint]

    def definition(self, name: GlobalTypeVar) -> TypeData:
        """What the module says of a type."""
        result = self.module.type_definitions.get(name) if self.module is not None else None
        if not isinstance(result, TypeData):
            raise TypeMismatch(f"the module does not define the type {name}", hint="mod[GlobalTypeVar] = TypeData(…)")
        return result

    def constructor_type(self, form: Constructor) -> FuncType:
        """The type of a constructor as a function."""
        variables = self.definition(form.belong_to).type_vars
        return FuncType(form.inputs, TypeCall(form.belong_to, variables), variables)

    # --- unification --------------------------------------------------------------------------------------------------

    def resolved(self, ty: Type) -> Type:
        """What a hole turned out to be; the type itself, if it is none."""
        while isinstance(ty, Hole) and ty.resolution is not None:
            ty = ty.resolution
        return TypeCall(ty) if isinstance(ty, GlobalTypeVar) else ty

    def instance(self, ty: Type) -> Type:
        """A polymorphic function's type, with holes for its type variables."""
        ty = self.resolved(ty)
        if not isinstance(ty, FuncType) or not ty.type_params:
            return ty
        holes: dict[Type, Type] = {v: Hole() for v in ty.type_params}
        return FuncType(tuple(replaced(t, holes) for t in ty.arg_types), replaced(ty.ret_type, holes))

    def unify(self, one: Type, other: Type, at: Expr) -> None:
        """Make two types the same, or refuse."""
        a, b = self.resolved(one), self.resolved(other)
        if a is b:
            return
        for hole, ty in ((a, b), (b, a)):
            if isinstance(hole, Hole):
                self._fill(hole, ty, at)
                return
            if isinstance(hole, IncompleteType):
                return
        if isinstance(a, FuncType) and isinstance(b, FuncType) and a.type_params != b.type_params:
            a, b = self.instance(a), self.instance(b)
        inside, within = parts_of(a), parts_of(b)
        if not inside and not within:
            if not is_compatible(a, b):
                raise self.mismatch(a, b, at)
            return
        named = getattr(a, "func", None) != getattr(b, "func", None)  # lists and trees
        if type(a) is not type(b) or len(inside) != len(within) or named:
            raise self.mismatch(a, b, at)
        for x, y in zip(inside, within, strict=True):
            self.unify(x, y, at)

    def _fill(self, hole: Hole, ty: Type, at: Expr) -> None:
        stack = [ty]
        while stack:
            part = self.resolved(stack.pop())
            if part is hole:
                raise TypeMismatch(f"a type would hold itself: {self.shown(ty)}", span=self.span(at))
            stack += parts_of(part)
        hole.resolution = ty

    def mismatch(self, a: Type, b: Type, at: Expr) -> TypeMismatch:
        """The error of two types that differ."""
        what = type(at).__name__.lower()
        return TypeMismatch(f"{what}: the types {self.shown(a)} and {self.shown(b)} differ", span=self.span(at))

    def whole(self, ty: Type) -> Type | None:
        """The type without holes; None where one is left."""
        ty = self.resolved(ty)
        if isinstance(ty, Hole):
            return None
        resolution = [self.whole(t) for t in parts_of(ty)]
        known = [t for t in resolution if t is not None]
        if len(known) != len(resolution):
            return None
        return with_parts(ty, known) if known else ty

    def shown(self, ty: Type) -> str:
        """A type as text, holes as `_`."""
        return str(self.resolved(ty))

    @staticmethod
    def span(expr: Expr) -> Span | None:
        """Where a node was read."""
        return getattr(expr, "span", None)

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Fill holes as long as that goes on, then keep each node's type."""
        while self.waiting:
            left = [wait for wait in self.waiting if not wait()]
            if len(left) == len(self.waiting):
                break
            self.waiting = left
        if self.waiting:
            self.refuse_untyped()
            raise TypeMismatch("the types of a call's arguments are not determined")
        for expr in self.retained:
            resolution = self.whole(self.types[id(expr)]) if id(expr) in self.types else None
            if resolution is not None and not isinstance(expr, GlobalVar):
                object.__setattr__(expr, "_type", resolution)

    def refuse_untyped(self) -> None:
        """Refuse the first variable whose type nothing says, if there is one."""
        for var in self.untyped:
            if self.whole(self.type_of(var)) is None:
                hint = "give it one: relay.var(name, shape=…, dtype=…)"
                raise TypeMismatch(f"variable %{var.name_hint} has no type", span=var.span, hint=hint)


# --- one rule each ----------------------------------------------------------------------------------------------------


def _var(solver: Solver, e: Var) -> None:
    if e.type_annotation is None or isinstance(e.type_annotation, IncompleteType):
        solver.untyped.append(e)
    else:
        solver.unify(solver.type_of(e), e.type_annotation, e)


def _tuple(solver: Solver, e: Tuple) -> None:
    solver.unify(solver.type_of(e), TupleType(tuple(map(solver.type_of, e.fields))), e)


def _item(solver: Solver, e: TupleGetItem) -> None:
    def wait() -> bool:
        ty = solver.resolved(solver.type_of(e.tuple_value))
        if isinstance(ty, Hole):
            return False
        if not isinstance(ty, TupleType) or not 0 <= e.index < len(ty.fields):
            raise TypeMismatch(f"field {e.index} of {solver.shown(ty)}", span=e.span)
        solver.unify(solver.type_of(e), ty.fields[e.index], e)
        return True

    if not wait():
        solver.waiting.append(wait)


def _let(solver: Solver, e: Let) -> None:
    solver.unify(solver.type_of(e.var), solver.type_of(e.value), e.var)
    solver.unify(solver.type_of(e), solver.type_of(e.body), e)


def _if(solver: Solver, e: If) -> None:
    solver.unify(solver.type_of(e.cond), _FLAG, e)
    for branch in (e.true_branch, e.false_branch):
        solver.unify(solver.type_of(e), solver.type_of(branch), e)


def _function(solver: Solver, e: Function) -> None:
    if e.ret_type is not None and not isinstance(e.ret_type, IncompleteType):
        solver.unify(solver.type_of(e.body), e.ret_type, e)
    result = e.ret_type if e.ret_type is not None else solver.type_of(e.body)
    params = tuple(map(solver.type_of, e.params))
    solver.unify(solver.type_of(e), FuncType(params, result, e.type_params), e)


def _call(solver: Solver, e: Call) -> None:
    if isinstance(e.op, Op):
        op = e.op
        if Fact.ANY_VALUE in op.facts:
            solver.unify(solver.type_of(e), solver.type_of(e.args[0]), e)
        wait = _waiting_call(solver, e, op)
        if not wait():
            solver.waiting.append(wait)
        return
    callee = solver.constructor_type(e.op) if isinstance(e.op, Constructor) else solver.type_of(e.op)
    callee = solver.instance(callee)
    if isinstance(callee, FuncType) and len(callee.arg_types) != len(e.args):
        raise TypeMismatch(f"call: got {len(e.args)} arguments, wanted {len(callee.arg_types)}", span=e.span)
    solver.unify(callee, FuncType(tuple(map(solver.type_of, e.args)), solver.type_of(e)), e)


def _waiting_call(solver: Solver, e: Call, op: Op) -> Callable[[], bool]:
    def wait() -> bool:
        types = [solver.whole(solver.type_of(a)) for a in e.args]
        if op.complete_rule is not None and None in types:
            untyped = [isinstance(a, Var) for a, t in zip(e.args, types, strict=True) if t is None]
            for arg, ty in zip(e.args, op.complete_rule(e.attrs, *types) if all(untyped) else (), strict=False):
                if ty is not None:
                    solver.unify(solver.type_of(arg), ty, arg)
            types = [solver.whole(solver.type_of(a)) for a in e.args]
        known = [t for t in types if t is not None]
        if len(known) != len(types):
            return False
        solver.unify(solver.type_of(e), op.infer_type(e.attrs, known), e)
        return True

    return wait


def _constructor(solver: Solver, e: Constructor) -> None:
    ty = solver.constructor_type(e)
    if id(e) not in solver.types:
        solver.unify(solver.type_of(e), ty, e)


def _global(solver: Solver, e: GlobalVar) -> None:
    solver.type_of(e)


def _match(solver: Solver, e: Match) -> None:
    for clause in e.clauses:
        _pattern(solver, clause.lhs, solver.type_of(e.data), e)
        solver.unify(solver.type_of(e), solver.type_of(clause.rhs), e)


def _pattern(solver: Solver, pattern: Pattern, ty: Type, at: Expr) -> None:
    """A value of that type is taken apart by a pattern."""
    if isinstance(pattern, PatternVar):
        solver.unify(solver.type_of(pattern.var), ty, at)
    elif isinstance(pattern, PatternTuple):
        holes = tuple(Hole() for _ in pattern.patterns)
        solver.unify(ty, TupleType(holes), at)
        _patterns(solver, pattern.patterns, holes, at)
    elif isinstance(pattern, PatternConstructor):
        form = solver.instance(solver.constructor_type(pattern.constructor))
        assert isinstance(form, FuncType), "a constructor is a function"
        label = pattern.constructor.label
        if len(pattern.patterns) != len(form.arg_types):
            message = f"the pattern {label} has {len(pattern.patterns)} fields, its constructor {len(form.arg_types)}"
            raise TypeMismatch(message, span=solver.span(at))
        solver.unify(ty, form.ret_type, at)
        _patterns(solver, pattern.patterns, form.arg_types, at)


def _patterns(solver: Solver, inner: Sequence[Pattern], types: Sequence[Type], at: Expr) -> None:
    for pattern, ty in zip(inner, types, strict=True):
        _pattern(solver, pattern, ty, at)


def _clause(solver: Solver, e: Clause) -> None:
    solver.unify(solver.type_of(e), solver.type_of(e.rhs), e)


def _create(solver: Solver, e: RefCreate) -> None:
    solver.unify(solver.type_of(e), RefType(solver.type_of(e.value)), e)


def _read(solver: Solver, e: RefRead) -> None:
    solver.unify(solver.type_of(e.ref), RefType(solver.type_of(e)), e)


def _write(solver: Solver, e: RefWrite) -> None:
    solver.unify(solver.type_of(e.ref), RefType(solver.type_of(e.value)), e)
    solver.unify(solver.type_of(e), _UNIT, e)


_RULES: dict[type, Callable[..., None]] = {
    Var: _var,
    Tuple: _tuple,
    TupleGetItem: _item,
    Let: _let,
    If: _if,
    Function: _function,
    Call: _call,
    Constructor: _constructor,
    GlobalVar: _global,
    Match: _match,
    Clause: _clause,
    RefCreate: _create,
    RefRead: _read,
    RefWrite: _write,
}
