"""What `compute_opencl.py` found on a device, kept in a file so that several calls add up.

In: a file, which need not be there yet, and a device's name. Out: `State`, with each case's differences and each
filter's times. Invariant: a line of JSON is added for each finding as soon as it is known, so a call that is killed
loses nothing; lines of other devices stay and do not count, and a line that was cut is passed over.
"""

from __future__ import annotations

import json
from pathlib import Path

Pair = tuple[str, int]  # a function and the number of its case


class State:
    """Findings of a device: of this process, and those of a file."""

    def __init__(self, path: Path | None, device: str) -> None:
        self._path, self._device = path, device
        text = path.read_text() if path is not None and path.exists() else ""
        self._ends = "\n" if text and not text.endswith("\n") else ""  # of a line that was cut
        self.cases: dict[Pair, list[str]] = {}  # what is wrong; nothing where it agrees
        self.tuned: dict[str, tuple[float, float, str]] = {}  # seconds before, behind, and the LWS
        for line in text.splitlines():
            try:
                found = json.loads(line)
            except ValueError:
                continue  # the process was killed while it wrote
            if found["device"] != device:
                continue
            if "tuned" in found:
                self.tuned[found["tuned"]] = (found["usual"], found["seconds"], found["lws"])
            else:
                self.cases[found["name"], found["number"]] = found["wrong"]

    def _add(self, **found: object) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(f"{self._ends}{json.dumps({'device': self._device, **found})}\n")
            self._ends = ""

    def add_case(self, pair: Pair, wrong: list[str]) -> None:
        """A case and what is wrong with it."""
        self.cases[pair] = wrong
        self._add(name=pair[0], number=pair[1], wrong=wrong)

    def add_tuned(self, name: str, usual: float, seconds: float, lws: str) -> None:
        """A filter's times with the usual work-groups and with those that were found."""
        self.tuned[name] = (usual, seconds, lws)
        self._add(tuned=name, usual=usual, seconds=seconds, lws=lws)
