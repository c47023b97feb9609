"""CPUs through LLVM: x86-64, AArch64, Arm, RISC-V and whatever else the installed LLVM knows.

In: nothing. Out: `KIND`, facts only. Invariant: without -mtriple and -mcpu the target is the machine we run on, with
all its features. Derived facts about the CPU (vector width, caches): `target/cpu.py`.
"""

from __future__ import annotations

from armillary.target.kind import HOSTED, TargetKind

FAST_MATH = ("nnan", "ninf", "nsz", "arcp", "contract", "reassoc")
KIND = TargetKind(
    name="llvm",
    device_type=1,
    codegen="armillary.codegen.llvm",
    family="cpu",
    default_keys=("cpu",),
    attributes={
        "mattr": tuple,
        "mcpu": str,
        "mtriple": str,
        "mfloat-abi": str,
        "mabi": str,
        "jit": str,  # which of LLVM's loaders a script prefers: a label, as ours loads objects itself
        "num-cores": int,
        "opt-level": int,
        "cl-opt": tuple,
        "fast-math": bool,
        **{f"fast-math-{flag}": bool for flag in FAST_MATH},
        **HOSTED,
    },
    defaults={"link-params": False},
    refused={
        "cl-opt": "LLVM's command-line options are global to the process",
    },
)
