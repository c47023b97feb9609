"""Points of a space as scripts walk them, and the operations of integer schedules."""

from __future__ import annotations

import pytest

from armillary import autotvm, te
from armillary.autotvm.errors import TuningError
from armillary.autotvm.task import ConfigSpace
from armillary.errors import ArmillaryError


def space(is_filtered: bool) -> ConfigSpace:
    made = ConfigSpace()
    made.define_knob("a", [1, 2, 3, 4])
    made.define_knob("b", [1, 2, 3])
    if is_filtered:
        made.multi_filter(lambda config: config["a"].val * config["b"].val % 2 == 0)
    return made


@pytest.mark.parametrize("is_filtered", [False, True])
def test_indices_are_counted_and_walked(is_filtered: bool) -> None:
    made = space(is_filtered)
    valid = [i for i in range(made.range_length) if made.is_index_valid(i)]
    assert len(valid) == (8 if is_filtered else 12)
    for start in range(13):
        for end in range(start, 13):
            assert made.subrange_length(start, end) == sum(start <= i < end for i in valid)
    for index in range(12):
        behind, before = [i for i in valid if i > index], [i for i in valid if i < index][::-1]
        for n in (1, 2, 3):
            assert made.get_next_index(index, n) == (behind[n - 1] if len(behind) >= n else None)
            assert made.get_next_index(index, -n) == (before[n - 1] if len(before) >= n else None)
        assert made.knob2point(made.point2knob(index)) == index
    assert made.get_rand_index(to_exclude=valid[:-1]) == valid[-1]
    assert made.get_rand_index(start=3, end=6) in (3, 4, 5)
    assert made.get_next_index(valid[0], end=valid[1]) is None
    with pytest.raises(TuningError, match=r"subrange_length: end=20: wanted a whole number in \[0, 12\]"):
        made.subrange_length(0, 20)
    with pytest.raises(ArmillaryError, match=r"ConfigSpace\.knob2point"):
        made.knob2point(3)  # type: ignore[arg-type]
    with pytest.raises(TuningError, match="no valid configuration is left"):
        made.get_rand_index(to_exclude=valid)


@pytest.mark.parametrize(("dtype", "wide"), [("int8", "int32"), ("float16", "float32"), ("float32", "float32")])
def test_operations_do_not_depend_on_the_type(dtype: str, wide: str) -> None:
    a, b = te.placeholder((6, 8), name="a", dtype=dtype), te.placeholder((5, 8), name="b", dtype=dtype)
    k = te.reduce_axis((0, 8))
    product = te.compute((6, 5), lambda i, j: te.sum(a[i, k].astype(wide) * b[j, k].astype(wide), axis=k))
    assert autotvm.task.compute_flop(te.create_schedule(product.op)) == 2 * 6 * 5 * 8
    mean = te.compute((6,), lambda i: te.sum(te.div(a[i, k].astype(wide), 8), axis=k))
    assert autotvm.task.compute_flop(te.create_schedule(mean.op)) == 2 * 6 * 8


def test_arguments_are_written_and_read() -> None:
    given = [te.placeholder((2, 3), dtype="int8"), (1, 2), "NCHW"]
    written = autotvm.task.serialize_args(given)
    assert written[1:] == ((1, 2), "NCHW")
    assert autotvm.task.deserialize_args(written)[0].dtype == "int8"
