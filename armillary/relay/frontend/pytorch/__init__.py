"""`relay.frontend.pytorch` of Relay-era scripts: the door from TorchScript.

In: a name. Out: what `armillary.frontend` has under it. Invariant: no logic here.
"""

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, {"from_pytorch": "armillary.frontend.pytorch.entry:from_pytorch"})
