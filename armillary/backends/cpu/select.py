"""Which algorithms compute an operator on a CPU, in the order in which they are asked, and the choice for a kernel.

In: the workload of a kernel's anchor. Out: `decided`: its complete choice, of the first algorithm that does not refuse,
or of the one that a stored choice names; `passes`, `TUNED`: the graph passes and the tasks of tuning that algorithms
bring along. Invariant: no tensor
expression is imported; the schedules that are registered for these operators (backends/registry.py) are the same, in
the same order, by a test. An operator without a candidate has one way to be computed, or none whose configuration is a
value yet.
To add an algorithm: a folder with its `manifest.py`, and a line here.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from armillary.backends.cpu.manifest import Candidate, Manifest, TunedOperator
from armillary.backends.cpu.space import chosen
from armillary.backends.workload import Workload
from armillary.errors import ConfigError
from armillary.target import Target
from armillary.target.choice import Choice, Rejection, stored_choice
from armillary.transform import Pass

FOLDERS = (  # in the order in which their candidates are asked and their passes run
    "conv2d.fourier",
    "conv2d.winograd",
    "conv2d.narrow_output",
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
    found = [candidate for manifest in manifests for candidate in manifest.candidates]
    return {op: tuple(c for c in found if c.op == op) for op in dict.fromkeys(c.op for c in found)}


def tuned_operators(manifests: Sequence[Manifest]) -> dict[str, TunedOperator]:
    """Operators whose tasks vary what one algorithm can choose, by their names."""
    return {tuned.op: tuned for manifest in manifests for tuned in manifest.tuned}


MANIFESTS = tuple(map(_manifest, FOLDERS))
CANDIDATES = candidates(MANIFESTS)
TUNED = tuned_operators(MANIFESTS)


def passes(phase: str, target: Target) -> Sequence[Pass]:
    """The graph passes of all algorithms for a phase, a field of `Manifest`."""
    return [item for manifest in MANIFESTS for item in getattr(manifest, phase)(target)]


def has_candidates(name: str) -> bool:
    """Whether some algorithm computes an operator (of several, their names with " + " between)."""
    return name in CANDIDATES


def decided(workload: Workload) -> Choice:
    """The complete choice for a kernel with this anchor; empty where there is nothing to choose."""
    stored, reasons = stored_choice(workload), list[Rejection]()
    is_named = _names_one(workload, stored)
    for candidate in CANDIDATES.get(workload.op.name, ()):
        if is_named and (candidate.algorithm is None or candidate.algorithm.name != stored.algorithm):
            continue
        reason = candidate.refuses(workload)
        if reason is None:
            return Choice() if candidate.algorithm is None else chosen(workload, candidate.algorithm, reasons)
        if reason:
            reasons.append(Rejection(candidate.row, reason=reason))
    if is_named:
        message = "; ".join(r.reason for r in reasons)
        hint = "leave the choice to the model, or take another algorithm"
        raise ConfigError(f"the choice {stored.algorithm} does not fit {workload.op.name}: {message}", hint=hint)
    return Choice()


def _names_one(workload: Workload, stored: Choice) -> bool:
    """Whether a stored choice names an algorithm of the operator, so that the others are passed over."""
    rows = CANDIDATES.get(workload.op.name, ())
    return any(row.algorithm is not None and row.algorithm.name == stored.algorithm for row in rows)
