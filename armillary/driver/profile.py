"""Measure a graph kernel by kernel and set each beside this machine's roof.

In: a graph executor with its inputs set, its graph JSON (with the notes of driver/explain.py) and a `Roof`. Out: a
`Profile`: per kernel the median time, arithmetic, bytes, the least time the roof allows, and the reasons for its
schedule. Invariant: kernels run as in an inference, one after another, so their times add up to it; what runs when the
network is loaded is left out. Bytes count every input and output of a kernel once: parameters come from where all
parameters of the network fit, other values from where the kernel's own values fit. Shown by cli/profile.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from armillary.artifact import GraphNode, GraphSpec, tensor_bytes
from armillary.driver.explain import KernelNotes, read_attrs
from armillary.driver.load_time import LOAD_TIME
from armillary.driver.roof import Roof
from armillary.runtime import GraphExecutor
from armillary.runtime.executor import NodeTime
from armillary.target import CpuModel, cpu_model

PLACES = ("l2", "l3", "memory")


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One kernel call: when it starts and how long it takes (seconds, medians), its work, its roof, its reasons."""

    index: int
    name: str
    function: str
    start: float
    seconds: float
    flops: int
    direct: int
    nbytes: int
    least: float
    bound: str
    shape: str
    notes: KernelNotes

    @property
    def gflops(self) -> float:
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        """GB/s."""
        return self.nbytes / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def percent(self) -> float:
        """Of the roof."""
        return 100 * self.least / self.seconds if self.seconds else 0.0

    @property
    def algorithm(self) -> str:
        return self.notes.choice.algorithm if self.notes.choice is not None else ""

    @property
    def tile(self) -> str:
        return self.notes.choice.tile if self.notes.choice is not None else ""

    def reasons(self) -> list[str]:
        """Sentences: the choice and why, Winograd's savings, and the roof."""
        said = self.notes.choice.sentences() if self.notes.choice is not None else ["no notes in this package"]
        if self.direct != self.flops:
            rate = self.direct / self.seconds / 1e9 if self.seconds else 0.0
            done, plain = self.flops / 1e6, self.direct / 1e6
            said.append(f"does {done:.1f} MFLOP for {plain:.1f} of the direct way (worth {rate:.0f} GFLOP/s)")
        return [*said, f"roof {1e3 * self.least:.4f} ms, set by {self.bound}"]


@dataclass(frozen=True, slots=True)
class Profile:
    """A measured network: its kernels in order, the median time of a whole inference, the machine."""

    kernels: tuple[KernelProfile, ...]
    seconds: float
    runs: int
    roof: Roof

    @property
    def in_kernels(self) -> float:
        """Seconds of all kernels together."""
        return sum(k.seconds for k in self.kernels)

    @property
    def least(self) -> float:
        """Seconds that the roof allows for all kernels."""
        return sum(k.least for k in self.kernels)

    def to_plain(self) -> dict[str, Any]:  # Any: JSON values
        """As JSON values; times in milliseconds."""
        rows = [
            {
                "index": k.index, "name": k.name, "function": k.function, "start_ms": 1e3 * k.start,
                "ms": 1e3 * k.seconds, "share": k.seconds / (self.in_kernels or 1.0), "gflops": k.gflops,
                "gbytes_per_s": k.gbytes, "flops": k.flops, "direct_flops": k.direct, "bytes": k.nbytes,
                "roof_ms": 1e3 * k.least, "percent_of_roof": k.percent, "bound": k.bound, "output": k.shape,
                "algorithm": k.algorithm, "tile": k.tile, "why": k.reasons(),
            }
            for k in self.kernels
        ]  # fmt: skip
        total = {"ms": 1e3 * self.seconds, "in_kernels_ms": 1e3 * self.in_kernels, "roof_ms": 1e3 * self.least}
        return {"total": total, "runs": self.runs, "machine": asdict(self.roof), "kernels": rows}


def profile_graph(executor: GraphExecutor, graph_json: str, roof: Roof, runs: int = 20) -> Profile:
    """Run the graph `runs` times kernel by kernel, and as often as a whole; inputs must be set."""
    spec = GraphSpec.from_json(graph_json)
    executor.run()
    executor.run()
    steps: list[list[NodeTime]] = []
    wholes: list[float] = []
    for _ in range(runs):
        steps.append(executor.run_nodes(0, executor.num_nodes()))
        wholes.append(executor.time(1))
    sizes = _Sizes(spec, set(executor.free_inputs), cpu_model("llvm"))
    rows: list[KernelProfile] = []
    start = 0.0
    for index, node in enumerate(spec.nodes):
        if not _is_kernel(node):
            continue
        seconds = statistics.median(step[index].seconds for step in steps)
        if not seconds:  # of another shape variant, or in a branch that is not taken
            continue
        rows.append(_row(index, node, start, seconds, sizes, roof))
        start += seconds
    return Profile(tuple(rows), statistics.median(wholes), runs, roof)


def _is_kernel(node: GraphNode) -> bool:
    return node.op != "null" and not node.func_name.startswith("__") and LOAD_TIME not in node.attrs


def _row(index: int, node: GraphNode, start: float, seconds: float, sizes: _Sizes, roof: Roof) -> KernelProfile:
    notes = read_attrs(node.attrs)
    moved = sizes.moved(index, node)
    least, bound = roof.seconds(notes.flops, moved)
    return KernelProfile(
        index, node.name, node.func_name, start, seconds, notes.flops, notes.direct, round(sum(moved.values())), least,
        bound, "x".join(map(str, sizes.spec.shapes[sizes.rows[index]])), notes,
    )  # fmt: skip


class _Sizes:
    """Bytes that kernels move, by where they come from."""

    def __init__(self, spec: GraphSpec, inputs: set[str], cpu: CpuModel) -> None:
        self.spec, self.cpu = spec, cpu
        self.rows = spec.node_row_ptr
        self.sizes = [tensor_bytes(shape, dtype) for shape, dtype in zip(spec.shapes, spec.dltypes, strict=True)]
        self.is_param = [
            LOAD_TIME in node.attrs or (node.op == "null" and node.name not in inputs) for node in spec.nodes
        ]
        read = {(n, o) for node in spec.nodes if _is_kernel(node) for n, o, _ in node.inputs if self.is_param[n]}
        self.params = sum(self.sizes[self.rows[n] + o] for n, o in read)

    def moved(self, index: int, node: GraphNode) -> dict[str, float]:
        """Bytes by place."""
        edges = {(n, o) for n, o, _ in node.inputs}
        params = sum(self.sizes[self.rows[n] + o] for n, o in edges if self.is_param[n])
        values = sum(self.sizes[self.rows[n] + o] for n, o in edges if not self.is_param[n])
        values += sum(self.sizes[self.rows[index] : self.rows[index + 1]])
        found = dict.fromkeys(PLACES, 0.0)
        found[self._place(self.params)] += params
        found[self._place(values)] += values
        return {place: amount for place, amount in found.items() if amount}

    def _place(self, nbytes: int) -> str:
        if nbytes <= self.cpu.l2:
            return "l2"
        return "l3" if nbytes <= self.cpu.l3 else "memory"


def slowest_first(kernels: Sequence[KernelProfile]) -> list[KernelProfile]:
    """The kernels by time."""
    return sorted(kernels, key=lambda k: (-k.seconds, k.index))


def percent_of_roof(profile: Profile) -> float:
    """The share of the roof that all kernels together reach."""
    return 100 * profile.least / profile.in_kernels if profile.in_kernels else 0.0
