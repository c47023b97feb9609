"""Tags of computed tensors, and what they say about fusion.

In: a tag. Out: whether it is elementwise, broadcast or injective. Invariant: the tags are those that the operators'
computes set; an injective tag is also what `elemwise` and `broadcast` are.
"""

from __future__ import annotations

ELEMWISE = "elemwise"
BROADCAST = "broadcast"
INJECTIVE = "injective"
COMM_REDUCE = "comm_reduce"
COMM_REDUCE_IDX = "comm_reduce_idx"


def is_broadcast(tag: str) -> bool:
    """Whether a tensor of this tag is computed from elements at the same place, perhaps broadcast."""
    return tag in (ELEMWISE, BROADCAST) or tag.startswith((ELEMWISE, BROADCAST))


def is_injective(tag: str) -> bool:
    """Whether each element is computed from one element of each input."""
    return tag.startswith(INJECTIVE) or is_broadcast(tag)
