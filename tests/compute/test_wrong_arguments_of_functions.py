"""Arguments in another order, dimensions that are not there, tensors of no dimension: errors of ours, or results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from armillary.compute import (
    BorderMode,
    ConvertPolicy,
    Coordinates,
    DataType,
    Format,
    Image,
    Iterator,
    NEArithmeticAddition,
    NEFastCorners,
    NEHarrisCorners,
    PaddingSize,
    Scheduler,
    Tensor,
    TensorInfo,
    TensorShape,
    ValidRegion,
    Window,
    execute_window_loop,
)
from armillary.errors import ArmillaryError, TypeMismatch


def _image() -> Image:
    made = Image()
    made.allocator().init(TensorInfo(40, 30, Format.U8))
    return made


def _scalar(padding: PaddingSize | None = None) -> Tensor:
    made = Tensor()
    made.allocator().init(TensorInfo(TensorShape(), 1, DataType.F32))
    made.info().extend_padding(padding or PaddingSize())
    made.allocator().allocate()
    return made


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "FAST: the list first": (
        lambda: NEFastCorners().configure(_image(), [], 20, True),
        "threshold is \\[\\], wanted a number",
    ),  # type: ignore[arg-type]
    "FAST: the list before the switch": (
        lambda: NEFastCorners().configure(_image(), 20, [], True),  # type: ignore[arg-type]
        "nonmax_suppression is \\[\\], wanted True or False",
    ),
    "FAST: the border for the list": (
        lambda: NEFastCorners().configure(_image(), 20, True, BorderMode.CONSTANT),  # type: ignore[arg-type]
        "corners is <BorderMode.CONSTANT.*, wanted a list",
    ),
    "Harris: the list for a number": (
        lambda: NEHarrisCorners().configure(_image(), [], 1.0, 0.1, 3, 3, 0.5),  # type: ignore[arg-type]
        "threshold is \\[\\], wanted a number",
    ),
    "Harris: a number for the list": (
        lambda: NEHarrisCorners().configure(_image(), 0.5, 1.0, 0.1, 3, 3, 7),  # type: ignore[arg-type]
        "corners is 7, wanted a list",
    ),
    "a scheduler that is a number": (lambda: Scheduler.set(5), "Scheduler.set takes .* got 5"),  # type: ignore[arg-type]
    "a scheduler that is nothing": (lambda: Scheduler.set(None), "Scheduler.set takes"),  # type: ignore[arg-type]
    "a split along dimension 9": (lambda: Window().split_window(9, 0, 2), "dimension 9 of a window"),
    "a split along dimension -1": (lambda: Window().split_window(-1, 0, 2), "dimension -1 of a window"),
    "iterations of dimension 6": (lambda: Window().num_iterations(6), "dimension 6 of a window"),
    "a dimension of a window": (lambda: Window()["x"], "dimension 'x' of a window"),  # type: ignore[index]
    "a dimension that is set": (lambda: Window().set(7, Window()[0]), "dimension 7 of a window"),
    "a number for a dimension": (lambda: Window().set(0, 3), "wanted a Dimension"),  # type: ignore[arg-type]
    "a size of a tensor": (lambda: TensorInfo(4, 4, Format.U8).dimension(-1), "dimension -1 of a tensor"),
    "an end of a region": (lambda: ValidRegion(Coordinates(), (4, 4)).end(6), "dimension 6 of a tensor"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused_by_name(name: str) -> None:
    call, message = WRONG[name]
    before = Scheduler.get()
    with pytest.raises(TypeMismatch, match=message):
        call()
    assert Scheduler.get() is before


def test_no_order_of_arguments_ends_in_a_foreign_error() -> None:
    rng = np.random.default_rng(3)
    arguments: list[Any] = [20, True, [], BorderMode.CONSTANT, 3, 0.5, None, "x", 3]
    for function in (NEFastCorners, NEHarrisCorners):
        for _ in range(60):
            order = [arguments[int(n)] for n in rng.permutation(len(arguments))[: int(rng.integers(2, 9))]]
            source, made = _image(), function()
            try:
                made.configure(source, *order)  # type: ignore[attr-defined]
                source.allocator().allocate()
                made.run()
            except ArmillaryError:
                continue
            except TypeError as error:  # a call that does not fit the signature is Python's error
                if "argument" not in str(error):
                    raise


def test_a_tensor_of_no_dimension_is_a_scalar() -> None:
    info = TensorInfo(TensorShape(), 1, DataType.F32)
    assert (info.num_dimensions(), info.total_size(), info.dimension(0), repr(info)) == (0, 4, 1, "scalar F32")
    assert info.strides_in_bytes()[:2] == (4, 4) and info.valid_region().end(0) == 1
    for padding in (PaddingSize(), PaddingSize(1, 2, 3, 4)):
        tensor = _scalar(padding)
        tensor.write(np.float32(2.5))
        assert tensor.array().shape == () and tensor.array() == 2.5
        window, seen = Window(), []
        window.use_tensor_dimensions(tensor.info().tensor_shape())
        places = Iterator(tensor, window)
        execute_window_loop(window, lambda id: seen.append(float(places.ptr().view(np.float32)[0])), places)  # noqa: B023
        assert seen == [2.5]


def test_scalars_are_added() -> None:
    tensors = [Tensor() for _ in range(3)]
    for tensor in tensors:
        tensor.allocator().init(TensorInfo(TensorShape(), 1, DataType.F32))
    addition = NEArithmeticAddition()
    addition.configure(*tensors, ConvertPolicy.SATURATE)
    for tensor, value in zip(tensors, (1.5, 2.25, 0.0), strict=True):
        tensor.allocator().allocate()
        tensor.write(np.float32(value))
    addition.run()
    assert tensors[2].array() == 3.75
