"""The debug executor's surface as Relay-era scripts know it: per-node times and values.

In: what `contrib.graph_executor` takes. Out: `GraphModuleDebug`, a GraphModule that runs node by node. Invariant: the
same kernels run in the same order as in `run()`; a value is copied right after its node, before its memory is reused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from armillary.artifact import save_params, write_atomic
from armillary.contrib.graph_executor import GraphModule, library_module
from armillary.errors import ExecutionError
from armillary.runtime.device import Device
from armillary.runtime.executor import GraphExecutor, NodeTime
from armillary.runtime.ndarray import NDArray

Array = np.ndarray[Any, Any]


def create(
    graph_json_str: str, libmod: Any, device: Device | list[Device], dump_root: str | None = None
) -> GraphModuleDebug:  # Any: see graph_executor.library_module
    """A debug module from graph JSON and a library; with `dump_root`, `run()` writes a trace and all values there."""
    first = device[0] if isinstance(device, list) else device
    return GraphModuleDebug(GraphExecutor(graph_json_str, library_module(libmod), first), dump_root=dump_root)


class Report:
    """Times of the kernels of one run, in run order; prints as a table, slowest first."""

    def __init__(self, rows: list[NodeTime]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[NodeTime]:
        return iter(self.rows)

    def __str__(self) -> str:
        total = sum(row.seconds for row in self.rows) or 1.0
        lines = [f"{'node':40s} {'function':60s} {'ms':>9s} {'share':>7s}"]
        for row in sorted(self.rows, key=lambda r: -r.seconds):
            times = f"{1e3 * row.seconds:9.4f} {100 * row.seconds / total:6.1f}%"
            lines.append(f"{row.name:40.40s} {row.function:60.60s} {times}")
        return "\n".join([*lines, f"{'total':101s} {1e3 * total:9.4f}"])

    table = __str__

    def json(self) -> str:
        """The rows as JSON text."""
        return json.dumps([{"name": r.name, "function": r.function, "seconds": r.seconds} for r in self.rows], indent=1)


class GraphModuleDebug(GraphModule):
    """Runs a compiled graph node by node."""

    def __init__(self, module: GraphExecutor, *, dump_root: str | None = None) -> None:
        super().__init__(module)
        self.dump_root = Path(dump_root) if dump_root is not None else None

    def run(self, **input_dict: Any) -> None:  # Any: array-likes
        """Set the given inputs and run; with a dump root, write `trace.json` and `outputs.params` there."""
        if self.dump_root is None:
            super().run(**input_dict)
            return
        self.set_input(**input_dict)
        rows, values = self._step()
        self.dump_root.mkdir(parents=True, exist_ok=True)
        write_atomic(self.dump_root / "trace.json", Report(rows).json().encode())
        write_atomic(self.dump_root / "outputs.params", save_params(values))

    def profile(self, collectors: Any = None, **input_dict: Any) -> Report:  # Any: accepted for old scripts, unused
        """Run once and give the time of each kernel."""
        del collectors
        self.set_input(**input_dict)
        return Report(self.module.profile())

    def run_individual(
        self, number: int, repeat: int = 1, min_repeat_ms: float = 0
    ) -> list[float]:
        """Mean seconds of each node over at least `number` * `repeat` runs (and `min_repeat_ms` in all)."""
        count = self.module.num_nodes()
        total, runs = np.zeros(count), 0
        while runs < number * repeat or 1e3 * total.sum() < min_repeat_ms:
            total += [row.seconds for row in self.module.run_nodes(0, count)]
            runs += 1
        means: list[float] = (total / max(1, runs)).tolist()
        return means

    def debug_get_output(self, node: str | int, out: NDArray) -> None:
        """Run up to a node (by index or name) and copy its first output into `out`."""
        index = self._index(node)
        self.module.run_nodes(0, index + 1)
        self.module.get_node_output(index).copyto(out)

    def _index(self, node: str | int) -> int:
        names = [self.module.node(i)[0] for i in range(self.module.num_nodes())]
        if isinstance(node, int) and 0 <= node < len(names):
            return node
        if node in names:
            return names.index(str(node))
        raise ExecutionError(f"the graph has no node {node!r}", hint=f"its nodes: {', '.join(names[:20])}")

    def _step(self) -> tuple[list[NodeTime], dict[str, Array]]:
        """Run every node, keeping its time and a copy of its first output."""
        rows: list[NodeTime] = []
        values: dict[str, Array] = {}
        for index in range(self.module.num_nodes()):
            (row,) = self.module.run_nodes(index, index + 1)
            if row.function:
                rows.append(row)
                values[row.name] = self.module.get_node_output(index).numpy().copy()
        return rows, values
