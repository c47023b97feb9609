"""Errors under the names of Relay-era scripts: all are ArmillaryErrors.

In: a name. Out: what `errors.py` has under its own. Invariant: no logic here.
"""

from armillary.errors import (
    ArmillaryError,
    ConfigError,
    InternalError,
    RPCError,
    TargetError,
    TypeMismatch,
    UnsupportedError,
)

TVMError = OpError = OpNotImplemented = OpAttributeInvalid = OpAttributeRequired = DiagnosticError = ArmillaryError
OpAttributeUnImplemented = OpNotSupported = UnsupportedError

__all__ = [
    "ArmillaryError",
    "ConfigError",
    "DiagnosticError",
    "InternalError",
    "OpAttributeInvalid",
    "OpAttributeRequired",
    "OpAttributeUnImplemented",
    "OpError",
    "OpNotImplemented",
    "OpNotSupported",
    "RPCError",
    "TVMError",
    "TargetError",
    "TypeMismatch",
    "UnsupportedError",
]
