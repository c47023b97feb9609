"""plan-devices: decide on which device each call runs, and copy what crosses from one to another.

In: a module with `annotation.on_device` notes. Out: one without them, with a `device_copy` wherever a value is computed
on one device and read on another. A call without a note runs where its neighbours run: those it reads and those that
read it, as far as no note says otherwise; what nothing decides runs on the fallback device (`default_device`, else the
configuration `relay.fallback_device_type`, else the target's, else the CPU). Parameters and the result are on the
fallback device. Invariant: with one device the result has neither notes nor copies. With a target, a note that asks for
a device the target is not is an error.

    def @main(%x: Tensor[(2,), float32]) {
      %0 = nn.relu(%x);
      %1 = annotation.on_device(%0, device_type=4);
      negative(%1)
    }
    ->
    def @main(%x: Tensor[(2,), float32]) {
      %0 = device_copy(%x, src_dev_type=1, dst_dev_type=4);
      %1 = nn.relu(%0);
      %2 = device_copy(%1, src_dev_type=4, dst_dev_type=1);
      negative(%2)
    }
"""

from __future__ import annotations

from typing import Any

from armillary.base.lazy import deferred
from armillary.errors import TargetError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.op import Op
from armillary.relay.transform._rules import call, on_functions, op_name
from armillary.relay.transform.partition import COPY, ON_DEVICE
from armillary.relay.walk import map_children, not_primitive, post_order
from armillary.target import as_target
from armillary.transform import PassContext, define_pass, register_config_option

with deferred():
    from armillary.relay.transform.partition._place_values import place_values as _place_values

FALLBACK = register_config_option(
    "relay.fallback_device_type", int, 1, "DLPack's number of the device for what no annotation decides"
)


@define_pass(
    "plan-devices",
    aliases=("PlanDevicesRewrite", "DeviceAnnotation", "RewriteDeviceAnnotation", "RunDeviceAnnotationPass"),
)
def plan_devices(module: IRModule, *, default_device: Any = None, target: Any = None) -> IRModule:
    """Replace notes by copies; `default_device` is a number or a Device.

    Given a `target.CompilationConfig` every value of the module has a device afterwards, and says so: _place_values.py.
    """
    if hasattr(default_device, "default_primary_virtual_device"):
        placed: IRModule = _place_values(module, default_device)
        return placed
    context = PassContext.current()
    only = as_target(target).kind.device_type if target is not None else None
    chosen = default_device if default_device is not None else only
    if chosen is None or FALLBACK.name in context.config:
        chosen = context.get(FALLBACK)
    fallback = int(getattr(chosen, "device_type", chosen))
    return on_functions(module, lambda function: _planned(function, fallback, only))


def _planned(function: Function, fallback: int, only: int | None) -> Expr | None:
    order = post_order(function, not_primitive)
    notes = [e for e in order if isinstance(e, Call) and op_name(e) in (ON_DEVICE, COPY)]
    if not notes:
        return None
    if only is not None:
        _check_one_device(notes, only)
    return _Rewriter(Domains(order, function, fallback), function, fallback).run(order)


def _check_one_device(notes: list[Call], only: int) -> None:
    for note in notes:
        asked = set(devices_of(note))
        if asked - {only}:
            raise TargetError(
                f"{op_name(note)} asks for device type {min(asked - {only})}, the target has device type {only}",
                span=note.span,
                hint="give a target for each device, as in {'cpu': 'llvm', 'opencl': 'opencl'}",
            )


def devices_of(note: Call) -> tuple[int, ...]:
    """The device types a note names."""
    if op_name(note) == COPY:
        return note.attrs.src_dev_type, note.attrs.dst_dev_type
    return (note.attrs.device_type,)


class Domains:
    """Sets of expressions on one device (union-find); a set without a device takes that of the set it joins."""

    def __init__(self, order: list[Expr], function: Function, fallback: int) -> None:
        self.parent: dict[int, int] = {}
        self.device: dict[int, int] = {}
        self.fallback = fallback
        for param in function.params:
            self._fix(param, fallback)
        calls = [e for e in order if isinstance(e, Call | Tuple | TupleGetItem)]
        for expr in calls:
            self._note(expr)
        for expr in reversed(calls):  # readers first: a producer goes where its value is wanted
            self._join_neighbours(expr)

    def __call__(self, expr: Expr) -> int:
        """The device of an expression."""
        return self.device.get(self._find(id(expr)), self.fallback)

    def _find(self, key: int) -> int:
        while (up := self.parent.get(key, key)) != key:
            self.parent[key] = self.parent.get(up, up)
            key = up
        return key

    def _fix(self, expr: Expr, device: int) -> None:
        self.device.setdefault(self._find(id(expr)), device)

    def _note(self, expr: Expr) -> None:
        if op_name(expr) == COPY and isinstance(expr, Call):
            self._fix(expr.args[0], expr.attrs.src_dev_type)
            self._fix(expr, expr.attrs.dst_dev_type)
        elif op_name(expr) == ON_DEVICE and isinstance(expr, Call):
            if expr.attrs.constrain_body:
                self._fix(expr.args[0], expr.attrs.device_type)
            if expr.attrs.constrain_result:
                self._fix(expr, expr.attrs.device_type)

    def _join_neighbours(self, expr: Expr) -> None:
        if op_name(expr) in (ON_DEVICE, COPY):
            return
        for arg in _inputs(expr):
            a, b = self._find(id(arg)), self._find(id(expr))
            have, want = self.device.get(a), self.device.get(b)
            if a == b or (have is not None and want is not None and have != want):
                continue
            self.parent[a] = b
            if want is None and have is not None:
                self.device[b] = have


def _inputs(expr: Expr) -> tuple[Expr, ...]:
    """What a call reads; a constant is wherever it is needed."""
    parts = expr.args if isinstance(expr, Call) else expr.fields if isinstance(expr, Tuple) else ()
    parts = (expr.tuple_value,) if isinstance(expr, TupleGetItem) else parts
    return tuple(p for p in parts if not isinstance(p, Constant))


class _Rewriter:
    """Rebuilds the function; one copy per value and destination."""

    def __init__(self, domains: Domains, function: Function, fallback: int) -> None:
        self.domains, self.function, self.fallback = domains, function, fallback
        self.memo: dict[int, Expr] = {}
        self.place: dict[int, int] = {}  # where the rebuilt form of a node lies
        self.copies: dict[tuple[int, int], Expr] = {}

    def run(self, order: list[Expr]) -> Expr:
        for expr in order:
            placed = self._visit(expr)
            self.memo[id(expr)] = placed
        function = self.function
        body = self._on(function.body, self.fallback)
        return Function(function.params, body, function.ret_type, function.attrs, function.span)

    def _visit(self, expr: Expr) -> Expr:
        if expr is self.function or isinstance(expr, Var | Constant):
            return expr
        if isinstance(expr, Call) and op_name(expr) == ON_DEVICE:
            return self._take(expr, self._at(expr.args[0]))
        if isinstance(expr, Call) and op_name(expr) == COPY:
            if expr.attrs.src_dev_type == expr.attrs.dst_dev_type:
                return self._take(expr, self._at(expr.args[0]))
            self.place[id(expr)] = expr.attrs.dst_dev_type
            return map_children(expr, lambda e: self._on(e, expr.attrs.src_dev_type))
        here = self.place[id(expr)] = self.domains(expr)
        is_plain = isinstance(expr, Tuple | TupleGetItem) or (isinstance(expr, Call) and isinstance(expr.op, Op))
        return map_children(expr, lambda e: self._on(e, here) if is_plain else self.memo.get(id(e), e))

    def _take(self, note: Call, at: int) -> Expr:
        """The value of a note, which lies where its body does."""
        self.place[id(note)] = at
        return self.memo.get(id(note.args[0]), note.args[0])

    def _at(self, expr: Expr) -> int:
        return self.place.get(id(expr), self.domains(expr))

    def _on(self, expr: Expr, device: int) -> Expr:
        """The value of an old node on `device`."""
        result, at = self.memo.get(id(expr), expr), self._at(expr)
        if at == device or isinstance(expr, Constant) or isinstance(result, Function):
            return result
        key = (id(result), device)
        if key not in self.copies:
            self.copies[key] = call(COPY, result, src_dev_type=at, dst_dev_type=device)
        return self.copies[key]
