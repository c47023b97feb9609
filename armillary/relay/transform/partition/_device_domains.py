"""Which values of a module are on one device: domains, and what each kind of expression says of them.

In: a typed module. Out: `Domains`: for every expression a domain; domains that must be on one device are one. A value
has a domain of its own, a function one for each parameter and one for its result, so that what a caller or a callee
says of them reaches the other. Invariant: a domain is as far decided as the notes (`on_device`, `device_copy`) and
the devices written on parameters and functions say; two that contradict each other are an error that names the place.
Operators compute where their arguments and their result are. The next step, defaults and copies: `_place_values.py`.

The algorithm is unification (J. A. Robinson, "A machine-oriented logic based on the resolution principle", 1965) on
terms of depth two and more: variables are devices, the only function symbol is "function of".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.base.node import Visits
from armillary.errors import Span, TargetError
from armillary.ir import GlobalVar, IRModule
from armillary.relay.adt import (
    Clause,
    Constructor,
    Match,
    RefCreate,
    RefRead,
    RefWrite,
    pattern_vars,
)
from armillary.relay.expr import Call, Expr, Function, If, Let, Loop, Tuple, TupleGetItem, Var
from armillary.relay.op import Op, has, is_call
from armillary.relay.op.facts import Fact
from armillary.relay.transform.partition import COPY, ON_DEVICE
from armillary.relay.types import FuncType, Type
from armillary.relay.walk import children, not_primitive, post_order
from armillary.target.compilation_config import CompilationConfig
from armillary.target.virtual_device import VirtualDevice, completed, joined

OPEN = VirtualDevice()


class Domain:
    """Where a value is; of a function, where its parameters (`params`) and its result are."""

    __slots__ = ("device", "params", "result", "same_as")

    def __init__(
        self, device: VirtualDevice = OPEN, params: Sequence[Domain] = (), result: Domain | None = None
    ) -> None:
        self.device, self.params, self.result = device, tuple(params), result
        self.same_as: Domain | None = None  # the domain that this one has become

    def whole(self) -> Domain:
        """The domain that this one is part of now."""
        result = at = self
        while result.same_as is not None:
            result = result.same_as
        while at.same_as is not None:  # the way is short next time
            at.same_as, at = result, at.same_as
        return result

    def value(self) -> Domain:
        """The domain of the value that is left when a function has all its arguments, however often it is called."""
        result = self.whole()
        while result.result is not None:
            result = result.result.whole()
        return result


def domain_of(ty: Type, device: VirtualDevice = OPEN) -> Domain:
    """A domain for values of a type, the result of a function being on `device`."""
    if not isinstance(ty, FuncType):
        return Domain(device)
    return Domain(OPEN, [domain_of(arg) for arg in ty.arg_types], domain_of(ty.ret_type, device))


def leaves(domain: Domain) -> list[Domain]:
    """The domains of values inside."""
    domain = domain.whole()
    if domain.result is None:
        return [domain]
    return [leaf for part in (*domain.params, domain.result) for leaf in leaves(part)]


def unify(a: Domain, b: Domain) -> bool:
    """Make two domains one; False, and both as they were where they are of values, if they cannot be."""
    a, b = a.whole(), b.whole()
    if a is b:
        return True
    if (a.result is None) != (b.result is None):
        return _collapse(a, b) if a.result is None else _collapse(b, a)
    if a.result is not None and b.result is not None:
        if len(a.params) != len(b.params):
            return False
        a.same_as = b
        return all(unify(x, y) for x, y in zip((*a.params, a.result), (*b.params, b.result), strict=True))
    both = joined(a.device, b.device)
    if both is None:
        return False
    a.same_as, b.device = b, both
    return True


def _collapse(value: Domain, function: Domain) -> bool:
    """All that a function takes and gives is where a value is that holds it."""
    return all(unify(value, leaf) for leaf in leaves(function))


def _inward(root: Expr) -> list[Expr]:
    """Every expression once, readers before what they read first, from left to right."""
    seen: set[int] = set()
    order, stack = list[Expr](), [root]
    while stack:
        expr = stack.pop()
        if id(expr) not in seen:
            seen.add(id(expr))
            order.append(expr)
            stack += [*children(expr)][::-1] if not_primitive(expr) else []
    return order


class Domains:
    """The domains of a module's expressions."""

    def __init__(self, module: IRModule, config: CompilationConfig) -> None:
        self.module, self.config = module, config
        self.of: dict[int, Domain] = {}
        self.callees: dict[int, Domain] = {}
        self.retained: list[Expr] = []  # whose ids are above
        self.orders: dict[str, list[Expr]] = {}
        for name, function in module.items():
            if isinstance(function, Function) and not_primitive(function):
                self.orders[name] = post_order(function, not_primitive)
        self.inward = [expr for order in self.orders.values() for expr in _inward(order[-1])]
        for is_noted in (True, False):  # what notes say comes first: the rest takes copies where they differ
            for expr in self.inward:
                rule = _RULES.get(type(expr))
                if rule is not None and is_noted == is_call(expr, ON_DEVICE, COPY):
                    rule(self, expr)
        self._free_notes()

    def __call__(self, expr: Expr | GlobalVar) -> Domain:
        """The domain of an expression."""
        if isinstance(expr, GlobalVar):
            function = self.module[expr]
            if not isinstance(function, Function):
                raise TargetError(f"@{expr.name_hint} is a {type(function).__name__}, wanted a relay function")
            return self(function)
        result = self.of.get(id(expr))
        if result is None:
            result = self.of[id(expr)] = self._first(expr)
            self.retained.append(expr)
        return result

    def _first(self, expr: Expr) -> Domain:
        """The domain of an expression of which nothing is known but what is written on it."""
        if isinstance(expr, Function) and not not_primitive(expr):
            written = [self.written(e) for e in (*expr.params, expr)]
            if all(device.is_open for device in written):  # one kernel: all is on one device
                one = Domain()
                return Domain(OPEN, [one] * len(expr.params), one)
            return Domain(OPEN, [Domain(device) for device in written[:-1]], Domain(written[-1]))
        return domain_of(expr.checked_type, self.written(expr) if isinstance(expr, Var) else OPEN)

    def written(self, expr: Expr) -> VirtualDevice:
        """The device that is written on a parameter or a function."""
        return self.config.canonical(expr.virtual_device_)

    def device(self, expr: Expr | GlobalVar) -> VirtualDevice:
        """Where the value of an expression is; for a function, its result."""
        return self(expr).value().device

    def require(self, a: Domain, b: Domain, what: str, expr: Expr) -> None:
        """Unify, or an error about `expr`."""
        if unify(a, b):
            return
        span: Span | None = getattr(expr, "span", None)
        first, second = (" and ".join(sorted({str(leaf.device) for leaf in leaves(d)})) for d in (a, b))
        raise TargetError(
            f"{what} must be on one device: notes ask for {first} on one side, {second} on the other",
            span=span,
            hint="put annotation.on_device around the value that is to be copied",
        )

    def callee(self, call: Call) -> Domain:
        """The domain of what a call calls: of an operator, one that this call alone has."""
        result = self.callees.get(id(call))
        if result is None:
            result = self.callees[id(call)] = self._callee(call)
        return result

    def _callee(self, call: Call) -> Domain:
        if is_call(call, ON_DEVICE):
            ty, device = call.checked_type, self.config.canonical(call.attrs.virtual_device)
            inside = domain_of(ty, device if call.attrs.constrain_body else OPEN)
            return Domain(OPEN, [inside], domain_of(ty, device if call.attrs.constrain_result else OPEN))
        if is_call(call, COPY):
            source, target = call.attrs.src_virtual_device, call.attrs.dst_virtual_device
            ty = call.checked_type
            domains = [domain_of(ty, self.config.canonical(source))]
            return Domain(OPEN, domains, domain_of(ty, self.config.canonical(target)))
        if has(call, Fact.TYPE_ONLY):  # nothing is read of the data
            return Domain(OPEN, [domain_of(a.checked_type) for a in call.args], Domain(self.config.host_virtual_device))
        if isinstance(call.op, Op | Constructor):
            one = Domain()
            return Domain(OPEN, [one] * len(call.args), one)
        return self(call.op)

    def _free_notes(self) -> None:
        """A note that asks for nothing lets its value and its result be on one device where they can be."""
        for expr in self.inward:
            if is_call(expr, ON_DEVICE) and not expr.attrs.constrain_body and not expr.attrs.constrain_result:
                unify(self(expr.args[0]), self(expr))

    def decide(self) -> None:
        """Give every domain a device: results the default one, parameters that of the result, from the outside in."""
        default = self.config.default_primary_virtual_device
        for expr in self.inward:
            if isinstance(expr, Function):
                _decide_function(self(expr), default)
            elif isinstance(expr, Call):
                _decide_function(self.callee(expr), default)
            elif isinstance(expr, Let):
                _decide(self(expr.var), self.device(expr))
        for expr in self.inward:
            if not isinstance(expr, Op | Constructor | Clause):
                _decide(self(expr), default)


def _decide(domain: Domain, default: VirtualDevice) -> None:
    for leaf in leaves(domain):
        if not leaf.device.is_decided:
            leaf.device = completed(leaf.device, default)


def _decide_function(domain: Domain, default: VirtualDevice) -> None:
    domain = domain.whole()
    if domain.result is None:
        return _decide(domain, default)
    _decide(domain.result, default)
    for param in domain.params:
        _decide(param, domain.value().device)
    return None


# --- what each expression says --------------------------------------------------------------------------------------


def _of_call(domains: Domains, call: Call) -> None:
    """A note's value is where the note says; what others read is copied to them, where it cannot be there."""
    what = f"what {call.op.name} takes and gives" if isinstance(call.op, Op) else "a call and its function"
    callee = domains.callee(call).whole()
    is_note = is_call(call, ON_DEVICE, COPY)
    if callee.result is not None:
        domains.require(callee.result, domains(call), what, call)
    for param, arg in zip(callee.params, call.args, strict=True):
        is_value = param.whole().result is None and domains(arg).whole().result is None
        if is_note or not is_value:
            domains.require(param, domains(arg), what, call)
        else:
            unify(param, domains(arg))


def _of_function(domains: Domains, function: Function) -> None:
    if not not_primitive(function):
        return
    own = domains(function).whole()
    result = own.result if own.result is not None else own
    domains.require(domains(function.body), result, "a function's body and its result", function)
    written = domain_of(function.body.checked_type, domains.written(function))
    domains.require(result, written, "the result of a function, and what is written on it,", function)
    for param, domain in zip(function.params, own.params, strict=True):
        domains.require(domains(param), domain, f"parameter %{param.name_hint}", param)


def _of_let(domains: Domains, let: Let) -> None:
    domains.require(domains(let.var), domains(let.value), f"%{let.var.name_hint} and its value", let)
    domains.require(domains(let), domains(let.body), "a let and what it ends with", let)


def _of_if(domains: Domains, branch: If) -> None:
    for side in (branch.true_branch, branch.false_branch):
        domains.require(domains(branch), domains(side), "the branches of a condition", branch)
    domains.require(domains(branch.cond), domains(branch), "a condition and what it chooses", branch)


def _together(what: str, parts: Callable[..., Sequence[Expr]]) -> Callable[[Domains, Expr], None]:
    """Of expressions that are where their parts are."""

    def rule(domains: Domains, expr: Expr) -> None:
        for part in parts(expr):
            domains.require(domains(expr), domains(part), what, expr)

    return rule


def _of_match(domains: Domains, match: Match) -> None:
    domains.require(domains(match.data), domains(match), "a match and its data", match)
    for clause in match.clauses:
        for var in pattern_vars(clause.lhs):
            domains.require(domains(match.data), domains(var), f"%{var.name_hint} and the data of its match", match)
        domains.require(domains(match), domains(clause.rhs), "the clauses of a match", match)


_RULES: Visits[Domains, [], None] = {
    Call: _of_call,
    Function: _of_function,
    Let: _of_let,
    If: _of_if,
    Match: _of_match,
    Tuple: _together("a tuple and its fields", lambda e: e.fields),
    TupleGetItem: _together("a tuple and its fields", lambda e: (e.tuple_value,)),
    Loop: _together("a loop and its values", lambda e: (e.body, e.limit, e.going, *e.args)),
    RefCreate: _together("a cell and its value", lambda e: (e.value,)),
    RefRead: _together("a cell and its value", lambda e: (e.ref,)),
    RefWrite: _together("a cell and its value", lambda e: (e.ref, e.value)),
}
