"""The error of Relay-era scripts, under the module's old name.

In: a name. Out: the class of `errors.py`. Invariant: no logic here.
"""

from armillary.errors import ArmillaryError

TVMError = ArmillaryError
__all__ = ["TVMError"]
