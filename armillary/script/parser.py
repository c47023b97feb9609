"""From the syntax tree of a script to a function of loops and blocks.

In: the tree of a function, what its free names stand for, its annotations. Out: a `PrimFunc`. Invariant: the body is
never run; each statement of Python becomes statements (`tir/stmt.py`, `tir/blocks/block.py`), or a name for what is
known when parsing. A name that is assigned a scalar is a `let` for the rest of its block. A body with blocks stands in
a block "root" that has no axes; blocks that do not say what they read and write get that from their bodies.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from armillary.base.node import Pairs, replace
from armillary.errors import ArmillaryError, ParseError
from armillary.script import terms as X
from armillary.script.aliases import redirected
from armillary.script.evaluate import Reach, as_expr, evaluate, index_of
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.blocks.block import Block, BlockRealize, BufferRegion, MatchBufferRegion, has_blocks
from armillary.tir.blocks.regions import block_regions
from armillary.tir.ir_builder import IRBuilder

_ATTRS = {"tir.noalias": "noalias"}  # names of attributes in scripts, and ours


@dataclass(slots=True)
class _Open:
    """A block while its body is parsed."""

    name: str
    axes: list[E.IterVar] = field(default_factory=list)
    values: list[E.Expr] = field(default_factory=list)
    touched: dict[str, tuple[BufferRegion, ...]] = field(default_factory=dict)
    predicate: E.Expr = field(default_factory=lambda: E.IntImm(E.BOOL, 1))
    init: S.Stmt | None = None
    allocated: list[S.Buffer] = field(default_factory=list)
    matched: list[MatchBufferRegion] = field(default_factory=list)
    notes: dict[str, object] = field(default_factory=dict)


def parse_function(
    tree: ast.FunctionDef,
    names: Mapping[str, object],
    reach: Reach,
    annotations: Mapping[str, object] | None = None,
    private: bool = False,
) -> S.PrimFunc:
    """The function that a script says; ParseError, with the line, where it says none. `reach`: what `a.b` is."""
    return _Parser(tree, names, reach, annotations or {}).run(private)


class _Parser:
    def __init__(
        self, tree: ast.FunctionDef, names: Mapping[str, object], reach: Reach, annotations: Mapping[str, object]
    ) -> None:
        self.tree, self.reach, self.annotations = tree, reach, annotations
        self.scopes: list[dict[str, object]] = [{**names, "range": X.serial}, {}]
        self.builder = IRBuilder()
        self.params: dict[E.Var, S.Buffer | E.Var] = {}
        self.attrs: dict[str, object] = {}
        self.blocks = [_Open("root")]
        self.loops: dict[E.Var, tuple[E.Expr, E.Expr]] = {}
        self.owners: dict[S.Buffer, S.Buffer] = {}
        self.memory: dict[E.Var, S.Buffer] = {}

    def run(self, private: bool) -> S.PrimFunc:
        for param in self.tree.args.args:
            self.param(param)
        self.body(self.tree.body)
        body, root = self.builder.get(), self.blocks[0]
        is_root = isinstance(body, BlockRealize) and not body.iter_values
        if root.allocated or (has_blocks(body) and not is_root):
            body = self.realized(root, body)
        if not private:
            self.attrs.setdefault("global_symbol", self.tree.name)
        return S.PrimFunc(tuple(self.params.values()), redirected(body, self.owners), tuple(self.attrs.items()))

    def refuse(self, node: ast.AST, reason: str, hint: str = "") -> NoReturn:
        line = getattr(node, "lineno", 0)
        raise ParseError(f"script {self.tree.name}, line {line}: {reason}", hint=hint)

    # --- names and values

    @property
    def names(self) -> dict[str, object]:
        return {name: value for scope in self.scopes for name, value in scope.items()}

    def value(self, node: ast.expr, names: Mapping[str, object] | None = None) -> object:
        try:
            return evaluate(node, self.names if names is None else names, self.reach)
        except ArmillaryError as error:
            raise type(error)(
                f"script {self.tree.name}, line {node.lineno}: {error.message}", hint=error.hint
            ) from None
        except Exception as error:
            self.refuse(node, f"{type(error).__name__}: {error}")

    def expr(self, node: ast.expr) -> E.Expr:
        return as_expr(self.value(node))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names and statements of a nested block."""
        self.scopes.append({})
        self.builder._blocks.append([])
        yield
        self.scopes.pop()

    def define(self, name: str, value: object) -> None:
        self.scopes[-1][name] = value

    def known_buffer(self, buffer: S.Buffer) -> S.Buffer:
        self.memory[buffer.data] = buffer
        return buffer

    # --- parameters

    def param(self, node: ast.arg) -> None:
        annotation = self.annotations.get(node.arg)
        if annotation is None or isinstance(annotation, str):
            if node.annotation is None:
                self.refuse(node, f"parameter {node.arg} has no type", "T.handle, T.int32 or T.Buffer(shape, dtype)")
            annotation = self.value(node.annotation)
        if isinstance(annotation, S.Buffer):
            buffer = self.known_buffer(replace(annotation, name=node.arg))
            self.params[buffer.data] = buffer
            self.define(node.arg, buffer)
            return
        if not isinstance(annotation, X.TypeName | E.Var):
            self.refuse(
                node, f"parameter {node.arg} is annotated with {annotation!r}", "T.handle, T.int32, T.Buffer(…)"
            )
        var = E.Var(node.arg, annotation.dtype)
        self.params[var] = var
        self.define(node.arg, var)

    # --- statements

    def body(self, items: Sequence[ast.stmt]) -> None:
        for item in items:
            self.statement(item)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Pass() | ast.Expr(ast.Constant()):
                return
            case ast.Expr(value):
                self.effect(value, self.value(value))
            case ast.Assign([target], value):
                self.assign(target, self.value(value))
            case ast.AnnAssign(ast.Name(name), annotation, value) if value is not None:
                self.annotated(name, annotation, value)
            case ast.AugAssign(target, op, value):
                self.augmented(target, op, value)
            case ast.For(target, iterator, body, []):
                self.loop(target, iterator, body)
            case ast.If(test, body, orelse):
                self.choice(test, body, orelse)
            case ast.While(test, body, []):
                self.repeat(test, body)
            case ast.With(items, body):
                self.scoped(items, body)
            case ast.Assert(test, message):
                text = "" if message is None else str(self.value(message))
                condition = build.cast(self.expr(test), "bool")
                self.governs(lambda rest: S.AssertStmt(condition, text, rest))
            case ast.Return(None):
                return
            case ast.Return(value) if value is not None:
                self.builder.emit(build.call("ret", self.expr(value), dtype="int32"))
            case _:
                self.refuse(node, f"{type(node).__name__} is not part of the language")

    def governs(self, around: Callable[[S.Stmt], S.Stmt]) -> None:
        """Put a statement around the rest of the block."""
        self.builder._blocks[-1].append(around)

    def effect(self, node: ast.expr, value: object) -> None:
        """An expression that stands alone."""
        match value:
            case None:
                return
            case X.Touched(what, regions):
                self.blocks[-1].touched[what] = regions
            case X.Where(condition):
                self.blocks[-1].predicate = build.cast(condition, "bool")
            case X.Noted("block", pairs):
                self.blocks[-1].notes.update({k: _plain(v) for k, v in pairs.items()})
            case X.Noted(_, pairs):
                self.attrs.update({_ATTRS.get(k, k): _plain(v) for k, v in pairs.items()})
            case S.Stmt() | E.Expr():
                self.builder.emit(value)
            case X.AttrScope() | X.AssertScope() | X.Launch() | X.LetScope() | X.Memory():
                self.bind("", value)
            case _:
                self.refuse(node, f"{ast.unparse(node):.80} does nothing here")

    def assign(self, target: ast.expr, value: object) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            parts = list(value) if isinstance(value, list | tuple) else []
            if len(parts) != len(target.elts):
                self.refuse(target, f"{len(target.elts)} names for {len(parts)} values")
            for one, part in zip(target.elts, parts, strict=True):
                self.assign(one, part)
        elif isinstance(target, ast.Name):
            self.bind(target.id, value)
        elif isinstance(target, ast.Subscript):
            self.store(target, as_expr(value))
        else:
            self.refuse(target, f"{ast.unparse(target)} cannot be assigned")

    def store(self, target: ast.Subscript, value: E.Expr) -> None:
        buffer = self.value(target.value)
        if not isinstance(buffer, S.Buffer):
            self.refuse(target, f"{ast.unparse(target.value)} is no buffer")
        places = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
        indices = tuple(self.index(p) for p in places)
        if len(indices) != len(buffer.shape):
            message = f"buffer {buffer.name} has {len(buffer.shape)} dimensions, got {len(indices)} indices"
            self.refuse(target, message)
        lanes = indices[-1].dtype.lanes if indices else 1
        wanted = buffer.dtype.with_lanes(buffer.dtype.lanes * lanes)
        self.builder.emit(S.BufferStore(buffer, build.cast(value, wanted), indices))

    def index(self, node: ast.expr) -> E.Expr:
        if not isinstance(node, ast.Slice):
            return self.expr(node)
        return index_of(slice(*(None if p is None else self.value(p) for p in (node.lower, node.upper, node.step))))

    def augmented(self, target: ast.expr, op: ast.operator, value: ast.expr) -> None:
        read = ast.parse(ast.unparse(target), mode="eval").body
        sides = {"left": self.expr(ast.copy_location(read, target)), "right": self.expr(value)}
        both = ast.BinOp(ast.Name("left", ast.Load()), op, ast.Name("right", ast.Load()))
        self.assign(target, as_expr(self.value(ast.copy_location(both, target), sides)))

    def annotated(self, name: str, annotation: ast.expr, value: ast.expr) -> None:
        kind, content = self.value(annotation), self.value(value)
        if isinstance(kind, X.TypeName | E.Var) and not isinstance(content, X.Meta) and kind.dtype != "handle":
            self.let(name, build.cast(as_expr(content), kind.dtype))
        else:
            self.bind(name, content)

    def let(self, name: str, value: E.Expr) -> None:
        var = E.Var(name, value.dtype)
        self.define(name, var)
        self.governs(lambda rest: S.LetStmt(var, value, rest))

    def bind(self, name: str, value: object) -> None:
        """Give a name to a value: what it is decides what that means."""
        match value:
            case X.Meta(held):
                self.define(name, held)
            case X.Axis():
                self.define(name, self.axis(name, value))
            case X.Match():
                self.define(name, self.match(name, value))
            case X.Memory(buffer, of_block, as_handle):
                allocated = self.allocate(_named(buffer, name), of_block)
                self.define(name, allocated.data if as_handle else allocated)
            case X.Alias(handle, buffer):
                self.define(name, self.alias(handle, _named(buffer, name)))
            case X.Launch(thread, extent):
                self.define(name, self.launch(thread, extent))
            case X.AttrScope(about, key, noted):
                node = about if isinstance(about, E.IterVar | E.Var | S.Buffer) else None
                self.governs(lambda rest: S.AttrStmt(key, noted, rest, node))
            case X.AssertScope(condition, message):
                self.governs(lambda rest: S.AssertStmt(condition, message, rest))
            case X.LetScope(var, held):
                let = var if var.name else E.Var(name, held.dtype)
                self.define(name, let)
                self.governs(lambda rest: S.LetStmt(let, held, rest))
            case S.Buffer():
                self.define(name, self.known_buffer(_named(value, name)))
            case E.Var() if value.name == "":
                self.define(name, E.Var(name, value.dtype))
            case E.IterVar():
                self.define(name, value)
            case E.Expr() | bool() | int() | float():
                self.let(name, as_expr(value))
            case _:
                self.define(name, value)

    # --- memory

    def allocate(self, buffer: S.Buffer, of_block: bool) -> S.Buffer:
        self.known_buffer(buffer)
        if of_block:
            self.blocks[-1].allocated.append(buffer)
        else:
            self.governs(lambda rest: S.Allocate(buffer, rest))
        return buffer

    def alias(self, handle: E.Var, buffer: S.Buffer) -> S.Buffer:
        owner = self.memory.get(handle)
        if owner is None and isinstance(self.params.get(handle), E.Var):
            self.params[handle] = self.memory[handle] = self.known_buffer(buffer)
        elif owner is None:
            raise ParseError(f"script {self.tree.name}: {buffer.name} lies in memory that nothing here owns")
        else:
            self.owners[self.known_buffer(buffer)] = self.owners.get(owner, owner)
        return buffer

    def match(self, name: str, value: X.Match) -> S.Buffer:
        buffer, source = self.known_buffer(_named(value.buffer, name)), value.source
        if isinstance(source, E.Var):
            if not isinstance(self.params.get(source), E.Var):
                raise ParseError(f"script {self.tree.name}: {source.name} is no parameter, or has a buffer already")
            self.params[source] = self.memory[source] = buffer
            return buffer
        self.blocks[-1].matched.append(MatchBufferRegion(buffer, region_of(source)))
        return buffer

    # --- loops and blocks

    def loop(self, target: ast.expr, iterator: ast.expr, body: Sequence[ast.stmt]) -> None:
        iterated = self.value(iterator)
        if not isinstance(iterated, X.Loops):
            self.refuse(iterator, f"{ast.unparse(iterator)} is no loop", "T.serial, T.grid, T.parallel…")
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        if len(names) != len(targets) or (len(names) != len(iterated.bounds) and not iterated.is_grid):
            self.refuse(target, f"{len(targets)} names for {len(iterated.bounds)} loops")
        if len(names) == 1 and len(iterated.bounds) > 1:
            self.refuse(target, f"one name for {len(iterated.bounds)} loops")
        variables = [E.Var(n, b[1].dtype) for n, b in zip(names, iterated.bounds, strict=True)]
        self.loops.update(zip(variables, iterated.bounds, strict=True))
        with self.scope():
            for name, var in zip(names, variables, strict=True):
                self.define(name, var)
            self.body(body)
        inner = self.builder._close()
        notes: Pairs = tuple((key, _plain(value)) for key, value in iterated.annotations.items())
        for var, (low, extent) in reversed(list(zip(variables, iterated.bounds, strict=True))):
            inner = S.For(var, low, extent, iterated.kind, inner, iterated.thread, notes)
        self.builder.emit(inner)

    def launch(self, thread: E.IterVar, extent: E.Expr) -> E.Var:
        zero = build.const(0, extent.dtype)
        var = thread.var if thread.var.dtype == extent.dtype else E.Var(thread.var.name, extent.dtype)
        self.governs(lambda rest: S.For(var, zero, extent, S.LoopKind.THREAD, rest, thread.thread_tag))
        return var

    def choice(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        condition = self.value(test)
        if not isinstance(condition, E.Expr):
            self.body(body if condition else orelse)
            return
        with self.scope():
            self.body(body)
        then, other = self.builder._close(), None
        if orelse:
            with self.scope():
                self.body(orelse)
            other = self.builder._close()
        self.builder.emit(S.IfThenElse(build.cast(condition, "bool"), then, other))

    def repeat(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        condition = self.value(test)
        if not isinstance(condition, E.Expr):
            self.refuse(test, f"the condition of while is {condition!r}", "compare what the loop changes")
        with self.scope():
            self.body(body)
        self.builder.emit(S.While(build.cast(condition, "bool"), self.builder._close()))

    def scoped(self, items: Sequence[ast.withitem], body: Sequence[ast.stmt]) -> None:
        scope = self.value(items[0].context_expr)
        name = items[0].optional_vars.id if isinstance(items[0].optional_vars, ast.Name) else ""
        if isinstance(scope, X.BlockScope):
            self.block(scope.name, body)
            return
        with self.scope():
            if not isinstance(scope, X.InitScope):
                self.bind(name, scope)
            if len(items) > 1:
                self.scoped(items[1:], body)
            else:
                self.body(body)
        inner = self.builder._close()
        if isinstance(scope, X.InitScope):
            self.blocks[-1].init = inner
        else:
            self.builder.emit(inner)

    def block(self, name: str, body: Sequence[ast.stmt]) -> None:
        opened = _Open(name)
        self.blocks.append(opened)
        with self.scope():
            self.body(body)
        inner = self.builder._close()
        self.blocks.pop()
        self.builder.emit(self.realized(opened, inner))

    def realized(self, opened: _Open, body: S.Stmt) -> BlockRealize:
        block = Block(
            tuple(opened.axes),
            opened.touched.get("reads", ()),
            opened.touched.get("writes", ()),
            opened.name,
            body,
            opened.init,
            tuple(opened.allocated),
            tuple(opened.matched),
            tuple(opened.notes.items()),
        )
        if opened.name != "root" and len(opened.touched) < 2:
            reads, writes = block_regions(block)
            reads, writes = opened.touched.get("reads", reads), opened.touched.get("writes", writes)
            block = replace(block, reads=reads, writes=writes)
        return BlockRealize(tuple(opened.values), opened.predicate, block)

    def axis(self, name: str, value: X.Axis) -> E.Var:
        dom = value.dom
        if dom is None:
            bounds = self.loops.get(value.value) if isinstance(value.value, E.Var) else None
            if bounds is None:
                raise ParseError(f"script {self.tree.name}: axis {name} is bound to no loop", hint="T.axis.spatial(…)")
            dom = E.Range.from_min_extent(*bounds)
        var = E.Var(name, dom.extent.dtype)
        self.blocks[-1].axes.append(E.IterVar(dom, var, value.kind))
        self.blocks[-1].values.append(build.cast(value.value, dom.extent.dtype))
        return var


def _named(buffer: S.Buffer, name: str) -> S.Buffer:
    return replace(buffer, name=name) if name and buffer.name != name else buffer


def _plain(value: object) -> object:
    """An attribute's value: an immediate as its number, lists as tuples."""
    if isinstance(value, E.IntImm):
        return bool(value.value) if value.dtype.is_bool else value.value
    if isinstance(value, E.FloatImm | E.StringImm):
        return value.value
    return _tuples(value)


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def region_of(value: object) -> BufferRegion:
    """A buffer, an element or a region as a region."""
    if isinstance(value, S.Buffer):
        return BufferRegion.full(value)
    if isinstance(value, E.BufferLoad):
        return BufferRegion(value.buffer, tuple(_point(i) for i in value.indices))
    if isinstance(value, BufferRegion):
        return value
    raise ParseError(f"{value!r:.60} is no region of a buffer", hint="write A[i, 0:4]")


def _point(index: E.Expr) -> E.Range:
    if isinstance(index, E.Ramp):
        return E.Range.from_min_extent(index.base, build.const(index.lanes, index.base.dtype))
    return E.Range.from_min_extent(index, build.const(1, index.dtype))
