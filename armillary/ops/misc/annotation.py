"""Marks that passes read: annotation.compiler_begin, annotation.compiler_end, annotation.stop_fusion.

In: any value; of the first two the name of a library, whose region begins or ends there. Out: the value. The first two
are put around calls by annotate-target and taken away by partition-graph; what is before and behind the third is not
one kernel, and fuse-ops takes it away. Invariant: in a graph that is run as it is, they do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from armillary.base.record import record
from armillary.ops._deferred import te
from armillary.ops._types import copied
from armillary.ops.nn._windows import f32
from armillary.relay.op import Kind, Op, Sample, state
from armillary.relay.op.facts import Fact
from armillary.relay.types import Type


@record
class CompilerAttrs:
    """The library's name."""

    compiler: str


def _define(name: str, doc: str, sample: CompilerAttrs | None) -> Op:
    op = Op(name, kind=Kind.OPAQUE, doc=doc)
    if sample is not None:
        op.attrs(CompilerAttrs)

    @op.infer
    def infer(attrs: CompilerAttrs | None, data: Type) -> Type:
        return data

    @op.reference
    def reference(attrs: CompilerAttrs | None, data: te.Expr) -> te.Expr:
        return data

    @op.compute
    def compute(attrs: CompilerAttrs | None, data: te.Tensor) -> te.Tensor:
        return copied(data)

    @op.samples
    def samples() -> Iterator[Sample]:
        yield Sample(sample, (f32(2, 3),))

    return op


LIBRARY = CompilerAttrs("library")
compiler_begin = _define("annotation.compiler_begin", "An input of a region for an external library.", LIBRARY)
compiler_end = _define("annotation.compiler_end", "A result of a region for an external library.", LIBRARY)
stop_fusion = _define("annotation.stop_fusion", "The value, which is not computed in the kernel of its readers.", None)
state("annotation.stop_fusion", Fact.ANY_VALUE, Fact.ENDS_KERNEL)
