"""CPUs through C source: for boards whose tool-chain is a C compiler.

In: nothing. Out: `KIND`, facts only. Invariant: the source is C11 and needs nothing but <stdint.h>, <math.h> and
<string.h>. Who reads it: target/kind.py; who writes the source: codegen/c.
"""

from __future__ import annotations

from armillary.target.kind import HOSTED, TargetKind

KIND = TargetKind(
    name="c",
    device_type=1,
    codegen="armillary.codegen.c",
    family="cpu",
    default_keys=("cpu",),
    attributes={
        "mcpu": str,
        "march": str,
        "mtriple": str,
        "mattr": tuple,
        "workspace-byte-alignment": int,
        "constants-byte-alignment": int,
        **HOSTED,
    },
    refused={
        "workspace-byte-alignment": "workspaces are aligned to 64 bytes",
        "constants-byte-alignment": "constants are aligned to 64 bytes",
    },
)
