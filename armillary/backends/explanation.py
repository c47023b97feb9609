"""What a build tells about the algorithm of a kernel: plain data, which packages carry and `armc profile` shows.

In: an algorithm's `explain` rule (backends/registry.py). Out: the record, and its JSON form. Invariant: it says what
was chosen; nothing is chosen by it.
"""

from __future__ import annotations

from dataclasses import asdict

from armillary.base.record import record


@record(slots=True)
class Explanation:
    """Why a kernel is computed as it is; plain data, so that it fits a package."""

    algorithm: str
    tile: str = ""
    milliseconds: float = 0.0  # estimate for one thread; 0: none was made
    bound: str = ""
    alternatives: tuple[tuple[str, float], ...] = ()  # what else was weighed: name, milliseconds
    objections: tuple[str, ...] = ()  # implementations that do not apply, and why

    def to_plain(self) -> dict[str, object]:
        """As JSON values."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """For people: the choice, the alternatives, the objections."""
        said = [f"{self.algorithm}{', ' + self.tile if self.tile else ''}"]
        if self.milliseconds:
            said.append(f"estimated {self.milliseconds:.3g} ms on one thread, bound by {self.bound}")
        if self.alternatives:
            said.append("instead of " + "; ".join(f"{n}: {ms:.3g} ms" for n, ms in self.alternatives))
        return said + [f"not {text}" for text in self.objections]
