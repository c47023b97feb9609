"""Layouts of a whole graph, chosen from the records of its operators: `DPTuner` and `PBQPTuner` of Relay-era scripts.

In: a graph, the shapes of its inputs, records of its convolutions (`autotvm.task.extract_from_program`). Out: for each
convolution the record that makes the network least, kernels and changes of layout between them together. Invariant:
only records that were given are chosen, one for each workload; a record of other blocks of channels than a build takes
has paid for changes of layout on both sides (decisions/tuning.md), which is taken off before neighbours are weighed.
The solver: `tuner/pairwise_costs.py`. `armc tune` does this by itself, by trials of its own (`tuner/joint_layouts.py`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

import numpy as np

from armillary import te, topi
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.record import LogFile, encode, load_from_file
from armillary.autotvm.task.cpu_space import MOVED_IN_A_CYCLE
from armillary.autotvm.task.network import Link, extract_from_program, links_of_program
from armillary.autotvm.task.task import TENSOR, args_to_workload, create, get_config, template
from armillary.autotvm.tuner.pairwise_costs import least, total
from armillary.backends.cpu.record_knobs import BLOCKS, Blocks, own_blocks
from armillary.base.aliases import Array
from armillary.base.boundary import boundary, bounded
from armillary.base.dispatch import Workload
from armillary.base.dtype import DType
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.ir import IRModule
from armillary.ops.nn.shape import layout_transform
from armillary.relay.binding import bind_params_by_name, bind_types
from armillary.relay.expr import Function, Var
from armillary.relay.op import Op
from armillary.relay.types import TensorType
from armillary.runtime.device import cpu
from armillary.target import Target, as_target
from armillary.target.cpu import cpu_model
from armillary.te.tensor import static_shape

__path__: list[str] = []  # modules of old scripts lie below: base/old_modules/table.txt

Pair = tuple[MeasureInput, MeasureResult]
_Candidates = dict[Workload, dict[Blocks, Pair]]
_Move = tuple[int, int, int]  # elements, blocks before and behind
logger = logging.getLogger("autotvm")


@bounded
class BaseGraphTuner:
    """What both tuners do but for the solver: `_neighbours` says which nodes it eliminates exactly.

    Parameters of the graph may be left unbound: layouts do not depend on their values. TuningError where no record is
    of a task of the graph.
    """

    _neighbours: int | None = None

    def __init__(
        self,
        graph: IRModule | Function,
        input_shapes: Mapping[str, Sequence[int]],
        records: str | os.PathLike[str] | Iterable[Pair],
        target_ops: Sequence[Op],
        target: object,
        max_sch_num: int = 20,
        dtype: str = "float32",
        verbose: bool = True,
        log_file: str = "graph_tuner.log",
        log_level: int = logging.DEBUG,
        name: str = "graph_tuner",
    ) -> None:
        del log_file, log_level  # the logger "autotvm" is the caller's
        self._target: Target = as_target(target)
        if self._target.kind.family != "cpu":
            raise TuningError(
                f"layouts of a graph are not chosen for the target {self._target}",
                hint="its kernels are tuned one by one: apply_history_best of their records is all there is",
            )
        self._verbose, self._name, self.shown = verbose, name, 0.0
        module = _bound(graph, input_shapes, dtype)
        tasks = extract_from_program(module, None, self._target, ops=list(target_ops))
        loaded = list(_read(records))
        self._calls = {task.workload: task.calls for task in tasks}
        self.candidates, self._others = _candidates(loaded, self._calls, max_sch_num), len(loaded)
        links = links_of_program(module, None, self._target)
        self._links = [k for k in links if k.first in self.candidates and k.second in self.candidates]
        self._layout_transform_perf_records: dict[Workload, Pair] = {}
        self._optimal: dict[Workload, Pair] = {}

    @boundary("benchmark_layout_transform", arguments=True)
    def benchmark_layout_transform(
        self,
        min_exec_num: int = 100,
        timeout: float = 10,
        *_: object,
        layout_records: str | os.PathLike[str] | Iterable[Pair] | None = None,
        infer_layout: bool = False,
        **__: object,
    ) -> None:
        """Time the changes of layout that there could be, each `min_exec_num` times or for `timeout` seconds.

        Those of `layout_records`, of tasks "layout_transform", are taken from there. With `infer_layout` none is timed:
        the others take as long for an element as those of the records, or what the model of the processor says where
        there are none. They are timed in this process; how else they could be (`use_rpc`, …) has no effect.
        """
        known = {pair[0].task.workload: pair for pair in _read(layout_records or ())}
        elements = sum(prod(workload[1][1]) for workload in known)
        seconds = sum(min(result.costs) for _, result in known.values())
        for move in self._moves():
            task = create(layout_transform.name, _arguments(move), self._target)
            if task.workload in known:
                cost = min(known[task.workload][1].costs)
            elif infer_layout:
                cost = move[0] * (seconds / elements) if elements else self._moved(move)
            else:
                cost = _timed(move, self._target, min_exec_num, timeout)
            timed = MeasureResult((cost,), 0, cost, time.time())
            config = task.config_space.get(0)
            self._layout_transform_perf_records[task.workload] = MeasureInput(self._target, task, config), timed
        self._say(f"{len(self._layout_transform_perf_records)} changes of layout have times")

    def _moves(self) -> Iterator[_Move]:
        """The changes of layout that there could be, each once."""
        pairs = ((k, a, b) for k in self._links for a in self.candidates[k.first] for b in self.candidates[k.second])
        yield from dict.fromkeys(move for link, a, b in pairs if (move := _move(link, a, b))[1] != move[2])

    @property
    def layout_transform_perf_records(self) -> dict[Workload, Pair]:
        """What was timed or inferred of the changes of layout, by workload."""
        return dict(self._layout_transform_perf_records)

    @boundary("run", arguments=True)
    def run(self, **_: object) -> None:
        """Choose; TuningError where no record is of a task of the graph."""
        if not self.candidates:
            raise TuningError(
                f"{self._name}: none of {self._others} records is of one of the {len(self._calls)} tasks of the graph",
                hint="tune what autotvm.task.extract_from_program finds in it, with the same params and target",
            )
        blocks = {workload: list(rows) for workload, rows in self.candidates.items()}
        costs = {w: [self._kernel(w, b) for b in rows] for w, rows in blocks.items()}
        pairs: dict[tuple[Workload, Workload], Array] = {}
        for link in self._links:
            rows = [[self._moved(_move(link, a, b)) for b in blocks[link.second]] for a in blocks[link.first]]
            key = link.first, link.second
            pairs[key] = pairs.get(key, 0.0) + np.asarray(rows)
        chosen = least(costs, pairs, self._neighbours)
        self._optimal = {w: self.candidates[w][blocks[w][index]] for w, index in chosen.items()}
        self.shown = total(costs, pairs, chosen)
        self._say(f"{len(chosen)} workloads, {1e3 * self.shown:.3f} ms with {len(self._links)} links between them")

    @boundary("get_optimal_records", arguments=True)
    def get_optimal_records(self) -> list[Pair]:
        """The chosen records, one for each workload."""
        if not self._optimal:
            raise TuningError("nothing was chosen yet", hint="call run() first")
        return list(self._optimal.values())

    @boundary("write_opt_sch2record_file", arguments=True)
    def write_opt_sch2record_file(self, record_file: str | os.PathLike[str] = "graph_opt_schedule.log") -> None:
        """Append the chosen records to a log, for `autotvm.apply_graph_best` or `apply_history_best`."""
        LogFile(record_file).append([encode(*pair) for pair in self.get_optimal_records()])

    def _say(self, text: str) -> None:
        logger.log(logging.INFO if self._verbose else logging.DEBUG, "%s: %s", self._name, text)

    def _kernel(self, workload: Workload, blocks: Blocks) -> float:
        """Seconds of a workload's calls without the changes of layout that its trial has paid for."""
        own, spent = own_blocks(workload), min(self.candidates[workload][blocks][1].costs)
        if own[0]:  # weights of products are packed when they are loaded
            data = prod(workload[1][1])
            output = data // (workload[1][1][1] * own[0]) * workload[2][1][0] * own[1]
            spent -= self._moved((data, own[0], blocks[0])) + self._moved((output, blocks[1], own[1]))
        return self._calls[workload] * max(spent, 0.0)

    def _moved(self, move: _Move) -> float:
        if move[1] == move[2]:
            return 0.0
        pair = self._layout_transform_perf_records.get(args_to_workload(_arguments(move), layout_transform.name))
        if pair is not None:
            return min(pair[1].costs)
        return 4 * move[0] / MOVED_IN_A_CYCLE / cpu_model(self._target).memory.ghz * 1e-9


class DPTuner(BaseGraphTuner):
    """By dynamic programming: exact, unless so many layers read each other that a table would not fit."""


class PBQPTuner(BaseGraphTuner):
    """Exact where a layer has two neighbours at most, by a heuristic elsewhere: fast on any graph."""

    _neighbours = 2


def _bound(graph: IRModule | Function, shapes: Mapping[str, Sequence[int]], dtype: str) -> IRModule:
    """The graph with types for its inputs and arrays for its parameters; values do not matter, but 0 and 1 would."""
    function = graph["main"] if isinstance(graph, IRModule) else graph
    if not isinstance(function, Function):
        raise TuningError(f"graph is {type(function).__name__}, wanted a relay function or a module with one")
    unknown = set(shapes) - {p.name_hint for p in function.params}
    if unknown:
        raise TuningError(f"the graph has no input {sorted(unknown)[0]!r}", hint="input_shapes: shapes by name")
    types = [
        TensorType(tuple(shapes[p.name_hint]), DType(dtype)) if p.name_hint in shapes else p.checked_type
        for p in function.params
    ]
    function, random = bind_types(function, types), np.random.default_rng(0)
    values = {
        p.name_hint: random.uniform(0.5, 1.5, t.concrete_shape).astype(str(t.dtype))
        for p, t in zip(function.params, types, strict=True)
        if p.name_hint not in shapes and isinstance(t, TensorType)
    }
    return IRModule.from_expr(bind_params_by_name(function, values))


def _candidates(
    records: Iterable[Pair], calls: Mapping[Workload, int], most: int
) -> dict[Workload, dict[Blocks, Pair]]:
    """Of each workload the best record of each blocks of channels, the best first."""
    candidates: _Candidates = {}
    for measured, result in records:
        workload = measured.task.workload
        if workload not in calls or result.error_no or not result.costs:
            continue
        own = own_blocks(workload)
        inner, outer = (measured.config[n].val if n in measured.config else b for n, b in zip(BLOCKS, own, strict=True))
        best = candidates.setdefault(workload, {}).get((inner, outer))
        if best is None or min(result.costs) < min(best[1].costs):
            candidates[workload][inner, outer] = measured, result
    ordered = {w: sorted(rows.items(), key=lambda row: min(row[1][1].costs)) for w, rows in candidates.items()}
    return {w: dict(rows[:most]) for w, rows in ordered.items()}


def _move(link: Link, first: Blocks, second: Blocks) -> _Move:
    return link.bytes // 4, first[1], second[0]


def _read(records: str | os.PathLike[str] | Iterable[Pair]) -> Iterable[Pair]:
    return load_from_file(records, report=False) if isinstance(records, str | os.PathLike) else records


def _changed_layout(data: te.Tensor, src_layout: str, dst_layout: str) -> tuple[te.Schedule, list[te.Tensor]]:
    """A change of layout by itself, as records state it."""
    get_config().add_flop(prod(static_shape(data)))  # there is no arithmetic: elements
    moved = topi.layout_transform(data, src_layout, dst_layout)
    return te.create_schedule(moved.op), [data, moved]


template(layout_transform.name, _changed_layout)


def _arguments(move: _Move) -> tuple[tuple[str, tuple[int, ...], str], str, str]:
    """The arguments of a change's task: as many elements in as many blocks of channels as both sides need."""
    size, before, behind = move
    whole = int(np.lcm(before, behind))
    shape = (1, whole // before, 1, -(-size // whole), before)
    return (TENSOR, shape, "float32"), f"NCHW{before}c", f"NCHW{behind}c"


def _timed(move: _Move, target: Target, number: int, timeout: float) -> float:
    """Seconds of a change of layout, the least of the runs."""
    (_, shape, _), before, behind = _arguments(move)
    x = Var("x", TensorType(shape, DType("float32")))
    moved = layout_transform(x, src_layout=before, dst_layout=behind)
    graph = GraphModule(build(IRModule.from_expr(Function((x,), moved)), target)["default"](cpu(0)))
    graph.set_input("x", np.zeros(shape, "float32"))
    until, best, runs = time.monotonic() + timeout, float("inf"), 0
    while runs < number and time.monotonic() < until:
        best = min(best, graph.module.time(1))
        runs += 1
    return best
