"""Statements, buffers and functions of the loop language.

Grammar:

    stmt = For(var, min, extent, kind, body, thread_tag, annotations)
         | IfThenElse(condition, then_body, else_body?)
         | While(condition, body)
         | BufferStore(buffer, value, indices)
         | Allocate(buffer, body)                the buffer lives while body runs
         | AttrStmt(key, value, body, node?)     pragmas and notes
         | LetStmt(var, value, body) | AssertStmt(condition, message, body)
         | SeqStmt(statements) | Evaluate(value)
    function = PrimFunc(params, body, attrs)     params are Buffers (tensors) and Vars (scalars)

Invariant: before `storage-flatten` buffers have their tensor's rank; after it every buffer is one-dimensional.
Expressions: `tir/expr.py`. Text: `tir/printer.py`, `tir/parser.py`. Meaning: `tir/interpreter.py`.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar

from armillary.base import slots
from armillary.base.arguments import Arguments
from armillary.base.dtype import DType
from armillary.base.node import Coercion, Node, Pairs, Printer, Refuse, node, replace
from armillary.ir import Attrs, BaseFunc, ModulePrinter, Verifier
from armillary.tir.expr import ACCEPTED, SCOPE, Bound, Expr, IterVar, Var


class LoopKind(enum.Enum):
    """How the iterations of a loop are run."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    THREAD = "thread"  # bound to the GPU axis named by For.thread_tag


@node
class Buffer(Node):
    """Memory for a tensor: row-major unless `strides` is given; compared by identity.

    `scope` is global, local (registers or stack of one iteration), shared or texture. `align` is in bytes.
    `elem_offset` is in elements. Shape entries are int32 or int64 expressions.
    """

    READ: ClassVar[int] = 1
    WRITE: ClassVar[int] = 2
    _binds: ClassVar[bool] = True
    _accepts: ClassVar[dict[str, str]] = ACCEPTED
    _coerce: ClassVar[Coercion | None] = Expr._coerce
    _refuse: ClassVar[Refuse | None] = Expr._refuse
    _scope: ClassVar[dict[str, object]] = SCOPE
    name: str
    shape: tuple[Expr, ...]
    dtype: DType
    scope: str = "global"
    strides: tuple[Expr, ...] = ()
    elem_offset: Expr | None = None
    align: int = 64

    @property
    def data(self) -> Any:  # Any: a Var
        """The handle of the memory."""
        return slots.data_of(self)

    def __getitem__(self, index: object) -> Expr:  # positions, an expression
        return slots.load(self, index)

    def vload(self, begin: object, dtype: str | None = None, predicate: object = None) -> Expr:  # positions, a mask
        """One element, or with a vector dtype as many along the last axis; of a vector, those that a predicate has."""
        return slots.load(self, begin, dtype, predicate)

    def vstore(self, begin: object, value: object, predicate: object = None) -> BufferStore:  # positions, values
        """Write one element, or a vector along the last axis; of a vector, the lanes that a predicate has."""
        return slots.store(self, begin, value, predicate)

    def offset_of(self, indices: object) -> list[Expr]:  # positions, expressions
        """The element's number from where the memory begins."""
        return slots.offset_of(self, indices)

    def access_ptr(self, access_mask: int | str, *args: Any, **named: Any) -> Any:  # Any: as in buffer_access
        """The address of elements, with how they are used: "r", "w" or "rw"."""
        return slots.access_ptr(self, access_mask, *args, **named)

    def get_flattened_buffer(self) -> Buffer:  # a Buffer
        """The same memory as one dimension."""
        return slots.flattened(self)


class Stmt(Node):
    """Base of statements."""

    __slots__ = ()
    _printer: ClassVar[Printer | None] = slots.print_stmt
    _accepts: ClassVar[dict[str, str]] = {
        **ACCEPTED,
        "Stmt": "isinstance({0}, Stmt)",
        "Stmt | None": "{0} is None or isinstance({0}, Stmt)",
        "tuple[Stmt, ...]": "type({0}) is tuple and _only_stmts({0})",
        "LoopKind": "type({0}) is LoopKind",
    }
    _coerce: ClassVar[Coercion | None] = Expr._coerce
    _refuse: ClassVar[Refuse | None] = Expr._refuse
    _scope: ClassVar[dict[str, object]] = SCOPE


def _only_stmts(values: tuple[object, ...]) -> bool:
    return all(isinstance(value, Stmt) for value in values)


SCOPE.update(Attrs=Attrs, Stmt=Stmt, LoopKind=LoopKind, _only_stmts=_only_stmts)


@node
class For(Stmt):
    """Run `body` for `var` in [min, min + extent); extent <= 0 runs nothing."""

    var: Var
    min: Expr
    extent: Expr
    kind: LoopKind
    body: Stmt
    thread_tag: str = ""
    annotations: Pairs = ()  # Any: pragma values are ints, strings or expressions

    @property
    def loop_var(self) -> Var:
        """The variable, by its old name."""
        return self.var


@node
class IfThenElse(Stmt):
    """Run one of two bodies; the condition is a scalar bool."""

    condition: Expr
    then_body: Stmt
    else_body: Stmt | None = None

    @property
    def then_case(self) -> Stmt:
        """The first body, by its old name."""
        return self.then_body

    @property
    def else_case(self) -> Stmt | None:
        """The second body, by its old name."""
        return self.else_body


@node
class While(Stmt):
    """Run `body` as long as the condition, a scalar bool that is evaluated anew before each turn, holds."""

    condition: Expr
    body: Stmt


@node
class BufferStore(Stmt):
    """Write one element, or several when the last index is a vector (lanes of value and index agree)."""

    buffer: Buffer
    value: Expr
    indices: tuple[Expr, ...]


@node
class Allocate(Stmt):
    """`buffer` exists, with unspecified contents, while `body` runs."""

    buffer: Buffer
    body: Stmt

    @property
    def extents(self) -> tuple[Expr, ...]:
        """The buffer's sizes."""
        return self.buffer.shape

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self.buffer.dtype

    @property
    def buffer_var(self) -> Any:  # Any: a Var
        """The handle of its memory."""
        return self.buffer.data


@node
class AttrStmt(Stmt):
    """A note on `body`: pragma_<name>, thread_extent, virtual_thread, double_buffer_scope, extern_scope…"""

    key: str
    value: Expr
    body: Stmt
    node: IterVar | Var | Buffer | None = None

    @property
    def attr_key(self) -> str:
        """The key, by its old name."""
        return self.key


@node
class LetStmt(Stmt):
    """`body` with `var` bound to `value`."""

    var: Var
    value: Bound
    body: Stmt


@node
class AssertStmt(Stmt):
    """Stop with `message` unless `condition` holds; then run `body`."""

    condition: Expr
    message: str
    body: Stmt


@node
class SeqStmt(Stmt):
    """Statements one after another; never nested directly in another SeqStmt, never of length 1."""

    statements: tuple[Stmt, ...]

    def __getitem__(self, index: int) -> Stmt:
        return self.statements[index]

    def __len__(self) -> int:
        return len(self.statements)

    @property
    def seq(self) -> tuple[Stmt, ...]:
        """The statements, by their old name."""
        return self.statements


@node
class Evaluate(Stmt):
    """Evaluate for the side effect; `Evaluate(IntImm 0)` is the statement that does nothing."""

    value: Expr


KERNEL_SYMBOL = "kernel_symbol"  # attribute of a function: what its kernels on a device are called, if not as itself


@node
class PrimFunc(BaseFunc):
    """A function over buffers and scalars. Inputs come first, then outputs; attrs: see tir/lower.py."""

    _printer: ClassVar[Printer | None] = slots.print_prim_func
    _module_printer: ClassVar[ModulePrinter] = slots.print_global
    _verifier: ClassVar[Verifier | None] = slots.verify_prim_func
    _has_script: ClassVar[bool] = True
    _accepts: ClassVar[dict[str, str]] = {
        "Stmt": Stmt._accepts["Stmt"],
        "tuple[Buffer | Var, ...]": "type({0}) is tuple",
    }
    _accepts["Pairs"] = "type({0}) is Attrs"
    _coerce: ClassVar[Coercion | None] = Expr._coerce
    _refuse: ClassVar[Refuse | None] = Expr._refuse
    _scope: ClassVar[dict[str, object]] = SCOPE
    params: tuple[Buffer | Var, ...]
    body: Stmt
    attrs: Pairs = ()  # Any: attribute values are strings, ints or tuples

    @property
    def buffer_map(self) -> dict[Buffer | Var, Buffer]:
        """The parameters that are buffers: each stands for itself."""
        return {param: param for param in self.params if isinstance(param, Buffer)}

    def with_body(self, body: Stmt) -> PrimFunc:
        """The same function with another body."""
        return replace(self, body=body)


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """The statements that run one after another: a sequence's, or the one there is."""
    Arguments("tir.stmt_list").kind("stmt", stmt, Stmt, "a statement")
    return list(stmt.seq) if isinstance(stmt, SeqStmt) else [stmt]


def seq(*statements: Stmt) -> Stmt:
    """The statements in order as one, flattening nested sequences."""
    flat: list[Stmt] = []
    for statement in statements:
        flat.extend(statement.statements if isinstance(statement, SeqStmt) else (statement,))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))
