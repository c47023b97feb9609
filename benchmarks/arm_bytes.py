"""Instructions that AArch64 executes for quantised layers: ours on several processors, and Arm Compute Library's.

    armc build-runner --external arm_compute_lib --target aarch64-linux-gnu -o armrun-acl
    python benchmarks/arm_bytes.py --runner ./armrun-acl [--mcpu cortex-a72 neoverse-n1 neoverse-n2] [--only 3x3]

In: an armrun that holds the library, qemu-aarch64 with plugins and a C compiler, as arm_instructions.py takes them.
Out: a table as Markdown: instructions for a multiplication with accumulation (MAC) on each processor, and the library's
on those of LIBRARY_CPUS, as qemu knows them. Invariant: a layer is a convolution or product of int8 with a scale for
each channel of the weights, requantised to int8; ours lies between ends that have the channels in its blocks, the
library's between NHWC; the count is the difference between two runs and one, with one thread. Nothing is timed.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from arm_instructions import RNG, Counter, Layer, export

from armillary import relay
from armillary.ir import IRModule
from armillary.relay.expr import Constant, Expr, Function, const, var
from armillary.relay.op.contrib.arm_compute_lib import partition_for_arm_compute_lib
from armillary.target.cpu import cpu_model

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
LIBRARY_CPUS = "cortex-a72", "neoverse-n1"  # that qemu knows by name: the library asks the processor what it is


@dataclass(frozen=True)
class Numbers:
    """How values are quantised: the type of data, and whether weights have a scale for each channel."""

    data: str
    by_channel: bool

    def weight(self, *shape: int) -> Expr:
        return const(RNG.integers(-127, 128, shape).astype("int8"))

    def scales(self, units: int) -> Expr:
        found = RNG.uniform(0.2, 1, units if self.by_channel else 1) / 2000
        return const(found.astype("float32") if self.by_channel else np.float32(found[0]))


FORMS = {"channel": Numbers("uint8", True), "tensor": Numbers("int8", False)}


def requantized(sums: Expr, scales: Expr, axis: int, dtype: str) -> Expr:
    kept = {"rounding": "TOEVEN", "compute_dtype": "float32", "out_dtype": dtype}
    return relay.qnn.requantize(sums, scales, NONE, ONE, const(np.int32(8)), axis=axis, **kept)


def convolution(layer: Layer, numbers: Numbers, block: int = 0) -> IRModule:
    """A layer between ends in blocks of so many channels; 0: NHWC."""
    size, groups, pad = layer.size, layer.inner if layer.is_depthwise else 1, (layer.kernel - 1) // 2
    kernel = numbers.weight(layer.outer, layer.inner // groups, layer.kernel, layer.kernel)
    window: dict[str, Any] = {
        "kernel_size": (layer.kernel,) * 2,
        "strides": (layer.stride,) * 2,
        "padding": (pad,) * 4,
    }  # Any: attributes
    window |= {"channels": layer.outer, "groups": groups}
    shape = (1, layer.inner // block, size, size, block) if block else (1, size, size, layer.inner)
    x, scales = var("data", shape=shape, dtype=numbers.data), numbers.scales(layer.outer)
    if not block:
        layout = "HWOI" if layer.is_depthwise else "HWIO"
        order = ["OIHW".index(c) for c in layout]
        assert isinstance(kernel, Constant)
        kernel = const(np.ascontiguousarray(kernel.data.transpose(order)))
        window |= {"data_layout": "NHWC", "kernel_layout": layout}
        return IRModule.from_expr(
            requantized(relay.qnn.conv2d(x, kernel, NONE, NONE, ONE, scales, **window), scales, 3, numbers.data)
        )
    data = relay.layout_transform(x, src_layout=f"NCHW{block}c", dst_layout="NCHW")
    made = requantized(relay.qnn.conv2d(data, kernel, NONE, NONE, ONE, scales, **window), scales, 1, numbers.data)
    return IRModule.from_expr(relay.layout_transform(made, src_layout="NCHW", dst_layout=f"NCHW{block}c"))


def dense(rows: int, terms: int, units: int, numbers: Numbers) -> IRModule:
    x, scales = var("data", shape=(rows, terms), dtype=numbers.data), numbers.scales(units)
    zero = const(np.int32(0 if numbers.data == "int8" else 3))
    sums = relay.qnn.dense(x, numbers.weight(units, terms), zero, NONE, ONE, scales, units=units)
    return IRModule.from_expr(requantized(sums, scales, 1, numbers.data))


def ours(layer: Layer | tuple[int, int, int], numbers: Numbers, cpu: str) -> IRModule:
    """The layer as it stands in a network for this processor."""
    model = cpu_model(f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}")
    block = 8 if model.has_byte_matrices or model.widens_bytes else 4
    return convolution(layer, numbers, block) if isinstance(layer, Layer) else dense(*layer, numbers)


def theirs(layer: Layer | tuple[int, int, int], numbers: Numbers) -> IRModule | None:
    """The layer for the library; None if it does not take it."""
    module = convolution(layer, numbers) if isinstance(layer, Layer) else dense(*layer, numbers)
    made = partition_for_arm_compute_lib(module)
    taken = any(f.get_attr("Compiler") == "arm_compute_lib" for _, f in made.items() if isinstance(f, Function))
    return made if taken else None


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runner", type=Path, required=True, help="armrun for AArch64: armc build-runner")
    parser.add_argument("--emulator", default="qemu-aarch64", help="with plugins (Debian: qemu-user)")
    parser.add_argument("--mcpu", nargs="*", default=["cortex-a72", "neoverse-n1", "neoverse-n2"])
    parser.add_argument("--library", nargs="*", default=list(LIBRARY_CPUS), help="processors of the library's columns")
    parser.add_argument("--form", choices=FORMS, default="channel", help="uint8 data and a scale a channel, or int8")
    parser.add_argument("--only", default="", help="layers whose network and name contain this")
    args = parser.parse_args()
    numbers = FORMS[args.form]
    heads = [*args.mcpu, *(f"library, {cpu}" for cpu in args.library)]
    print(f"| layer | million MACs | {' | '.join(heads)} |\n|---|---|{'---|' * len(heads)}")
    rows: list[tuple[str, int, Layer | tuple[int, int, int]]] = [
        (f"{each.network}: {each.name}", each.macs, each) for each in LAYERS
    ]
    rows += [(f"{n} x {k} to {units}", n * k * units, (n, k, units)) for n, k, units in DENSE]
    with tempfile.TemporaryDirectory() as name:
        folder, source = Path(name), Path(__file__).with_name("count_instructions.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(folder / "count.so"), str(source)], check=True)

        def counted(module: IRModule | None, cpu: str, emulated: str) -> float | None:
            if module is None:
                return None
            counter = Counter(args.emulator, folder / "count.so", args.runner.resolve(), emulated)
            return counter.per_run(export(module, None, folder / "layer.so", cpu))[0]

        for title, macs, layer in (row for row in rows if args.only in row[0]):
            found = [counted(ours(layer, numbers, cpu), cpu, "max") for cpu in args.mcpu]
            found += [counted(theirs(layer, numbers), cpu, cpu) for cpu in args.library]
            cells = ["refused" if n is None else f"{n / macs:.3f}" for n in found]
            print(f"| {title} | {macs / 1e6:.1f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
