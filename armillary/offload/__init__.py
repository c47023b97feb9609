"""Libraries that compute parts of a graph: what each can do, how the parts are written down, what was decided and why.

`contract.py`: the manifest of a library (`Offload`), and what its code generator gives. `graph_json.py`: a partitioned
function as JSON. `report.py`: what runs where. One folder per library: `acl/`, `clml/`; `rows.py` is what their tables
share. In: the name of a library. Out: its manifest, imported when it is first asked for. Invariant: the compiler knows
no library by name but in the table below.
"""

from __future__ import annotations

from armillary.base.lazy import find

BUILT_IN = dict.fromkeys(("arm_compute_lib", "compute-library"), "armillary.offload.acl")
BUILT_IN |= {"clml": "armillary.offload.clml", "ccompiler": "armillary.offload.ccompiler"}
BUILT_IN |= dict.fromkeys(("cblas", "mkl", "dnnl"), "armillary.offload.blas")


def load(name: str) -> None:
    """Import the manifest of a library that comes with the package; nothing for another name."""
    if name in BUILT_IN:
        find(BUILT_IN[name])
