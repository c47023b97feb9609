"""The log of benchmarks/torch_compile.py: a run that was killed goes on, and its rows become the table of the docs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "torch_compile.py"


def row(name: str, ours: float, theirs: float) -> dict[str, object]:
    """A measurement, as the script writes it."""
    times = {"armillary": ours, "inductor": theirs, "eager": 2 * theirs}
    first = {"armillary": 3.0, "inductor": 12.0}
    return {"name": name, "threads": 1, "times": times, "first": first, "difference": 1e-7, "reports": []}


def test_a_half_written_row_is_measured_again_and_the_table_has_the_others(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = [row("slower", 0.003, 0.002), row("faster", 0.001, 0.004), {"name": "gone", "threads": 1, "error": "killed"}]
    log.write_text("\n".join(map(json.dumps, rows)) + '\n{"name": "half", "thr')
    words = [sys.executable, str(SCRIPT), "--table", "--log", str(log)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| faster", "| slower"]
    assert lines[2] == "| faster | 1 | 1 | 4 | 8 | 0.25 | 0.12 | 3 | 12 |"
    assert lines[-1] == (
        "1 threads: faster than Inductor in 1 of 2, median 0.88; compile time, median 0.25 of Inductor's"
    )
