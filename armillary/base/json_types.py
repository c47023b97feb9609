"""What a JSON text holds, as types. Apart from `aliases.py`, because what reads JSON does not always need numpy.

In: nothing. Out: aliases. Invariant: the inside of a JSON text is open here and nowhere else; who reads it checks it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

JsonValue: TypeAlias = Any  # Any: what a JSON text holds
JsonObject: TypeAlias = dict[str, Any]  # Any: what a JSON text holds below a key
