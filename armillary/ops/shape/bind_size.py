"""bind_size and run_after: a size that the data says, and what is computed only once it is known.

In: a count (one integer), and the named size that it becomes; of `run_after` what must have run before, and anything.
Out: the count; the second input. Invariant: no kernel computes either: `bind_size` is a node of the graph that gives
the size its value (runtime/native/memory/arm_stages.c), `run_after` only orders. Whatever has the size in its
attributes or shape depends on its bind_size, so that it runs behind it (bound_sizes.py sees to it): arguments are
computed from the first to the last. Interpreted: relay/evaluate.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.extent import Extent, as_size
from armillary.base.record import record
from armillary.errors import ExecutionError, TypeMismatch
from armillary.ops._deferred import te
from armillary.ops._types import copied
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


state(NAME, Fact.BINDS)
state("run_after", Fact.RUNS_AFTER)
