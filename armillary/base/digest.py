"""Hash functions without OpenSSL, which `hashlib` loads: 4 MB and 3 ms of every process that imports it.

In: bytes. Out: `blake2b` and `sha256`, which hashlib has under these names. Invariant: the same digests with any
Python; one without the lean modules takes hashlib's.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashlib import blake2b, sha256
else:

    def _lean(name: str, *modules: str) -> Any:  # Any: a constructor of digests
        for module in modules:
            try:
                return getattr(importlib.import_module(module), name)
            except ImportError:
                continue
        return getattr(importlib.import_module("hashlib"), name)

    blake2b = _lean("blake2b", "_blake2")
    sha256 = _lean("sha256", "_sha2", "_sha256")  # Python 3.12 renamed the module

__all__ = ["blake2b", "sha256"]
