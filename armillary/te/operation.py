"""Operations: what computes tensors.

    operation = PlaceholderOp(shape, dtype)                        given from outside
              | ComputeOp(axis, body)                              an expression per element, or a reduction
              | ExternOp(inputs, input_placeholders, output_placeholders, body)    a statement over buffers
              | ScanOp(scan_axis, init, update, state, inputs)     a recurrence along the first dimension

In: what `te/api.py` gathered. Out: an operation whose `output(i)` is always the same Tensor. Invariant: operations
never
change; a schedule that rewrites one makes a new operation. Loops for them: `te/schedule.py`, `te/lower.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from armillary.base.boundary import bounded
from armillary.base.dtype import DType
from armillary.base.node import Node, children
from armillary.errors import TypeMismatch
from armillary.te.tensor import Tensor
from armillary.tir.expr import Expr, IterVar, ProducerLoad, Reduce
from armillary.tir.stmt import Buffer, Stmt

if TYPE_CHECKING:
    from armillary.te.tensor_intrin import TensorIntrin

Attrs = dict[str, Any]  # Any: attributes are strings, numbers, tuples of them


@bounded
class Operation:
    """Base of operations. `axis` are the data axes, `reduce_axis` the reduction axes."""

    __slots__ = ("__weakref__", "_outputs", "attrs", "name", "tag")
    axis: tuple[IterVar, ...] = ()
    reduce_axis: tuple[IterVar, ...] = ()

    def __init__(
        self, name: str, tag: str, attrs: Attrs | None, outputs: Sequence[tuple[tuple[Expr, ...], DType]]
    ) -> None:
        self.name = name
        self.tag = tag
        self.attrs: Attrs = dict(attrs or {})
        self._outputs = tuple(Tensor(self, i, shape, dtype) for i, (shape, dtype) in enumerate(outputs))

    @property
    def num_outputs(self) -> int:
        """How many tensors the operation computes."""
        return len(self._outputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return self._outputs

    def output(self, index: int) -> Tensor:
        """Output number `index`."""
        if not (type(index) is int or isinstance(index, Integral)) or not 0 <= index < len(self._outputs):
            raise TypeMismatch(f"operation {self.name} has {len(self._outputs)} outputs, not one with number {index}")
        return self._outputs[index]

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors read, each once, in order of appearance."""
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class PlaceholderOp(Operation):
    """A tensor given from outside."""

    __slots__ = ()

    def __init__(self, name: str, shape: tuple[Expr, ...], dtype: DType, tag: str = "", attrs: Attrs | None = None):
        super().__init__(name, tag, attrs, [(shape, dtype)])

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.output(0).shape

    @property
    def dtype(self) -> DType:
        return self.output(0).dtype


@bounded
class ComputeOp(Operation):
    """`body[k]` is the element of output k at the values of `axis`; a reduction has Reduce nodes as its bodies."""

    __slots__ = ("_inputs", "axis", "body", "intrinsic", "reduce_axis")

    def __init__(
        self,
        name: str,
        axis: tuple[IterVar, ...],
        body: tuple[Expr, ...],
        tag: str = "",
        attrs: Attrs | None = None,
    ) -> None:
        self.axis = axis
        self.body = body
        self.intrinsic: tuple[TensorIntrin, int, int] | None = None  # that makes it; its own data and reduction axes
        first = body[0]
        self.reduce_axis = first.axis if isinstance(first, Reduce) else ()
        self._inputs = _check_body(name, body)
        shape = tuple(a.dom.extent for a in axis if a.dom is not None)
        super().__init__(name, tag, attrs, [(shape, b.dtype) for b in body])

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        return self._inputs

    @property
    def is_reduction(self) -> bool:
        """Whether the bodies are reductions."""
        return isinstance(self.body[0], Reduce)


@bounded
class ExternOp(Operation):
    """A statement that reads `input_placeholders` and writes `output_placeholders`, buffers standing for tensors."""

    __slots__ = ("body", "input_placeholders", "inputs", "output_placeholders")

    def __init__(
        self,
        name: str,
        inputs: tuple[Tensor, ...],
        input_placeholders: tuple[Buffer, ...],
        output_placeholders: tuple[Buffer, ...],
        body: Stmt,
        tag: str = "",
        attrs: Attrs | None = None,
    ) -> None:
        self.inputs = inputs
        self.input_placeholders = input_placeholders
        self.output_placeholders = output_placeholders
        self.body = body
        super().__init__(name, tag, attrs, [(b.shape, b.dtype) for b in output_placeholders])

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys(self.inputs))


@bounded
class ScanOp(Operation):
    """state[t] for t below len(init) comes from `init`, then from `update`, which reads `state` at earlier t."""

    __slots__ = ("init", "inputs", "scan_axis", "state", "update")

    def __init__(
        self,
        name: str,
        scan_axis: IterVar,
        init: tuple[Tensor, ...],
        update: tuple[Tensor, ...],
        state: tuple[Tensor, ...],
        inputs: tuple[Tensor, ...] = (),
        tag: str = "",
        attrs: Attrs | None = None,
    ) -> None:
        self.scan_axis = scan_axis
        self.init = init
        self.update = update
        self.state = state
        self.inputs = inputs
        super().__init__(name, tag, attrs, [(s.shape, s.dtype) for s in state])

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        return (*self.init, *self.update)


def _check_body(name: str, body: tuple[Expr, ...]) -> tuple[Tensor, ...]:
    """The tensors read; refuses reductions that are not the whole body."""
    reductions = [isinstance(b, Reduce) for b in body]
    if any(reductions) and not all(reductions):
        raise TypeMismatch(f"te.compute {name}: reductions and other expressions cannot share one compute")
    first = body[0]
    if isinstance(first, Reduce):
        for other in body[1:]:
            assert isinstance(other, Reduce)
            if other.combiner is not first.combiner or other.axis != first.axis or other.source != first.source:
                raise TypeMismatch(f"te.compute {name}: the outputs of a tuple reduction must be one reduction")
        roots: tuple[Node, ...] = (*first.source, first.condition, *first.combiner.identity)
    else:
        roots = body
    return reads(roots, f"te.compute {name}")


def reads(roots: Sequence[Node], where: str = "") -> tuple[Tensor, ...]:
    """The tensors that expressions read, in order of appearance; with `where`, refuses a Reduce inside them."""
    result: dict[Tensor, None] = {}
    for item in parts(roots):
        if isinstance(item, ProducerLoad):
            result.setdefault(item.producer)
        elif isinstance(item, Reduce) and where:
            raise TypeMismatch(
                f"{where}: a reduction must be the whole body of te.compute",
                hint="compute the reduction as a tensor of its own, then read that tensor",
            )
    return tuple(result)


def parts(roots: Sequence[Node]) -> Iterator[Node]:
    """The distinct nodes of expressions, in order of appearance; of a reduction all but its combiner."""
    seen: set[int] = set()
    stack = list(reversed(roots))
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        if isinstance(item, Reduce):
            stack.extend(reversed((*item.source, item.condition, *item.combiner.identity)))
        else:
            stack.extend(reversed(list(children(item))))
