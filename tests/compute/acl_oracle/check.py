"""Comparing a function of this library, on the CPU or a device, with what Arm Compute Library 20.08 gave.

In: a function's name, a case's number, a side (NE or CL). Out: nothing, or an `AssertionError` that says where they
differ. Invariant: what is stored is not computed again, so a device is compared with the library, not with the CPU.
No pytest here: `benchmarks/compute_opencl.py` runs where there is none.
"""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.compute.acl_oracle.record import FILE, case_of, digest, has_near_numbers, inside, is_exact
from tests.compute.acl_oracle.wire import Array, Case

STORED: dict[str, list[Any]] = json.loads(lzma.decompress(FILE.read_bytes()))  # Any: see record.py


def near(case: Case, found: Array, wanted: Array, message: str) -> None:
    """Within the case's bound, a part of the largest value; or within its step, and mostly equal."""
    if case.bound:
        apart = np.abs(found.astype(np.float64) - wanted).max(initial=0)
        assert apart <= case.bound * max(1e-6, np.abs(wanted).max(initial=0)), f"{message}: {apart:g}"
        return
    off = np.abs(found.astype(np.int64) - wanted.astype(np.int64))
    assert off.max(initial=0) <= case.step, f"{message}: {np.argwhere(off > case.step)[:5].tolist()}"
    if case.step:
        assert (off == 0).mean() > 0.7, f"{message}: differs by one at {(off != 0).mean():.0%}"


def by_place(detections: Array, row: int) -> Array:
    """Detections of `row` numbers, the score last, ordered by the others."""
    rows = detections.reshape(-1, row)
    return rows[np.lexsort(rows[:, :-1].T)].reshape(-1)


def near_numbers(case: Case, found: Sequence[float], wanted: Array, message: str) -> None:
    """Within the bound, and an eighth of it on average; or most of them equal."""
    numbers = np.asarray(found)
    if case.row:
        assert numbers.size == wanted.size, message
        scores = (v[case.row - 1 :: case.row] for v in (numbers, wanted))
        assert np.allclose(*scores, rtol=0, atol=case.bound * np.abs(wanted).max(initial=0)), f"{message}: scores"
        numbers, wanted = (by_place(v, case.row) for v in (numbers, wanted))
    off = np.abs(numbers - wanted.astype(np.float64))
    if case.bound:
        largest = np.abs((wanted[3:] if wanted.size > 3 else wanted).astype(np.float64)).max(initial=0)
        assert off.max(initial=0) <= case.bound * largest and off.sum() <= case.bound / 8 * largest * off.size, message
    else:
        assert (off == 0).mean() >= case.share, message


def check_stored(name: str, number: int, side: str = "NE", padding: int = 0) -> None:
    """A function of this library, on the CPU or (CL) a device, gives what is stored."""
    case = case_of(name, number)
    case.side, case.padding = side, padding
    (region, values, numbers), result = STORED[name][number], case.ours(case)
    message = f"{name} {number} {[t.sizes for t in case.tensors]} {case.params[:8]}"
    if case.has_region:
        assert list(result.region) == region, message
    if has_near_numbers(case):
        near_numbers(case, result.numbers, np.frombuffer(base64.b64decode(numbers), np.float32), message)
    elif numbers:
        assert digest(np.asarray(result.numbers, np.float64)) == numbers, message
    for output, kept in zip(result.outputs, values, strict=True):
        part = inside(output, tuple(region), case)
        if is_exact(case):
            assert digest(part) == kept, message
        else:
            near(case, part, np.frombuffer(base64.b64decode(kept), part.dtype).reshape(part.shape), message)
