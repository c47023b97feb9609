"""Several devices in one graph: a target for each, passes for each device's parts, kernels that know where they run.

In: {device: target} or a list of targets; a module with notes of devices. Out: `DeviceTargets`; a module whose kernels
of other devices than the main one carry the attribute `device_type`, with `device_copy` where a value goes from one to
another. Invariant: parameters and results are on the main device: `relay.fallback_device_type`, else the CPU where it
has a target, else the first. What no note places runs there. Which call runs where: relay/transform/partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from armillary.backends.base import backend_of
from armillary.backends.placement import DEVICE, HOSTED, DeviceTargets
from armillary.errors import TargetError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, Tuple, TupleGetItem
from armillary.relay.infer import infer_type
from armillary.relay.op import get_op, is_call, is_primitive
from armillary.relay.transform.normal_form.beta_reduce import beta_reduce
from armillary.relay.transform.normal_form.infer_type import infer_type as typed
from armillary.relay.transform.normal_form.remove_unused_functions import remove_unused_functions
from armillary.relay.transform.normal_form.to_graph_normal_form import to_graph_normal_form
from armillary.relay.transform.partition import COPY
from armillary.relay.transform.partition.plan_devices import FALLBACK
from armillary.relay.transform.partition.split_devices import PREFIX, split_devices
from armillary.relay.transform.pipeline import optimize
from armillary.relay.types import TupleType, Type
from armillary.relay.walk import map_children, not_primitive, post_order, rewrite, substitute
from armillary.target import Target, as_target
from armillary.transform import PassContext, Sequential

CPU = 1
_TYPES = {"cpu": 1, "llvm": 1, "c": 1, "cl": 4, "opencl": 4, "gpu": 4, "ext_dev": 12}


def device_targets(by_device: Mapping[object, object] | Iterable[object], host: object = None) -> DeviceTargets:
    """Of a mapping from devices (numbers, names, Devices) to whatever Target accepts, or of targets alone."""
    pairs = (
        by_device.items() if isinstance(by_device, Mapping) else [(as_target(t).kind.device_type, t) for t in by_device]
    )
    targets: dict[int, Target] = {}
    for key, value in pairs:
        device, target = _device_type(key), as_target(value)
        if device != target.kind.device_type:
            message = f"the target {target} is for device type {target.kind.device_type}, given for device {key!r}"
            raise TargetError(message, hint="as in {'cpu': 'llvm', 'opencl': 'opencl'}")
        if device in targets:
            raise TargetError(f"two targets for device type {device}: {targets[device]} and {target}")
        targets[device] = target
    if not targets:
        raise TargetError("no target is given", hint="as in {'cpu': 'llvm', 'opencl': 'opencl'}")
    cpu = targets.get(CPU, host)
    targets = {d: t if d == CPU or cpu is None else Target(t, host=cpu) for d, t in targets.items()}
    main = _main_device(list(targets))
    for target in targets.values():
        backend_of(target)  # which refuses targets of families without one
    return DeviceTargets(targets[main], tuple((d, t) for d, t in targets.items() if d != main))


def _main_device(devices: list[int]) -> int:
    context = PassContext.current()
    asked = context.get(FALLBACK) if FALLBACK.name in context.config else None
    if asked is not None and asked not in devices:
        shown = ", ".join(map(str, devices))
        raise TargetError(f"{FALLBACK.name} is {asked}, targets are given for {shown}", hint="give a target for it")
    return int(asked if asked is not None else CPU if CPU in devices else devices[0])


def _device_type(key: object) -> int:
    """Of a number, a name or a Device."""
    if isinstance(key, str) and key.split()[:1] and key.split()[0] in _TYPES:
        return _TYPES[key.split()[0]]
    number = getattr(key, "device_type", getattr(key, "value", key))
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    raise TargetError(f"{key!r} names no device", hint=f"a Device, DLPack's number, or one of {', '.join(_TYPES)}")


def optimized_over(module: IRModule, targets: DeviceTargets) -> IRModule:
    """The passes of a build, for each device's parts with its target."""
    main = targets.main.kind.device_type
    first = [remove_unused_functions, typed, beta_reduce, to_graph_normal_form, typed]
    known = [device for device, _ in targets.others]
    split = split_devices.bind(main=main, known=known)
    module = Sequential([*(p.bind() for p in first), split], "split-over-devices")(module)
    with targets.main:
        module = optimize(module, targets.main)
    function = module["main"]
    result = IRModule.from_expr(_joined(function, targets))
    infer_type(result["main"], result)
    return result


def _joined(function: Function, targets: DeviceTargets) -> Function:
    """Main, with the kernels of each region in the place of its call."""
    main, memo = targets.main.kind.device_type, dict[int, Expr]()
    regions: dict[int, Function] = {}
    for expr in post_order(function, not_primitive):
        device = _region_device(expr)
        if not device or not isinstance(expr, Call) or not isinstance(expr.op, Function):
            memo[id(expr)] = map_children(expr, lambda e: memo.get(id(e), e))
            continue
        if id(expr.op) not in regions:
            regions[id(expr.op)] = _kernels_of(expr.op, device, targets.target_of(device))
        region = regions[id(expr.op)]
        arguments = [memo.get(id(a), a) for a in expr.args]
        place = device if targets.target_of(device).kind.codegen else CPU  # where its memory is
        sent = [_moved(a, p.checked_type, main, place) for a, p in zip(arguments, region.params, strict=True)]
        body = substitute(region.body, {id(p): a for p, a in zip(region.params, sent, strict=True)})
        memo[id(expr)] = _moved(body, region.body.checked_type, place, main)
    joined = memo[id(function)]
    assert isinstance(joined, Function), "a function stays one"
    return joined


def _region_device(expr: Expr) -> int:
    """The device of a call of a region; 0 for anything else."""
    name = str(expr.op.get_attr("Compiler", "")) if isinstance(expr, Call) and isinstance(expr.op, Function) else ""
    number = name.removeprefix(PREFIX)
    return int(number) if name.startswith(PREFIX) and number.isdecimal() else 0


def _kernels_of(region: Function, device: int, target: Target) -> Function:
    """The region after the passes of its target; each kernel says where it runs."""
    note = DEVICE if target.kind.codegen else HOSTED
    plain = Function(region.params, region.body, region.ret_type, (), region.span)
    with target:
        main = optimize(IRModule({"main": plain}), target)["main"]

    def rule(expr: Expr) -> Expr | None:
        return expr.with_attr(note, device) if isinstance(expr, Function) and is_primitive(expr) else None

    marked = rewrite(main, rule, lambda e: not is_primitive(e))
    infer_type(marked)
    assert isinstance(marked, Function), "a function stays one"
    return marked


def _moved(expr: Expr, ty: Type, source: int, target: int) -> Expr:
    """The value on another device; each field of a tuple by itself."""
    if source == target:
        return expr
    if isinstance(ty, TupleType):
        parts = [_field(expr, index) for index in range(len(ty.fields))]
        return Tuple(tuple(_moved(p, t, source, target) for p, t in zip(parts, ty.fields, strict=True)))
    if isinstance(expr, Call) and is_call(expr, COPY) and expr.attrs.src_dev_type == target:
        return expr.args[0]  # from where it came
    return get_op(COPY)(expr, src_dev_type=source, dst_dev_type=target)


def _field(expr: Expr, index: int) -> Expr:
    return expr.fields[index] if isinstance(expr, Tuple) else TupleGetItem(expr, index)
