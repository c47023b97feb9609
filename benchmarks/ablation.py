"""What each graph pass and each algorithm of the CPU is worth: a build without it, timed against one with it, in turns.

    python benchmarks/ablation.py find out.json [--only net-]     which programs each mechanism changes
    python benchmarks/ablation.py time out.json [--seconds 0.2]   those programs, with and without it
    python benchmarks/ablation.py table out.json

In: the programs of tools/replay and of ablation_layers.py. Out: a JSON file, and a table: for each mechanism its
programs, then the largest effect on the time of a network and of a layer, on the memory that a run takes and on the
package. Invariant: a program is timed where the mechanism changes its graph or its kernels, and its outputs stay; a
second build without any change is timed in the same rounds, and its ratio is the noise. Whatever is done is in the
file: an interrupted call goes on at the next one. A mechanism whose absence makes a build fail is needed, and has no
figures.

Of one thread. A ratio is of the least times of all rounds, which other processes disturb least. Run it with `nice`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["ARMILLARY_CACHE"] = "0"
os.environ.setdefault("ARMILLARY_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools" / "replay")]

import numpy as np  # noqa: E402
from ablation_layers import LAYERS  # noqa: E402
from cases import CASES as REPLAYED  # noqa: E402

import armillary  # noqa: E402
from armillary import relay  # noqa: E402
from armillary.backends import registry  # noqa: E402
from armillary.backends.anchor import find_anchor  # noqa: E402
from armillary.backends.cpu import select  # noqa: E402
from armillary.base.files import write_atomic  # noqa: E402
from armillary.contrib.graph_executor import GraphModule  # noqa: E402
from armillary.driver.build import optimized  # noqa: E402
from armillary.driver.lower_fused import workload_of  # noqa: E402
from armillary.driver.program_codegen import plan_network  # noqa: E402
from armillary.driver.variants import entries  # noqa: E402
from armillary.errors import ArmillaryError  # noqa: E402
from armillary.ir import IRModule  # noqa: E402
from armillary.program.placement import arena_bytes  # noqa: E402
from armillary.relay.op import OPS  # noqa: E402
from armillary.relay.printer import astext  # noqa: E402
from armillary.relay.transform.pipeline import build_passes  # noqa: E402
from armillary.target import Target  # noqa: E402
from armillary.transform import PassContext, PassInfo, PassInstrument  # noqa: E402

CASES = {**REPLAYED, **LAYERS}
LEVEL = 3
NETWORK, LAYER = 3.0, 10.0  # percent that a mechanism should give of a network, or of a layer
Found = dict[str, Any]  # Any: what the JSON file holds


class Changes(PassInstrument):
    """Names of the passes that gave another module than they took; kernels are lowered in this process under it."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._before: list[IRModule] = []

    def run_before_pass(self, module: IRModule, info: PassInfo) -> None:
        self._before.append(module)

    def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
        before = self._before.pop()
        if isinstance(module, IRModule) and module is not before:
            self.names.add(info.name)


@contextmanager
def without(mechanism: str) -> Iterator[Changes]:
    """A pass context, or tables of algorithms, without `pass NAME` or `algorithm OPERATOR/ROW`; "" changes nothing."""
    kind, _, name = mechanism.partition(" ")
    watch = Changes()
    off = [name] if kind == "pass" else []
    with PassContext(opt_level=LEVEL, disabled_pass=off, instruments=[watch]):
        if kind != "algorithm":
            yield watch
            return
        operator, _, row = name.rpartition("/")
        rows, candidates = registry._ROWS["cpu", operator], select.CANDIDATES.get(operator, ())
        registry._ROWS["cpu", operator] = [r for r in rows if r.name != row]
        select.CANDIDATES[operator] = tuple(c for c in candidates if c.row != row)
        try:
            yield watch
        finally:
            registry._ROWS["cpu", operator] = rows
            select.CANDIDATES[operator] = candidates
            select.CANDIDATES.pop(operator) if not candidates else None


def mechanisms(name: str, target: Target) -> tuple[list[str], str]:
    """The passes that changed a program and the algorithms of its kernels; the program's graph after all passes."""
    module, params = CASES[name]()
    with without("") as watch:
        done = optimized(module, target, params)
        plan = plan_network(*(done[entry] for entry in entries(done)))
        rows = [_algorithm(kernel.function, target) for kernel in plan.kernels.values()]
    of_algorithms = [p for phase in ("layouts", "operators", "kernels") for p in select.passes(phase, target)]
    may = {p.info.name for p in (*build_passes(target), *of_algorithms) if 0 < p.info.opt_level <= LEVEL}
    found = [f"pass {n}" for n in sorted(watch.names & may)] + [f"algorithm {r}" for r in sorted({*rows} - {""})]
    return found, astext(done)


def _algorithm(function: Any, target: Target) -> str:  # Any: a primitive Function
    anchor = find_anchor(function)
    if anchor is None:
        return ""
    workload = workload_of(function, anchor, target)
    row, _ = registry.choose(workload)
    return "" if row.name == "default" else f"{workload.name}/{row.name}"


def find(found: Found, file: Path, only: str, target: Target) -> None:
    """Which mechanisms change which programs."""
    programs = found.setdefault("programs", {})
    for name in sorted(n for n in CASES if only in n and n not in programs):
        rows, text = mechanisms(name, target)
        programs[name] = {row: _is_changed(name, row, text, target) for row in rows}
        save(found, file)
        print(f"{name}: {sum(v is True for v in programs[name].values())} of {len(rows)}", flush=True)


def _is_changed(name: str, mechanism: str, text: str, target: Target) -> bool | str:
    """Whether a program is another one without a mechanism; or why it cannot be built."""
    if mechanism.startswith("algorithm"):
        return True
    module, params = CASES[name]()
    try:
        with without(mechanism):
            return astext(optimized(module, target, params)) != text
    except ArmillaryError as error:
        return f"needed: {error.message[:80]}"


class Built:
    """A program, ready to run, with its sizes in bytes."""

    def __init__(self, name: str, mechanism: str, target: Target) -> None:
        module, params = CASES[name]()
        with without(mechanism):
            library = relay.build(module, target, params=params)
        self.run = GraphModule(library["default"](armillary.cpu()))
        with tempfile.TemporaryDirectory() as folder:
            library.export_library(Path(folder) / "net.tar")
            self.package = (Path(folder) / "net.tar").stat().st_size
        with without(mechanism):
            done = optimized(module, target, params)
        plan = plan_network(*(done[entry] for entry in entries(done)))
        held = sum(int(getattr(v, "nbytes", 0)) for v in plan.params.values())
        self.memory = arena_bytes(plan.program) + held
        self._feed(module)

    def _feed(self, module: Any) -> None:  # Any: an IRModule
        random = np.random.default_rng(1)
        for param in relay.transform.InferType()(module)["main"].params:
            ty = param.checked_type
            if self.run.module.get_input_index(param.name_hint) < 0:
                continue
            is_float = ty.dtype.is_float
            values = random.standard_normal(ty.static) if is_float else random.integers(0, 20, ty.static)
            self.run.set_input(param.name_hint, values.astype(ty.dtype.numpy))

    def outputs(self) -> list[Any]:  # Any: arrays
        self.run.run()
        return [self.run.get_output(k).numpy().astype("float64") for k in range(self.run.get_num_outputs())]

    def best(self, seconds: float) -> float:
        """The least time of a run, in short batches for so many seconds."""
        once = max(self.run.module.time(1), 1e-7)
        number = max(1, int(0.005 / once))
        times = [self.run.module.time(number) / number for _ in range(max(3, int(seconds / (number * once))))]
        return min(times)


def compared(name: str, mechanism: str, target: Target, seconds: float, rounds: int) -> Found:
    """Time, memory and package with a mechanism and without it, and the noise."""
    try:
        built = [Built(name, m, target) for m in ("", mechanism, "")]
    except ArmillaryError as error:
        return {"needed": error.message[:80]}
    wanted, got = built[0].outputs(), built[1].outputs()
    far = max(float(np.max(np.abs(a - b)) / max(np.max(np.abs(a)), 1e-30)) for a, b in zip(wanted, got, strict=True))
    rows = []
    for turn in range(rounds):
        order = [built[(turn + k) % 3] for k in range(3)]
        took = {id(b): b.best(seconds) for b in order}
        rows.append([took[id(b)] for b in built])
    least = [min(column) for column in zip(*rows, strict=True)]
    spread = sorted(row[2] / row[0] for row in rows)
    return {
        "ms": 1e3 * least[0],
        "time": least[1] / least[0],
        "noise": least[2] / least[0],
        "spread": [spread[0], statistics.median(spread), spread[-1]],
        "package": built[1].package - built[0].package,
        "memory": built[1].memory - built[0].memory,
        "difference": far,
    }


def pays(name: str, row: Found) -> bool:
    """Whether a figure is worth the mechanism: beyond the bar, and by three times the noise of the same rounds."""
    gain = 100 * (row.get("time", 1.0) - 1)
    return gain >= max(NETWORK if name.startswith("net-") else LAYER, 300 * abs(row.get("noise", 1.0) - 1))


def time_all(found: Found, file: Path, target: Target, only: str, seconds: float, rounds: int, every: bool) -> None:
    """Time what is not timed yet, programs in the order of their names; what has paid once is left alone."""
    times = found.setdefault("times", {})
    paid = set[str]()
    for key, row in times.items():
        name, _, mechanism = key.partition(" | ")
        paid |= {mechanism} if pays(name, row) else set()
    for name, rows in found.get("programs", {}).items():
        for mechanism, is_changed in rows.items():
            key = f"{name} | {mechanism}"
            if is_changed is not True or key in times or only not in key or (mechanism in paid and not every):
                continue
            times[key] = compared(name, mechanism, target, seconds, rounds)
            paid |= {mechanism} if pays(name, times[key]) else set()
            save(found, file)
            print(key, {k: v for k, v in times[key].items() if k in ("ms", "time", "noise", "needed")}, flush=True)


def table(found: Found) -> list[str]:
    """Markdown: a line for each mechanism, those that give least last."""
    by: dict[str, list[tuple[str, Found]]] = {}
    for key, row in found.get("times", {}).items():
        name, _, mechanism = key.partition(" | ")
        by.setdefault(mechanism, []).append((name, row))
    lines = []
    for mechanism, rows in by.items():
        timed = [(n, r) for n, r in rows if "time" in r]
        gains = {
            kind: max(((100 * (r["time"] - 1), n) for n, r in timed if n.startswith("net-") == kind), default=None)
            for kind in (True, False)
        }
        sizes = [max((r[k] for _, r in timed), default=0, key=abs) / 1024 for k in ("memory", "package")]
        noise = max((abs(100 * (r["noise"] - 1)) for _, r in timed), default=0.0)
        said = "needed" if len(timed) < len(rows) else "yes" if any(pays(n, r) for n, r in timed) else "no"
        cells = " | ".join(f"{g[0]:+.0f} % ({g[1]})" if g else "" for g in gains.values())
        weight = max((g[0] for g in gains.values() if g), default=-1e9)
        line = f"| {mechanism} | {len(rows)} | {cells} | {noise:.0f} % | {sizes[0]:+.0f} | {sizes[1]:+.0f} |"
        lines.append((-weight, f"{line} {said} |"))
    head = "| off | programs | network takes | layer takes | noise | memory, KiB | package, KiB | pays |"
    return [head, "|---|---|---|---|---|---|---|---|", *(line for _, line in sorted(lines))]


def save(found: Found, file: Path) -> None:
    """Write the file, whole."""
    write_atomic(file, (json.dumps(found, indent=1) + "\n").encode())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("find", "time", "table"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="programs, or program | mechanism, that hold this")
    parser.add_argument("--target", default="llvm", help="default: this machine")
    parser.add_argument("--seconds", type=float, default=0.2, help="of each build in a round; default: 0.2")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--every", action="store_true", help="time a mechanism that has paid on its other programs too")
    args = parser.parse_args(arguments)
    found: Found = json.loads(args.file.read_text("utf-8")) if args.file.exists() else {}
    target = Target(args.target)
    OPS.get("nn.conv2d")
    if args.command == "find":
        find(found, args.file, args.only, target)
    elif args.command == "time":
        time_all(found, args.file, target, args.only, args.seconds, args.rounds, args.every)
    else:
        print("\n".join(table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
