"""Records for Arm boards by counting: of a layer's configurations the one that executes fewest instructions.

    armc build-runner --target aarch64-linux-gnu -o armrun
    python benchmarks/arm_records.py --runner ./armrun -o armillary/autotvm/arm_cpu.log [--only mobilenet] [--each 6]
    python benchmarks/arm_records.py --runner ./armrun32 -o b.log --target "llvm -device=rasp3b" --emulator qemu-arm
        --mcpu cortex-a15  (QEMU_LD_PREFIX=/usr/arm-linux-gnueabihf where the runner is not static)

In: an armrun, and what arm_instructions.py needs. Out: a log of records, for the layers whose best configuration
executes at least 1 % fewer instructions than the one that a build chooses; a table as Markdown on stdout. Invariant: a
record says that it was counted: its field `counted` says of what, its costs are numbers of instructions and no seconds,
so that any record that was timed precedes it. Caches, and what runs side by side, are not seen. Configurations are the
first of the model's order.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from arm_instructions import BLOCKED, Counter, layers, module_of

from armillary import autotvm, relay
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.record import encode
from armillary.base.dispatch import DispatchContext
from armillary.ir import IRModule
from armillary.transform import PassContext

TARGET = "llvm -model=bcm2711 -mtriple=aarch64-linux-gnu -mattr=+neon -mcpu=cortex-a72"
_GAIN = 0.99


def count(counter: Counter, target: str, module: IRModule, records: DispatchContext, path: Path) -> int:
    """Instructions of one run of the module with these records."""
    with records, PassContext(opt_level=3):
        relay.build(module, target).export_library(path)
    return counter.per_run(path)[0]


def main() -> None:
    """Count, write the log, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runner", type=Path, required=True, help="armrun for the target: armc build-runner")
    parser.add_argument("--emulator", default="qemu-aarch64", help="with plugins (Debian: qemu-user)")
    parser.add_argument("--target", default=TARGET)
    parser.add_argument("--mcpu", default="cortex-a72", help="what the emulator is")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the log")
    parser.add_argument("--only", default="", help="layers whose network and name contain this")
    parser.add_argument("--each", type=int, default=6, help="configurations of a layer")
    args = parser.parse_args()
    lines: list[str] = []
    where = f"{Path(args.emulator).name} -cpu {args.mcpu}"
    mark = {"counted": f"instructions of a run under {where}, one thread; not timed", "host": ""}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = Path(__file__).with_name("count_instructions.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(folder / "count.so"), str(source)], check=True)
        counter = Counter(args.emulator, folder / "count.so", args.runner.resolve(), args.mcpu)
        print("| layer | a build's choice, instructions a MAC | the record's | ratio |\n|---|---|---|---|")
        for layer in layers():
            if args.only not in f"{layer.network} {layer.name}":
                continue
            module = module_of(layer, BLOCKED)
            for task in autotvm.task.extract_from_program(module, target=args.target):
                own = count(counter, args.target, module, DispatchContext(), folder / "a.so")
                best, line = own, ""
                for index, _ in task.template.estimates(task)[: args.each]:
                    workload = MeasureInput(task.target, task, task.config_space.get(index))
                    records = autotvm.ApplyHistoryBest([(workload, MeasureResult((1.0,), 0, 0.0, 0.0))], warns=False)
                    instructions = count(counter, args.target, module, records, folder / "b.so")
                    if instructions < best:
                        result = MeasureResult((float(instructions),), 0, 0.0, 0.0)
                        best, line = instructions, json.dumps(json.loads(encode(workload, result)) | mark)
                if best < _GAIN * own:
                    lines.append(line)
                    args.output.write_text("".join(f"{line}\n" for line in lines))
                macs = layer.macs
                print(f"| {layer.name} | {own / macs:.3f} | {best / macs:.3f} | {best / own:.3f} |", flush=True)


if __name__ == "__main__":
    main()
