"""How near the inner loops of AArch64 kernels come to the bounds of FMA units and load ports, by LLVM's models.

    python benchmarks/arm_throughput.py [--mca llvm-mca-19] [--only resnet-18]

In: llvm-mca and aarch64-linux-gnu-objdump (Debian: llvm-19, binutils-aarch64-linux-gnu). Out: a table as Markdown: for
each layer of arm_instructions.py a turn of the innermost loop with most products, its instructions, and on each
processor the share of its cycles that products alone take, all arithmetic on vectors alone (with bias, relu, lanes that
are put in order), and loads alone: the largest is the bound. Invariant: the bounds are what the same model gives for
these instructions without the others; what a turn does under a condition counts as done; nothing runs, so caches are
not in it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from arm_instructions import BLOCKED, Layer, layers, module_of

from armillary import relay
from armillary.transform import PassContext

CPUS = "cortex-a72", "neoverse-n1"
OBJDUMP, PRODUCT, LOAD, TURNS = "aarch64-linux-gnu-objdump", "fmla", "ld", 100
ALONE = [f"fmla v{k}.4s, v30.4s, v31.s[0]" for k in range(24)]
_VECTOR = re.compile(r"\bv\d")
_JUMP = re.compile(r"(b |b\.|cbn?z |tbn?z )")
_PLACE, _ADDRESS = re.compile(r"\s*[0-9a-f]+:\t"), re.compile(r"[0-9a-f]+")


def turns(text: str) -> list[list[str]]:
    """One turn of each innermost loop of a disassembly: the instructions between its start and the last jump to it."""
    rows = [line.split("\t") for line in text.splitlines() if _PLACE.match(line)]
    code = [(int(row[0].strip().rstrip(":"), 16), " ".join(row[1:3])) for row in rows]
    ends: dict[int, int] = {}
    for place, line in code:
        words = [word for word in line.replace(",", " ").split()[1:] if _ADDRESS.fullmatch(word)]
        if _JUMP.match(line) and words and int(words[-1], 16) <= place:
            ends[int(words[-1], 16)] = place  # places ascend
    loops = list(ends.items())
    inner = [(a, b) for a, b in loops if not any((c, d) != (a, b) and a <= c and d <= b for c, d in loops)]
    return [[line for place, line in code if a <= place <= b and not _JUMP.match(line)] for a, b in inner]


def products(block: list[str]) -> int:
    """Multiply-adds of a block."""
    return sum(line.startswith(PRODUCT) for line in block)


def on_vectors(block: list[str]) -> list[str]:
    """What the vector units do: neither loads nor stores."""
    return [line for line in block if _VECTOR.search(line) and not line.startswith((LOAD, "st"))]


def of_loads(block: list[str]) -> list[str]:
    """The loads of a block."""
    return [line for line in block if line.startswith(LOAD)]


def inner_loop(layer: Layer, cpu: str, folder: Path) -> list[str]:
    """One turn of the loop, of a layer's kernels, that has most products."""
    with PassContext(opt_level=3):
        library = relay.build(module_of(layer, BLOCKED), f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}")
    found: list[list[str]] = [[]]
    for code in library.lib.objects:
        (folder / "k.o").write_bytes(code)
        command = [OBJDUMP, "-d", "--no-show-raw-insn", str(folder / "k.o")]
        found += turns(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return max(found, key=lambda turn: products(turn) ** 2 / max(1, len(turn)))  # transforms have products too


def cycles(block: list[str], cpu: str, mca: str, of_units: bool = False) -> float:
    """Cycles of a turn, of many; `of_units`: that the units are busy, were nothing to wait for anything."""
    text = "\n".join(re.sub(r"//.*|<.*>", "", line) for line in block)
    command = [mca, "-mtriple=aarch64", f"-mcpu={cpu}", f"-iterations={TURNS}"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    found = re.search(r"Block RThroughput:\s+([\d.]+)" if of_units else r"Total Cycles:\s+(\d+)", done.stdout)
    if found is None:
        sys.exit(done.stderr[-1000:])
    return float(found[1]) if of_units else int(found[1]) / TURNS


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mca", default="llvm-mca-19", help="llvm-mca (Debian: llvm-19)")
    parser.add_argument("--only", default="", help="layers whose network and name contain this")
    args = parser.parse_args()
    for tool in (args.mca, OBJDUMP):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is not there: apt-get install llvm-19 binutils-aarch64-linux-gnu")
    rate = {cpu: len(ALONE) / cycles(ALONE, cpu, args.mca) for cpu in CPUS}
    heads = " | ".join(f"{cpu}, products of instructions | products | vectors | loads" for cpu in CPUS)
    print(f"| layer | {heads} |\n|---{'|---|---|---|---' * len(CPUS)}|")
    with tempfile.TemporaryDirectory() as name:
        for layer in (each for each in layers() if args.only in f"{each.network} {each.name}"):
            cells = []
            for cpu in CPUS:
                block = inner_loop(layer, cpu, Path(name))
                whole = cycles(block, cpu, args.mca)
                alone = [cycles(part, cpu, args.mca, of_units=True) for part in (on_vectors(block), of_loads(block))]
                shares = [n / whole for n in (products(block) / rate[cpu], *alone)]
                cells += [f"{products(block)} of {len(block)}", *(f"{100 * share:.0f} %" for share in shares)]
            print(f"| {layer.network}: {layer.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
