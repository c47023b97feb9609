"""`python -m tests.fuzz.shrink_seed KIND SEED [NAME]`: make one finding small and print it, or write it as a case.

In: a kind (onnx, window) and a seed as tests/fuzz/fuzz.py printed them. Out: the small graph's nodes, inputs and what
is wrong; with NAME also tests/fuzz/cases/NAME.case. Invariant: the levels, target and form are those of the seed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ.update(ARMILLARY_COMPILE_JOBS="1", ARMILLARY_CACHE_DIR=tempfile.mkdtemp())

import fuzz_worker  # noqa: E402
import onnx  # noqa: E402
import onnx_check  # noqa: E402
import onnx_shrink  # noqa: E402
import onnx_truth  # noqa: E402


def main() -> None:
    """Shrink, print, perhaps write."""
    kind, seed = sys.argv[1], int(sys.argv[2])
    drawn = fuzz_worker.onnx_case(kind, seed)
    levels, target, how = fuzz_worker.plan(seed, {})
    first = onnx_check.check(drawn, levels, target, how)
    print(levels, target, how, first.kind, first.detail)
    if not first.failed:
        return
    small = onnx_shrink.shrink(drawn, lambda d: onnx_check.check(d, levels, target, how).kind == first.kind)
    print(onnx.printer.to_text(small.model)[:3000])
    for name, array in small.inputs.items():
        print(name, array.dtype, array.shape, repr(array)[:400])
    print(onnx_check.check(small, levels, target, how).detail)
    for who, outputs in onnx_truth.truths(*small.parts())[0].items():
        print(who, [repr(o)[:400] for o in outputs])
    if len(sys.argv) > 3:
        print(onnx_shrink.write_case(small, sys.argv[3], levels, target, HERE / "cases"))


if __name__ == "__main__":
    main()
