"""Instructions that AArch64 executes for the layers of ResNet-18 and MobileNet: ours, and Arm Compute Library's.

    armc build-runner --external arm_compute_lib --target aarch64-linux-gnu -o armrun-acl
    python benchmarks/arm_instructions.py --runner ./armrun-acl [--mcpu cortex-a72] [--only add] [--networks|--others]

In: an armrun that holds the library (static), qemu-aarch64 with plugins (Debian: qemu-user, not the static build),
and a C compiler for the plugin, count_instructions.c. Out: a table as Markdown: instructions for a multiplication with
accumulation (MAC), ours, theirs, the ratio. Invariant: both packages go through the same runner under the same emulator
with one thread, and what is counted is the difference between two runs and one: loading and preparing are left out.
A layer's ends have the layout that it would find in a network (NHWC, or channels in blocks); networks count whole, with
all changes of layout. Counts repeat to the last digit; nothing is timed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary import relay
from armillary.ir import IRModule
from armillary.relay.expr import Expr, const, var
from armillary.relay.op.contrib.arm_compute_lib import partition_for_arm_compute_lib
from armillary.relay.testing import mobilenet, resnet
from armillary.transform import PassContext

RNG = np.random.default_rng(0)
IMAGE, CHANNELS = 56, 64  # of operators without products
BLOCKED, LANES = "NCHW4c", 4  # what our layers hand to one another


@dataclass(frozen=True)
class Layer:
    """A convolution with bias and relu; a dense layer has size 0. `count`: how often the network has it."""

    network: str
    size: int
    inner: int
    outer: int
    kernel: int = 1
    stride: int = 1
    count: int = 1
    is_depthwise: bool = False

    @property
    def name(self) -> str:
        if not self.size:
            return f"dense {self.inner} to {self.outer}"
        kind = "depthwise" if self.is_depthwise else f"{self.inner} to {self.outer}"
        step = f", stride {self.stride}" if self.stride > 1 else ""
        return (
            f"{self.kernel}x{self.kernel} {kind} at {self.size}{f' ({self.inner})' if self.is_depthwise else ''}{step}"
        )

    @property
    def macs(self) -> int:
        places = (-(-self.size // self.stride)) ** 2 if self.size else 1
        return places * self.kernel**2 * self.outer * (1 if self.is_depthwise else self.inner)


def layers() -> Iterator[Layer]:
    """The distinct layers at 224x224."""
    yield Layer("resnet-18", 224, 3, 64, 7, 2)
    for k, size in enumerate((56, 28, 14, 7)):
        outer = 64 << k
        if k:
            yield Layer("resnet-18", size * 2, outer // 2, outer, 3, 2)
            yield Layer("resnet-18", size * 2, outer // 2, outer, 1, 2)
        yield Layer("resnet-18", size, outer, outer, 3, count=3 if k else 4)
    yield Layer("resnet-18", 0, 512, 1000)
    yield Layer("mobilenet", 224, 3, 32, 3, 2)
    size, inner = 112, 32
    for outer, stride, count in (
        (64, 1, 1),
        (128, 2, 1),
        (128, 1, 1),
        (256, 2, 1),
        (256, 1, 1),
        (512, 2, 1),
        (512, 1, 5),
        (1024, 2, 1),
        (1024, 1, 1),
    ):
        yield Layer("mobilenet", size, inner, inner, 3, stride, count, is_depthwise=True)
        size //= stride
        yield Layer("mobilenet", size, inner, outer, count=count)
        inner = outer


def random(*shape: int) -> Expr:
    """Weights."""
    return const((RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32"))


def module_of(layer: Layer, layout: str) -> IRModule:
    """The layer between an input and an output in that layout."""
    if not layer.size:
        x = var("data", shape=(1, layer.inner))
        y = relay.nn.bias_add(relay.nn.dense(x, random(layer.outer, layer.inner)), random(layer.outer))
        return IRModule.from_expr(y)
    is_blocked = layout == BLOCKED
    layout = "NCHW" if is_blocked else layout
    shape = (layer.inner, layer.size, layer.size)
    x = var("data", shape=(1, *shape) if layout == "NCHW" else (1, *shape[1:], shape[0]))
    if is_blocked and layer.inner % LANES == 0:
        x = var("data", shape=(1, layer.inner // LANES, *shape[1:], LANES))
    data = relay.layout_transform(x, src_layout=BLOCKED, dst_layout="NCHW") if len(x.checked_type.shape) == 5 else x
    groups, pad = layer.inner if layer.is_depthwise else 1, (layer.kernel - 1) // 2
    weight = np.asarray(random(layer.outer, layer.inner // groups, layer.kernel, layer.kernel).data)
    kernel_layout = "OIHW" if layout == "NCHW" else "HWOI" if layer.is_depthwise else "HWIO"
    weight = weight.transpose(["OIHW".index(c) for c in kernel_layout])
    y = relay.nn.conv2d(
        data,
        const(np.ascontiguousarray(weight)),
        strides=(layer.stride,) * 2,
        padding=(pad,) * 4,
        groups=groups,
        data_layout=layout,
        kernel_layout=kernel_layout,
    )
    axis = 1 if layout == "NCHW" else 3
    y = relay.nn.relu(relay.nn.bias_add(y, random(layer.outer), axis=axis))
    return IRModule.from_expr(relay.layout_transform(y, src_layout="NCHW", dst_layout=BLOCKED) if is_blocked else y)


def others() -> Iterator[tuple[str, IRModule]]:
    """Elementwise operators and poolings of an image, without products; they count by element of the data."""
    shape, scales = (1, IMAGE, IMAGE, CHANNELS), [const(np.float32(s)) for s in (0.02, 0.03, 0.05)]
    zeros = [const(np.int32(z)) for z in (3, 5, 4)]
    a, b = (var(name, shape=shape) for name in "ab")
    c, d = (var(name, shape=shape, dtype="uint8") for name in "cd")
    yield "add", IRModule.from_expr(relay.add(a, b))
    yield "maximum", IRModule.from_expr(relay.maximum(a, b))
    into = scales[0], zeros[0], scales[1], zeros[1]
    yield "qnn.add of uint8", IRModule.from_expr(relay.qnn.add(c, d, *into, scales[2], zeros[2]))
    pool: dict[str, Any] = {"strides": (2, 2), "layout": "NHWC"}  # Any: attributes
    yield "max_pool 2x2", IRModule.from_expr(relay.nn.max_pool2d(a, pool_size=(2, 2), **pool))
    yield "max_pool 2x2 of uint8", IRModule.from_expr(relay.nn.max_pool2d(c, pool_size=(2, 2), **pool))
    yield "avg_pool 3x3, stride 2", IRModule.from_expr(relay.nn.avg_pool2d(a, pool_size=(3, 3), **pool))
    yield "global_avg_pool", IRModule.from_expr(relay.nn.global_avg_pool2d(a, layout="NHWC"))


@dataclass(frozen=True)
class Counter:
    """How packages are run: the emulator with the plugin, the runner, the processor."""

    emulator: str
    plugin: Path
    runner: Path
    mcpu: str

    def run(self, package: Path, runs: int) -> tuple[int, int]:
        """Instructions executed, and those that multiply, by a process that runs the package so often."""
        words = ["timeout", "-s", "KILL", "3000", self.emulator, "-cpu", self.mcpu, "-plugin", str(self.plugin)]
        words += ["-d", "plugin", str(self.runner), str(package), "--threads=1", "--dry-run=0", f"--run-count={runs}"]
        done = subprocess.run([*words, "--fill=zeros"], capture_output=True, text=True, check=False)
        found = re.search(r"executed (\d+) multiplying (\d+)", done.stderr)
        if done.returncode or found is None:
            sys.exit(f"{package}: {done.stderr[-2000:]}")
        return int(found[1]), int(found[2])

    def per_run(self, package: Path) -> tuple[int, int]:
        """One run's."""
        (one, one_products), (two, two_products) = self.run(package, 1), self.run(package, 2)
        return two - one, two_products - one_products


def export(module: IRModule, params: dict[str, Any] | None, path: Path, mcpu: str) -> Path:  # Any: arrays
    """Compile for the processor."""
    with PassContext(opt_level=3):
        library = relay.build(module, f"llvm -mtriple=aarch64-linux-gnu -mcpu={mcpu}", params=params)
    library.export_library(path)
    return path


def measured(counter: Counter, module: IRModule, acl: IRModule, params: Any, folder: Path) -> list[int]:
    """Ours and the library's instructions, then their products."""
    packages = [export(module, params, folder / "ours.so", counter.mcpu)]
    packages.append(export(partition_for_arm_compute_lib(acl, params), None, folder / "acl.so", counter.mcpu))
    counts = [counter.per_run(package) for package in packages]
    return [counts[0][0], counts[1][0], counts[0][1], counts[1][1]]


def row(name: str, macs: int, found: Sequence[int]) -> str:
    """A line of the table."""
    ours, acl, _, _ = found
    return f"| {name} | {macs / 1e6:.1f} | {ours / macs:.3f} | {acl / macs:.3f} | {ours / acl:.2f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--runner", type=Path, required=True, help="armrun with the library: armc build-runner --external"
    )
    parser.add_argument("--emulator", default="qemu-aarch64", help="with plugins (Debian: qemu-user)")
    parser.add_argument("--mcpu", default="cortex-a72")
    parser.add_argument("--only", default="", help="layers whose network and name contain this")
    parser.add_argument("--layout", default=BLOCKED, help="of our layers' ends; the library's are NHWC, as it knows")
    parser.add_argument("--networks", action="store_true", help="whole networks instead of layers")
    parser.add_argument("--others", action="store_true", help="elementwise operators and poolings instead of layers")
    args = parser.parse_args()
    if shutil.which(args.emulator) is None:
        sys.exit(f"{args.emulator} is not there: apt-get install qemu-user")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = Path(__file__).with_name("count_instructions.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(folder / "count.so"), str(source)], check=True)
        counter = Counter(args.emulator, folder / "count.so", args.runner.resolve(), args.mcpu)
        print(
            "| layer | million MACs | ours, instructions a MAC | Arm Compute Library | ratio |\n|---|---|---|---|---|"
        )
        if args.others:
            for kind, made in others():
                if args.only in kind:
                    found = measured(counter, made, made, None, folder)
                    print(row(kind, IMAGE * IMAGE * CHANNELS, found), flush=True)
            return
        if args.networks:
            for kind, source_of, macs in (("resnet-18", resnet, 1814e6), ("mobilenet", mobilenet, 569e6)):
                if args.only in kind:
                    module, params = source_of.get_workload(batch_size=1)
                    print(row(kind, int(macs), measured(counter, module, module, params, folder)), flush=True)
            return
        for layer in layers():
            if args.only not in f"{layer.network} {layer.name}":
                continue
            found = measured(counter, module_of(layer, args.layout), module_of(layer, "NHWC"), None, folder)
            print(row(f"{layer.network}: {layer.name}", layer.macs, found), flush=True)


if __name__ == "__main__":
    main()
