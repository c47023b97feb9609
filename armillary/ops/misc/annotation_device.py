"""annotation.on_device and device_copy: on which device a value is computed, and its way to another.

In: any value, tuples and functions too. Out: the value. `on_device` says where the expression inside is computed
(`constrain_body`) and where its result is wanted (`constrain_result`); `device_copy` moves a tensor. Invariant: places
change, values do not. Devices are DLPack's numbers (1: CPU, 4: OpenCL), with a place where a script says more. The pass
plan-devices turns notes into copies and takes out those that move nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from armillary.base.device_types import CODES
from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.errors import TargetError, TypeMismatch
from armillary.ops._deferred import te
from armillary.ops._types import copied
from armillary.ops.nn._windows import f32
from armillary.relay.op import BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact
from armillary.relay.types import Type

with deferred():
    from armillary.target.virtual_device import VirtualDevice as _VirtualDevice
    from armillary.target.virtual_device import at_place as _at_place


@record
class OnDeviceAttrs:
    """Scripts give a device (`armillary.cpu(0)`), DLPack's number of its type, or a VirtualDevice.

    `place` is what a VirtualDevice says beside the type: number, texts of target and host, memory scope.
    """

    _also: ClassVar[dict[str, str]] = {"virtual_device": "device_type"}
    device_type: int
    constrain_result: bool = False
    constrain_body: bool = True
    place: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        _separate(self, "device_type", "place")

    @property
    def virtual_device(self) -> _VirtualDevice:
        """The device that is asked for; none where nothing is constrained."""
        is_asked = self.constrain_result or self.constrain_body
        return _at_place(self.device_type, self.place) if is_asked else _VirtualDevice()


@record
class DeviceCopyAttrs:
    """Devices as in OnDeviceAttrs."""

    _also: ClassVar[dict[str, str]] = {"src_virtual_device": "src_dev_type", "dst_virtual_device": "dst_dev_type"}
    src_dev_type: int
    dst_dev_type: int
    src_place: tuple[object, ...] = ()
    dst_place: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        _separate(self, "src_dev_type", "src_place")
        _separate(self, "dst_dev_type", "dst_place")

    @property
    def src_virtual_device(self) -> _VirtualDevice:
        """The device that has the value."""
        return _at_place(self.src_dev_type, self.src_place)

    @property
    def dst_virtual_device(self) -> _VirtualDevice:
        """The device that gets it."""
        return _at_place(self.dst_dev_type, self.dst_place)


def _separate(attrs: OnDeviceAttrs | DeviceCopyAttrs, kind: str, place: str) -> None:
    """Keep a device as the number of its type and, of a VirtualDevice, the rest."""
    setting = getattr(attrs, kind)
    object.__setattr__(attrs, kind, _type_number(setting))
    rest = getattr(setting, "place", None)
    if rest is not None:
        object.__setattr__(attrs, place, rest)


def _type_number(device: object) -> object:
    """DLPack's number of a device, of its name, or of a virtual device; anything else as it is."""
    if isinstance(device, str):
        if device not in CODES:
            raise TargetError(f"unknown device kind {device!r}", hint=f"known are {', '.join(CODES)}")
        return CODES[device]
    number: object = getattr(device, "device_type", device)
    return number


def _identity(name: str, attrs_class: type, doc: str) -> Op:
    op = Op(name, kind=Kind.ELEMENTWISE, doc=doc)
    op.attrs(attrs_class)
    op.reference(lambda attrs, data: data)

    @op.compute
    def compute(attrs: te.Expr, data: te.Tensor) -> te.Tensor:
        return copied(data)

    return op


on_device = _identity("annotation.on_device", OnDeviceAttrs, "The value, computed on a device.")
device_copy = _identity("device_copy", DeviceCopyAttrs, "The value, moved from one device to another.")


@on_device.infer
def infer_on_device(attrs: OnDeviceAttrs, data: Type) -> Type:
    _check("annotation.on_device", attrs.device_type, attrs.place)
    return data


@device_copy.infer
def infer_device_copy(attrs: DeviceCopyAttrs, data: Type) -> Type:
    _check("device_copy", attrs.src_dev_type, attrs.src_place)
    _check("device_copy", attrs.dst_dev_type, attrs.dst_place)
    return data


def _check(name: str, device_type: int, place: tuple[object, ...]) -> None:
    least = 0 if place else 1  # a memory scope alone names no device
    if not isinstance(device_type, int) or device_type < least:
        raise TypeMismatch(f"{name}: device type {device_type!r}, wanted DLPack's number", hint="1: CPU, 4: OpenCL")


@on_device.samples
def on_device_samples() -> Iterator[Sample]:
    yield Sample(OnDeviceAttrs(1), (f32(2, 3),))


@on_device.bad_samples
def on_device_bad_samples() -> Iterator[BadSample]:
    yield BadSample(OnDeviceAttrs(0), (f32(3),), "device type 0")


@device_copy.samples
def device_copy_samples() -> Iterator[Sample]:
    yield Sample(DeviceCopyAttrs(1, 1), (f32(2, 3),))


@device_copy.bad_samples
def device_copy_bad_samples() -> Iterator[BadSample]:
    yield BadSample(DeviceCopyAttrs(1, -1), (f32(3),), "device type -1")


state("annotation.on_device device_copy", Fact.ANY_VALUE)
