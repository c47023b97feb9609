"""Functions that values of a language call and that stand above them: what prints, checks, infers and computes.

In: nothing. Out: a `Slot` for each, called like the function. Invariant: a slot is declared below who calls it, and
filled by `armillary/wiring.py`, above all layers, before any module of the package runs; so a class knows the type of
such a function and not where it stands. The function's module is imported by the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from armillary.base.lazy import imported

if TYPE_CHECKING:
    from armillary.ir import IRModule
    from armillary.relay.adt.types import GlobalTypeVar, TypeData
    from armillary.relay.evaluate import Task
    from armillary.relay.expr import Call, Expr, Function
    from armillary.relay.op import Op
    from armillary.relay.printer import Lines, _Printer
    from armillary.relay.types import Type
    from armillary.te.schedule import Schedule
    from armillary.te.tensor import Tensor
    from armillary.tir import expr as E
    from armillary.tir import stmt as S

P = ParamSpec("P")
R = TypeVar("R")


class Slot(Generic[P, R]):
    """A function that a module above supplies."""

    def fill(self, function: Callable[P, R]) -> None:
        """Say which function it is; a deferred import stays deferred."""
        self._function = function

    def __call__(self, *args: P.args, **named: P.kwargs) -> R:
        self._function = function = imported(self._function)
        return function(*args, **named)


# of modules and functions, whatever the language (ir/__init__.py)
call: Slot[[object, Sequence[object]], Call] = Slot()
close_over: Slot[[Expr], Function] = Slot()
find_constructor: Slot[[IRModule, int], object] = Slot()
find_type: Slot[[IRModule, str], tuple[GlobalTypeVar, TypeData]] = Slot()
script: Slot[[S.PrimFunc | IRModule], str] = Slot()
standard_module: Slot[[str], IRModule] = Slot()

# of loops (tir/expr.py, tir/stmt.py)
access_ptr: Slot[..., E.Call] = Slot()  # a buffer, then what a script says
coerce: Slot[[type, tuple[object, ...]], tuple[object, ...]] = Slot()
data_of: Slot[[S.Buffer], E.Var] = Slot()
flattened: Slot[[S.Buffer], S.Buffer] = Slot()
load: Slot[..., E.Expr] = Slot()  # a buffer and positions; a dtype and a mask, which may be missing
min_and_extent: Slot[[object, object], tuple[E.Expr, E.Expr]] = Slot()  # two ends of a range
offset_of: Slot[[S.Buffer, object], list[E.Expr]] = Slot()
print_expr: Slot[[E.Expr], str] = Slot()
print_global: Slot[[str, S.PrimFunc, bool], str] = Slot()
print_prim_func: Slot[[S.PrimFunc], str] = Slot()
print_stmt: Slot[[S.Stmt], str] = Slot()
refuse: Slot[[type, Exception], Exception] = Slot()
store: Slot[[S.Buffer, object, object, object], S.BufferStore] = Slot()
verify_prim_func: Slot[[S.PrimFunc, IRModule], None] = Slot()

# of tensor expressions (te/tensor.py, te/schedule.py)
combine: Slot[[str, E.ExprLike, E.ExprLike], Tensor] = Slot()
convert_tensor: Slot[[Tensor, str], Tensor] = Slot()
read_schedule: Slot[[str], Schedule] = Slot()
save_schedule: Slot[[Schedule], str] = Slot()
unary: Slot[[str, Tensor], Tensor] = Slot()

# of graphs (relay/expr.py, relay/op, relay/infer.py, relay/evaluate.py, relay/printer.py)
astext: Slot[[Expr, bool], str] = Slot()
construct: Slot[..., object] = Slot()
dynamic_call: Slot[[Op, Sequence[Expr], dict[str, object], dict[str, Expr]], Call] = Slot()
find_operator: Slot[[str], object] = Slot()
find_step: Slot[[Expr], Callable[..., list[Task]]] = Slot()
get_op: Slot[[str], Op] = Slot()
infer_type: Slot[[object], Type] = Slot()
lines_of: Slot[[_Printer, Expr], Lines] = Slot()
print_function: Slot[[str, Function, bool], str] = Slot()
solve: Slot[[Expr, IRModule | None], Type] = Slot()
static_attribute: Slot[[Expr], object] = Slot()  # a number, or nested lists of numbers
verify_function: Slot[[Function, IRModule], None] = Slot()
