"""The page of the compute library's functions: on which sides each is, and what it was compared with.

In: the names of `armillary.compute`, and the stored outputs of Arm Compute Library
(`tests/compute/acl_oracle/outputs.json.xz`). Out: the text of docs/compute_functions.md, for tools/write_docs.py.
"""

from __future__ import annotations

import inspect
import json
import lzma
from pathlib import Path

from armillary import compute

STORED = Path(__file__).parent.parent / "tests" / "compute" / "acl_oracle" / "outputs.json.xz"
OTHER_ORACLES = {"CannyEdge": "OpenCV: 50"}
HEAD = """# Functions of the compute library

<!-- Written by tools/write_docs.py; do not edit. -->

What there is on the processor (`NE…`) and on OpenCL devices (`CL…`, the same arguments and results), whether borders
can be chosen, and on how many random cases each is compared with Arm Compute Library 20.08 (layers with images in both
layouts, convolutions of bytes with a scale for each channel, too). The cases are the same on both sides
([processor](../tests/compute/test_acl_oracle.py), [OpenCL](../tests/compute/test_opencl_oracle.py)): some in every run,
all in the slow tests. Every function has `validate`.

{total} functions, {both} on both sides.

| Function | `NE` | `CL` | borders | compared with the library on |
|---|---|---|---|---|
"""
ALIASES = {"WinogradLayer"}  # another name of a function


def functions() -> dict[str, list[str]]:
    """The functions by name without their side, with the sides that have them."""
    names: dict[str, list[str]] = {}
    for name in compute.__all__:
        side, rest = name[:2], name[2:]
        if side in ("NE", "CL") and rest not in ALIASES and not rest.endswith("Kernel"):
            kind = getattr(compute, name)
            if isinstance(kind, type) and hasattr(kind, "configure") and hasattr(kind, "run"):
                names.setdefault(rest, []).append(side)
    return dict(sorted(names.items()))


def page() -> str:
    """The whole page."""
    stored, table = json.loads(lzma.decompress(STORED.read_bytes())), functions()
    rows = [_row(name, sides, stored) for name, sides in table.items()]
    both = sum(len(sides) == 2 for sides in table.values())
    return HEAD.format(total=len(table), both=both) + "".join(rows)


def _row(name: str, sides: list[str], stored: dict[str, list[object]]) -> str:
    parameters = inspect.signature(getattr(compute, sides[-1] + name).configure).parameters
    cells = [f"`{name}`", *("yes" if side in sides else "no" for side in ("NE", "CL"))]
    cells.append("yes" if "border_mode" in parameters else "")
    cells.append(_cases(name, stored) or OTHER_ORACLES.get(name, "nothing"))
    return f"| {' | '.join(cells)} |\n"


def _cases(name: str, stored: dict[str, list[object]]) -> str:
    """Cases of the function, and of what its keys say behind its name."""
    cases = {
        key.removeprefix(f"NE{name}").strip(): len(v) for key, v in stored.items() if key.split()[0] == f"NE{name}"
    }
    return ", ".join(f"{key}: {count}" if key else str(count) for key, count in cases.items())
