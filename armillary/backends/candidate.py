"""How a way to compute an operator is declared, once, and how one is selected for a workload.

In: candidates, in the order in which they are asked; a workload, with the choice that its call carries. Out: the first
one that does not refuse, and why those before it do. Invariant: no tensor expression is imported, so graph passes and
schedules ask the same declaration; loops and tensors are attached to it by its name (backends/registry.py).
Candidates of algorithms with a choice stand in manifests (backends/cpu/manifest.py), the others with their schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from armillary.backends.explanation import Explanation
from armillary.backends.workload import Reason, Workload
from armillary.base.record import record
from armillary.target.choice import Choice, Rejection, stored_choice

Sizes = Literal["fixed", "named", "any"]  # tensors that a candidate is for: without named sizes, with, or both
ExplainRule = Callable[[Workload], Explanation]
_FIXED = "its tiles are of fixed sizes"


class Algorithm(Protocol):
    """What shared code asks of an algorithm: how choices name it, and its explanation of a choice."""

    @property
    def name(self) -> str:
        """As choices name it (target/choice.py)."""

    def explain(self, workload: Workload) -> Explanation:
        """The choice for a workload, for people."""


def applies(workload: Workload) -> Reason:
    """What a candidate says that refuses nothing."""
    return None


@record
class Candidate:
    """A way to compute an operator, or the operators of a kernel with " + " between, the anchor last.

    `refuses` gives None, or why this is not the way: a text for explanations, "" where nobody would ask. `algorithm`:
    None where nothing can be chosen. Of two candidates that apply, the one of higher priority is taken, of equal ones
    the one declared first.
    """

    op: str
    name: str
    refuses: Callable[[Workload], Reason] = applies
    algorithm: Algorithm | None = None
    sizes: Sizes = "fixed"
    priority: int = 10
    explain_rule: ExplainRule | None = None

    def explain(self, workload: Workload) -> Explanation:
        """What it does with a workload, for people."""
        if self.explain_rule is not None:
            return self.explain_rule(workload)
        return Explanation(self.name.replace("_", " ")) if self.algorithm is None else self.algorithm.explain(workload)


def in_order(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The candidates in the order in which they are asked."""
    return tuple(sorted(candidates, key=lambda candidate: -candidate.priority))


def named_by(choice: Choice, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those of the algorithm that a choice names."""
    return [c for c in candidates if c.algorithm is not None and c.algorithm.name == choice.algorithm]


def select(candidates: Sequence[Candidate], workload: Workload) -> tuple[Candidate | None, tuple[Rejection, ...]]:
    """The candidate for a workload, and why those before it were passed over; None where all refuse.

    Where its call's choice names an algorithm, only the candidates of that one are asked, unless there are none.
    Where sizes have names, what takes them is selected by their typical values.
    """
    is_sized, workload = workload.is_sized, workload.typical
    reasons = list[Rejection]()
    for candidate in named_by(stored_choice(workload), candidates) or candidates:
        is_for_it = candidate.sizes in ("any", "named" if is_sized else "fixed")
        reason = candidate.refuses(workload) if is_for_it else _FIXED if is_sized else ""
        if reason is None:
            return candidate, tuple(reasons)
        if reason:
            reasons.append(Rejection(candidate.name, reason=reason))
    return None, tuple(reasons)
