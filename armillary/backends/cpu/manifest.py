"""What the folder of an algorithm on a CPU brings along: the manifest that each one has, in its `manifest.py`.

In: what the folder holds. Out: `MANIFEST`: its candidates for operators, the operators that have tasks of tuning, the
graph passes that make operators or kernels of its own, by phase. Invariant: nothing outside the folder says that again;
the order of algorithms, of their candidates and of their passes alike, is that of the one list in select.py. Schedules
attach themselves to candidates (backends/registry.py), operators are found by their names (relay/operators.txt).
"""

from __future__ import annotations

from armillary.backends.base import PassList, no_passes
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.space import Algorithm
from armillary.base.record import record


@record
class TunedOperator:
    """An operator that has tasks. `task`: what they are called, in records too. Its attributes have a `choice`.

    Configurations are those of the algorithm's space, by the names of `knobs`; without these the algorithm is weighed
    against others of a contraction, whose knobs are those of record_knobs.py.
    """

    op: str
    task: str
    algorithm: Algorithm
    knobs: tuple[str, ...] = ()


@record
class Manifest:
    """What a folder brings along; graph passes of its own by the phase in which they run (`GraphPasses`)."""

    candidates: tuple[Candidate, ...]
    tuned: tuple[TunedOperator, ...] = ()
    layouts: PassList = no_passes  # behind those of the back end: calls in blocks become those of its own operator
    operators: PassList = no_passes  # before calls are grouped
    kernels: PassList = no_passes  # calls are grouped: kernels of several contractions
