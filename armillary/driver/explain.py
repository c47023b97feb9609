"""What a build tells about each kernel: its work, and the algorithm and tile chosen for it, with the reasons.

In: kernels (fused functions) and a target. Out: attributes of the graph's nodes, which a package carries, so that
`armc profile` can show them without the model. Invariant: the same functions choose here and when lowering
(backends/registry.py), under the same pass context; nothing here changes code. Reader: driver/profile.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from armillary.backends.anchor import find_anchor
from armillary.backends.base import backend_of
from armillary.backends.explanation import Explanation
from armillary.backends.registry import explain
from armillary.base.json_types import JsonObject
from armillary.driver.lower_fused import workload_of
from armillary.errors import ArtifactError
from armillary.relay.analysis.bind_sizes import at_typical_sizes
from armillary.relay.expr import Function
from armillary.relay.work import argument_reads, function_work
from armillary.target import Target

FLOPS, DIRECT, READS, CHOICE = "flops", "direct_flops", "reads", "choice"


@dataclass(frozen=True, slots=True)
class KernelNotes:
    """What is known of a kernel: operations done, operations of the plain algorithm, and the choice; and how many bytes
    it reads of those arguments of which it needs a part, by position."""

    flops: int = 0
    direct: int = 0
    choice: Explanation | None = None
    reads: Mapping[int, int] = field(default_factory=dict)


def explain_function(function: Function, target: Target) -> Explanation:
    """The choice for one fused function, as lowering makes it."""
    seen = backend_of(target).kernel_function(function, target)
    anchor = find_anchor(seen)
    if anchor is None:
        return Explanation("copy")
    return explain(workload_of(seen, anchor, target))


def kernel_attrs(function: Function, target: Target) -> dict[str, str]:
    """Attributes for the nodes that call a kernel; of one with named sizes, at their typical values."""
    function = at_typical_sizes(function)
    work = function_work(function)
    choice = {name: value for name, value in explain_function(function, target).to_plain().items() if value}
    attrs = {FLOPS: str(work.flops), CHOICE: json.dumps(choice, ensure_ascii=False)}
    reads = argument_reads(function)
    if reads:
        attrs[READS] = json.dumps(reads)
    return attrs if work.direct == work.flops else {**attrs, DIRECT: str(work.direct)}


def read_attrs(attrs: Mapping[str, str]) -> KernelNotes:
    """The notes in a node's attributes; empty ones for a package that has none."""
    if FLOPS not in attrs:
        return KernelNotes()
    try:
        flops = int(attrs[FLOPS])
        message = json.loads(attrs.get(CHOICE, "null"))
        choice = None if message is None else _explanation(message)
        reads = {int(place): int(count) for place, count in json.loads(attrs.get(READS, "{}")).items()}
        return KernelNotes(flops, int(attrs.get(DIRECT, flops)), choice, reads)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArtifactError(f"graph.nodes.attrs: the notes of a kernel are damaged: {error}") from None


def _explanation(message: JsonObject) -> Explanation:  # Any: JSON values
    alternatives = tuple((str(name), float(ms)) for name, ms in message.get("alternatives", ()))
    objections = tuple(map(str, message.get("objections", ())))
    return Explanation(
        str(message["algorithm"]),
        str(message.get("tile", "")),
        float(message.get("milliseconds", 0.0)),
        str(message.get("bound", "")),
        alternatives,
        objections,
    )
