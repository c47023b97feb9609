"""The names `relay.qnn.transform.Legalize()` and `.CanonicalizeOps()` of Relay-era scripts.

In: nothing. Out: the passes qnn-legalize and qnn-canonicalize. Invariant: no logic here.
"""

from __future__ import annotations

from armillary.relay.transform.quantize.qnn_canonicalize import qnn_canonicalize
from armillary.relay.transform.quantize.qnn_legalize import qnn_legalize
from armillary.transform import Pass


def Legalize(target: object = None) -> Pass:  # noqa: N802  (the name scripts use)
    """The pass QnnLegalize."""
    return qnn_legalize.bind(target=target)


def CanonicalizeOps(target: object = None) -> Pass:  # noqa: N802
    """The pass QnnCanonicalize."""
    return qnn_canonicalize.bind(target=target)
