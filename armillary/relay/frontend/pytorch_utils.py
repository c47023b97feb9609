"""`relay.frontend.pytorch_utils` of Relay-era scripts.

In: a version. Out: whether the installed PyTorch is newer. Invariant: torch is imported by the call alone.
"""

from __future__ import annotations

import re

__all__ = ["is_version_greater_than"]


def is_version_greater_than(ver: str) -> bool:
    """Whether the installed PyTorch is newer than a version such as "1.5.0"."""
    import torch

    def numbers(text: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3]]

    return numbers(torch.__version__) > numbers(ver)
