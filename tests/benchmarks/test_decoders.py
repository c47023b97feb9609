"""The benchmark of decoders runs, and its engines agree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "decoders.py"
SIZES = {"layers": 1, "hidden": 64, "inner": 96, "heads": 4, "groups": 2, "words": 96, "rounds": 1}


def test_a_small_decoder_is_timed_by_all_engines() -> None:
    words = [str(word) for name, size in SIZES.items() for word in (f"--{name}", size)]
    text = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=True).stdout
    rows = {name: float(off) for name, off in re.findall(r"^(\w.*?) {2,}.*logits off (\S+)$", text, re.MULTILINE)}
    assert set(rows) == {*(f"ONNX Runtime, level {n}" for n in (0, 4)), *(f"Armillary, {n} bits" for n in (24, 16, 8))}
    assert rows["ONNX Runtime, level 0"] < 1e-5
    assert rows["Armillary, 16 bits"] < 1e-3
    assert rows["Armillary, 8 bits"] < 0.1
