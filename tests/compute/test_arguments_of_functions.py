"""Arguments of `configure` and `validate` that a function would take for another one are refused by name.

Every function of both sides that takes a border's constant, or a member of an enumeration, is tried.
"""

from __future__ import annotations

import inspect
from enum import Enum
from typing import Any

import numpy as np
import pytest
from opencl_device import needs_opencl

from armillary import compute
from armillary.compute import BorderMode, Format, TensorInfo
from armillary.errors import ArmillaryError, TypeMismatch

FUNCTIONS = {
    name: kind
    for name in dir(compute)
    if isinstance(kind := getattr(compute, name), type)
    and name[:2] in ("NE", "CL")
    and hasattr(kind, "configure")
    and not name.endswith("FormulaKernel")
}
OUTSIDE = (300, -1, 2**70, float("nan"), 1.5, float("inf"), np.int32(256), None, "x", 1j)


def with_parameter(name: str) -> list[str]:
    return [n for n, kind in FUNCTIONS.items() if name in inspect.signature(kind.configure).parameters]


def image(name: str, kind: Format = Format.U8) -> compute.Tensor:
    made: compute.Tensor = (compute.CLImage if name.startswith("CL") else compute.Image)()
    made.allocator().init(TensorInfo(40, 30, kind))
    return made


def filled(method: Any, first: Any, **given: Any) -> dict[str, Any]:
    """Arguments of all parameters: members of enumerations, the first one for the rest."""
    found: dict[str, Any] = {}
    for p in list(inspect.signature(method).parameters.values()):
        kind = getattr(compute, p.annotation, None) if isinstance(p.annotation, str) else None
        is_member = isinstance(kind, type) and issubclass(kind, Enum)
        found[p.name] = next(iter(kind)) if is_member else first  # type: ignore[arg-type]  # it is one
    found.pop("self", None)
    return found | given


@pytest.mark.parametrize("name", with_parameter("constant_border_value"))
def test_a_constant_that_is_no_pixel_is_refused(name: str) -> None:
    source = image(name)
    for constant in OUTSIDE:
        arguments = filled(FUNCTIONS[name].configure, source, constant_border_value=constant)
        with pytest.raises(TypeMismatch, match=rf"{name}.configure: constant_border_value is") as error:
            FUNCTIONS[name]().configure(**arguments)
        assert isinstance(constant, str | complex | None) or "a whole number from 0 to 255" in error.value.message


def test_constants_of_other_types_are_pixels_of_theirs() -> None:
    for kind, held, outside in ((Format.S16, (-32768, 32767, 5.0), (32768, 0.5)), (Format.F32, (-1e30, 0.5), (1e39,))):
        source, target = image("NE", kind), image("NE", kind)
        policy = compute.InterpolationPolicy.BILINEAR
        for constant in held:
            compute.NEScale().configure(source, target, policy, BorderMode.CONSTANT, constant)  # type: ignore[arg-type]
        for constant in outside:
            with pytest.raises(TypeMismatch, match=f"{kind.name} does not hold"):
                compute.NEScale().configure(source, target, policy, BorderMode.CONSTANT, constant)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["configure", "validate"])
def test_a_text_is_no_member_of_an_enumeration(method: str) -> None:
    """`policy="bilinear"` gave the nearest pixel, `policy="saturate"` wrapped, `border_mode="constant"` replicated."""
    tried = 0
    for name, kind in FUNCTIONS.items():
        called = getattr(kind, method, None)
        if called is None:
            continue
        members = {n for n, v in filled(called, None).items() if isinstance(v, Enum)}
        for parameter in members:
            arguments = filled(called, image(name) if method == "configure" else TensorInfo(40, 30, Format.U8))
            arguments[parameter] = arguments[parameter].value
            bound = kind().configure if method == "configure" else called
            arguments.pop("cls", None)
            with pytest.raises(TypeMismatch, match=rf"{name}.{method}: {parameter} is .*, wanted [A-Z]\w+\.[A-Z0-9_]+"):
                bound(**arguments)
            tried += 1
    assert tried > (80 if method == "configure" else 10)


def test_validate_ends_in_our_errors() -> None:
    tried = 0
    for kind in FUNCTIONS.values():
        called = getattr(kind, "validate", None)
        if called is None:
            continue
        for wrong in (None, "x", 2**70, TensorInfo(), object()):
            try:
                called(*[wrong] * len([n for n in inspect.signature(called).parameters if n not in ("args", "kwargs")]))
            except ArmillaryError:
                tried += 1
    assert tried > 100
    suppression = compute.CPPDetectionWindowNonMaximaSuppression()
    for windows, distance in ((5, 1.0), ([5], 1.0), ([], "x")):
        with pytest.raises(TypeMismatch):
            suppression.configure(windows, distance)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("side", ["NE", pytest.param("CL", marks=needs_opencl)])
def test_constants_of_real_images_keep_their_fraction(side: str) -> None:
    """They were made whole numbers: a border of 0.75 was one of 0."""
    if side == "CL":
        compute.CLScheduler.get().default_init()
    source, target = image(side, Format.F32), compute.CLImage() if side == "CL" else compute.Image()
    target.allocator().init(TensorInfo(80, 60, Format.F32))
    scale = getattr(compute, f"{side}Scale")()
    scale.configure(source, target, compute.InterpolationPolicy.BILINEAR, BorderMode.CONSTANT, 0.75)
    for tensor in (source, target):
        tensor.allocator().allocate()
    source.write(np.full((30, 40), 2.0, np.float32))
    scale.run()
    found = target.read()
    corner = (2.0 * 9 + 0.75 * 7) / 16  # a quarter of a pixel beyond both edges
    assert np.unique(found[1:-1, 1:-1]).tolist() == [2.0]
    assert found[0, 0] == corner
    assert found[0, 40] == (2.0 * 3 + 0.75) / 4


@pytest.mark.parametrize("side", ["NE", "CL"])
def test_numbers_that_a_kernel_would_round_or_wrap_are_refused(side: str) -> None:
    source, target = image(side), image(side)
    threshold, fast = getattr(compute, f"{side}Threshold"), getattr(compute, f"{side}FastCorners")
    for value in (1.5, float("nan"), None):
        with pytest.raises(TypeMismatch):
            threshold().configure(source, target, value)
    threshold().configure(source, target, 100.0)
    with pytest.raises(TypeMismatch):
        fast().configure(source, float("nan"), True, [])
