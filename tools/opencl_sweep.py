"""Run the operator matrix on an OpenCL device, sample by sample, and keep what came of each: stopped, it goes on.

    python tools/opencl_sweep.py STATE.jsonl [--target "opencl -device=adreno"] [--half] [--jobs 1] [--seconds 120]
        [--again] [--ops NAME,…] [--python PYTHON] [--report]

In: the samples of every operator; with `--half` their float32 as float16. Out: a line of JSON in STATE for each sample:
operator, number, outcome, message, seconds. Outcomes are `passed`, `wrong` (another number than the reference's),
`refused` (an error that says why), `untyped` (the operator does not take float16), `failed` (any other exception),
`ended` (the process died, or took longer than `--seconds`). What STATE holds is not run again, but, with `--again`,
what did not pass. First samples of operators come first. Samples run in child processes, so a driver that crashes costs
one sample. What computes a sample: tests/ops/opencl_sample.py; a driver with its own libraries needs `--python`.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

PROGRAM = Path(__file__).parents[1] / "tests" / "ops" / "opencl_sample.py"
OUTCOMES = ("passed", "wrong", "refused", "untyped", "failed", "ended")
Sample = tuple[str, int]
Row = dict[str, object]


class Child:
    """A process that computes samples; one that ends or takes too long is replaced."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.start()

    def start(self) -> None:
        """Start the process and read which samples there are."""
        words = [self.args.python, str(PROGRAM)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.answer(600)
        if not line:
            sys.exit(f"{' '.join(words)} does not start")
        self.samples: list[Sample] = [(name, number) for name, number in json.loads(line)]

    def answer(self, seconds: float) -> str:
        """The next line of JSON; "" where there is none: by then the process has ended, or is killed."""
        assert self.process.stdout is not None, "it is a pipe"
        watch = threading.Timer(seconds, self.process.kill)
        watch.start()
        try:
            return next((line for line in self.process.stdout if line.startswith("[")), "")
        finally:
            watch.cancel()

    def compute(self, name: str, number: int) -> Row:
        """The row of a sample."""
        begin = time.monotonic()
        assert self.process.stdin is not None, "it is a pipe"
        self.process.stdin.write(json.dumps([name, number, self.args.target, self.args.half]) + "\n")
        self.process.stdin.flush()
        line = self.answer(self.args.seconds)
        if line:
            outcome, message = json.loads(line)
        else:
            outcome, message = "ended", f"the process ended with {self.process.wait()}"
            self.start()
        return {
            "op": name,
            "sample": number,
            "outcome": outcome,
            "message": message,
            "seconds": round(time.monotonic() - begin, 2),
        }

    def end(self) -> None:
        """Let the process end."""
        assert self.process.stdin is not None, "it is a pipe"
        self.process.stdin.close()
        self.process.wait()


def read(state: Path) -> dict[Sample, Row]:
    """What is known: the last row of each sample."""
    rows: dict[Sample, Row] = {}
    for line in state.read_text().splitlines() if state.exists() else ():
        row = json.loads(line)
        rows[row["op"], row["sample"]] = row
    return rows


def sweep(args: argparse.Namespace) -> None:
    """Run what the file does not hold."""
    first, known, names = Child(args), read(args.state), set(filter(None, args.ops.split(",")))
    todo: queue.SimpleQueue[Sample] = queue.SimpleQueue()
    for name, number in sorted(first.samples, key=lambda sample: (sample[1], sample[0])):
        row = known.get((name, number))
        if (not names or name in names) and (row is None or (args.again and row["outcome"] != "passed")):
            todo.put((name, number))
    lock = threading.Lock()

    def work(child: Child) -> None:
        while True:
            try:
                sample = todo.get_nowait()
            except queue.Empty:
                child.end()
                return
            row = child.compute(*sample)
            with lock, args.state.open("a") as file:
                file.write(json.dumps(row) + "\n")

    workers = [threading.Thread(target=lambda: work(Child(args))) for _ in range(args.jobs - 1)]
    for worker in workers:
        worker.start()
    work(first)
    for worker in workers:
        worker.join()


def report(state: Path) -> str:
    """Every sample that did not pass, and the counts."""
    rows = read(state)
    message = [
        f"{row['outcome']:8} {name} {number}: {' '.join(str(row['message']).split())[:200]}"
        for (name, number), row in sorted(rows.items())
        if row["outcome"] != "passed"
    ]
    counts = Counter(str(row["outcome"]) for row in rows.values())
    shown = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name])
    return "\n".join([*message, f"{len(rows)} samples: {shown}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("state", type=Path, help="the file that keeps the outcomes")
    parser.add_argument("--target", default="opencl -device=adreno")
    parser.add_argument("--half", action="store_true", help="float16 instead of float32")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--seconds", type=float, default=120, help="that a sample may take")
    parser.add_argument("--again", action="store_true", help="run what did not pass once more")
    parser.add_argument("--ops", default="", help="of these operators alone")
    parser.add_argument("--python", default=sys.executable, help="what runs the samples")
    parser.add_argument("--report", action="store_true", help="run nothing")
    args = parser.parse_args()
    if not args.report:
        sweep(args)
    print(report(args.state))
    return 0


if __name__ == "__main__":
    sys.exit(main())
