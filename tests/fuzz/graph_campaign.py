"""Many graphs, several processes: seeds in, findings out.

In: seeds, levels, a target. Out: one record per seed in a JSON-lines file, so that a run goes on where it stopped.
Invariant: each seed ends in a record; a process that dies or hangs is itself a finding, with the seed it worked on.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Record = dict[str, Any]
GRAPHS_PER_PROCESS = 200  # code that was loaded stays loaded: a fresh process now and then
SECONDS_PER_GRAPH = 120.0  # of processor time: others may use the machine
PATIENCE = 10  # times that, by the clock
CORES = 2  # that a case keeps busy: its processor time is not looked at before it can be spent


def processor_time(pid: int) -> tuple[int, float]:
    """The parent of a process, and its processor seconds with those of what it waited for; zeros if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, 0.0
    return int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> dict[int, float]:
    """A process and those that it runs, with the processor seconds of each and of those that it waited for."""
    used, children = {}, collections.defaultdict(list)
    for name in filter(str.isdigit, os.listdir("/proc")):
        parent, used[int(name)] = processor_time(int(name))
        children[parent].append(int(name))
    found = [pid]
    for one in found:
        found += children[one]
    return {one: used.get(one, 0.0) for one in found}


class Worker:
    """One process of a script beside this file (graph_worker.py, fuzz_worker.py), started again when it ends."""

    def __init__(self, script: str = "graph_worker.py", *arguments: str) -> None:
        self.script, self.arguments = script, arguments
        self.process: subprocess.Popen[bytes] | None = None
        self.count = 0

    def ask(self, request: Record, seconds: float = SECONDS_PER_GRAPH) -> Record:
        """The answer, or a record of kind crash or timeout: after `seconds` of processor time, or ten times as long."""
        process = self._running()
        (_, before), start = processor_time(process.pid), time.monotonic()
        due, end = start + seconds / CORES, start + PATIENCE * seconds  # before `due` nobody can have used them up
        assert process.stdin is not None and process.stdout is not None, "both are pipes"
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._dead()
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([process.stdout], [], [], min(1.0, seconds))[0]:
                now = time.monotonic()
                if now < due or (now < end and sum(family(process.pid).values()) - before < seconds):
                    continue
                self.close()
                return {"kind": "timeout", "signature": "timeout", "detail": f"no answer in {seconds} s"}
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                return self._dead()
            line += part
        reply: Record = json.loads(line)
        return reply

    def _running(self) -> subprocess.Popen[bytes]:
        self.count += 1
        if self.process is not None and self.count % GRAPHS_PER_PROCESS == 0:
            self.close()
        if self.process is None:
            command = [sys.executable, "-W", "ignore", str(HERE / self.script), *self.arguments]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=HERE.parents[1]
            )
        return self.process

    def _dead(self) -> Record:
        code = self.process.wait(30) if self.process is not None else 0
        self.process = None
        return {"kind": "crash", "signature": f"crash {code}", "detail": f"the process ended with {code}"}

    def close(self) -> None:
        """End the process, and what it runs."""
        if self.process is not None:
            for pid in family(self.process.pid) if self.process.poll() is None else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait(30)
            self.process = None


def read_records(path: Path) -> dict[int, Record]:
    """The records of an earlier run, by seed."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return {row["seed"]: row for row in rows}


def run(
    seeds: Iterable[int],
    levels: Sequence[int],
    target: str,
    jobs: int,
    path: Path | None = None,
    report: Callable[[Record], None] = lambda record: None,
) -> list[Record]:
    """Check every seed that has no record yet; records in the order they came."""
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done = read_records(path) if path is not None else {}
    for seed in seeds:
        if seed not in done:
            todo.put(seed)
    records, lock = list(done.values()), threading.Lock()

    def keep(record: Record) -> None:
        with lock:
            records.append(record)
            if path is not None:
                with path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
            report(record)

    def work() -> None:
        worker = Worker()
        while True:
            try:
                seed = todo.get_nowait()
            except queue.Empty:
                worker.close()
                return
            keep({"seed": seed, **worker.ask({"seed": seed, "levels": list(levels), "target": target})})

    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return records


def failures(records: Iterable[Record]) -> list[Record]:
    """Those that did not agree."""
    return [r for r in records if r["kind"] not in ("agrees", "rejected")]
