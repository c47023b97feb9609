"""Measure a graph kernel by kernel and set each beside this machine's roof.

In: a graph executor with its inputs set, its graph JSON (with the notes of driver/explain.py) and a `Roof`. Out: a
`Profile`: per kernel the median time and what its threads did in it, arithmetic, bytes, the least time the roof allows,
and the reasons for its schedule; and a timeline. Invariant: kernels run as in an inference, one after another on the
same threads, so their times add up to it; what runs when the network is loaded is left out. Bytes count every output
of a kernel once, and of every input what is read of it; operations are 0 of kernels that ran at other sizes than
those for which the build counted them. Bytes come from where an ideal cache would have them: parameters among what was
touched since their last use (all parameters of the network, if a run uses them once), other values among the kernel's
own. Shown by cli/profile.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from armillary.artifact import GraphNode, GraphSpec, tensor_bytes
from armillary.base.json_types import JsonObject
from armillary.driver.explain import KernelNotes, read_attrs
from armillary.driver.roof import PLACES, Roof
from armillary.driver.trace import Share, joined, shares
from armillary.errors import ExecutionError
from armillary.runtime import GraphExecutor
from armillary.runtime.node_times import Span
from armillary.runtime.open_shapes import at_sizes
from armillary.runtime.threads import num_threads
from armillary.target import CpuModel, cpu_model

TOLERANCE = 1.05  # a kernel that exceeds its roof by more says that the roof was measured on a busy machine
LONG = 1e-5  # seconds; of shorter kernels the clock tells too little
DISTURBED = 1.3


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One kernel: when it starts and how long it takes (seconds, medians), its work, its roof, its reasons.

    `moved` is bytes by the place they come from. In a loop, times and work are those of all its iterations.
    """

    index: int
    name: str
    function: str
    start: float
    share: Share
    flops: int
    direct: int
    moved: Mapping[str, float]
    least: float
    bound: str
    shape: str
    notes: KernelNotes

    @property
    def seconds(self) -> float:
        return self.share.seconds

    @property
    def nbytes(self) -> int:
        return round(sum(self.moved.values()))

    @property
    def waiting(self) -> float:
        """Percent of the threads' time in which they do not compute."""
        return 100 * (1 - self.share.computing / self.seconds) if self.seconds else 0.0

    @property
    def gflops(self) -> float:
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        """The bytes that the kernel moves in a second, in GB/s."""
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
    """A measured network: its kernels in order, the median time of a whole inference, the machine.

    `between` is the time of an inference that is in no kernel, `call` what a call from Python adds (seconds). The
    `timeline` holds the spans of the fastest run, which took `traced` seconds; `watched` is the median of the runs that
    the kernels' times are of (a clock is read at each kernel), `seconds` that of runs without.
    """

    kernels: tuple[KernelProfile, ...]
    seconds: float
    between: float
    call: float
    runs: int
    roof: Roof
    timeline: tuple[Span, ...]
    traced: float
    watched: float
    threads: int = 1

    @property
    def in_kernels(self) -> float:
        """Seconds of all kernels together."""
        return sum(k.seconds for k in self.kernels)

    @property
    def least(self) -> float:
        """Seconds that the roof allows for all kernels."""
        return sum(k.least for k in self.kernels)

    @property
    def total(self) -> Share:
        """What the threads do in all kernels together."""
        result = Share()
        for kernel in self.kernels:
            result = result.plus(kernel.share)
        return result

    def division(self) -> tuple[tuple[str, float], ...]:
        """The seconds of an inference called from Python, by what they are spent on."""
        total = self.total
        return (
            ("computing", total.computing),
            ("waiting for the slowest thread", total.uneven),
            ("fork and join", total.overhead),
            ("between kernels", self.between),
            ("call from Python", self.call),
        )

    def apart(self) -> tuple[tuple[str, float], ...]:
        """Why a whole inference and its kernels together differ: parts in seconds, whose sum is that difference.

        Kernels are timed in runs of their own, in which the clock is read at each, and each has its own median."""
        return (
            ("between kernels", self.between),
            ("the clock at each kernel", self.seconds - self.watched),
            ("medians that do not add up", self.watched - self.between - self.in_kernels),
        )

    @property
    def disturbance(self) -> float:
        """Seconds of an inference that are in no kernel, nor between them: others had the processor."""
        return max(0.0, self.seconds - self.in_kernels - self.between)

    @property
    def is_disturbed(self) -> bool:
        """Whether half of all inferences took far longer than the fastest one, or than the kernels and what is between
        them, each at its median: the CPUs had other work to do."""
        return self.seconds > DISTURBED * min(self.traced, self.in_kernels + self.between)

    @property
    def is_above_roof(self) -> bool:
        """Whether a kernel computes or reads faster than the machine was measured to."""
        return any(k.seconds > LONG * k.share.calls and k.least > TOLERANCE * k.seconds for k in self.kernels)

    def under(self, roof: Roof) -> Profile:
        """The same measurements beside another roof."""
        rows = []
        for kernel in self.kernels:
            least, bound = roof.seconds(kernel.flops, kernel.moved)
            rows.append(replace(kernel, least=least, bound=bound))
        return replace(self, kernels=tuple(rows), roof=roof)

    def to_plain(self) -> JsonObject:  # Any: JSON values
        """As JSON values; times in milliseconds."""
        rows = [
            {
                "index": k.index,
                "name": k.name,
                "function": k.function,
                "calls": k.share.calls,
                "start_ms": 1e3 * k.start,
                "ms": 1e3 * k.seconds,
                **_thread_times(k.share),
                "share": k.seconds / (self.in_kernels or 1.0),
                "gflops": k.gflops,
                "gbytes_per_s": k.gbytes,
                "flops": k.flops,
                "direct_flops": k.direct,
                "bytes": k.nbytes,
                "roof_ms": 1e3 * k.least,
                "percent_of_roof": k.percent,
                "bound": k.bound,
                "output": k.shape,
                "algorithm": k.algorithm,
                "tile": k.tile,
                "why": k.reasons(),
            }
            for k in self.kernels
        ]
        total = {
            "ms": 1e3 * self.seconds,
            "in_kernels_ms": 1e3 * self.in_kernels,
            **_thread_times(self.total),
            "between_kernels_ms": 1e3 * self.between,
            "clock_ms": 1e3 * (self.seconds - self.watched),
            "call_ms": 1e3 * self.call,
            "roof_ms": 1e3 * self.least,
        }
        spans = [
            {"index": s.node, "thread": s.thread, "start_ms": 1e3 * s.begin, "end_ms": 1e3 * s.end}
            for s in self.timeline
        ]
        timeline = {"ms": 1e3 * self.traced, "spans": spans}
        machine = asdict(self.roof)
        return {"total": total, "runs": self.runs, "machine": machine, "kernels": rows, "timeline": timeline}


def _thread_times(share: Share) -> dict[str, float]:
    """In milliseconds, as JSON values."""
    computing, uneven, overhead = 1e3 * share.computing, 1e3 * share.uneven, 1e3 * share.overhead
    return {"computing_ms": computing, "uneven_ms": uneven, "fork_join_ms": overhead}


def profile_graph(executor: GraphExecutor, graph_json: str, roof: Roof, runs: int = 20) -> Profile:
    """Run the graph `runs` times with a trace, and as often without; inputs must be set."""
    spec = GraphSpec.from_json(graph_json)
    executor.run()
    executor.run()
    traces: list[tuple[float, list[Span]]] = []
    wholes: list[float] = []
    for _ in range(runs):
        traces.append(executor.trace())
        wholes.append(executor.time(1))
    threads = max([num_threads(), *(1 + span.thread for _, spans in traces for span in spans)])
    taken = [shares(spans, threads) for _, spans in traces]
    between = [
        seconds - sum(s.seconds for s in steps.values()) for (seconds, _), steps in zip(traces, taken, strict=True)
    ]
    traced, spans = min(traces, key=lambda trace: trace[0])
    rows = _rows(spec, taken, executor, roof)
    return Profile(
        tuple(rows),
        statistics.median(wholes),
        statistics.median(between),
        executor.call_seconds(),
        runs,
        roof,
        joined(spans, traced),
        traced,
        statistics.median(seconds for seconds, _ in traces),
        threads,
    )


def _rows(
    spec: GraphSpec, taken: Sequence[Mapping[int, Share]], executor: GraphExecutor, roof: Roof
) -> list[KernelProfile]:
    """The kernels that ran, each with the medians of its times."""
    sizes = _Sizes(spec, executor, cpu_model("llvm"), roof.threads)
    rows: list[KernelProfile] = []
    start = 0.0
    for index, node in enumerate(spec.nodes):
        if not _is_kernel(node):
            continue
        share = _median([steps.get(index, Share()) for steps in taken])
        if not share.seconds:  # of another shape variant, or in a branch that is not taken
            continue
        rows.append(_row(index, node, start, share, sizes, roof))
        start += share.seconds
    return rows


def _median(shares: Sequence[Share]) -> Share:
    """Of the time the median; its parts are as in the run that is there, so that they add up."""
    return sorted(shares, key=lambda share: share.seconds)[(len(shares) - 1) // 2]


def _is_kernel(node: GraphNode) -> bool:
    return node.op != "null" and not node.func_name.startswith("__") and not node.is_load_time


def _row(index: int, node: GraphNode, start: float, share: Share, sizes: _Sizes, roof: Roof) -> KernelProfile:
    notes = read_attrs(node.attrs)
    calls = share.calls if sizes.are_counted(index) else 0
    flops, direct = notes.flops * calls, notes.direct * calls
    moved = {place: amount * share.calls for place, amount in sizes.moved(index, node, share.calls).items()}
    shape = "x".join(map(str, sizes.shapes[sizes.rows[index]]))
    return KernelProfile(
        index, node.name, node.func_name, start, share, flops, direct, moved, *roof.seconds(flops, moved), shape, notes
    )


def bound_shapes(spec: GraphSpec, executor: GraphExecutor) -> list[tuple[int, ...]]:
    """The shape of each entry in the last run; of one with open sizes that was not computed that of no elements."""
    rows, result = spec.node_row_ptr, list[tuple[int, ...]]()
    for index in range(len(spec.nodes)):
        for entry in range(rows[index], rows[index + 1]):
            numbers = tuple(d for d in spec.shapes[entry] if isinstance(d, int))
            if len(numbers) != len(spec.shapes[entry]):
                try:
                    numbers = executor.get_node_output(index, entry - rows[index]).shape
                except ExecutionError:
                    numbers = (0,) * len(spec.shapes[entry])
            result.append(numbers)
    return result


def typical_shapes(spec: GraphSpec) -> list[tuple[int, ...]]:
    """The shape of each entry at the sizes for which kernels were chosen and their operations counted."""
    values = {size.name: size.typical for size in spec.sizes}
    return [at_sizes(shape, values) for shape in spec.shapes]


class _Sizes:
    """Bytes that kernels move, by where they come from."""

    def __init__(self, spec: GraphSpec, executor: GraphExecutor, cpu: CpuModel, threads: int) -> None:
        self.spec = spec
        self.held = {"l1": threads * cpu.l1, "l2": threads * cpu.l2, "l3": cpu.l3}
        self.rows = spec.node_row_ptr
        inputs = set(executor.free_inputs)
        self.shapes = bound_shapes(spec, executor)
        self.typical = typical_shapes(spec)
        self.sizes = [tensor_bytes(shape, dtype) for shape, dtype in zip(self.shapes, spec.dltypes, strict=True)]
        self.is_param = [node.is_load_time or (node.op == "null" and node.name not in inputs) for node in spec.nodes]
        kernels = [index for index, node in enumerate(spec.nodes) if _is_kernel(node)]
        self.owners = {index: executor.node_owner(index) for index in kernels}
        self.readers: dict[tuple[int, int], list[int]] = {}
        self.touched = dict.fromkeys(kernels, 0)
        for index in kernels:
            read = self._read(spec.nodes[index])
            self.touched[index] = sum(read.values()) + self._written(index)
            for edge in read:
                self.readers.setdefault(edge, []).append(index)
        self.params = sum(self.sizes[self.rows[n] + o] for n, o in self.readers if self.is_param[n])

    def are_counted(self, index: int) -> bool:
        """Whether a kernel's operations were counted for the sizes of this run: a package says them of one each."""
        node = self.spec.nodes[index]
        entries = [self.rows[n] + o for n, o, _ in node.inputs] + list(range(self.rows[index], self.rows[index + 1]))
        return all(self.shapes[e] == self.typical[e] for e in entries)

    def moved(self, index: int, node: GraphNode, calls: int) -> dict[str, float]:
        """Bytes of one call by place."""
        seconds = dict.fromkeys(PLACES, 0.0)
        values, parts = self._written(index), list[tuple[str, float]]()
        for edge, amount in self._read(node).items():
            if self.is_param[edge[0]]:
                parts += self._places(amount, self._since(edge, index, calls))
            else:
                values += amount
        for place, part in parts + self._places(values, values):
            seconds[place] += part
        return {place: amount for place, amount in seconds.items() if amount}

    def _read(self, node: GraphNode) -> dict[tuple[int, int], int]:
        """Bytes that a kernel reads, by where they were made."""
        notes = read_attrs(node.attrs)
        read: dict[tuple[int, int], int] = {}
        for position, (n, o, _) in enumerate(node.inputs):
            whole = self.sizes[self.rows[n] + o]
            read[n, o] = max(read.get((n, o), 0), min(whole, notes.reads.get(position, whole)))
        return read

    def _written(self, index: int) -> int:
        return sum(self.sizes[self.rows[index] : self.rows[index + 1]])

    def _since(self, edge: tuple[int, int], index: int, calls: int) -> int:
        """Bytes that went through the caches since a parameter was read last: in a loop those of an iteration."""
        if calls > 1:
            return sum(self.touched[i] for i, owner in self.owners.items() if owner == self.owners[index])
        before = [reader for reader in self.readers[edge] if reader < index]
        if not before:
            return self.params
        return min(self.params, sum(self.touched[i] for i in self.touched if before[-1] <= i < index))

    def _places(self, amount: int, among: int) -> list[tuple[str, float]]:
        """An amount by place, where `among` bytes are in use: of these an ideal cache keeps what it can hold."""
        retained, result = 0, []
        for place in PLACES:
            held = max(retained, min(among, self.held.get(place, among)))
            result.append((place, amount * (held - retained) / max(1, among)))
            retained = held
        return result


def slowest_first(kernels: Sequence[KernelProfile]) -> list[KernelProfile]:
    """The kernels by time."""
    return sorted(kernels, key=lambda k: (-k.seconds, k.index))


def percent_of_roof(profile: Profile) -> float:
    """The share of the roof that all kernels together reach."""
    return 100 * profile.least / profile.in_kernels if profile.in_kernels else 0.0
