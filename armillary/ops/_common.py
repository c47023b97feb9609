"""The former name of `_types.py`, for files that were written before it had that name.

In: nothing. Out: what they take from it. Invariant: no new file imports it.
"""

from armillary.ops._types import widened as widened
