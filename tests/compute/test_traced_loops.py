"""`execute_window_loop(..., trace=True)`: what the kernel of a traced body writes is what the plain calls write."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from armillary.compute import DataType, Iterator, Tensor, TensorInfo, TensorShape, Window, execute_window_loop
from armillary.compute.core.tensor_info import PaddingSize
from armillary.compute.core.window import Dimension

needs_numpy_2 = pytest.mark.skipif(int(np.__version__.split(".")[0]) < 2, reason="numpy 1 has other types of results")
U8, S16, S32, F32 = DataType.U8, DataType.S16, DataType.S32, DataType.F32
Body = Callable[[Any, Any, Any, Any], None]  # a place, and what three iterators point to


def _tensor(kind: DataType, seed: int, shape: tuple[int, ...] = (23, 9, 2)) -> Tensor:
    tensor, rng = Tensor(), np.random.default_rng(seed)
    info = TensorInfo(TensorShape(*shape), 1, kind)
    info.extend_padding(PaddingSize(1, 5, 2, 3))
    tensor.allocator().init(info)
    tensor.allocator().allocate()
    values = tensor.array()
    if kind is F32:
        values[...] = rng.standard_normal(values.shape)
    else:
        limits = np.iinfo(kind.dtype)
        values[...] = rng.integers(limits.min, limits.max + 1, values.shape)
    return tensor


def _run(kinds: tuple[DataType, DataType, DataType], body: Body, trace: bool, window: Window) -> tuple[bool, Any]:
    tensors = [_tensor(kind, seed) for seed, kind in enumerate(kinds)]
    iterators = [Iterator(tensor, window) for tensor in tensors]
    pointers = [lambda it=it, k=k: it.ptr()[:8].view(k.dtype) for it, k in zip(iterators, kinds, strict=True)]

    def call(place: Any) -> None:
        body(place, *(pointer() for pointer in pointers))

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        done = execute_window_loop(window, call, *iterators, trace=trace)
    return done, [*(tensor.buffer().copy() for tensor in tensors), [it.offset() for it in iterators]]


def _window() -> Window:
    return Window(Dimension(1, 20, 2), Dimension(0, 9), Dimension(0, 2))


def _copy(_: Any, a: Any, b: Any, c: Any) -> None:
    c[0] = a[0]


def _wrap(_: Any, a: Any, b: Any, c: Any) -> None:
    c[0] = (a[0] + b[0]) * a[0] - 3 + (a[0] ^ b[0])


def _wrapped_comparison(_: Any, a: Any, b: Any, c: Any) -> None:
    c[0] = np.where(a[0] - b[0] > 5, a[0] + b[0], np.minimum(a[0], b[0]))


def _reals(_: Any, a: Any, b: Any, c: Any) -> None:
    c[0] = a[0] * 0.3 + b[0] / (a[0] * a[0] + 1.5) - a[0] * b[0]


def _order(_: Any, a: Any, b: Any, c: Any) -> None:
    before = c[0]
    c[0] = c[1] + a[0]
    c[1] = before - c[0]


def _places(id: Any, a: Any, b: Any, c: Any) -> None:
    c[0] = (100 * id.z() + 10 * id.y() + id[0] * id.x() - 7) % 120
    b[0] = id.x() // 3


def _mixed(_: Any, a: Any, b: Any, c: Any) -> None:
    c[0] = a[0].astype(np.float32) * np.float32(1.5) + b[0]


def _clipped(_: Any, a: Any, b: Any, c: Any) -> None:
    c[0] = np.clip(a[0].astype(np.int32) - b[0], 0, 255)


TRACED: list[tuple[Body, tuple[DataType, DataType, DataType]]] = [
    (_copy, (U8, U8, U8)),
    (_copy, (S16, U8, U8)),
    (_copy, (U8, U8, F32)),
    (_wrap, (U8, U8, U8)),
    (_wrap, (U8, S16, S16)),
    (_wrap, (S16, S16, U8)),
    (_wrap, (S32, S32, S32)),
    (_wrapped_comparison, (U8, U8, U8)),
    (_wrapped_comparison, (S16, S16, S16)),
    (_wrapped_comparison, (S32, S32, S32)),
    (_reals, (F32, F32, F32)),
    (_reals, (U8, F32, F32)),
    (_reals, (S32, U8, F32)),
    (_order, (U8, U8, U8)),
    (_order, (S16, U8, S16)),
    (_order, (F32, F32, F32)),
    (_places, (U8, U8, U8)),
    (_places, (U8, S16, F32)),
    (_mixed, (S16, F32, F32)),
    (_clipped, (U8, U8, U8)),
]


@needs_numpy_2
@pytest.mark.parametrize(("body", "kinds"), TRACED, ids=lambda v: getattr(v, "__name__", None))
def test_a_kernel_does_what_the_calls_do(body: Body, kinds: tuple[DataType, DataType, DataType]) -> None:
    done, found = _run(kinds, body, True, _window())
    plainly, wanted = _run(kinds, body, False, _window())
    assert done and not plainly
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def _branch(_: Any, a: Any, b: Any, c: Any) -> None:
    c[0] = 1 if a[0] > 9 else 2


def _python(_: Any, a: Any, b: Any, c: Any) -> None:
    c[0] = int(a[0]) // 2 + len(f"{b[0]}")


def _rows(_: Any, a: Any, b: Any, c: Any) -> None:
    c[:2] = a[:2]


def _table(id: Any, a: Any, b: Any, c: Any) -> None:
    c[0] = np.arange(40, dtype=np.uint8)[id.x()]


def _maximum(_: Any, a: Any, b: Any, c: Any) -> None:
    c[0] = max(a[0], b[0])


@pytest.mark.parametrize("body", [_branch, _python, _rows, _table, _maximum], ids=lambda body: body.__name__)
def test_what_is_no_kernel_is_called_for_each_place(body: Body) -> None:
    done, found = _run((U8, U8, U8), body, True, _window())
    _, wanted = _run((U8, U8, U8), body, False, _window())
    assert not done
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@needs_numpy_2
def test_what_leaves_the_memory_or_the_type_is_told_as_without_a_trace() -> None:
    tensor = _tensor(U8, 0, (6, 1))
    window = Window(Dimension(0, 6))
    iterator = Iterator(tensor, window)

    def too_large(place: Any) -> None:
        iterator.ptr()[0] = place.x() + 254

    with pytest.raises(Exception, match="out of bounds for uint8"):
        execute_window_loop(window, too_large, iterator, trace=True)
    outside = len(tensor.buffer()) - iterator.offset() - 3

    def behind(_: Any) -> None:
        iterator.ptr()[outside] = 1

    with pytest.raises(Exception, match="out of bounds"):
        execute_window_loop(window, behind, iterator, trace=True)
    assert not execute_window_loop(Window(Dimension(3, 3)), behind, iterator, trace=True)
