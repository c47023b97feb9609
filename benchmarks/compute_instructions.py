"""Instructions that AArch64 executes for functions built ahead and for those of Arm Compute Library, from one source.

Run: `python benchmarks/compute_instructions.py [--emulator qemu-aarch64] [names]`. In: a qemu-aarch64 with plugins
(Debian: qemu-user, not the static build), a C++ compiler for AArch64, libarm-compute-dev:arm64. Out: a table as
Markdown: a run of each function, thousands of instructions, their ratio. Invariant: one thread; what is counted is the
difference of two runs and one, so packing weights is left out. Counts repeat to the last digit; nothing is timed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from armillary import compute

COMPILER = "aarch64-linux-gnu-g++"
IMAGE, REPLICATE = "640x480", "BorderMode::REPLICATE"
# What is printed, the function, shapes of a, b, c and d (a type alone: an image of 640x480), arguments.
CASES = [
    (f"Gaussian 3x3, {IMAGE}", "NEGaussian3x3", "U8 - U8 -", f"&a, &c, {REPLICATE}"),
    (f"Gaussian 5x5, {IMAGE}", "NEGaussian5x5", "U8 - U8 -", f"&a, &c, {REPLICATE}"),
    (f"median 3x3, {IMAGE}", "NEMedian3x3", "U8 - U8 -", f"&a, &c, {REPLICATE}"),
    (f"Sobel 3x3, {IMAGE}", "NESobel3x3", "U8 - S16 S16", f"&a, &c, &d, {REPLICATE}"),
    (f"Canny, {IMAGE}", "NECannyEdge", "U8 - U8 -", f"&a, &c, 200, 100, 3, 1, {REPLICATE}"),
    ("GEMM 256x512x512", "NEGEMM", "512,256 512,512 512,256 -", "&a, &b, nullptr, &c, 1.0f, 0.0f"),
    (
        "convolution 1x1, 28x28x128 to 256",
        "NEConvolutionLayer",
        "28,28,128 1,1,128,256 28,28,256 256",
        "&a, &b, &d, &c, PadStrideInfo(1, 1, 0, 0)",
    ),
    (
        "convolution 3x3 by GEMM, 56x56x64 to 64",
        "NEGEMMConvolutionLayer",
        "56,56,64 3,3,64,64 56,56,64 64",
        "&a, &b, &d, &c, PadStrideInfo(1, 1, 1, 1)",
    ),
    (
        "convolution 3x3 by Winograd, 56x56x64 to 64",
        "NEConvolutionLayer",
        "56,56,64 3,3,64,64 56,56,64 64",
        "&a, &b, &d, &c, PadStrideInfo(1, 1, 1, 1)",
    ),
]
PROGRAM = """
#ifdef OURS
#include "armillary_compute.hpp"
#else
#include "arm_compute/runtime/NEON/NEFunctions.h"
#include "arm_compute/runtime/NEON/NEScheduler.h"
#endif
#include <cstdlib>
#include <memory>
using namespace arm_compute;
static void fill(Tensor &t)
{
    const bool is_real = t.info()->data_type() == DataType::F32;
    for(size_t n = 0; n < t.info()->total_size(); n++)
        t.buffer()[n] = is_real ? (n % 4 == 3 ? 0x3f : uint8_t(n * 7)) : uint8_t((n * 2654435761u) >> 13);
}
int main(int, char **arguments)
{
    NEScheduler::get().set_num_threads(1);
    Tensor a, b, c, d;
    std::unique_ptr<IFunction> function;
    switch(std::atoi(arguments[1]))
    {
@CASES@
    }
    for(int n = 0; n < std::atoi(arguments[2]); n++) function->run();
}
"""


def program() -> str:
    """The source of all cases."""
    rows = []
    for number, (_, name, shapes, arguments) in enumerate(CASES):
        lines, used = (
            [],
            [(tensor, shape) for tensor, shape in zip("abcd", shapes.split(), strict=True) if shape != "-"],
        )
        for tensor, shape in used:
            info = f"640, 480, Format::{shape}" if shape.isalnum() and not shape.isdigit() else ""
            info = info or f"TensorShape({shape.replace(',', 'U, ')}U), 1, DataType::F32"
            lines.append(f"{tensor}.allocator()->init(TensorInfo({info}));")
        lines.append(f"auto *f = new {name}; function.reset(f); f->configure({arguments});")
        lines += [f"{tensor}.allocator()->allocate(); fill({tensor});" for tensor, _ in used]
        rows.append(f"        case {number}: {{ {' '.join(lines)} break; }}")
    return PROGRAM.replace("@CASES@", "\n".join(rows))


def built(folder: Path) -> list[Path]:
    """The program with our library and with theirs."""
    out = compute.build(dict.fromkeys(case[1] for case in CASES), "llvm -mtriple=aarch64-linux-gnu", folder / "out")
    (folder / "p.cpp").write_text(program())
    programs = [folder / name for name in ("ours", "theirs")]
    links = [
        ["-DOURS", f"-I{out}", str(out / "libarmillary_compute.a")],
        ["-larm_compute", "-larm_compute_core", "-ldl"],
    ]
    for path, words in zip(programs, links, strict=True):
        first, rest = [w for w in words if w[:2] in ("-D", "-I")], [w for w in words if w[:2] not in ("-D", "-I")]
        flags = ["-std=c++14", "-O1", "-w", *first, str(folder / "p.cpp"), *rest, "-lpthread", "-o", str(path)]
        subprocess.run([COMPILER, *flags], check=True)
    return programs


def executed(emulator: Sequence[str], path: Path, case: int, runs: int) -> int:
    """Instructions of a process that runs a case so often."""
    done = subprocess.run([*emulator, str(path), str(case), str(runs)], capture_output=True, text=True)
    found = re.search(r"executed (\d+)", done.stderr)
    if done.returncode or found is None:
        sys.exit(f"{path} {CASES[case][0]}: {done.stderr[-2000:]}")
    return int(found[1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emulator", default="qemu-aarch64")
    parser.add_argument("names", nargs="*", help="of cases, or a part of them")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plugin, source = folder / "count.so", Path(__file__).with_name("count_instructions.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(plugin)], check=True)
        emulator, programs = [args.emulator, "-plugin", str(plugin), "-d", "plugin"], built(folder)
        print("| | ours | the library's | ratio |\n|---|---|---|---|")
        for number, (what, *_) in enumerate(CASES):
            if args.names and not any(name in what for name in args.names):
                continue
            ours, theirs = (executed(emulator, p, number, 2) - executed(emulator, p, number, 1) for p in programs)
            print(f"| {what} | {ours / 1e3:.0f} | {theirs / 1e3:.0f} | {ours / theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main()
