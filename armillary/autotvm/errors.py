"""What can be wrong with tuning: spaces, tasks, logs and devices.

In: what failed and where. Out: one class for a user's mistake (`TuningError`), and one for a configuration that its
template refuses (`InstantiationError`), which costs the trial and no more. Invariant: both are `ArmillaryError`s.
"""

from __future__ import annotations

from armillary.errors import ArmillaryError


class TuningError(ArmillaryError):
    """A task, space, record or option of tuning is unknown, damaged or does not fit."""


class InstantiationError(TuningError):
    """A template refuses a configuration."""
