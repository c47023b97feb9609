"""Importers that Relay-era scripts may name and that are not here: each says so, and how to get there through ONNX.

In: whatever the old importer took. Out: always an UnsupportedError with the export command of that framework.
Invariant: no importer is listed both here and as working in `frontend/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from armillary.errors import UnsupportedError
from armillary.frontend.formats import EXPORT


def _refuser(name: str) -> Callable[..., NoReturn]:
    def refuse(*_args: object, **_options: object) -> NoReturn:  # the old importers' own arguments
        raise UnsupportedError(
            f"importing {name} models directly is not supported",
            hint=f"export to ONNX first ({EXPORT[name]}), then relay.frontend.from_onnx",
        )

    refuse.__name__ = refuse.__qualname__ = f"from_{name}"
    refuse.__doc__ = f"Refuse a {name} model and say how to export it to ONNX."
    return refuse


_FILES_ONLY = ("weights", "scikit-learn", "tensorrt")  # there was no importer of that name
globals().update({f"from_{name}": _refuser(name) for name in EXPORT if name not in _FILES_ONLY})
