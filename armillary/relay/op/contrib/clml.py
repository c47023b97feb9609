"""OpenCLML, as Relay-era scripts call it.

In: a module, perhaps parameters. Out: the module with what the library computes in functions of their own. Invariant:
neighbouring calls share a function; reshape is left alone. What is offloaded, and why not: offload/clml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.base.boundary import boundary
from armillary.base.lazy import deferred
from armillary.ir import IRModule
from armillary.offload.clml import NAME, OFFLOAD, PREPARE
from armillary.offload.clml.prepare import BROADCAST_OPERANDS, FOLD_BATCH_NORM, REMOVE_DROPOUT
from armillary.offload.contract import partition
from armillary.relay.offload_tables import Row, get_pattern_table
from armillary.transform import Pass, Sequential

with deferred():
    from armillary.offload.clml.build_runtime import sdk_version as _sdk_version
    from armillary.runtime.external import has_external as _has_external


@boundary("partition_for_clml", arguments=True)
def partition_for_clml(
    mod: IRModule,
    params: Mapping[str, object] | None = None,  # numpy arrays or NDArrays
    mod_name: str = "default",
    disabled_ops: Sequence[str] = ("reshape",),
    **opts: object,
) -> IRModule:
    """Move what OpenCLML computes into functions `tvmgen_default_clml_main_<n>`, one for each connected region."""
    del opts  # of other libraries: ignored, as ever
    return partition(mod, OFFLOAD, params, disabled_ops, mod_name)


@boundary("preprocess_for_clml", arguments=True)
def preprocess_for_clml(mod: IRModule) -> IRModule:
    """The module as the patterns want it: channels first, no dropout, operands of one shape, folded normalisations."""
    return Sequential(PREPARE, "preprocess_for_clml")(mod)


def is_clml_runtime_enabled() -> bool:
    """Whether this machine has the runtime, so that offloaded functions can run here."""
    return bool(_has_external(NAME))


def clml_sdk_version() -> int:
    """The major version of the SDK that ADRENO_OPENCL names; 2 without one."""
    return int(_sdk_version())


def clml_pattern_table() -> Sequence[Row]:
    """Rows of (name, pattern, predicate)."""
    return get_pattern_table(NAME)


def RemoveDropoutPass() -> Pass:  # noqa: N802 - as scripts have it
    """The pass that removes nn.dropout."""
    return REMOVE_DROPOUT


def BinaryOpBroadcaster() -> Pass:  # noqa: N802 - as scripts have it
    """The pass that gives the operands of sums one shape."""
    return BROADCAST_OPERANDS


def OptimizeBatchnormPass() -> Pass:  # noqa: N802 - as scripts have it
    """The pass that folds normalisations into the weights of convolutions."""
    return FOLD_BATCH_NORM
