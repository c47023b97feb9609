"""argmax, argmin and reductions to one number at sizes where vectors and tails are used, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import relay
from armillary.backend.compiled import Engine
from armillary.ir import IRModule

Array = np.ndarray


def compiled(data: Array, name: str, **attrs: object) -> Array:
    x = relay.var("x", shape=data.shape, dtype=data.dtype.name)
    engine = Engine(IRModule.from_expr(relay.Function([x], getattr(relay, name)(x, **attrs))))
    result: Array = engine({"x": data})[0]
    return result


@pytest.mark.parametrize("shape", [(5, 131), (67,), (3, 7, 45)])
@pytest.mark.parametrize(("name", "dtype"), [("argmax", "float32"), ("argmin", "int8")])
def test_positions_are_numpys(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(sum(shape)).integers(-9, 9, shape).astype(dtype)  # many equal values
    for axis in (None, *range(len(shape))):
        np.testing.assert_array_equal(compiled(data, name, axis=axis), getattr(np, name)(data, axis=axis))
        last = compiled(data, name, axis=axis, select_last_index=True)
        flat = data.reshape(-1) if axis is None else np.moveaxis(data, axis, -1)
        np.testing.assert_array_equal(last, flat.shape[-1] - 1 - getattr(np, name)(flat[..., ::-1], axis=-1))


def test_a_lost_number_is_found_wherever_it_is() -> None:
    for places in ((0,), (99,), (40, 70), (0, 99)):
        data = np.random.default_rng(0).standard_normal(100).astype("float32")
        data[7] = np.inf
        data[list(places)] = np.nan
        for name in ("argmax", "argmin"):
            assert compiled(data, name, axis=0) == places[0]
            assert compiled(data, name, axis=0, select_last_index=True) == places[-1]


@pytest.mark.parametrize("shape", [(1,), (1001,), (2, 3, 50, 7)])
def test_all_elements_are_reduced_to_one(shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(0).uniform(0.9, 1.1, shape).astype("float32")
    wide = data.astype("float64")
    for name in ("sum", "mean", "max", "min", "prod"):
        got = compiled(data, name)
        assert got.shape == ()
        np.testing.assert_allclose(got, getattr(wide, name)(), rtol=2e-5)
