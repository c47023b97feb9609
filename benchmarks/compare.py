"""Time networks in Armillary and in other engines, interleaved; check that the outputs agree.

    python benchmarks/compare.py MODEL.onnx … [--engines armillary,onnxruntime,openvino,ncnn,mnn] [--threads 1,2]
        [--rounds 5] [--seconds 1] [--json FILE]

Each engine runs in a process of its own (benchmarks/engines.py), stopped while another runs, so that spinning threads
of one do not slow another. A round runs every engine for `--seconds`; the order rotates, so drift of the machine hits
all alike. Printed per engine: minimum and median in ms, the ratio of its median to Armillary's, load time (for
Armillary: the compile), peak memory, and the largest difference from ONNX Runtime's output relative to its largest
value. The other engines come from pip: onnxruntime, openvino, ncnn with pnnx, MNN.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from engines import ENGINES
from rich.console import Console
from rich.table import Table


class Engine:
    """One engine's process, stopped between its turns."""

    def __init__(self, name: str, path: Path, threads: int) -> None:
        names = ("ARMILLARY_NUM_THREADS", "OMP_NUM_THREADS")
        environment = os.environ | dict.fromkeys(names, str(threads))
        script = Path(__file__).with_name("engines.py")
        command = [sys.executable, str(script), name, str(path), str(threads)]
        pin = (lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})) if threads == 1 else None
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        self.process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, stderr=nowhere, text=True, preexec_fn=pin
        )
        self.name = name
        self.times: list[list[float]] = []
        self.start: dict[str, Any] = self._answer()
        self.process.send_signal(signal.SIGSTOP)

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with status {self.process.wait()}: is its pip package installed?")
        return json.loads(line)

    def turn(self, seconds: float) -> None:
        """Run for a while and keep the times."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        print(seconds, file=self.process.stdin, flush=True)
        self.times.append(self._answer())
        self.process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def compare(path: Path, threads: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of one network and thread count, one per engine."""
    engines = [Engine(name, path, threads) for name in args.engines.split(",")]
    for index in range(args.rounds):
        turn = index % len(engines)
        for engine in engines[turn:] + engines[:turn]:
            engine.turn(args.seconds)
    reference = next((e for e in engines if e.name == "onnxruntime"), engines[0])
    truth = np.array(reference.start["output"])
    rows = []
    for engine in engines:
        difference = np.abs(np.array(engine.start["output"]) - truth).max() / np.abs(truth).max()
        rows.append(
            {
                "network": path.stem, "threads": threads, "engine": engine.name,
                "median_ms": statistics.median(statistics.median(t) for t in engine.times),
                "min_ms": min(min(t) for t in engine.times),
                "load_s": engine.start["load_s"], "peak_mb": engine.start["peak_mb"], "difference": float(difference),
            }
        )  # fmt: skip
        engine.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+", type=Path, help="ONNX files")
    parser.add_argument("--engines", default="armillary,onnxruntime", help=f"of: {', '.join(ENGINES)}")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    console, everything = Console(), []
    for path in args.networks:
        for threads in map(int, args.threads.split(",")):
            rows = compare(path, threads, args)
            everything += rows
            table = Table("engine", "min ms", "median ms", "/ Armillary", "load s", "peak MB", "difference")
            table.title = f"{path.stem}, {threads} thread{'s' * (threads > 1)}"
            base = next((r["median_ms"] for r in rows if r["engine"] == "armillary"), rows[0]["median_ms"])
            for row in sorted(rows, key=lambda r: r["median_ms"]):
                table.add_row(
                    row["engine"], f"{row['min_ms']:.2f}", f"{row['median_ms']:.2f}", f"{row['median_ms'] / base:.2f}",
                    f"{row['load_s']:.2f}", f"{row['peak_mb']:.0f}", f"{row['difference']:.1e}",
                )  # fmt: skip
            console.print(table)
    if args.json:
        args.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
