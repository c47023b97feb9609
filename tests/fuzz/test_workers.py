"""The process of a campaign has so much processor time for a case, whatever else the machine does."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from graph_campaign import Worker

ANSWERS = {"rests": "agrees", "works": "timeout", "works in a child": "timeout", "dies": "crash"}
SCRIPT = """
import os, subprocess, sys, time
for line in sys.stdin:
    if {does!r} == "rests":
        time.sleep(0.6)
    elif {does!r} == "dies":
        os._exit(3)
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if "child" in {does!r} else None
    open({pids!r}, "w").write(f"{{os.getpid()}} {{child.pid if child else os.getpid()}}")
    while child is not None or {does!r} == "works":
        time.sleep(1 if child else 0)
    print('{{"kind": "agrees"}}', flush=True)
"""


def runs(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("does", ANSWERS)
def test_an_answer_or_what_became_of_it(does: str, tmp_path: Path) -> None:
    script, pids = tmp_path / "script.py", tmp_path / "pids"
    script.write_text(SCRIPT.format(does=does, pids=str(pids)))
    worker = Worker(str(script))
    assert worker.ask({}, 0.2)["kind"] == ANSWERS[does]
    worker.close()
    time.sleep(0.1)
    assert not any(runs(int(pid)) for pid in (pids.read_text().split() if pids.exists() else ()))
