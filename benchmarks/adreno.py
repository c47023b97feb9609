"""Count what Mesa's compiler makes of the kernels of networks for Adreno GPUs; no GPU is needed.

    python benchmarks/adreno.py --stats "python3 adreno_stats.py --root ROOT" [--networks resnet-18,mobilenet]
        [--gpus 660,730,830] [--targets "opencl -device=adreno"] [--precisions float32,float16]

`--stats` is a command that takes `--gpu ID FILE.cl` and prints a JSON line for each kernel: instructions (instr),
registers (full), waves (max_waves), spills (stp_ldp_spills). Prints, per network, GPU and precision, a row for each
kind of kernel: how many, the least waves, spills, instructions, and for convolutions that read textures the reads for
each multiply-add, which are counted in the source. Figures are of Mesa's compiler, not of Qualcomm's.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from armillary import relay
from armillary.driver.tvmc.transform import apply_graph_transforms
from armillary.relay import testing
from armillary.transform import PassContext

NETWORKS = {
    "resnet-18": lambda: testing.resnet.get_workload(batch_size=1, num_layers=18),
    "resnet-50": lambda: testing.resnet.get_workload(batch_size=1, num_layers=50),
    "mobilenet": lambda: testing.mobilenet.get_workload(batch_size=1),
}
KINDS = ("depthwise_conv2d", "conv2d", "max_pool2d", "avg_pool2d", "dense", "softmax")
HEADS = ("network", "target", "precision", "GPU", "kernels", "number", "least waves", "spills", "instructions")
HEADS += ("registers", "reads/MAC")
HALF = {"mixed_precision": True, "mixed_precision_calculation_type": "float16", "mixed_precision_acc_type": "float16"}


def sources(network: str, target: str, precision: str) -> str:
    """The OpenCL C of a network."""
    module, params = NETWORKS[network]()
    module = apply_graph_transforms(module, HALF if precision == "float16" else None)
    with PassContext(opt_level=3):
        library = relay.build(module, target, params=params)
    return "\n".join(m.get_source() for m in library.get_lib().imported_modules if m.type_key == "opencl")


def reads_for_each_sum(text: str) -> dict[str, float]:
    """Texture reads for each multiply-add in the innermost body, by kernel; of kernels that sum vectors of four."""
    found = {}
    for name, body in re.findall(r"void (\w+)\(.*?\) \{\n(.*?)\n\}", text, re.S):
        reads = len(re.findall(r"_local\w*\[\d+\] = read_image|data_pad\w*\[\d+\] = (?:read_image|convert)", body))
        sums = len(re.findall(r"(conv2d_NCHWc\w*\[\d+\]) = \(\1 \+", body))
        if sums:
            found[name] = reads / (4 * sums)
    return found


def measure(args: argparse.Namespace, network: str, target: str, precision: str) -> None:
    """Rows of one network."""
    text = sources(network, target, precision)
    reads = reads_for_each_sum(text)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cl"
        path.write_text(text)
        for gpu in args.gpus.split(","):
            command = [*shlex.split(args.stats), "--gpu", gpu, str(path)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
            if done.returncode:
                sys.exit(f"{command[0]}: {done.stderr[-1000:]}")
            rows = defaultdict(list)
            for row in map(json.loads, done.stdout.splitlines()):
                rows[next((kind for kind in KINDS if kind in row["kernel"]), "others")].append(row)
            for kind, kernels in sorted(rows.items()):
                waves, spills = min(k["max_waves"] for k in kernels), sum(k["stp_ldp_spills"] for k in kernels)
                size, full = (sum(k[key] for k in kernels) / len(kernels) for key in ("instr", "full"))
                told = [reads[k["kernel"]] for k in kernels if k["kernel"] in reads]
                shown = f"{min(told):.3f}-{max(told):.3f}" if told else "-"
                memory = target.removeprefix("opencl").strip() or "buffers"
                cells = (
                    network,
                    memory,
                    precision,
                    gpu,
                    kind,
                    len(kernels),
                    waves,
                    spills,
                    f"{size:.0f}",
                    f"{full:.0f}",
                )
                print("|", " | ".join(map(str, (*cells, shown))), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stats", required=True, help="the command that compiles and counts")
    parser.add_argument("--networks", default="resnet-18,mobilenet", help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--gpus", default="730", help="ids, such as 660,730,830")
    parser.add_argument("--targets", default="opencl -device=adreno", help="with commas between")
    parser.add_argument("--precisions", default="float32", help="float32,float16")
    args = parser.parse_args()
    print("|", " | ".join(HEADS), "|\n|" + "---|" * len(HEADS))
    for network in args.networks.split(","):
        for target in args.targets.split(","):
            for precision in args.precisions.split(","):
                measure(args, network, target, precision)


if __name__ == "__main__":
    main()
