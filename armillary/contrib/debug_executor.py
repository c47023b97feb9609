"""The debug executor's surface as Relay-era scripts know it: per-node times and values.

In: what `contrib.graph_executor` takes. Out: `GraphModuleDebug`, a GraphModule that runs node by node. Invariant: the
same kernels run in the same order as in `run()`; a value is copied right after its node, before its memory is reused.
Nodes inside a branch or loop run with it and have no times of their own.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from armillary.artifact import save_params
from armillary.base.aliases import Array
from armillary.base.files import make_folder, write_atomic
from armillary.contrib.graph_executor import GraphModule, library_module
from armillary.errors import ExecutionError, TypeMismatch
from armillary.runtime.benchmark import BenchmarkResult, Timing, evaluate
from armillary.runtime.device import Device
from armillary.runtime.executor import GraphExecutor
from armillary.runtime.ndarray import NDArray
from armillary.runtime.node_times import NodeTime
from armillary.text.html import table_html

_SHOWN = 30  # rows of a report in a notebook


def create(
    graph_json_str: str, libmod: object, device: Device | list[Device], dump_root: str | None = None
) -> GraphModuleDebug:  # Any: see graph_executor.library_module
    """A debug module from graph JSON and a library; with `dump_root`, `run()` writes a trace and all values there."""
    return GraphModuleDebug(GraphExecutor(graph_json_str, library_module(libmod), device), dump_root=dump_root)


class Report:
    """Times of the kernels of one run, in run order; prints as a table, slowest first."""

    def __init__(self, rows: list[NodeTime]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[NodeTime]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def seconds(self) -> float:
        """The sum of the times."""
        return sum(row.seconds for row in self.rows)

    def _slowest_first(self) -> list[NodeTime]:
        return sorted(self.rows, key=lambda r: -r.seconds)

    def __str__(self) -> str:
        total = self.seconds or 1.0
        lines = [f"{'node':40s} {'function':60s} {'ms':>9s} {'share':>7s}"]
        for row in self._slowest_first():
            times = f"{1e3 * row.seconds:9.4f} {100 * row.seconds / total:6.1f}%"
            lines.append(f"{row.name:40.40s} {row.function:60.60s} {times}")
        return "\n".join([*lines, f"{'total':101s} {1e3 * total:9.4f}"])

    table = __str__

    def _repr_html_(self) -> str:
        total, rows = self.seconds or 1.0, self._slowest_first()
        shown = rows[:_SHOWN]
        cells = [[r.name, r.function, f"{1e3 * r.seconds:.4f}", f"{100 * r.seconds / total:.1f} %"] for r in shown]
        if len(rows) > _SHOWN:
            rest = sum(r.seconds for r in rows[_SHOWN:])
            others = f"{len(rows) - _SHOWN} others"
            cells.append([others, "", f"{1e3 * rest:.4f}", f"{100 * rest / total:.1f} %"])
        cells.append(["total", "", f"{1e3 * self.seconds:.4f}", "100.0 %"])
        longest = shown[0].seconds if shown and shown[0].seconds else 1.0
        return table_html(("node", "function", "ms", "share"), cells, [r.seconds / longest for r in shown])

    def json(self) -> str:
        """The rows as JSON text; trace viewers read it too (events with `ts` and `dur` in microseconds)."""
        events, start = [], 0.0
        for row in self.rows:
            event = {"name": row.name, "function": row.function, "seconds": row.seconds}
            events.append(event | {"ph": "X", "ts": 1e6 * start, "dur": 1e6 * row.seconds, "pid": 0, "tid": 0})
            start += row.seconds
        return json.dumps(events, indent=1)


class GraphModuleDebug(GraphModule):
    """Runs a compiled graph node by node."""

    def __init__(
        self,
        module: GraphExecutor,
        device: Device | list[Device] | None = None,
        graph_json_str: str | None = None,
        dump_root: str | None = None,
    ) -> None:
        """`device` and the graph's text are the executor's own: old scripts name them again."""
        del device, graph_json_str
        super().__init__(module)
        if not isinstance(dump_root, str | os.PathLike | None):
            raise TypeMismatch(f"dump_root is {type(dump_root).__name__}, wanted a folder's path")
        self.dump_root = Path(dump_root) if dump_root is not None else None

    def run(self, inputs: Mapping[str, object] | None = None, /, **input_dict: object) -> None:
        """Set the given inputs and run; with a dump root, write `trace.json` and `outputs.params` there.

        The values are named by node; further outputs of a node by `<node>:1`, `<node>:2`…
        """
        if self.dump_root is None:
            super().run(inputs, **input_dict)
            return
        self._set_inputs_of_run(inputs, input_dict)
        rows, values = self._step()
        make_folder(self.dump_root)
        write_atomic(self.dump_root / "trace.json", Report(rows).json().encode())
        write_atomic(self.dump_root / "outputs.params", save_params(values))

    def profile(self, /, collectors: object = None, **input_dict: object) -> Report:  # accepted for old scripts, unused
        """Run once and give the time of each kernel."""
        del collectors
        self._set_all(input_dict)
        return Report(self.module.profile())

    def run_individual(
        self,
        number: int,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
    ) -> list[float]:
        """Mean seconds of each node over at least `number` * `repeat` runs, each repeat of at least `min_repeat_ms`."""
        timing = Timing(
            number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown
        )
        count = self.module.num_nodes()
        total, runs = np.zeros(count), 0
        for index in range(timing.repeat):
            done, spent = 0, 0.0
            while done < timing.number or (1e3 * spent < timing.min_repeat_ms and (spent > 0 or done < _zero(timing))):
                times = [row.seconds for row in self.module.run_nodes(0, count)]
                total += times
                done, spent = done + 1, spent + sum(times)
            runs += done
            if timing.cooldown_interval_ms > 0 and (index + 1) % timing.repeats_to_cooldown == 0:
                time.sleep(timing.cooldown_interval_ms / 1000)
        means: list[float] = (total / runs).tolist()
        return means

    def run_individual_node(
        self, index: int | str, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0, **options: Any
    ) -> BenchmarkResult:  # Any: the other fields of Timing
        """Time one node alone, on what its inputs hold after the nodes before it."""
        node = self._index(index)
        self.module.run_nodes(0, node)

        def measure(count: int) -> float:
            return sum(self.module.run_nodes(node, node + 1)[0].seconds for _ in range(count))

        return evaluate(measure, Timing(number, repeat, min_repeat_ms, **options))

    def debug_get_output(self, node: str | int, out: NDArray | None = None, index: int = 0) -> NDArray:
        """Run up to a node (by position or name) and give its output `index`, as a copy, or copied into `out`."""
        position = self._index(node)
        self.module.run_nodes(0, position + 1)
        value = self.module.get_node_output(position, index)
        return value.copyto(out) if out is not None else NDArray(value.numpy().copy())

    execute_node = debug_get_output

    def _index(self, node: str | int) -> int:
        """The position of a node; a name may lack the `#number` at its end where one node only has it."""
        names = [self.module.node(i)[0] for i in range(self.module.num_nodes())]
        if isinstance(node, int) and 0 <= node < len(names):
            return node
        exact = [i for i, name in enumerate(names) if name == node]
        matches = exact or [i for i, name in enumerate(names) if name.rpartition("#")[0] == node]
        if len(matches) == 1:
            return matches[0]
        if matches:
            same = ", ".join(names[i] for i in matches[:20])
            raise ExecutionError(f"{len(matches)} nodes are called {node!r}", hint=f"say which: {same}")
        raise ExecutionError(f"the graph has no node {node!r}", hint=f"its nodes: {', '.join(names[:20])}")

    def _step(self) -> tuple[list[NodeTime], dict[str, Array]]:
        """Run every node, keeping its time and copies of its outputs."""
        rows: list[NodeTime] = []
        values: dict[str, Array] = {}
        for index in range(self.module.num_nodes()):
            if self.module.node_owner(index) >= 0:
                continue
            (row,) = self.module.run_nodes(index, index + 1)
            if not row.function or self.module.is_load_time(index):
                continue
            rows.append(row)
            for k in range(self.module.num_node_outputs(index)):
                name = f"{row.name}:{k}" if k else row.name
                values[name] = self.module.get_node_output(index, k).numpy().copy()
        return rows, values


def _zero(timing: Timing) -> int:
    """Runs after which a repeat without measurable time ends."""
    return timing.number + timing.limit_zero_time_iterations
