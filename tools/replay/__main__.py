"""Record what the compiler makes of the programs in cases.py, or compare two recordings.

    python tools/replay record before.json [--only conv2d] [--jobs 2]
    python tools/replay compare before.json after.json
    python tools/replay against main~5 [--only conv2d] [--jobs 2]

`against` makes a recording of a commit by that commit's own replay, one of the tree, and compares them. In: the working
tree. Out: for each program and each of four CPUs: a digest of the graph after all passes, digests of
every kernel's loops (TIR) and LLVM text, bytes of graph, parameters and memory. Invariant: no machine code is made and
no cache is read, so equal recordings mean equal kernels; `compare` exits with 1 where they differ. What stands on calls
beside what they compute (choices, hashes) is left out of texts, so that recordings of before and after can be compared.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases import CASES

from armillary.codegen.build import emit_functions
from armillary.driver.build import optimized
from armillary.driver.explain import kernel_attrs
from armillary.driver.kernel_code import lower_kernel
from armillary.driver.program_codegen import Kernel, plan_network
from armillary.driver.variants import entries
from armillary.errors import ArmillaryError
from armillary.program.placement import arena_bytes
from armillary.program.to_graph import graph_of
from armillary.relay.printer import astext
from armillary.target import Target
from armillary.tir.printer import print_function
from armillary.transform import PassContext

TARGETS = {
    "znver4": "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4",
    "sapphirerapids": "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids",
    "haswell": "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell",
    "cortex-a72": "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
}
ROOT = Path(__file__).resolve().parents[2]
LEVEL = 3  # of optimisation, at which layouts and algorithms are chosen
Recording = dict[str, dict[str, Any]]  # Any: what _row gives, of one program and CPU
_SEEN: dict[tuple[str, str], list[str]] = {}  # kernels that this process has lowered


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _bare(text: str) -> str:
    """A text without choices and hashes."""
    return re.sub(r', (choice|hash)="[^"]*"', "", text)


def _name(kernel: Kernel) -> str:
    """A name that does not depend on what is left out."""
    return f"{kernel.name.rpartition('_')[0]}_{_digest(_bare(kernel.text))}"


def _kernel(kernel: Kernel, cpu: str, target: Target) -> list[str]:
    """Digests of loops, LLVM text and notes; kernels of one text are lowered once."""
    text = kernel.text.replace(kernel.name, "kernel")
    key = (text, cpu)
    if key not in _SEEN:
        phased, loops = lower_kernel(replace(kernel, name="kernel"), target)
        text = _bare(text)
        code = emit_functions([phased], target).get_source("ll")
        notes = json.dumps(kernel_attrs(kernel.function, target))
        _SEEN[key] = [_digest(t) for t in (text, print_function(loops, "kernel"), code, notes)]
    return _SEEN[key]


def _row(name: str, cpu: str) -> dict[str, Any]:  # Any: digests and sizes
    module, params = CASES[name]()
    target = Target(TARGETS[cpu])
    try:
        with PassContext(opt_level=LEVEL):
            done = optimized(module, target, params)
        plan = plan_network(*(done[entry] for entry in entries(done)))
        kernels = {_name(k): _kernel(k, cpu, target) for k in plan.kernels.values()}
    except ArmillaryError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    bytes_of = {n: int(getattr(v, "nbytes", 0)) for n, v in plan.params.items()}
    return {
        "graph": _digest(_bare(astext(done))),
        "kernels": kernels,
        "nodes": len(graph_of(plan.program).nodes),
        "arena": arena_bytes(plan.program),
        "parameters": sum(bytes_of.values()),
    }


def _case(name: str) -> tuple[str, dict[str, Any], float]:  # Any: as in _row
    start = time.process_time()
    return name, {cpu: _row(name, cpu) for cpu in TARGETS}, time.process_time() - start


def record(file: Path, only: str, jobs: int) -> None:
    """Write a recording."""
    names = sorted((n for n in CASES if only in n), key=lambda n: not n.startswith("net-"))  # the long ones first
    recording: Recording = {}
    with ProcessPoolExecutor(jobs) as pool:
        for name, rows, seconds in pool.map(_case, names):
            recording[name] = rows
            wrong = {row["error"] for row in rows.values() if "error" in row}
            print(f"{name:28} {seconds:6.1f} s", *wrong, flush=True)
    file.write_text(json.dumps(dict(sorted(recording.items())), indent=1) + "\n", "utf-8")
    print(f"{len(recording)} programs, {len(TARGETS)} CPUs: {file}")


def differences(before: Recording, after: Recording) -> list[str]:
    """A line for each thing that differs."""
    lines = []
    for name in sorted({*before, *after}):
        for cpu in TARGETS:
            old, new = (side.get(name, {}).get(cpu, {}) for side in (before, after))
            lines += [f"{name} {cpu}: {what}" for what in _unequal(old, new)]
    return lines


def _unequal(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    plain = [k for k in sorted({*old, *new} - {"kernels"}) if old.get(k) != new.get(k)]
    changes = [f"{k} {old.get(k)} -> {new.get(k)}" for k in plain]
    mine, theirs = old.get("kernels", {}), new.get("kernels", {})
    parts = ("function", "loops", "code", "notes")
    renamed = _renamed(mine, theirs)
    changes += [f"kernel {kernel} is now {renamed[kernel]}" for kernel in sorted(renamed)]
    for kernel in sorted({*mine, *theirs} - {*renamed, *renamed.values()}):
        pair = mine.get(kernel), theirs.get(kernel)
        if None in pair:
            changes.append(f"kernel {kernel} {'appears' if pair[0] is None else 'is gone'}")
        elif pair[0] != pair[1]:
            changes.append(f"kernel {kernel}: {', '.join(p for p, a, b in zip(parts, *pair) if a != b)} changed")
    return changes


def _renamed(mine: dict[str, list[str]], theirs: dict[str, list[str]]) -> dict[str, str]:
    """Kernels of which loops and code stay and the name does not."""
    left = {tuple(digests[1:3]): name for name, digests in theirs.items() if name not in mine}
    gone = {name: left.get(tuple(digests[1:3])) for name, digests in mine.items() if name not in theirs}
    return {name: other for name, other in gone.items() if other is not None}


def against(commit: str, only: str, jobs: int) -> list[str]:
    """What differs between the programs of a commit and of the tree."""
    with tempfile.TemporaryDirectory(prefix="replay-") as place:
        folder = Path(place)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as members:
            members.extractall(folder / "tree", filter="data")
        command = [sys.executable, "tools/replay", "record", str(folder / "before.json")]
        environment = {**os.environ, "PYTHONPATH": str(folder / "tree")}
        options = ["--only", only, "--jobs", str(jobs)]
        subprocess.run([*command, *options], cwd=folder / "tree", env=environment, check=True)
        record(folder / "after.json", only, jobs)
        return differences(*_read(folder / "before.json", folder / "after.json"))


def _read(*files: Path) -> list[Recording]:
    return [json.loads(file.read_text("utf-8")) for file in files]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("record", help="write a recording")
    making.add_argument("file", type=Path)
    comparing = commands.add_parser("compare", help="what differs between two recordings")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    with_commit = commands.add_parser("against", help="what differs between a commit and the tree")
    with_commit.add_argument("commit")
    for command in (making, with_commit):
        command.add_argument("--only", default="", help="programs whose name holds this")
        command.add_argument("--jobs", type=int, default=2, help="processes; default: 2")
    args = parser.parse_args()
    if args.command == "record":
        record(args.file, args.only, args.jobs)
        return 0
    is_commit = args.command == "against"
    rows = against(args.commit, args.only, args.jobs) if is_commit else differences(*_read(args.before, args.after))
    print("\n".join(rows) or "no difference")
    return 1 if rows else 0


if __name__ == "__main__":
    sys.exit(main())
