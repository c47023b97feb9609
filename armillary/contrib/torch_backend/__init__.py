"""`torch.compile(model, backend="armillary")`: importing this package makes the name known to PyTorch.

In: nothing. Out: a registered backend. Invariant: importing it imports torch, which nothing does that is not asked to.
An installed package needs no import: PyTorch finds the name by the entry point `torch_dynamo_backends` of its metadata.
What the backend does: backend.py; what a compiled graph is: sessions.py.
"""

from __future__ import annotations

from armillary.contrib.torch_backend.backend import armillary, register

__all__ = ["armillary", "register"]

register()
