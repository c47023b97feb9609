"""bind_size, equal_sizes, run_after: a size that the data says, what must be equal, and the order of both.

In: a count (one integer), and the named size that it becomes; of `equal_sizes` two extents, of `run_after` what must
have run before, and anything. Out: the count; a 0 that nobody reads; the second input. Invariant: no kernel computes
any of them: `bind_size` is a node of the graph that gives the size its value (runtime/native/memory/arm_stages.c),
`equal_sizes` one that compares (memory/arm_equal.c), `run_after` only orders. Whatever has the size in its
attributes or shape depends on its bind_size, so that it runs behind it (bound_sizes.py sees to it): arguments are
computed from the first to the last. Interpreted: relay/evaluate.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Extent, as_size
from armillary.base.record import record
from armillary.errors import ExecutionError, TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._types import copied, elements
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact
from armillary.relay.types import TensorType, Type

NAME = "bind_size"


@record
class BindSizeAttrs:
    """The size that gets the count as its value; a number where it was replaced by one (cost models do)."""

    size: int | Extent = 0


bind_size = Op(NAME, kind=Kind.OPAQUE, inputs=("count",), doc="The count, which becomes the value of a named size.")
bind_size.attrs(BindSizeAttrs)


@bind_size.infer
def infer_bind_size(attrs: BindSizeAttrs, count: Type) -> Type:
    if not isinstance(count, TensorType) or str(count.dtype) != "int64" or any(d != 1 for d in count.shape):
        raise TypeMismatch(f"{NAME}: the count is {count}, wanted one number, int64", hint="cast and reshape it")
    if isinstance(attrs.size, Extent) and as_size(attrs.size) is None:
        raise TypeMismatch(f"{NAME}: {attrs.size} is no named size", hint="relay.size_var gives one")
    return count


@bind_size.reference
def reference_bind_size(attrs: BindSizeAttrs, count: Array) -> Array:
    size, value = as_size(attrs.size), int(np.reshape(count, ()))
    if size is not None and not (size.low <= value <= size.high and value % size.step == 0):
        message = f"the data says {size.name} = {value}, which lies outside its bounds {size.low} to {size.high}"
        raise ExecutionError(message if value % size.step == 0 else f"{message}, or is no multiple of {size.step}")
    return count


@record
class EqualSizesAttrs:
    """Two extents that an operator takes to be equal, and whose axes they are."""

    a: int | Extent = 1
    b: int | Extent = 1
    of_a: str = ""
    of_b: str = ""


equal_sizes = Op("equal_sizes", kind=Kind.OPAQUE, inputs=(), doc="0, once two extents have been found to be equal.")
equal_sizes.attrs(EqualSizesAttrs)


@equal_sizes.infer
def infer_equal_sizes(attrs: EqualSizesAttrs) -> Type:
    return TensorType((), DType("int64"))


@equal_sizes.reference
def reference_equal_sizes(attrs: EqualSizesAttrs) -> Array:
    if isinstance(attrs.a, int) and isinstance(attrs.b, int) and attrs.a != attrs.b:
        raise ExecutionError(f"{attrs.of_a} is {attrs.a}, but {attrs.of_b} is {attrs.b}: they must be equal")
    return np.array(0, np.int64)


run_after = Op(
    "run_after", kind=Kind.OPAQUE, inputs=("first", "data"), doc="The data, computed once the first input has been."
)


@run_after.infer
def infer_after(attrs: None, first: Type, data: Type) -> Type:
    return data


@run_after.reference
def reference_after(attrs: None, first: Array, data: Array) -> Array:
    return data


@bind_size.compute
def _copied_count(attrs: BindSizeAttrs, count: te.Tensor) -> te.Tensor:
    return copied(count)


@equal_sizes.compute
def _zero(attrs: EqualSizesAttrs) -> te.Tensor:
    return elements((), lambda: T.const(0, "int64"), name="equal_sizes")


@run_after.compute
def _copied_data(attrs: None, first: te.Tensor, data: te.Tensor) -> te.Tensor:
    return copied(data)


@bind_size.samples
def samples_of_bind_size() -> Iterator[Sample]:
    yield Sample(BindSizeAttrs(3), (np.array([3], np.int64),))


@bind_size.bad_samples
def bad_samples_of_bind_size() -> Iterator[BadSample]:
    yield BadSample(BindSizeAttrs(3), (np.array([3], np.int32),), "wanted one number, int64")


@run_after.samples
def samples_of_after() -> Iterator[Sample]:
    yield Sample(None, (np.array([3], np.int64), np.arange(6, dtype=np.float32)))


@equal_sizes.samples
def samples_of_equal_sizes() -> Iterator[Sample]:
    yield Sample(EqualSizesAttrs(3, 3, "axis 0 of x", "axis 0 of y"), ())


state(NAME, Fact.BINDS)
state("equal_sizes", Fact.COMPARES)
state("run_after", Fact.RUNS_AFTER)
