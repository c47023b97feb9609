"""annotation.on_device and device_copy: on which device a value is computed, and its way to another.

In: any value. Out: the value. `on_device` says where the expression inside is computed (`constrain_body`) and where its
result is wanted (`constrain_result`); `device_copy` moves a tensor. Devices are DLPack's numbers (1: CPU, 4: OpenCL).
The pass plan-devices turns notes into copies and takes out those that move nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from armillary.base.device_types import CODES, DeviceNumber
from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.errors import TargetError, TypeMismatch
from armillary.ops._deferred import te
from armillary.ops.nn._windows import f32
from armillary.relay.op import BadSample, Kind, Op, Sample
from armillary.relay.types import Type

with deferred():
    from armillary.target.virtual_device import VirtualDevice as _VirtualDevice


@record
class OnDeviceAttrs:
    """Scripts give a device (`armillary.cpu(0)`) or DLPack's number of its type."""

    device_type: int
    constrain_result: bool = False
    constrain_body: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "device_type", _type_number(self.device_type))

    @property
    def virtual_device(self) -> _VirtualDevice:
        """The device that is asked for; none where nothing is constrained."""
        is_asked = self.constrain_result or self.constrain_body
        return _VirtualDevice(DeviceNumber(self.device_type)) if is_asked else _VirtualDevice()


@record
class DeviceCopyAttrs:
    """Devices as in OnDeviceAttrs."""

    src_dev_type: int
    dst_dev_type: int

    def __post_init__(self) -> None:
        for name in ("src_dev_type", "dst_dev_type"):
            object.__setattr__(self, name, _type_number(getattr(self, name)))

    @property
    def src_virtual_device(self) -> _VirtualDevice:
        """The device that has the value."""
        return _VirtualDevice(DeviceNumber(self.src_dev_type))

    @property
    def dst_virtual_device(self) -> _VirtualDevice:
        """The device that gets it."""
        return _VirtualDevice(DeviceNumber(self.dst_dev_type))


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
        copied: te.Tensor = te.compute(data.shape, lambda *i: data(*i), name="copy", tag="injective")
        return copied

    return op


on_device = _identity("annotation.on_device", OnDeviceAttrs, "The value, computed on a device.")
device_copy = _identity("device_copy", DeviceCopyAttrs, "The value, moved from one device to another.")


@on_device.infer
def infer_on_device(attrs: OnDeviceAttrs, data: Type) -> Type:
    _check("annotation.on_device", attrs.device_type)
    return data


@device_copy.infer
def infer_device_copy(attrs: DeviceCopyAttrs, data: Type) -> Type:
    _check("device_copy", attrs.src_dev_type)
    _check("device_copy", attrs.dst_dev_type)
    return data


def _check(name: str, device_type: int) -> None:
    if not isinstance(device_type, int) or device_type < 1:
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
