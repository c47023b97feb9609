"""annotation.on_device and device_copy: on which device a value is computed, and its way to another.

In: any value. Out: the value. `on_device` says where the expression inside is computed (`constrain_body`) and where its
result is wanted (`constrain_result`); `device_copy` moves a tensor. Devices are DLPack's numbers (1: CPU, 4: OpenCL).
The pass plan-devices turns notes into copies and takes out those that move nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops.nn._windows import f32
from armillary.relay.op import BadSample, Kind, Op, Sample
from armillary.relay.types import Type


@record
class OnDeviceAttrs:
    """Scripts give a device (`armillary.cpu(0)`) or DLPack's number of its type."""

    device_type: int
    constrain_result: bool = False
    constrain_body: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "device_type", getattr(self.device_type, "device_type", self.device_type))


@record
class DeviceCopyAttrs:
    src_dev_type: int
    dst_dev_type: int


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
