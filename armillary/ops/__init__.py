"""Every operator of the graph language, one file per operator or family.

In: nothing. Out: each file puts its `Op` records into `relay.op.OPS` and its ONNX rules into `ONNX_RULES` when it is
imported: one by one, as they are asked for (`relay/by_need.py`), or all by `load_all`, in sorted order. Invariant:
there is no list of files to keep; a new file is found by being here. Files whose name starts with an underscore are
helpers and are imported by those that use them.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path


def module_names() -> list[str]:
    """Dotted names of the operator files below this directory, sorted."""
    root = Path(__file__).parent
    files = (path.relative_to(root).with_suffix("") for path in root.rglob("*.py"))
    return [".".join((__name__, *path.parts)) for path in sorted(files) if not path.name.startswith("_")]


@cache
def load_all() -> None:
    """Import every operator file."""
    for name in module_names():
        importlib.import_module(name)
