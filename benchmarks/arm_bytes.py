"""Instructions that AArch64 executes for quantised layers: by dot products, by matrix instructions, by neither.

    armc build-runner --target aarch64-linux-gnu -o armrun-arm
    python benchmarks/arm_bytes.py --runner ./armrun-arm [--mcpu cortex-a72 neoverse-n1 neoverse-n2] [--only 3x3]

In: an armrun, qemu-aarch64 with plugins and a C compiler, as arm_instructions.py takes them. Out: a table as Markdown:
instructions for a multiplication with accumulation (MAC) on each processor. Invariant: a layer is a convolution or
product of uint8 with int8 weights, requantised to uint8, between ends that have the channels in its blocks; the count
is the difference between two runs and one, with one thread. Nothing is timed.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from arm_instructions import RNG, Counter, Layer, export

from armillary import relay
from armillary.ir import IRModule
from armillary.relay.expr import Expr, const, var

LAYERS = (
    Layer("resnet", 56, 64, 64, 3),
    Layer("resnet", 56, 64, 128, 3, 2),
    Layer("resnet", 56, 64, 256),
    Layer("resnet", 14, 256, 256, 3),
    Layer("resnet", 7, 512, 512, 3),
    Layer("mobilenet", 112, 32, 32, 3, is_depthwise=True),
    Layer("mobilenet", 112, 64, 64, 3, 2, is_depthwise=True),
    Layer("mobilenet", 56, 128, 128),
    Layer("mobilenet", 14, 512, 512),
    Layer("mobilenet", 7, 1024, 1024),
)
ONE, NONE, ROWS = const(np.float32(1)), const(np.int32(0)), 32
DENSE = ((1, 1024, 1000), (ROWS, 768, 768), (ROWS, 768, 3072))  # rows, terms, units


def weight(*shape: int) -> Expr:
    return const(RNG.integers(-127, 128, shape).astype("int8"))


def requantized(sums: Expr, units: int, axis: int) -> Expr:
    scales = const((RNG.uniform(0.2, 1, units) / 2000).astype("float32"))
    kept = {"rounding": "TOEVEN", "compute_dtype": "float32", "out_dtype": "uint8"}
    return relay.qnn.requantize(sums, scales, NONE, ONE, const(np.int32(8)), axis=axis, **kept)


def convolution(layer: Layer, block: int) -> IRModule:
    """A layer between ends in blocks of so many channels."""
    x = var("data", shape=(1, layer.inner // block, layer.size, layer.size, block), dtype="uint8")
    data = relay.layout_transform(x, src_layout=f"NCHW{block}c", dst_layout="NCHW")
    groups, pad = layer.inner if layer.is_depthwise else 1, (layer.kernel - 1) // 2
    kernel = weight(layer.outer, layer.inner // groups, layer.kernel, layer.kernel)
    window = {"kernel_size": (layer.kernel,) * 2, "strides": (layer.stride,) * 2, "padding": (pad,) * 4}
    sums = relay.qnn.conv2d(data, kernel, NONE, NONE, ONE, ONE, channels=layer.outer, groups=groups, **window)
    made = requantized(sums, layer.outer, 1)
    return IRModule.from_expr(relay.layout_transform(made, src_layout="NCHW", dst_layout=f"NCHW{block}c"))


def dense(rows: int, terms: int, units: int) -> IRModule:
    x = var("data", shape=(rows, terms), dtype="uint8")
    sums = relay.qnn.dense(x, weight(units, terms), const(np.int32(3)), NONE, ONE, ONE)
    return IRModule.from_expr(requantized(sums, units, 1))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runner", type=Path, required=True, help="armrun for AArch64: armc build-runner")
    parser.add_argument("--emulator", default="qemu-aarch64", help="with plugins (Debian: qemu-user)")
    parser.add_argument("--mcpu", nargs="+", default=["cortex-a72", "neoverse-n1", "neoverse-n2"])
    parser.add_argument("--only", default="", help="layers whose network and name contain this")
    args = parser.parse_args()
    print(f"| layer | million MACs | {' | '.join(args.mcpu)} |\n|---|---|{'---|' * len(args.mcpu)}")
    rows = [(f"{each.network}: {each.name}", each.macs, each) for each in LAYERS]
    rows += [(f"{n} x {k} to {units}", n * k * units, (n, k, units)) for n, k, units in DENSE]
    with tempfile.TemporaryDirectory() as name:
        folder, source = Path(name), Path(__file__).with_name("count_instructions.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(folder / "count.so"), str(source)], check=True)
        counter = Counter(args.emulator, folder / "count.so", args.runner.resolve(), "max")
        for title, macs, layer in (row for row in rows if args.only in row[0]):
            cells = []
            for cpu in args.mcpu:
                block = 8 if cpu.startswith(("neoverse-n2", "neoverse-v", "cortex-a7")) and cpu != "cortex-a72" else 4
                module = convolution(layer, block) if isinstance(layer, Layer) else dense(*layer)
                counted, _ = counter.per_run(export(module, None, folder / "layer.so", cpu))
                cells.append(f"{counted / macs:.3f}")
            print(f"| {title} | {macs / 1e6:.1f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
