"""`relay.data_dep_optimization`: rewriting a function by what the values of its parameters are.

In: a function and its parameters. Out: another function and its parameters, which compute the same: `bsr_dense` and
`bsr_conv2d` keep weights that are mostly zero as blocks, `simplify_fc_transpose` transposes weights beforehand.
Invariant: parameters that nothing else reads are gone from the result; what is not worth it stays as it is.
"""

from armillary.base.lazy import lazy_names

_FILES = ("bsr_conv2d", "bsr_dense", "simplify_fc_transpose")
__getattr__, __dir__ = lazy_names(__name__, {name: f"{__name__}.{name}" for name in _FILES})
