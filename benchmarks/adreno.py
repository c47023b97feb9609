"""Count what Mesa's compiler makes of kernels for Adreno GPUs; no GPU is needed.

    python benchmarks/adreno.py --stats "python3 adreno_stats.py --root ROOT" [--networks resnet-50,mobilenet-v2]
        [--gpus 660,730,830] [--memories texture,buffer] [--precisions float32,float16] [--table benchmarks/adreno.csv]
    python benchmarks/adreno.py --stats … --layers [--tvm FOLDER] [--table benchmarks/adreno_layers.csv]
    python benchmarks/adreno.py --stats … --products [--table benchmarks/adreno_products.csv]

`--stats` is a command that takes `--gpu ID --isa FILE.cl` and prints for each kernel a line of JSON (max_waves,
stp_ldp_spills, full, half) and its code. Prints a row for each kernel that convolves, pools or multiplies: waves on
each GPU, spills, and of the first GPU ALU instructions and reads (of textures or memory) for each multiply-add of the
innermost loop with most of them. `--table` keeps the rows in a file; what a test asks: tests/benchmarks. `--layers`
counts single layers instead, beside those of another compiler, which `adreno_tvm.py` wrote into FOLDER; `--products`
the products and attentions of transformers (`adreno_products.py`), an attention's softmax with its two products.
Figures are of Mesa's compiler, not of Qualcomm's, and static: kernels are compared with kernels.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from adreno_products import PRODUCTS
from adreno_tvm import LAYERS, Layer
from mobilenet_v2 import mobilenet_v2

import armillary
from armillary import relay
from armillary.driver.tvmc.transform import apply_graph_transforms
from armillary.relay import testing
from armillary.transform import PassContext

NETWORKS = {
    "resnet-18": lambda: testing.resnet.get_workload(batch_size=1, num_layers=18),
    "resnet-50": lambda: testing.resnet.get_workload(batch_size=1, num_layers=50),
    "mobilenet": lambda: testing.mobilenet.get_workload(batch_size=1),
    "mobilenet-v2": mobilenet_v2,
}
MEMORIES = {"texture": "opencl -device=adreno", "buffer": "opencl"}
KINDS = ("conv2d", "pool2d", "dense", "matmul")
ENOUGH = 8  # waves, with which reads are hidden
NOTES = {  # of kernels with fewer: what their registers hold
    "depthwise": "the pixels of a row of taps for up to eight columns",
    "NCHWc": "sums, the pixels of a row of taps and its weights: fewer columns would be read more often",
    "winograd": "a tile of its products' sums",
    "conv2d": "a tile of sums",
    "dense": "four sums and the weights of four terms",
    "pool2d": "a row of the window",
}
HALF = {"mixed_precision": True, "mixed_precision_calculation_type": "float16", "mixed_precision_acc_type": "float16"}
_INSTRUCTION = re.compile(r"^(?:\([^)]*\))*\s*([a-z][\w.]*)(?:\s|$)")
_REPEATED = re.compile(r"\(rpt(\d+)\)")
_READS = re.compile(r"^(isam|sam|ldg|ldl|ldp|ldib)")
_CONTROL = re.compile(
    r"^(nop|alias|jump|br|b(any|all)|end|stg|stl|stp|stib|bar|sh?p[se]|pred|getone|ldc|ret|fence|meta|mova|movs|chmask|chsh)"
)


class Counts(NamedTuple):
    """Of the innermost loop with the most multiply-adds: them, ALU instructions (they are some), reads."""

    macs: int
    alu: int
    reads: int


def count(code: str) -> Counts:
    """Count in the native code of a kernel; without a loop, or without multiply-adds in one, in all of it."""
    lines = code.splitlines()
    loops = _loops(lines)
    inner = [(a, b) for a, b in loops if not any((a, b) != (c, d) and a <= c and d <= b for c, d in loops)]
    found = max((_count(lines[a:b]) for a, b in inner), default=Counts(0, 0, 0))
    whole = _count(lines)
    return found if found.macs and 2 * found.macs >= whole.macs else whole


def count_turn(code: str, turns: int) -> Counts:
    """Count in a kernel's outermost loop, `turns` times in loops of it that hold a quarter of its multiply-adds."""
    lines = code.splitlines()
    loops = _loops(lines)
    outer = max(loops, key=lambda loop: loop[1] - loop[0], default=(0, len(lines)))
    total = _count(lines[slice(*outer)])
    inner = [_count(lines[a:b]) for a, b in loops if (a, b) != outer]
    repeated = [c for c in inner if 4 * c.macs >= total.macs]
    return Counts(*(all_ + (turns - 1) * sum(own) for all_, *own in zip(total, *repeated, strict=True)))


def _loops(lines: list[str]) -> list[tuple[int, int]]:
    """First and last lines of loops, which end with a jump back."""
    labels = {line[:-1]: n for n, line in enumerate(lines) if re.fullmatch(r"l\d+:", line)}
    jumps = ((n, re.search(r"#(l\d+)$", line)) for n, line in enumerate(lines))
    return [(labels[to[1]], n) for n, to in jumps if to and labels.get(to[1], n + 1) <= n]


def _count(lines: list[str]) -> Counts:
    macs = alu = reads = 0
    for line in lines:
        found = _INSTRUCTION.match(line)
        if not found or _CONTROL.match(found[1]):
            continue
        repeated = _REPEATED.search(line)
        times = 1 + int(repeated[1]) if repeated else 1
        if _READS.match(found[1]):
            reads += times
            continue
        alu += times
        macs += times if re.match(r"mad\.f", found[1]) else 0
    return Counts(macs, alu, reads)


class Kernel(NamedTuple):
    """What the compiler made of a kernel for a GPU."""

    waves: int
    spills: int
    counts: Counts
    registers: int = 0  # of four numbers of 32 bits; halves take half of one
    code: str = ""


def compile_for(stats: str, gpu: str, source: str) -> dict[str, Kernel]:
    """Every kernel of a source, by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cl"
        path.write_text(source)
        command = [*shlex.split(stats), "--gpu", gpu, "--isa", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr[-1000:]}")
    found = {}
    for part in re.split(r"^(?=\{\"kernel\")", done.stdout, flags=re.M)[1:]:
        head, _, code = part.partition("\n")
        row = json.loads(head)
        native = code.split("; CL prog")[0]
        registers = row["full"] + (row["half"] + 1) // 2
        found[row["kernel"]] = Kernel(row["max_waves"], row["stp_ldp_spills"], count(native), registers, native)
    return found


def sources(network: str, target: str, precision: str) -> str:
    """The OpenCL C of a network."""
    module, params = NETWORKS[network]()
    return _source(apply_graph_transforms(module, HALF if precision == "float16" else None), target, params)


def _source(module: armillary.IRModule, target: str, params: dict[str, armillary.nd.NDArray]) -> str:
    with PassContext(opt_level=3):
        library = relay.build(module, target, params=params)
    return "\n".join(m.get_source() for m in library.get_lib().imported_modules if m.type_key == "opencl")


def each(a: int, b: int) -> str:
    """A quotient for a table."""
    return f"{a / b:.3f}" if b else "-"


def network_rows(args: argparse.Namespace, network: str, memory: str, precision: str) -> list[list[str]]:
    """A row for each kernel of a network that convolves, pools or multiplies."""
    text = sources(network, MEMORIES[memory], precision)
    gpus = args.gpus.split(",")
    found = [compile_for(args.stats, gpu, text) for gpu in gpus]
    rows = []
    for name, kernel in sorted(found[0].items()):
        if any(kind in name for kind in KINDS):
            of_gpus = [each_gpu[name] for each_gpu in found]
            waves, spills = [str(k.waves) for k in of_gpus], sum(k.spills for k in of_gpus)
            macs, alu, reads = kernel.counts
            message = note_of(name, min(k.waves for k in of_gpus))
            rows.append(
                [network, memory, precision, name, *waves, str(spills), each(alu, macs), each(reads, macs), message]
            )
    return rows


def note_of(name: str, waves: int) -> str:
    """Why a kernel has few waves."""
    return next((message for kind, message in NOTES.items() if kind in name), "") if waves < ENOUGH else ""


def layer_source(layer: Layer) -> str:
    """Our OpenCL C of a layer, in textures, with relu behind it; what lies before it keeps its data in blocks."""
    x = relay.var("x", shape=layer.data)
    weight = relay.const(np.ones(layer.weight, "float32"))
    if len(layer.data) == 2:
        made = relay.nn.relu(relay.nn.dense(x, weight))
    else:
        before = relay.const(np.ones((layer.data[1], layer.data[1], 1, 1), "float32"))
        data = relay.nn.conv2d(x, before)
        padding = (layer.padding, layer.padding)
        made = relay.nn.conv2d(data, weight, strides=(layer.stride,) * 2, padding=padding, groups=layer.groups)
        made = relay.nn.conv2d(relay.nn.relu(made), relay.const(np.ones((4, layer.weight[0], 1, 1), "float32")))
    module = armillary.IRModule.from_expr(relay.Function([x], made))
    return _source(module, MEMORIES["texture"], {})


def _kernels(text: str) -> dict[str, str]:
    """The definitions of a source, by name."""
    return {m[1]: m[0] for m in re.finditer(r"__kernel [^;{]*?void (\w+)\([^;{]*\) \{\n.*?\n\}", text, re.S)}


def compare_layers(args: argparse.Namespace) -> None:
    """A row for each layer: ours, and the other compiler's. All kernels of one are compiled at once."""
    gpu = args.gpus.split(",")[0]
    mine, others = {}, {}
    for number, (name, layer) in enumerate(LAYERS.items()):
        wanted = re.compile("conv2d.*relu" if len(layer.data) == 4 else "conv2d")
        mine |= {f"l{number}_{n}": t for n, t in _kernels(layer_source(layer)).items() if wanted.search(n)}
        path = Path(args.tvm or "/") / f"{name}.cl"
        if args.tvm and path.exists():
            others |= {f"l{number}_{n}": t for n, t in _kernels(path.read_text()).items()}
    found = [_compiled(args.stats, gpu, kernels) for kernels in (mine, others) if kernels]
    rows = [["layer", "ALU/MAC", "reads/MAC", "waves", "other ALU/MAC", "other reads/MAC", "other waves"]]
    for number, name in enumerate(LAYERS):
        cells = [name]
        for kernels in found:
            of_layer = [k for n, k in kernels.items() if n.startswith(f"l{number}_")]
            best = max(of_layer, key=lambda k: k.counts.macs, default=Kernel(0, 0, Counts(0, 0, 0)))
            macs, alu, reads = best.counts
            cells += [each(alu, macs), each(reads, macs), str(best.waves)]
        rows.append(cells)
    keep(rows, args.table)


def count_products(args: argparse.Namespace) -> None:
    """A row for each product and attention in both precisions: of its kernels, the one with the most multiply-adds."""
    gpus = args.gpus.split(",")
    heads = [f"waves {gpu}" for gpu in gpus]
    rows = [["product", "precision", *heads, "registers", "spills", "ALU/MAC", "reads/MAC"]]
    for precision in args.precisions.split(","):
        texts: dict[str, dict[str, str]] = {}  # by what types and functions stand before kernels
        for number, product in enumerate(PRODUCTS.values()):
            source = _source(armillary.IRModule.from_expr(product.make(precision)), MEMORIES["texture"], {})
            own = texts.setdefault(source.partition("__kernel")[0], {})
            own |= {f"l{number}_{name}": text for name, text in _kernels(source).items()}
        found = [{n: k for b, t in texts.items() for n, k in _compiled(args.stats, g, t, b).items()} for g in gpus]
        for number, (name, product) in enumerate(PRODUCTS.items()):
            names = [n for n in found[0] if n.startswith(f"l{number}_")]
            best = max(names, key=lambda n: found[0][n].counts.macs)
            of_gpus = [each_gpu[best] for each_gpu in found]
            first = of_gpus[0]
            macs, alu, reads = count_turn(first.code, product.turns) if product.turns > 1 else first.counts
            spills, waves = sum(k.spills for k in of_gpus), [str(k.waves) for k in of_gpus]
            cells = [*waves, str(first.registers), str(spills), each(alu, macs), each(reads, macs)]
            rows.append([name, precision, *cells])
    keep(rows, args.table)


def keep(rows: list[list[str]], path: Path | None) -> None:
    """Print rows, and write them to a file if there is one."""
    print("\n".join(",".join(row) for row in rows), flush=True)
    if path:
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


def _compiled(stats: str, gpu: str, kernels: dict[str, str], before: str = "") -> dict[str, Kernel]:
    """Kernels under new names. Images that are indexed as arrays are no OpenCL C: they are taken as arrays."""
    texts = [re.sub(r"void \w+\(", f"void {name}(", text, count=1) for name, text in kernels.items()]
    return compile_for(stats, gpu, "\n".join([before, *texts]).replace("image2d_array_t ", "__global float* restrict "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stats", required=True, help="the command that compiles and counts")
    parser.add_argument("--networks", default="resnet-50,mobilenet-v2", help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--gpus", default="730,660,830", help="ids; instructions are of the first")
    parser.add_argument("--memories", default="texture,buffer")
    parser.add_argument("--precisions", default="float32,float16")
    parser.add_argument("--table", type=Path, help="a file that keeps the rows")
    parser.add_argument("--layers", action="store_true", help="single layers instead of networks")
    parser.add_argument("--products", action="store_true", help="products and attentions instead of networks")
    parser.add_argument("--tvm", help="a folder with the other compiler's layers")
    args = parser.parse_args()
    if args.layers or args.products:
        (compare_layers if args.layers else count_products)(args)
        return
    heads = ["network", "memory", "precision", "kernel", *[f"waves {gpu}" for gpu in args.gpus.split(",")]]
    rows = [[*heads, "spills", "ALU/MAC", "reads/MAC", "few waves"]]
    for network in args.networks.split(","):
        for memory in args.memories.split(","):
            for precision in args.precisions.split(","):
                rows += network_rows(args, network, memory, precision)
    keep(rows, args.table)


if __name__ == "__main__":
    main()
