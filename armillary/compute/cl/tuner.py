"""The tuner: which size of work-groups (LWS) is best for a kernel on this device.

In: a kernel's name with its sizes, and what runs it with an LWS. Out: the LWS to run it with. Invariant: every LWS
gives the same bytes; a kernel is measured once, at its first run, and only while tuning is enabled; a loaded LWS is
used whether it is or not. Files are lines `kernel;x;y;z`. Source: the architecture text, "OpenCL Tuner".
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path

from armillary.base.boundary import bounded_methods
from armillary.base.files import read_regular, write_atomic
from armillary.errors import ArtifactError, ConfigError
from armillary.runtime.device import Device

Lws = tuple[int, int, int]
DEFAULT_LWS: Lws = (64, 1, 1)
CANDIDATES: tuple[Lws, ...] = tuple(
    (x, y, 1) for x in (1, 4, 8, 16, 32, 64, 128, 256) for y in (1, 2, 4, 8, 16) if 4 <= x * y <= 256
)
FLAT: tuple[Lws, ...] = tuple((2**n, 1, 1) for n in range(3, 9))  # of layers, whose grids have one direction
_RAPID_CANDIDATES: tuple[Lws, ...] = ((4, 1, 1), (8, 4, 1), (16, 8, 1), (32, 4, 1), (128, 1, 1))
_RUNS, _MOST = 5, 4096  # runs of a trial; work-items of a group along a direction


class CLTunerMode(Enum):
    """How many sizes are tried, of which each is a compilation: all, or five and the default."""

    EXHAUSTIVE, RAPID = "exhaustive", "rapid"


@bounded_methods("add_lws_to_table", "measured", "save_to_file", "load_from_file", "choose")
class CLTuner:
    """Tries work-groups of several sizes at a kernel's first run and remembers the best."""

    def __init__(self, tune_new_kernels: bool = True) -> None:
        self._table: dict[str, Lws] = {}
        self._tunes, self._candidates = tune_new_kernels, CANDIDATES
        self._seconds: dict[str, dict[Lws, float]] = {}

    def set_tune_new_kernels(self, tune_new_kernels: bool) -> None:
        """Whether kernels without an entry are measured."""
        self._tunes = tune_new_kernels

    def set_tuner_mode(self, mode: CLTunerMode) -> None:
        """How many sizes are tried; all unless set."""
        self._candidates = _RAPID_CANDIDATES if mode is CLTunerMode.RAPID else CANDIDATES

    def tune_new_kernels(self) -> bool:
        """Whether kernels without an entry are measured."""
        return self._tunes

    def lws_table(self) -> Mapping[str, Lws]:
        """Kernels with the LWS found for them."""
        return dict(self._table)

    def add_lws_to_table(self, kernel_id: str, optimal_lws: Lws) -> None:
        """Set an LWS."""
        sizes = tuple(optimal_lws)
        if not isinstance(kernel_id, str) or len(sizes) != 3 or not all(0 < operator.index(n) <= _MOST for n in sizes):
            raise ConfigError(f"{kernel_id!r}: {optimal_lws!r} are no three sizes of 1 to {_MOST}")
        self._table[kernel_id] = optimal_lws

    def measured(self, kernel_id: str) -> Mapping[Lws, float]:
        """Seconds of each LWS that was tried, least of several runs."""
        return dict(self._seconds.get(kernel_id, {}))

    def choose(
        self, kernel_id: str, run: Callable[[Lws], None], candidates: tuple[Lws, ...] = (), device: Device | None = None
    ) -> Lws:
        """The LWS of a kernel: from the table, measured (of `candidates`, or those of the mode), or the default.

        `run` runs it and waits; a device that has a clock of its own times kernels without what the host does.
        """
        if kernel_id not in self._table and self._tunes:
            tried = candidates or self._candidates
            seconds = {lws: _least(run, lws, device) for lws in dict.fromkeys((DEFAULT_LWS, *tried))}
            self._seconds[kernel_id] = seconds
            self._table[kernel_id] = min(seconds, key=lambda lws: seconds[lws])
        return self._table.get(kernel_id, DEFAULT_LWS)

    def save_to_file(self, filename: str | Path) -> None:
        """Write the table."""
        lines = (f"{name};{';'.join(map(str, lws))}\n" for name, lws in sorted(self._table.items()))
        write_atomic(filename, "".join(lines).encode())

    def load_from_file(self, filename: str | Path) -> None:
        """Read a table; a damaged one is refused before anything changes."""
        try:
            text = read_regular(filename).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ArtifactError(f"{filename}: cannot be read: {error}") from None
        read: dict[str, Lws] = {}
        for number, line in enumerate(text.splitlines(), 1):
            name, *sizes = line.split(";")
            if len(sizes) != 3 or not all(s.isascii() and s.isdecimal() and 0 < int(s) <= _MOST for s in sizes):
                raise ArtifactError(f"{filename}:{number}: {line[:60]!r} is no line 'kernel;x;y;z'")
            read[name] = (int(sizes[0]), int(sizes[1]), int(sizes[2]))
        self._table |= read


def _least(run: Callable[[Lws], None], lws: Lws, device: Device | None) -> float:
    run(lws)  # compiles
    best = float("inf")
    for _ in range(_RUNS):
        by_device = device.kernel_seconds(lambda: run(lws)) if device is not None else None
        if by_device is None:
            start = time.perf_counter()
            run(lws)
        best = min(best, time.perf_counter() - start if by_device is None else by_device)
    return best
