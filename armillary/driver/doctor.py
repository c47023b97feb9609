"""The numerics doctor: where a compiled network first differs from the truth.

In: a `Subject` (driver/doctor_subject.py), inputs, a target; the current PassContext holds for every build. Out: a
`Diagnosis`. Three builds tell more and more: the network itself, whose outputs are compared; the network that returns
every value, compared node by node; and, where only the fused kernels of the first are wrong, networks that end at one
value, found by bisection. Invariant: the node named differs, while every value it reads agrees.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import dtype_of
from armillary.base.files import make_folder, write_atomic
from armillary.driver.build import build
from armillary.driver.doctor_subject import Arrays, Subject, Value, reference_values
from armillary.driver.library import GraphLibrary
from armillary.ir import IRModule
from armillary.relay.expr import Function
from armillary.relay.walk import post_order
from armillary.runtime import GraphExecutor, cpu

# By element type: part of each element, and part of the largest element, that a value may be off.
_TOLERANCE = {"float64": (1e-6, 1e-9), "float32": (1e-3, 1e-4), "float16": (1e-2, 1e-2), "bfloat16": (5e-2, 5e-2)}
_COARSE = (0.25, 0.25)  # 8-bit floats
Builds: TypeAlias = "dict[str, tuple[GraphLibrary, GraphExecutor]]"  # by what is built
ALONE, FUSED, WHOLE = "compiled with every value kept", "in its fused kernel", "in the whole network only"


@dataclass(frozen=True)
class Tolerance:
    """An element differs if it is off by more than `atol` + `rtol` * |truth|; None: by the element type.

    Without `atol` the limit grows with the largest element of the tensor: a convolution's small results carry the
    rounding of its large ones.
    """

    rtol: float | None = None
    atol: float | None = None

    def limit(self, want: Array, magnitude: Array) -> Array:
        """How far each element may be off."""
        dtype = dtype_of(want)
        rtol, part = _TOLERANCE.get(str(dtype), _COARSE if dtype.is_float else (0.0, 0.0))
        finite = magnitude[np.isfinite(magnitude)]
        atol = part * float(finite.max(initial=0.0)) if self.atol is None else self.atol
        return np.asarray(atol + (rtol if self.rtol is None else self.rtol) * magnitude)


@dataclass(frozen=True)
class Comparison:
    """How far one value is off. `where` is the worst element; `problem` says why nothing could be compared."""

    name: str
    beyond: int = 0
    size: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0  # of the largest element
    where: tuple[int, ...] = ()
    got: object = None  # a number of the value's type
    want: object = None
    problem: str = ""

    @property
    def differs(self) -> bool:
        """Whether it is beyond tolerance."""
        return self.beyond > 0 or bool(self.problem)


@dataclass
class Diagnosis:
    """What was compared with what, and the first node that differs (None: all agree)."""

    truth: str
    outputs: list[Comparison]
    values: list[Comparison] = field(default_factory=list)
    first: Value | None = None
    stage: str = ""
    comparison: Comparison | None = None
    reads: list[Comparison] = field(default_factory=list)  # the values that the node reads
    kernels: list[str] = field(default_factory=list)  # those of the network that compute the node's value
    got: Array | None = None
    want: Array | None = None

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return self.first is None and not any(c.differs for c in self.outputs)


def compare(name: str, got: Array, want: Array, tolerance: Tolerance = Tolerance()) -> Comparison:
    """Compare two arrays; equal infinities and NaN at the same place agree."""
    if got.shape != want.shape or dtype_of(got) != dtype_of(want):
        seen = f"got {dtype_of(got)} {list(got.shape)}, wanted {dtype_of(want)} {list(want.shape)}"
        return Comparison(name, size=want.size, problem=seen)
    have, truth = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(have - truth)
        same = (got == want) | (np.isnan(have) & np.isnan(truth))
        error = np.where(same, 0.0, np.where(np.isfinite(error), error, np.inf))
        excess = np.where(same, -np.inf, error - tolerance.limit(want, np.abs(truth)))
    if error.size == 0:
        return Comparison(name)
    where = tuple(map(int, np.unravel_index(int(np.argmax(excess)), excess.shape)))
    largest = float(np.abs(truth[np.isfinite(truth)]).max(initial=0.0))
    worst = float(error.max())
    beyond = int(np.count_nonzero(~(excess <= 0)))
    relative = worst / largest if largest else (0.0 if worst == 0 else float("inf"))
    return Comparison(name, beyond, want.size, worst, relative, where, got[where].item(), want[where].item())


def diagnose(
    subject: Subject,
    inputs: Arrays,
    target: object = "llvm -mcpu=native",  # whatever Target accepts
    reference: str = "auto",
    tolerance: Tolerance = Tolerance(),
    progress: Callable[[str], None] = lambda stage: None,
    known: tuple[str, Arrays] | None = None,
    builds: Builds | None = None,
) -> Diagnosis:
    """Compare the compiled network with the truth; name the first node that differs.

    `known` is what reference_values gave: the truth does not depend on the level. `builds` are those of the subject in
    the same PassContext, to which new ones are added: of open sizes, further inputs run what is compiled already.
    """
    progress("computing the truth")
    truth, want = known or reference_values(subject, inputs, reference)
    return _Search(subject, inputs, target, tolerance, progress, want, {} if builds is None else builds).run(truth)


@dataclass
class _Search:
    subject: Subject
    inputs: Arrays
    target: Any
    tolerance: Tolerance
    progress: Callable[[str], None]
    want: Arrays
    builds: Builds
    prefixes: dict[str, tuple[Comparison, Array]] = field(default_factory=dict)

    def run(self, truth: str) -> Diagnosis:
        """The three stages, as far as they are needed."""
        subject = self.subject
        library, results = self._results("the network", subject.network)
        named = [(name, got) for name, got in zip(subject.outputs, results, strict=True) if name]
        diagnosis = Diagnosis(truth, [self._compare(name, got) for name, got in named])
        if not subject.values:
            return diagnosis
        _, all_results = self._results("the network with every value kept", subject.all_values)
        got = {value.name: result for value, result in zip(subject.values, all_results, strict=True)}
        diagnosis.values = [self._compare(value.name, got[value.name]) for value in subject.values]
        wrong = next((v for v, c in zip(subject.values, diagnosis.values, strict=True) if c.differs), None)
        if wrong is not None:
            self._note_difference(diagnosis, wrong, ALONE, got[wrong.name], {c.name: c for c in diagnosis.values})
        else:
            failed = next((pair for pair, c in zip(named, diagnosis.outputs, strict=True) if c.differs), None)
            if failed is not None:
                self._search_kernels(diagnosis, *failed)
        if diagnosis.first is not None:
            diagnosis.kernels = _kernels_of(library, diagnosis.first.node)
        return diagnosis

    def _search_kernels(self, diagnosis: Diagnosis, output: str, got: Array) -> None:
        """Bisect over the values before an output, then walk up until everything the node reads agrees."""
        by_name = {value.name: value for value in self.subject.values}
        before = {id(e) for e in post_order(by_name[output].expr)}
        chain = [value for value in self.subject.values if id(value.expr) in before]
        if not self._prefix(by_name[output])[0].differs:
            self._note_difference(diagnosis, by_name[output], WHOLE, got, {})
            return
        low, high = -1, chain.index(by_name[output])
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._prefix(chain[middle])[0].differs else (middle, high)
        wrong: Value | None = chain[high]
        while wrong is not None:
            last = wrong
            reads = (by_name[name] for name in last.inputs if name in by_name)
            wrong = next((value for value in reads if self._prefix(value)[0].differs), None)
        self._note_difference(
            diagnosis, last, FUSED, self.prefixes[last.name][1], {n: c for n, (c, _) in self.prefixes.items()}
        )

    def _prefix(self, value: Value) -> tuple[Comparison, Array]:
        """Compare what the network gives that ends at a value."""
        if value.name not in self.prefixes:
            _, (got,) = self._results(f"the network up to {value.name}", self.subject.only([value.expr]))
            self.prefixes[value.name] = self._compare(value.name, got), got
        return self.prefixes[value.name]

    def _note_difference(
        self, diagnosis: Diagnosis, value: Value, stage: str, got: Array, known: dict[str, Comparison]
    ) -> None:
        diagnosis.first, diagnosis.stage, diagnosis.got, diagnosis.want = value, stage, got, self.want[value.name]
        diagnosis.comparison = self._compare(value.name, got)
        diagnosis.reads = [known[name] for name in value.inputs if name in known]

    def _compare(self, name: str, got: Array) -> Comparison:
        return compare(name, got, self.want[name], self.tolerance)

    def _results(self, name: str, function: Function) -> tuple[GraphLibrary, list[Array]]:
        """Build a function, unless it is built already, and run it once."""
        if name not in self.builds:
            self.progress(f"compiling {name}")
            library = build(IRModule({"main": Function(function.params, function.body)}), self.target)
            self.builds[name] = library, library["default"](cpu(0))
        library, graph = self.builds[name]
        for name, array in self.inputs.items():
            if graph.get_input_index(name) >= 0:
                graph.set_input(name, array)
        graph.run()
        return library, [graph.get_output(k).numpy().copy() for k in range(graph.get_num_outputs())]


def _kernels_of(library: GraphLibrary, node: str) -> list[str]:
    """The kernels of a build whose value is that of a node."""
    rows = json.loads(library.get_graph_json())["nodes"]
    calls = [row for row in rows if row["op"] != "null" and row["name"].rpartition("#")[0] == node]
    return [str(row.get("attrs", {}).get("func_name", "")) for row in calls]


def dump(diagnosis: Diagnosis, inputs: Arrays, folder: Path) -> list[Path]:
    """Write what a diagnosis found: both values of the first node that differs, and the network's inputs."""
    if diagnosis.first is None or diagnosis.got is None or diagnosis.want is None:
        return []
    make_folder(folder)
    stem = re.sub(r"[^\w.-]+", "_", diagnosis.first.name).strip("_.") or "value"
    files = {f"{stem}.got.npy": diagnosis.got, f"{stem}.want.npy": diagnosis.want}
    files |= {f"input.{re.sub(r'[^0-9A-Za-z_.-]+', '_', name)}.npy": array for name, array in inputs.items()}
    return [_saved(folder / name, array) for name, array in files.items()]


def _saved(path: Path, array: Array) -> Path:
    """Save an array; types that numpy does not know are widened to float32."""
    stream = io.BytesIO()
    np.save(stream, array if array.dtype.isbuiltin == 1 else array.astype(np.float32), allow_pickle=False)
    write_atomic(path, stream.getvalue())
    return path
