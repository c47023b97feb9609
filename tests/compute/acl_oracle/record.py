"""Writes `outputs.json.xz`: what Arm Compute Library 20.08 gives for the random cases, by function.

Run: `PYTHONPATH=.:tests python -m tests.compute.acl_oracle.record [names]`, with cross compiler, qemu and library. Of
functions that agree to the bit it keeps a digest of each output inside the valid region, of others the outputs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.compute.acl_oracle.feature_cases import FEATURES
from tests.compute.acl_oracle.nn_cases import NEURAL
from tests.compute.acl_oracle.vision_cases import BUILDERS as VISION
from tests.compute.acl_oracle.wire import Array, Case, Result, build, run

BUILDERS = VISION | FEATURES | NEURAL
FILE = Path(__file__).with_name("outputs.json.xz")
COUNT = 50  # cases of a function that are kept


def case_of(name: str, number: int) -> Case:
    """A case by its number, the same everywhere."""
    return BUILDERS[name](np.random.default_rng([sum(name.encode()), number]))


def inside(output: Array, region: tuple[int, ...], case: Case) -> Array:
    """What of an output is in the valid region; the planes of a colour image are whole."""
    if output.shape[:2] != tuple(reversed(case.tensors[-1].sizes)) or not case.has_region:
        return output
    x, y, width, height = region
    return output[y : y + height, x : x + width]


def digest(output: Array) -> str:
    """A digest of the values."""
    return hashlib.blake2b(np.ascontiguousarray(output).tobytes(), digest_size=8).hexdigest()


def kept(case: Case, result: Result) -> list[Any]:
    """A result as it is stored."""
    values = [inside(output, result.region, case) for output in result.outputs]
    if has_near_numbers(case):
        return [list(result.region), [], _text(np.asarray(result.numbers, np.float32))]
    numbers = digest(np.asarray(result.numbers, np.float64)) if case.step == 0 else ""
    is_near = case.step > 0 or case.bound > 0
    return [list(result.region), [_text(v) if is_near else digest(v) for v in values], numbers]


def _text(values: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def has_near_numbers(case: Case) -> bool:
    """Whether what a case gives is numbers that may differ: they are stored themselves, in 32 bits."""
    return not case.outputs and (case.bound > 0 or case.share < 1)


def is_exact(case: Case) -> bool:
    """Whether a digest is enough."""
    return case.step == 0 and case.bound == 0 and case.share == 1


def main() -> None:
    """Run the cases of functions that are named, or else not stored yet, and write the file."""
    stored = json.loads(lzma.decompress(FILE.read_bytes())) if FILE.exists() else {}
    wanted = sys.argv[1:] or [name for name in BUILDERS if name not in stored]
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for name in wanted:
            cases = [case_of(name, n) for n in range(COUNT)]
            stored[name] = [kept(c, r) for c, r in zip(cases, run(program, cases), strict=True)]
            print(name, len(cases))
    FILE.write_bytes(lzma.compress(json.dumps(stored, separators=(",", ":")).encode(), preset=9))


if __name__ == "__main__":
    main()
