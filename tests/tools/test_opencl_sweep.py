"""A sweep of the operator matrix keeps what it found, goes on where it stopped, and counts."""

import json
import subprocess
import sys
from pathlib import Path

from opencl_device import needs_opencl

TOOL = Path(__file__).parents[2] / "tools" / "opencl_sweep.py"


@needs_opencl
def test_a_sweep_runs_what_its_file_does_not_hold(tmp_path: Path) -> None:
    state = tmp_path / "state.jsonl"
    kept = {"op": "tanh", "sample": 0, "outcome": "wrong", "message": "stored\nbefore", "seconds": 1.0}
    state.write_text(json.dumps(kept) + "\n")
    command = [sys.executable, str(TOOL), str(state), "--target", "opencl", "--ops", "tanh"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in state.read_text().splitlines()]
    assert rows[0] == kept and {row["outcome"] for row in rows[1:]} == {"passed"}
    assert sorted(row["sample"] for row in rows) == list(range(len(rows)))
    message = done.stdout.splitlines()
    assert message[0] == "wrong    tanh 0: stored before"
    assert message[-1] == f"{len(rows)} samples: {len(rows) - 1} passed, 1 wrong"
