"""The replay: equal trees give equal recordings, and a changed kernel is named."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _replay(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "replay"), *map(str, args)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_recording_is_compared_kernel_by_kernel(tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    done = _replay("record", before, "--only", "qnn-dense-1", "--jobs", 1)
    assert done.returncode == 0, done.stderr
    assert _replay("compare", before, before).stdout == "no difference\n"
    found = json.loads(before.read_text("utf-8"))
    assert set(found["qnn-dense-1-row"]) == {"znver4", "sapphirerapids", "haswell", "cortex-a72"}
    (kernel, digests) = next(iter(found["qnn-dense-1-row"]["haswell"]["kernels"].items()))
    found["qnn-dense-1-row"]["haswell"]["kernels"] = {"another": digests}
    after.write_text(json.dumps(found), "utf-8")
    assert _replay("compare", before, after).stdout == f"qnn-dense-1-row haswell: kernel {kernel} is now another\n"
    found["qnn-dense-1-row"]["haswell"]["kernels"] = {kernel: digests}
    digests[2] = "another"
    after.write_text(json.dumps(found), "utf-8")
    done = _replay("compare", before, after)
    assert done.returncode == 1
    assert done.stdout == f"qnn-dense-1-row haswell: kernel {kernel}: code changed\n"
