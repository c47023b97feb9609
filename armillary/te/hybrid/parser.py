"""From the text of a hybrid script to statements.

In: the function's syntax tree, what its free names stand for, and its arguments: tensors as buffers, expressions,
numbers, lists of them. Out: what it returns, as buffers; its statements are with the builder. Invariant: a name that is
assigned once to something without loads stands for that expression; any other scalar is a local of one element, which
lives to the end of its block. What is known when parsing (sizes of lists, `const_range`) is computed then.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from armillary.base.dtype import DType
from armillary.base.node import post_order
from armillary.errors import TypeMismatch
from armillary.te import math as te_math
from armillary.te.hybrid.runtime import DTYPES, INTRINSICS, LOOPS
from armillary.tir import build as T
from armillary.tir.expr import BufferLoad, Expr, ExprLike
from armillary.tir.ir_builder import IRBuilder, decl_buffer
from armillary.tir.stmt import AssertStmt, Buffer, BufferStore, For, LoopKind

Value = object  # a buffer, a local, an expression, a number, a text, a list of them, a function
_BINARY: dict[type[ast.operator], Callable[[ExprLike, ExprLike], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Pow: te_math.power,
}
_COMPARE: dict[type[ast.cmpop], Callable[[ExprLike, ExprLike], Expr]] = {
    ast.Lt: T.less,
    ast.LtE: T.less_equal,
    ast.Gt: T.greater,
    ast.GtE: T.greater_equal,
    ast.Eq: T.equal,
    ast.NotEq: T.not_equal,
}


@dataclass(frozen=True, slots=True)
class Local:
    """A scalar variable: a buffer of one element."""

    buffer: Buffer


class Parser:
    """The parsing of one call of a script."""

    def __init__(self, tree: ast.FunctionDef, free: Mapping[str, Value], builder: IRBuilder, inline: bool = False):
        self.tree, self.free, self.builder, self.inline = tree, free, builder, inline
        self.scopes: list[dict[str, Value]] = [{}]
        self.outputs: list[Buffer] = []
        stores = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        self.changing = {name for name in stores if stores.count(name) > 1} | {
            n.target.id for n in ast.walk(tree) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
        }

    def run(self, args: Sequence[Value]) -> list[Buffer]:
        """Parse the body; the buffers that it returns."""
        params = self.tree.args.args
        if len(params) != len(args):
            self._refuse(self.tree, f"{len(args)} arguments, wanted {len(params)}")
        self.scopes[0].update({p.arg: value for p, value in zip(params, args, strict=True)})
        result: list[Buffer] | None = None
        for item in self.tree.body:
            if isinstance(item, ast.Return):
                result = self._returned(item)
                break
            self._statement(item)
        if result is None:
            self._refuse(self.tree, "it returns nothing")
        return result

    def _returned(self, node: ast.Return) -> list[Buffer]:
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] if node.value else []
        values = [self._value(part) for part in parts]
        buffers = [b for b in values if isinstance(b, Buffer)]
        if not values or len(buffers) != len(values):
            self._refuse(node, "a script returns tensors made by output_tensor")
        return buffers

    def _refuse(self, node: ast.AST, reason: str) -> NoReturn:
        line = getattr(node, "lineno", 0)
        raise TypeMismatch(f"hybrid script {self.tree.name}, line {line}: {reason}", hint="see te.hybrid")

    # --- statements -------------------------------------------------------------------------------------------------

    @contextmanager
    def _block(self) -> Iterator[None]:
        self.scopes.append({})
        yield
        self.scopes.pop()

    def _body(self, items: Sequence[ast.stmt]) -> None:
        for item in items:
            self._statement(item)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(ast.Constant()) | ast.Pass():
                return
            case ast.Assign([target], value):
                self._assign(target, value)
            case ast.AugAssign(target, op, value) if type(op) in _BINARY:
                left = self._scalar(_as_load(target))
                self._store(target, _BINARY[type(op)](left, self._scalar(value)))
            case ast.For(ast.Name(name), iterator, body, []):
                self._for(name, iterator, body)
            case ast.If(test, body, orelse):
                self._if(test, body, orelse)
            case ast.Assert(test, message):
                text = message.value if isinstance(message, ast.Constant) else "assertion failed"
                condition = T.cast(self._scalar(test), "bool")
                self.builder._blocks[-1].append(lambda rest: AssertStmt(condition, str(text), rest))
            case _:
                self._refuse(node, f"{type(node).__name__} is not part of the language")

    def _assign(self, target: ast.expr, source: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(source, ast.Tuple) and len(target.elts) == len(source.elts):
            for one, value in zip(target.elts, source.elts, strict=True):
                self._assign(one, value)
            return
        called = source.func.id if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) else ""
        if called in ("output_tensor", "allocate") and isinstance(target, ast.Name):
            assert isinstance(source, ast.Call), "it has a function"
            self._define(target.id, self._memory(called, source, target.id))
            return
        self._store(target, self._value(source))

    def _memory(self, kind: str, node: ast.Call, name: str) -> Buffer:
        """The buffer of `output_tensor(shape, dtype)` or `allocate(shape, dtype, scope)`."""
        arguments = {n: self._value(a) for n, a in zip(("shape", "dtype", "scope"), node.args, strict=False)}
        arguments |= {str(k.arg): self._value(k.value) for k in node.keywords}
        shape, dtype = arguments.get("shape"), str(arguments.get("dtype", "float32"))
        sizes = T.as_shape(tuple(shape) if isinstance(shape, tuple | list) else (shape,), name)  # type: ignore[arg-type]
        if kind == "output_tensor" and not self.inline:
            result = Buffer(name, sizes, DType(dtype))
            self.outputs.append(result)
            return result
        return self.builder.allocate(dtype, sizes, name, str(arguments.get("scope", "global"))).buffer

    def _define(self, name: str, value: Value) -> None:
        self.scopes[-1][name] = value

    def _store(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Subscript):
            buffer, places = self._value(target.value), self._indices(target)
            if not isinstance(buffer, Buffer) or len(places) != len(buffer.shape):
                self._refuse(target, "only elements of tensors are written")
            self.builder.emit(BufferStore(buffer, T.cast(self._number(target, value), str(buffer.dtype)), places))
            return
        if not isinstance(target, ast.Name):
            self._refuse(target, "only names and elements are assigned")
        known = next((s[target.id] for s in reversed(self.scopes) if target.id in s), None)
        if isinstance(known, Local):
            stored = T.cast(self._number(target, value), str(known.buffer.dtype))
            self.builder.emit(BufferStore(known.buffer, stored, (T.const(0),)))
        elif isinstance(value, Expr | int | float) and (target.id in self.changing or _loads(value)):
            first = T.convert(value)
            memory = self.builder.allocate(str(first.dtype), (1,), target.id, "local").buffer
            self._define(target.id, Local(memory))
            self.builder.emit(BufferStore(memory, first, (T.const(0),)))
        else:
            self._define(target.id, value)

    def _for(self, name: str, iterator: ast.expr, body: Sequence[ast.stmt]) -> None:
        if not isinstance(iterator, ast.Call) or not isinstance(iterator.func, ast.Name):
            self._refuse(iterator, f"a loop runs over one of {', '.join(LOOPS)}, bind")
        kind, args = iterator.func.id, [self._value(a) for a in iterator.args]
        tag = args.pop(0) if kind == "bind" else ""
        if kind not in (*LOOPS, "bind") or len(args) not in (1, 2):
            self._refuse(iterator, f"cannot loop over {kind} with {len(args)} bounds")
        bounds = [T.convert(self._number(iterator, a)) for a in args]
        low, high = T.match_types(*bounds) if len(bounds) == 2 else (T.const(0, str(bounds[0].dtype)), bounds[0])
        if kind == "const_range":
            first, last = T.as_int(low), T.as_int(high)
            if first is None or last is None:
                self._refuse(iterator, "the bounds of const_range are not known when parsing")
            for number in range(first, last):
                with self._block():
                    self._define(name, number)
                    self._body(body)
            return
        named = {"range": "serial", "serial": "serial", "bind": "serial"}.get(kind, kind)
        with self._block(), self.builder.for_range(low, high, name, kind=named) as var:
            self._define(name, var)
            self._body(body)
        innermost = self.builder._blocks[-1][-1]
        if tag and isinstance(innermost, For):
            loop = For(innermost.var, innermost.min, innermost.extent, LoopKind.THREAD, innermost.body, str(tag))
            self.builder._blocks[-1][-1] = loop

    def _if(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        condition = T.convert(self._scalar(test))
        known = T.as_int(condition)
        if known is not None:
            self._body(body if known else orelse)
            return
        with self._block(), self.builder.if_scope(condition):
            self._body(body)
        if orelse:
            with self._block(), self.builder.else_scope():
                self._body(orelse)

    # --- values -----------------------------------------------------------------------------------------------------

    def _number(self, node: ast.AST, value: Value) -> ExprLike:
        if isinstance(value, Expr | int | float):
            return value
        self._refuse(node, f"got {type(value).__name__}, wanted a number")

    def _scalar(self, node: ast.expr) -> ExprLike:
        return self._number(node, self._value(node))

    def _indices(self, node: ast.Subscript) -> tuple[Expr, ...]:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return tuple(T.convert(self._scalar(part)) for part in parts)

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self._named(node, name)
            case ast.Tuple(parts) | ast.List(parts):
                return tuple(self._value(part) for part in parts)
            case ast.Subscript():
                return self._element(node)
            case ast.Attribute(owner, name):
                return self._attribute(node, self._value(owner), name)
            case ast.BinOp(left, op, right) if type(op) in _BINARY:
                return _BINARY[type(op)](self._scalar(left), self._scalar(right))
            case ast.UnaryOp(op, operand):
                return self._unary(op, self._scalar(operand))
            case ast.Compare(left, ops, rights):
                return self._compared([left, *rights], ops)
            case ast.BoolOp(op, parts):
                join = T.all_of if isinstance(op, ast.And) else T.any_of
                return join(*(T.cast(self._scalar(part), "bool") for part in parts))
            case ast.IfExp(test, first, second):
                return T.if_then_else(self._scalar(test), *T.match_types(self._scalar(first), self._scalar(second)))
            case ast.Call(ast.Name(name), args, []):
                return self._call(node, name, [self._value(a) for a in args])
        self._refuse(node, f"{type(node).__name__} is not part of the language")

    def _named(self, node: ast.AST, name: str) -> Value:
        for scope in (*reversed(self.scopes), self.free):
            if name in scope:
                result = scope[name]
                return BufferLoad(result.buffer, (T.const(0),)) if isinstance(result, Local) else result
        self._refuse(node, f"{name} is not defined here")

    def _element(self, node: ast.Subscript) -> Value:
        owner = self._value(node.value)
        if isinstance(owner, Buffer):
            places = self._indices(node)
            if len(places) != len(owner.shape):
                self._refuse(node, f"{owner.name} has {len(owner.shape)} dimensions, got {len(places)} indices")
            return BufferLoad(owner, places)
        for place in self._indices(node):
            position = T.as_int(place)
            if not isinstance(owner, tuple | list) or position is None or not -len(owner) <= position < len(owner):
                break
            owner = _plain(owner[position])
        else:
            return owner
        self._refuse(node, "wanted a tensor, or a list and a number known when parsing")

    def _attribute(self, node: ast.AST, owner: Value, name: str) -> Value:
        if isinstance(owner, Buffer) and name in ("shape", "dtype"):
            return tuple(map(_plain, owner.shape)) if name == "shape" else str(owner.dtype)
        self._refuse(node, f"no attribute {name}; tensors have shape and dtype")

    def _unary(self, op: ast.unaryop, operand: ExprLike) -> Value:
        if isinstance(op, ast.Not):
            return T.logical_not(operand)
        return T.neg(operand) if isinstance(operand, Expr) else -operand  # type: ignore[operator]

    def _compared(self, parts: Sequence[ast.expr], ops: Sequence[ast.cmpop]) -> Expr:
        values = [self._scalar(part) for part in parts]
        for op in ops:
            if type(op) not in _COMPARE:
                self._refuse(parts[0], f"{type(op).__name__} is not part of the language")
        return T.all_of(*(_COMPARE[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False)))

    def _call(self, node: ast.Call, name: str, args: list[Value]) -> Value:
        if name == "len" and len(args) == 1:
            owner = args[0].shape if isinstance(args[0], Buffer) else args[0]
            if isinstance(owner, tuple | list):
                return _plain(owner[0]) if isinstance(args[0], Buffer) else len(owner)
        inner = self.free.get(name)
        parse = getattr(inner, "parse_into", None)
        if parse is not None:
            output = parse(self.builder, args)
            return output[0] if len(output) == 1 else tuple(output)
        numbers = [self._number(node, a) for a in args]
        if name in ("min", "max") and len(numbers) >= 2:
            return (T.minimum if name == "min" else T.maximum)(*numbers)
        if name in DTYPES and len(numbers) == 1:
            return T.cast(numbers[0], name)
        if name == "ceil_div" and len(numbers) == 2:
            return T.ceildiv(*numbers)
        if name == "max_num_threads":
            return 1024
        if name in (*INTRINSICS, "popcount", "likely"):
            result: Expr = getattr(te_math, name)(*numbers)
            return result
        self._refuse(node, f"{name} is no function of the language")


def _as_load(target: ast.expr) -> ast.expr:
    """What an augmented assignment reads."""
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    return target


def _loads(value: object) -> bool:
    return isinstance(value, Expr) and any(isinstance(item, BufferLoad) for item in post_order(value))


def _plain(value: Value) -> Value:
    """A number that is known as an int."""
    number = T.as_int(value) if isinstance(value, Expr) else None
    return value if number is None else number


def buffer_for(name: str, shape: Sequence[Expr], dtype: DType) -> Buffer:
    """The buffer that stands for a tensor argument."""
    return decl_buffer(tuple(shape), str(dtype), name)
