"""Which algorithms compute an operator on a CPU, in the order in which they are asked, and the choice for a kernel.

In: the workload of a kernel's anchor. Out: `decided`: its complete choice, of the first candidate that does not refuse,
or of the one that a stored choice names; `CANDIDATES`, which schedules are attached to (backends/registry.py);
`passes`, `TUNED`: the graph passes and the tasks of tuning that algorithms bring along. Invariant: no tensor
expression is imported. An operator without a candidate has nothing to choose.
To add an algorithm: a folder with its `manifest.py`, and a line here.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from armillary.backends.candidate import Candidate, in_order, named_by, select
from armillary.backends.cpu.manifest import Manifest, TunedOperator
from armillary.backends.cpu.space import Algorithm, chosen
from armillary.backends.workload import Workload
from armillary.errors import ConfigError
from armillary.target import Target
from armillary.target.choice import Choice, stored_choice
from armillary.transform import Pass

FOLDERS = (  # in the order in which their candidates are asked and their passes run
    "conv2d.fourier",
    "conv2d.winograd",
    "conv2d.narrow_output",
    "conv2d.amx",
    "conv2d.direct",
    "conv2d.depthwise",
    "conv2d.separable",
    "conv2d.pooled",
    "gemm",
    "gemm.low_bit",
    "attention",
)


def _manifest(folder: str) -> Manifest:
    result = importlib.import_module(f"{__package__}.{folder}.manifest").MANIFEST
    assert isinstance(result, Manifest), f"{folder} has a manifest"
    return result


def candidates(manifests: Sequence[Manifest]) -> dict[str, tuple[Candidate, ...]]:
    """The candidates of each operator, in order."""
    declared = in_order([candidate for manifest in manifests for candidate in manifest.candidates])
    return {op: tuple(c for c in declared if c.op == op) for op in dict.fromkeys(c.op for c in declared)}


def tuned_operators(manifests: Sequence[Manifest]) -> dict[str, TunedOperator]:
    """Operators whose tasks vary what one algorithm can choose, by their names."""
    return {tuned.op: tuned for manifest in manifests for tuned in manifest.tuned}


MANIFESTS = tuple(map(_manifest, FOLDERS))
CANDIDATES = candidates(MANIFESTS)
TUNED = tuned_operators(MANIFESTS)


def passes(phase: str, target: Target) -> Sequence[Pass]:
    """The graph passes of all algorithms for a phase, a field of `Manifest`."""
    return [item for manifest in MANIFESTS for item in getattr(manifest, phase)(target)]


def candidates_of(name: str) -> tuple[Candidate, ...]:
    """The candidates of an operator (of several, their names with " + " between) that stand in manifests."""
    return CANDIDATES.get(name, ())


def decided(workload: Workload) -> Choice:
    """The complete choice for a kernel with this anchor; empty where there is nothing to choose."""
    stored, rows = stored_choice(workload), candidates_of(workload.op.name)
    candidate, reasons = select(rows, workload)
    if candidate is None and named_by(stored, rows):
        message = "; ".join(r.reason for r in reasons)
        hint = "leave the choice to the model, or take another algorithm"
        raise ConfigError(f"the choice {stored.algorithm} does not fit {workload.op.name}: {message}", hint=hint)
    if candidate is None or not isinstance(candidate.algorithm, Algorithm):
        return Choice()
    return chosen(workload.typical, candidate.algorithm, reasons)
