"""Networks on an OpenCL device beside PyTorch's CUDA graph, in turns; then tuned for a given time, and again.

    python benchmarks/gpu_race.py [--networks resnet18,vgg16] [--seconds 200] [--tune 0]
        [--records benchmarks/records] [--folder build/gpu]

In: names of networks of gpu_networks.py (without PyTorch: of networks.py, and no column of PyTorch), `sixteen` or
`products` for lists of them, or ONNX files. Each is made once, with drawn weights and statistics of a batch, and
written as the ONNX file that is compiled here: both compute the same.
Out: a table, and below `--folder` `race.json` (every number, the slowest kernels) and `<network>.log` with the trials
of tuning; a second call goes on with them, and with those of `--records/<device>`: it does not measure textures and
tinygrad again. Per network, in float32, `--images` at once: ms of the default compile, with records, with textures, of
PyTorch, and, where it is installed, of tinygrad (by OpenCL, without a search), errors, seconds to the first result
without and with a kept program. Invariant: networks are made and compiled side by side, but one process at a time uses
the device (tinygrad compiles on it side by side, when nothing is timed); one that fails or hangs is ended and named,
and the others go on. The process: gpu_race_worker.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = Path(__file__).with_name("gpu_race_worker.py")
NETWORKS = ("resnet18", "resnet50", "mobilenet_v2", "vgg16", "inception_v3")
SIXTEEN = (
    *("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_large", "densenet121", "squeezenet1_1"),
    *("shufflenet_v2_x1_0", "efficientnet_b0", "inception_v3", "vgg16", "convnext_tiny", "swin_t"),
    *("vit_b_16", "bert_base", "fcn_resnet50", "llama_block"),
)
PRODUCTS = ("product-512", "product-1024", "product-2048", "product-4096")
LISTS = {"sixteen": SIXTEEN, "products": PRODUCTS}
TURNS = ("default", "tuned", "textures")
PATIENCE = 90.0  # seconds of one turn of one network on the device, where none is said
LEAST = 5.0  # seconds that have to be left for a turn
MARGIN = 1.2  # of the time of the turn with records, for that after tuning
BATCH_S = 15.0  # by which tuning takes longer than it was given
ONCE = ("textures", "tinygrad")  # what a second call does not measure again
Row = dict[str, object]
COLUMNS = (
    ("default ms", "default", "ms"),
    ("records ms", "tuned", "ms"),
    ("textures ms", "textures", "ms"),
    ("tinygrad ms", "tinygrad", "ms"),
    ("half ms", "half", "ms"),
    ("torch ms", "default", "torch_ms"),
    ("default/torch", "default", "ratio"),
    ("records/torch", "tuned", "ratio"),
    ("half/default", "half", "to_default"),
    ("error", "default", "error"),
    ("half error", "half", "error"),
    ("torch error", "default", "torch_error"),
    ("first s", "default", "first_s"),
    ("kept s", "default", "kept_s"),
    ("programs x", "default", "programs"),
)


class Worker:
    """A process that holds one network: asked by a line, it answers by a line."""

    def __init__(self, name: str, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name, pipe = name, subprocess.PIPE
        with log.open("a") as errors:
            self.process: subprocess.Popen[str] | None = subprocess.Popen(
                [sys.executable, str(SCRIPT), *arguments],
                env=dict(env),
                stdin=pipe,
                stdout=pipe,
                stderr=errors,
                text=True,
            )

    def answer(self, patience: float) -> Row:
        """The next answer; {"failed": …} where there is none."""
        if self.process is None:
            return {"failed": "the process has ended"}
        assert self.process.stdout is not None, "the pipe was asked for"
        ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, patience))
        line = self.process.stdout.readline() if ready else ""
        if line:
            return dict(json.loads(line))
        message = f"no answer in {patience:.0f} s" if not ready else f"the process ended with {self.process.wait()}"
        self.close()
        return {"failed": message}

    def tell(self, do: str, **more: str) -> None:
        """Say what to do."""
        if self.process is not None and self.process.poll() is None:
            assert self.process.stdin is not None, "the pipe was asked for"
            self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
            self.process.stdin.flush()

    def ask(self, do: str, patience: float, **more: str) -> Row:
        """Say what to do, and wait."""
        self.tell(do, **more)
        return self.answer(patience)

    def close(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Race:
    """All networks, the numbers so far, and how much time there is."""

    def __init__(self, args: argparse.Namespace, folder: Path, scratch: Path) -> None:
        self.args, self.folder, self.scratch = args, folder, scratch
        self.start = time.monotonic()
        words: list[str] = args.networks.split(",")
        self.names = [name for word in words for name in LISTS.get(word, (word,))]
        self.rows: dict[str, dict[str, Row]] = {name: {} for name in self.names}
        kept = folder / "race.json"
        self.before: dict[str, dict[str, Row]] = json.loads(kept.read_text()) if kept.exists() else {}
        # What another process has compiled, or the driver, must not make a first run fast.
        self.env = {**os.environ, "ARMILLARY_CACHE_DIR": str(scratch / "cache"), "CUDA_CACHE_DISABLE": "1"}

    def prepare(self) -> None:
        """Build the runtime once, not by every process at the same time."""
        program = "from armillary.runtime.native_library import native; native()"
        subprocess.run([sys.executable, "-c", program], env={**self.env, "PYTHONPATH": _path()}, check=True)

    def left(self) -> float:
        """Seconds of those that all may take."""
        return float(self.args.seconds) - (time.monotonic() - self.start)

    def worker(self, role: str, name: str) -> Worker:
        """A process for a network."""
        options = ["--device", str(self.args.device), "--rounds", str(self.args.rounds), "--side", str(self.args.side)]
        options += ["--target", self.args.target, "--images", str(self.args.images)]
        return Worker(name, [role, name, str(self.scratch), *options], self.env, self.folder / "race.log")

    def done(self, name: str, what: str) -> bool:
        """Whether an earlier call has measured on this device what is measured once; its numbers are taken over."""
        row, before = self.before.get(name, {}).get(what, {}), self.before.get(name, {}).get("made", {})
        same = before.get("device") == self.rows[name].get("made", {}).get("device")
        found = what in ONCE and same and "ms" in row
        if found and what not in self.rows[name]:
            self.keep(name, what, row)
        return found

    def keep(self, name: str, what: str, row: Row) -> None:
        """A turn's numbers, on paper at once."""
        self.rows[name][what] = row
        message = row.get("failed") or ", ".join(f"{k} {_short(v)}" for k, v in row.items() if k != "kernels")
        print(f"[{time.monotonic() - self.start:5.0f} s] {name} {what}: {message}", flush=True)
        (self.folder / "race.json").write_text(json.dumps(self.rows, indent=1))

    def table(self) -> str:
        """As Markdown."""
        lines = [["network", *(head for head, *_ in COLUMNS)], ["---"] * (1 + len(COLUMNS))]
        for name, found in self.rows.items():
            lines.append([name, *(_short(found.get(what, {}).get(key, "")) for _, what, key in COLUMNS)])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _path() -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) >= 1e-3 else f"{value:.1e}"
    return str(value)


def logs_of(race: Race, device: str) -> None:
    """Begin each network's log with the trials that were kept for this device."""
    kept = Path(race.args.records) / re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    for name in race.names:
        log = Path(_log(race, name))
        stored = [path for path in kept.glob("*.log") if re.sub(r"\W|_", "", path.stem) == re.sub(r"\W|_", "", name)]
        if stored and not log.exists():
            log.write_text(stored[0].read_text())


def run(race: Race) -> None:
    """Race the default compile, records, textures and tinygrad; then tune, and race records again."""
    patience = float(race.args.patience)
    race.prepare()
    racers = {name: race.worker("race", name) for name in race.names}
    tuners: dict[str, Worker] = {}
    try:
        for name, racer in racers.items():
            race.keep(name, "made", racer.answer(min(2 * patience, race.left())))
        logs_of(race, next((str(r["made"]["device"]) for r in race.rows.values() if "device" in r["made"]), ""))
        again = 0.0
        for what in race.args.turns.split(","):
            start = time.monotonic()
            turn(race, racers, what)
            again = MARGIN * (time.monotonic() - start) + BATCH_S if what == "tuned" else again
        if race.args.tune:
            tuners = {name: race.worker("tune", name) for name, racer in racers.items() if racer.process is not None}
        tinygrad(race, racers)
        for name, tuner in tuners.items():
            race.keep(name, "ready to tune", tuner.answer(min(patience, race.left())))
        if tuners:
            tune(race, tuners, race.left() - again)
            turn(race, racers, "tuned")
    finally:
        for worker in (*racers.values(), *tuners.values()):
            worker.close()


def tune(race: Race, tuners: Mapping[str, Worker], most: float) -> None:
    """Each network in its turn, for its part of the time; what one leaves of it goes to the others."""
    start, left, whole = time.monotonic(), len(tuners), min(float(race.args.tune), most)
    for name, tuner in tuners.items():
        seconds = (start + whole - time.monotonic()) / left
        left -= 1
        if seconds > 0:
            found = tuner.ask("tune", seconds + race.args.patience, seconds=str(seconds), log=_log(race, name))
            race.keep(name, "tuning", found)
        tuner.close()


def turn(race: Race, racers: Mapping[str, Worker], what: str) -> None:
    """Compile for all networks side by side, then time one after the other."""
    able = {n: racer for n, racer in racers.items() if racer.process is not None and not race.done(n, what)}
    if race.left() < LEAST:
        return
    for name, racer in able.items() if what != "default" else ():
        racer.tell("compile", what=what, log=_log(race, name))
    for name, racer in able.items() if what != "default" else ():
        race.keep(name, f"compiled {what}", racer.answer(min(race.args.patience, race.left())))
    for name, racer in able.items():
        if race.left() > LEAST and racer.process is not None:
            race.keep(name, what, racer.ask("race", min(race.args.patience, race.left()), what=what))


def tinygrad(race: Race, racers: Mapping[str, Worker]) -> None:
    """The networks by tinygrad: compiled side by side, then timed one after the other."""
    if race.left() < LEAST or not importlib.util.find_spec("tinygrad"):
        return
    able = {n: race.worker("tinygrad", n) for n, r in racers.items() if r.process and not race.done(n, "tinygrad")}
    try:
        for name, worker in able.items():
            race.keep(name, "compiled tinygrad", worker.answer(min(2 * race.args.patience, race.left())))
        for name, worker in able.items():
            if worker.process is not None and race.left() > LEAST:
                race.keep(name, "tinygrad", worker.ask("race", min(race.args.patience, race.left())))
    finally:
        for worker in able.values():
            worker.close()


def _log(race: Race, name: str) -> str:
    return str(race.folder / f"{Path(name).stem}.log")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--seconds", type=float, default=200, help="for all; what does not fit is left out (200)")
    parser.add_argument("--tune", type=float, default=0, help="seconds of them to tune in (default: 0, none)")
    parser.add_argument("--turns", default=",".join(TURNS), help=f"of {', '.join(TURNS)}, half; the default is first")
    parser.add_argument("--records", type=Path, default=ROOT / "benchmarks" / "records")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--rounds", type=int, default=20, help="of timing, ten runs each (default: 20)")
    parser.add_argument("--patience", type=float, default=PATIENCE, help=f"seconds of one turn ({PATIENCE:.0f})")
    parser.add_argument("--side", type=int, default=0, help="of images (default: as published)")
    parser.add_argument("--images", type=int, default=1, help="of a batch, or sequences (default: 1)")
    parser.add_argument("--keep", action="store_true", help="keep ONNX files and inputs in the folder `onnx` below")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="gpu-race-"))
    race = Race(args, args.folder, scratch)
    try:
        run(race)
        if args.keep:
            shutil.copytree(scratch / "onnx", args.folder / "onnx", dirs_exist_ok=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(race.table(), flush=True)
    failed = [f"{n} {w}" for n, rows in race.rows.items() for w, row in rows.items() if "failed" in row]
    print(f"failed: {', '.join(failed)}" if failed else "nothing failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
