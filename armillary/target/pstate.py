"""`topi.arm_cpu.pstate_attributes`: notes of blocks that say in which state of an Arm processor they run.

In: nothing. Out: keys and values for `T.block_attr`. Invariant: a function has one of each kind (read by
`codegen/base.py`); what it computes is then a function of its own in LLVM IR, and LLVM has its caller enter and leave
streaming mode around it. The notes on ZA are passed on as they are: no code here uses that array.
"""

from __future__ import annotations

PREFIX = "pragma_aarch64_"  # of the keys
COMPUTE = "_compute_"  # ends the name of the function of such a block


class SMEAttributes:
    """Streaming mode and the ZA array of the Scalable Matrix Extension."""

    STREAMING_MODE = "pragma_aarch64_pstate_sm"
    ZA_STORAGE = "pragma_aarch64_pstate_za"

    class StreamingModeValues:
        """In streaming mode; or in whichever mode the caller is."""

        ENABLED = "aarch64_pstate_sm_enabled"
        COMPATIBLE = "aarch64_pstate_sm_compatible"

    class ZAStorageValues:
        """With a new ZA array, or with the caller's."""

        NEW = "aarch64_pstate_za_new"
        SHARED = "aarch64_pstate_za_shared"
