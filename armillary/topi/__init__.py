"""Operators as functions of tensor expressions, under the names of Relay-era scripts: `topi.add(A, B)`.

In: TE tensors and attributes. Out: TE tensors, computed as the operator of that name computes them (`ops/`). Invariant:
no computation is written here: `operators.py` finds the operator, passes tensors and attributes by the operator's own
order, and `signatures.py` holds the functions whose arguments were in another order. `topi.nn`, `topi.image`,
`topi.vision`, `topi.utils`, `topi.tag` and `topi.testing` (references) are modules.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from armillary.topi import image, nn, padding, signatures, tag, utils, vision
from armillary.topi.operators import function_named
from armillary.topi.utils import get_const_tuple
from armillary.topi.vendors import namespaces

if TYPE_CHECKING:
    from armillary.base.aliases import AnyFunction

__all__ = ["get_const_tuple", "image", "nn", "padding", "signatures", "tag", "utils", "vision"]
globals().update(namespaces())


def __getattr__(name: str) -> AnyFunction:  # a function of tensors, or the module of references
    if name == "testing":
        return importlib.import_module("armillary.topi.testing")  # type: ignore[return-value]
    return function_named(__name__, name)
