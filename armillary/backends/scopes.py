"""In which memory the tensors of a kernel lie, as its function says.

In: a primitive function. Out: scopes by the number of the tensor. Invariant: inputs are numbered as they are flattened,
outputs follow; what is not named is in a buffer. Who writes the attribute: `opencl/graph/annotate_memory_scope.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.relay.expr import Function
from armillary.target.texture import BUFFER

SCOPES_ATTR = "scopes"


def scopes_of(function: Function) -> Mapping[int, str]:
    """By the number of a tensor of a kernel, inputs first: those that are not in buffers."""
    text = str(function.get_attr(SCOPES_ATTR, "") or "")
    return {n: scope for n, scope in enumerate(text.split(", ")) if text and scope != BUFFER}
