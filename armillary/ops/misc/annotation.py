"""annotation.compiler_begin, annotation.compiler_end: where a region for an external library begins and ends.

In: any value, the name of the library. Out: the value. Put around calls by annotate-target and taken away by
partition-graph. Invariant: in a graph that is run as it is, they do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from armillary.base.record import record
from armillary.ops._deferred import te
from armillary.ops._types import copied
from armillary.ops.nn._windows import f32
from armillary.relay.op import Kind, Op, Sample
from armillary.relay.types import Type


@record
class CompilerAttrs:
    """The library's name."""

    compiler: str


def _define(name: str, doc: str) -> Op:
    op = Op(name, kind=Kind.OPAQUE, doc=doc)
    op.attrs(CompilerAttrs)

    @op.infer
    def infer(attrs: CompilerAttrs, data: Type) -> Type:
        return data

    @op.reference
    def reference(attrs: CompilerAttrs, data: te.Expr) -> te.Expr:
        return data

    @op.compute
    def compute(attrs: CompilerAttrs, data: te.Tensor) -> te.Tensor:
        return copied(data)

    @op.samples
    def samples() -> Iterator[Sample]:
        yield Sample(CompilerAttrs("library"), (f32(2, 3),))

    return op


compiler_begin = _define("annotation.compiler_begin", "An input of a region for an external library.")
compiler_end = _define("annotation.compiler_end", "A result of a region for an external library.")
