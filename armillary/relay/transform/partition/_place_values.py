"""Programs whose values all have a device: notes where a reader must know it, copies where a value changes it.

In: a typed module and a configuration. Out: the module, each function of which says where its parameters and its result
are (`virtual_device_`); a value that a call reads from another device is copied to it (`device_copy`); a value that is
not on the device of what encloses it, or is bound by a let, stands in `on_device(…, constrain_result=True)`. Notes that
say nothing more are gone. Invariant: doing it again changes nothing. Which values are on one device:
`_device_domains.py`. Also `devices_of_values`: what such a program says of each expression.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.errors import InternalError, TargetError
from armillary.ir import BaseFunc, IRModule
from armillary.relay.adt import Clause, Constructor
from armillary.relay.expr import Call, Constant, Expr, Function, Let, TupleGetItem, Var, keep_device, on_virtual_device
from armillary.relay.infer import infer_type
from armillary.relay.op import Op, get_op, is_call
from armillary.relay.transform.partition import COPY, ON_DEVICE
from armillary.relay.transform.partition._device_domains import Domains
from armillary.relay.walk import children, copy_type, map_children, not_primitive, post_order, rewrite
from armillary.target.compilation_config import CompilationConfig
from armillary.target.virtual_device import VirtualDevice


def place_values(module: IRModule, config: CompilationConfig) -> IRModule:
    """The module with a device for every value."""
    moved = _typed(module.map_functions(_with_notes_moved))
    domains = Domains(moved, config)
    domains.decide()
    placed = {name: _Placer(domains).run(order) for name, order in domains.orders.items()}
    return moved.map_functions(lambda name, _: placed.get(name))


def _typed(module: IRModule) -> IRModule:
    for _, function in module.items():
        if isinstance(function, Function):
            infer_type(function, module)
    return module


def _with_notes_moved(_: str, function: BaseFunc) -> BaseFunc | None:
    result = rewrite(function, _notes_moved, not_primitive) if isinstance(function, Function) else None
    return result if isinstance(result, Function) else None


def _is_normal(expr: Expr) -> bool:
    """Whether a note says where a value is computed, and nothing of where it is wanted."""
    return is_call(expr, ON_DEVICE) and expr.attrs.constrain_body and not expr.attrs.constrain_result


def _noted(value: Expr, device: VirtualDevice) -> Call:
    """A value that is computed and wanted on a device."""
    return get_op(ON_DEVICE)(value, device_type=device, constrain_result=True)


def _notes_moved(expr: Expr) -> Expr | None:
    """Of a tuple that has a note the field has it; what a let binds, or a function gives, is where the note says.

    on_device(t).0  ->  on_device(t.0)
    """
    if isinstance(expr, TupleGetItem) and _is_normal(expr.tuple_value):
        note = expr.tuple_value
        assert isinstance(note, Call), "a note is a call"
        return Call(note.op, (TupleGetItem(note.args[0], expr.index, expr.span),), note.attrs, note.span)
    if isinstance(expr, Let) and _is_normal(expr.value):
        return Let(expr.var, _fixed(expr.value), expr.body, expr.span)
    if isinstance(expr, Function) and _is_normal(expr.body):
        stripped = Function(expr.params, _fixed(expr.body), expr.ret_type, expr.attrs, expr.span, expr.type_params)
        return keep_device(stripped, expr)
    return None


def _fixed(note: Expr) -> Call:
    assert isinstance(note, Call), "a note is a call"
    return _noted(note.args[0], note.attrs.virtual_device)


class _Placer:
    """Rebuilds one function from its leaves on."""

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.memo: dict[int, Expr] = {}

    def run(self, order: Sequence[Expr]) -> Function:
        params = {id(p) for e in order if isinstance(e, Function) and not_primitive(e) for p in e.params}
        for expr in order:
            if isinstance(expr, Var) and id(expr) in params:
                placed: Expr = self._param(expr)
            else:
                placed = self._visit(expr)
            self.memo[id(expr)] = placed
        whole = self.memo[id(order[-1])]
        if not isinstance(whole, Function):
            raise InternalError("placing values turned a function into something else")
        return whole

    def _param(self, var: Var) -> Expr:
        param = Var(var.name_hint, var.type_annotation, var.span)
        return copy_type(on_virtual_device(param, self.domains.device(var)), var)

    def _visit(self, expr: Expr) -> Expr:
        if isinstance(expr, Var | Constant | Op | Constructor) or not not_primitive(expr):
            return expr
        if isinstance(expr, Clause):
            return map_children(expr, lambda e: self.memo.get(id(e), e))
        if isinstance(expr, Function):
            return self._function(expr)
        here = self.domains.device(expr)
        if isinstance(expr, Call):
            return self._call(expr, here)
        if isinstance(expr, Let):
            return self._let(expr, here)
        return map_children(expr, lambda e: self._child(e, here, here) if not isinstance(e, Clause) else self._new(e))

    def _new(self, expr: Expr) -> Expr:
        return self.memo.get(id(expr), expr)

    def _function(self, function: Function) -> Expr:
        here = self.domains.device(function)
        params = tuple(p for p in map(self._new, function.params) if isinstance(p, Var))
        body = self._child(function.body, here, here)
        rebuilt = Function(params, body, function.ret_type, function.attrs, function.span, function.type_params)
        return on_virtual_device(rebuilt, here)

    def _call(self, call: Call, here: VirtualDevice) -> Expr:
        if is_call(call, ON_DEVICE):
            return self._child(call.args[0], here, here)
        wanted = [param.value().device for param in self.domains.callee(call).whole().params]
        if is_call(call, COPY):
            if wanted[0] == here:
                return self._new(call.args[0])
            return _copied(self._child(call.args[0], here, wanted[0]), wanted[0], here)
        args = tuple(self._child(a, here, at) for a, at in zip(call.args, wanted, strict=True))
        op = self._new(call.op) if isinstance(call.op, Expr) and not isinstance(call.op, Op) else call.op
        return Call(op, args, call.attrs, call.span)

    def _let(self, let: Let, here: VirtualDevice) -> Expr:
        at = self.domains.device(let.var)
        value = _at(self._child(let.value, here, at), at)
        return Let(let.var, value, self._child(let.body, here, here), let.span)

    def _child(self, child: Expr, here: VirtualDevice, wanted: VirtualDevice) -> Expr:
        """The new form of what stands inside an expression on `here`, which wants it on `wanted`."""
        result = self._new(child)
        if isinstance(child, Op | Constructor):
            return result
        at = self.domains.device(child)
        if at != wanted:
            result = _copied(_at(result, at), at, wanted)
        return result if wanted == here else _at(result, wanted)


def _at(expr: Expr, device: VirtualDevice) -> Expr:
    """The expression with a note of its device, unless it says that itself."""
    if isinstance(expr, Var | Op | Constructor | Function) or not isinstance(expr, Expr) or is_call(expr, ON_DEVICE):
        return expr
    return _noted(expr, device)


def _copied(value: Expr, source: VirtualDevice, target: VirtualDevice) -> Call:
    return get_op(COPY)(value, src_dev_type=source, dst_dev_type=target)


def devices_of_values(expr: Expr) -> dict[Expr, VirtualDevice]:
    """The device of every expression below `expr` in a module that `place_values` made.

    A value is on the device of what encloses it, unless it is a variable, stands in a note or is copied.
    """
    result: dict[Expr, VirtualDevice] = {}
    bound = {id(e.var): e.value for e in post_order(expr) if isinstance(e, Let)}
    stack = [(expr, expr.virtual_device_)]
    while stack:
        at, here = stack.pop()
        here = _own_device(at, here, bound)
        if at in result or isinstance(at, Op | Constructor | Clause):
            continue
        result[at] = here
        if not not_primitive(at):
            continue
        inner = here
        if is_call(at, COPY):
            inner = at.attrs.src_virtual_device
        stack += [(child, inner) for child in children(at)]
    if any(device.is_open for device in result.values()):
        raise TargetError("not every value has a device", hint="run relay.transform.PlanDevices(config) first")
    return result


def _own_device(expr: Expr, here: VirtualDevice, bound: dict[int, Expr]) -> VirtualDevice:
    """The device that an expression tells of itself, else that of what encloses it."""
    if is_call(expr, ON_DEVICE):
        device: VirtualDevice = expr.attrs.virtual_device
        return device
    if is_call(expr, COPY):
        target: VirtualDevice = expr.attrs.dst_virtual_device
        return target
    value = bound.get(id(expr))
    if value is not None and (is_call(value, ON_DEVICE) or isinstance(value, Function)):
        return value.attrs.virtual_device if isinstance(value, Call) else value.virtual_device_
    written = expr.virtual_device_
    return here if written.is_open else written
