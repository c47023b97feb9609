"""How long the nodes of a graph took, and when which thread was in which kernel.

In: what the native runner measured (`GraphExecutor.run_nodes`, `trace`). Out: rows. Invariant: times are seconds.
"""

from __future__ import annotations

from armillary.base.record import record


@record(slots=True)
class NodeTime:
    """How long one node of the graph took."""

    name: str
    function: str
    seconds: float


@record(slots=True)
class Span:
    """From `begin` to `end` (seconds since the run began) a thread was in a phase of a node's kernel.

    Thread -1 stands for the phase as a whole, as its caller sees it: with the fork and the join of the threads. Phases
    that ran side by side follow one another there, each as long as its share of the work; `rest` of them are to come.
    """

    begin: float
    end: float
    node: int
    phase: int
    thread: int
    rest: int = 0
