"""List what this machine can run on.

Prints the CPU as the compiler sees it (model, features, caches, threads), and each OpenCL device as its driver tells
(compute units, memory, whether it computes in half and has images), or why there is none.

examples:
  armc devices
  armc devices --tracker 192.168.1.2:9190
  armc devices --target "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76"
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping

from rich.table import Table

from armillary.base.config import setting
from armillary.base.lazy import deferred
from armillary.cli._console import output
from armillary.codegen.llvm.target import check_target
from armillary.runtime.device import cl
from armillary.target import CpuModel, as_target, cpu_model

with deferred():
    from armillary.rpc.client import connect_tracker  # few lists are of another machine
    from armillary.rpc.programs import parse_address


_WIDEST = 110  # features of a processor are folded, in a pipe, too


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc devices`."""
    parser.add_argument("--target", default="llvm -mcpu=native", help="show the CPU facts of this target instead")
    message = "list the devices of an RPC tracker instead (default port: 9190)"
    parser.add_argument("--tracker", metavar="HOST[:PORT]", help=message)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    if args.tracker:
        output.print(tracker_table(args.tracker), highlight=False)
        return 0
    model = cpu_model(args.target)
    if as_target(args.target).kind.name == "llvm":  # a C compiler has names of its own
        check_target(as_target(args.target))
    table = Table(box=None, show_header=False, pad_edge=False, width=min(output.width, _WIDEST))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in (*cpu_rows(model), *opencl_rows()):
        table.add_row(name, value)
    output.print(table, highlight=False)
    return 0


def cpu_rows(model: CpuModel) -> list[tuple[str, str]]:
    """Names and values of what the compiler knows of a CPU."""
    caches = (f"L{level} {size // 1024} KiB" for level, size in ((1, model.l1), (2, model.l2), (3, model.l3)) if size)
    lanes = f"{model.vector_bits} bits ({model.lanes} float32 lanes), {model.vector_registers} registers"
    fma = f"{model.fma_ports} a cycle, latency {model.fma_latency}" if model.has_fma else "none"
    rows = [
        ("cpu(0)", f"{model.name} ({model.arch})" + (", this machine" if model.native else "")),
        ("  vectors", lanes),
        ("  fused multiply-add", fma),
        ("  caches", ", ".join(caches) or "unknown"),
    ]
    if model.native:
        rows.append(("  threads", f"{setting('ARMILLARY_NUM_THREADS')} (ARMILLARY_NUM_THREADS sets it)"))
    return [*rows, ("  features", " ".join(sorted(model.features)) or "none")]


def tracker_table(address: str) -> Table:
    """The devices of a tracker: what they are, and who uses them."""
    table = Table(box=None, pad_edge=False)
    for heading in ("key", "address", "machine", "state", "user", "sessions", "failures"):
        table.add_column(heading, justify="right" if heading in ("sessions", "failures") else "left")
    for row in connect_tracker(*parse_address(address, 9190)).summary()["server_info"]:
        machine = " ".join(str(row["info"].get(name, "")) for name in ("os", "arch")).strip()
        place = ":".join(str(part) for part in row["addr"])
        counts = str(row["sessions"]), str(row["failures"])
        table.add_row(row["key"], place, machine, row["state"], row["user"], *counts)
    return table


def opencl_rows() -> list[tuple[str, str]]:
    """Names and values of what drivers tell of the OpenCL devices, or why there is none."""
    rows: list[tuple[str, str]] = []
    for device in itertools.takewhile(lambda device: device.exist, map(cl, itertools.count())):
        facts = device.facts()
        shared = ", shared with the CPU" if facts["shared"] == "1" else ""
        rows += [
            (
                str(device),
                f"{facts['name']} ({'GPU' if facts['gpu'] == '1' else 'no GPU'}), {facts['version']}".strip(),
            ),
            ("  driver", facts["driver"]),
            ("  compute units", f"{facts['units']}, work-groups of up to {facts['items']}"),
            ("  memory", f"{_mebibytes(facts['memory'])}{shared}; {int(facts['local']) // 1024} KiB of a work-group"),
            ("  half", "cl_khr_fp16" if facts["half"] == "1" else "in memory only: float16 is computed in float32"),
            ("  images", _images(facts)),
        ]
    return rows or [("cl(0)", f"not available: {cl(0).objection()}")]


def _mebibytes(size: str) -> str:
    return f"{int(size) // 2**20} MiB"


def _images(facts: Mapping[str, str]) -> str:
    if facts["images"] == "0":
        return 'none: compile for "opencl", without -device=adreno'
    return f"up to {facts['widest']} x {facts['highest']} pixels"
