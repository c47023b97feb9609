"""Print which file registers which operators and ONNX rules: the text of armillary/relay/operators.txt.

In: the files. Out: a line per file, its name and the keys it registers as `relay/lazy_registry.py` spells them, sorted.
Invariant: seen, not read from the sources: the file is the one whose top level was running when a key came into its
table. tools/write_docs.py runs this.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from armillary.relay.lazy_registry import LazyRegistry, load_operators

_PREFIX = "armillary."
_KEYS: dict[str, set[str]] = defaultdict(set)  # by file: what it registers


def _watched(table: LazyRegistry[Any, Any], key: Any, value: Any) -> None:  # Any: keys and rows of every table
    table._rows[key] = value
    frame = sys._getframe(1)
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    _KEYS[frame.f_globals["__name__"].removeprefix(_PREFIX)].add(table._spelled(key))


if __name__ == "__main__":
    LazyRegistry.__setitem__ = _watched  # type: ignore[method-assign]
    load_operators()
    for name, keys in sorted(_KEYS.items()):
        print(name, *sorted(keys))
