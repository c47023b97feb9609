"""The names of loop programs in scripts: `from armillary.script import tir as T`.

In: what a program writes behind `T.`. Out: types, terms that `parser.py` turns into statements, expressions. Names that
are not here are those of `armillary.tir`; a `dtype=` that a function there does not take converts its result.
Invariant: `T.prim_func` reads its function's source and never runs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from armillary import target as _target
from armillary import tir
from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.errors import ParseError
from armillary.script import terms as X
from armillary.script.evaluate import as_expr
from armillary.script.parser import parse_function, region_of
from armillary.script.terms import TypeName, serial
from armillary.script.trees import attribute_of, names_around, tree_of
from armillary.te.math import max_value, min_value
from armillary.tir import build, builtins, intrinsics
from armillary.tir.blocks.block import BufferRegion
from armillary.tir.expr import Broadcast, Call, Expr, IterVar, Let, Range, Select, StringImm, Var
from armillary.tir.ir_builder import decl_buffer as _new_buffer
from armillary.tir.stmt import Buffer as _Buffer
from armillary.tir.stmt import Evaluate, LoopKind

Shape = Sequence[object] | Expr | int
_TYPE = re.compile(r"(u?int|float|bfloat)\d+(x\d+)?")
bool = TypeName("bool")
handle = TypeName("handle")
void = TypeName("void")


@boundary("prim_func", arguments=True)
def prim_func(
    func: Callable[..., object] | None = None, private: object = False, check_well_formed: object = True
) -> object:
    """Decorator: the function of loops that the source of `func` says. `private` ones get no global symbol."""
    if func is None:
        return lambda function: prim_func(function, private, check_well_formed)
    return parse_function(tree_of(func), names_around(func), attribute_of, func.__annotations__, private is True)


# --- memory


def _buffer(shape: Shape, dtype: str = "float32", **how: object) -> _Buffer:
    known = {k: v for k, v in how.items() if k in ("strides", "elem_offset", "scope") and v is not None}
    align = how.get("align")
    sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    return _new_buffer(sizes, dtype, data_alignment=align if isinstance(align, int) and align > 0 else -1, **known)  # type: ignore[arg-type]


class _BufferName:
    """`T.Buffer(shape, dtype)`, in annotations and bodies; `T.Buffer[shape, dtype]` in annotations."""

    def __call__(
        self, shape: Shape, dtype: str = "float32", data: Var | None = None, **how: object
    ) -> _Buffer | X.Alias:
        result = _buffer(shape, dtype, **how)
        return result if data is None else X.Alias(data, result)

    def __getitem__(self, indices: object) -> _Buffer | X.Alias:
        parts = indices if isinstance(indices, tuple) else (indices,)
        is_typed = len(parts) > 1 and isinstance(parts[-1], str)
        return self(*parts) if is_typed else self(parts)


Buffer = _BufferName()


def match_buffer(param: object, shape: Shape | None = None, dtype: str = "float32", **how: object) -> X.Match:
    """A buffer for a parameter that is a handle, or another name for a part of a buffer."""
    if isinstance(param, Var):
        if shape is None:
            raise ParseError(f"match_buffer({param.name}) says no shape")
        return X.Match(param, _buffer(shape, dtype, **how))
    region = region_of(param)
    sizes = [r.extent for r in region.region] if shape is None else shape
    return X.Match(region, _buffer(sizes, str(region.buffer.dtype), **{"scope": region.buffer.scope, **how}))


def alloc_buffer(shape: Shape, dtype: str = "float32", data: object = None, **how: object) -> X.Memory:
    """Memory of the block around it."""
    return X.Memory(_buffer(shape, dtype, **how), of_block=True)


def decl_buffer(shape: Shape, dtype: str = "float32", data: Var | None = None, **how: object) -> X.Memory | X.Alias:
    """Memory for the rest of the block it stands in; with `data` a buffer in that memory."""
    buffer = _buffer(shape, dtype, **how)
    return X.Memory(buffer, of_block=False) if data is None else X.Alias(data, buffer)


def allocate(
    extents: Shape, dtype: str, scope: str = "global", condition: object = None, annotations: object = None
) -> X.Memory:
    """Memory for the rest of the block it stands in, by its handle."""
    return X.Memory(_buffer(extents, dtype, scope=scope), of_block=False, as_handle=True)


# --- loops and blocks


def parallel(start: object, stop: object = None, *, annotations: Mapping[str, object] | None = None) -> X.Loops:
    """A loop whose iterations threads share."""
    return X.loops(LoopKind.PARALLEL, start, stop, annotations=annotations)


def vectorized(start: object, stop: object = None, *, annotations: Mapping[str, object] | None = None) -> X.Loops:
    """A loop of vector operations."""
    return X.loops(LoopKind.VECTORIZED, start, stop, annotations=annotations)


def unroll(start: object, stop: object = None, *, annotations: Mapping[str, object] | None = None) -> X.Loops:
    """A loop that is written out."""
    return X.loops(LoopKind.UNROLLED, start, stop, annotations=annotations)


def thread_binding(
    start: object,
    stop: object = None,
    thread: str | None = None,
    *,
    annotations: Mapping[str, object] | None = None,
) -> X.Loops:
    """A loop over a GPU axis."""
    if thread is None and isinstance(stop, str):
        stop, thread = None, stop
    if thread is None:
        raise ParseError("thread_binding names no thread axis", hint='thread="threadIdx.x"')
    return X.loops(LoopKind.THREAD, start, stop, thread, annotations)


def grid(*extents: object) -> X.Loops:
    """Loops inside one another, each from 0 (or over the pair that is given)."""
    loops = [serial(*e) if isinstance(e, tuple) else serial(e) for e in extents]
    return X.Loops(tuple(m.bounds[0] for m in loops), is_grid=True)


def block(name: str = "", no_realize: object = False) -> X.BlockScope:
    """`with T.block(name):`"""
    return X.BlockScope(name)


def init() -> X.InitScope:
    """`with T.init():`, what a reduction starts with."""
    return X.InitScope()


def where(condition: object) -> X.Where:
    """When the block runs."""
    return X.Where(as_expr(condition))


def _touched(what: str, arguments: tuple[object, ...]) -> X.Touched:
    items = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], list | tuple) else arguments
    return X.Touched(what, tuple(region_of(item) for item in items))


def reads(*regions: object) -> X.Touched:
    """What the block reads."""
    return _touched("reads", regions)


def writes(*regions: object) -> X.Touched:
    """What the block writes."""
    return _touched("writes", regions)


def func_attr(attrs: Mapping[str, object]) -> X.Noted:
    """Attributes of the function."""
    return X.Noted("function", attrs)


def block_attr(attrs: Mapping[str, object]) -> X.Noted:
    """Annotations of the block."""
    return X.Noted("block", attrs)


def _dom(extent: object) -> Range:
    if isinstance(extent, Range):
        return extent
    return Range(*extent) if isinstance(extent, list | tuple) else Range(extent)  # type: ignore[arg-type]


class axis:  # noqa: N801  (the name scripts write)
    """Axes of a block: `T.axis.spatial(extent, value)`, `T.axis.remap("SR", [i, k])`."""

    @staticmethod
    def spatial(dom: object, binding: object, dtype: str = "int32") -> X.Axis:
        """An axis whose iterations are independent."""
        return X.Axis("data", _dom(dom), as_expr(binding))

    @staticmethod
    def reduce(dom: object, binding: object, dtype: str = "int32") -> X.Axis:
        """An axis that is summed over, or otherwise reduced."""
        return X.Axis("reduce", _dom(dom), as_expr(binding))

    @staticmethod
    def scan(dom: object, binding: object, dtype: str = "int32") -> X.Axis:
        """An axis whose iterations run in order."""
        return X.Axis("ordered", _dom(dom), as_expr(binding))

    @staticmethod
    def opaque(dom: object, binding: object, dtype: str = "int32") -> X.Axis:
        """An axis of which nothing is known."""
        return X.Axis("opaque", _dom(dom), as_expr(binding))

    @staticmethod
    def remap(kinds: str, bindings: Sequence[object], dtype: str = "int32") -> list[X.Axis] | X.Axis:
        """An axis for each loop, of the kinds S(patial) and R(educe)."""
        if len(kinds) != len(bindings) or set(kinds) - set("SR"):
            raise ParseError(f"axis.remap({kinds!r}): wanted S or R for each of {len(bindings)} loops")
        named = {"S": "data", "R": "reduce"}
        result = [X.Axis(named[k], None, as_expr(b)) for k, b in zip(kinds, bindings, strict=True)]
        return result if len(result) > 1 else result[0]

    S, R = spatial, reduce


# --- threads, notes, names


def env_thread(thread_tag: str, dtype: str = "int32") -> IterVar:
    """A thread axis, to be launched."""
    return IterVar(None, Var(thread_tag.replace(".", "_"), DType(dtype)), "thread", thread_tag)


def launch_thread(thread: IterVar | str, extent: object) -> X.Launch:
    """A loop over a thread axis around the rest of the block."""
    return X.Launch(env_thread(thread) if isinstance(thread, str) else thread, as_expr(extent))


def attr(node: object, attr_key: str, value: object) -> X.AttrScope:
    """A note on the rest of the block."""
    held = StringImm(value) if isinstance(value, str) else as_expr(value)
    return X.AttrScope(node, attr_key, held)


def Assert(condition: object, message: str) -> X.AssertScope:  # noqa: N802
    """What must hold for the rest of the block."""
    return X.AssertScope(build.cast(as_expr(condition), "bool"), message)


def LetStmt(value: object, type_annotation: object = None, *, var: Var | None = None) -> X.LetScope:  # noqa: N802
    """A variable for the rest of the block."""
    held = as_expr(value)
    return X.LetScope(var if var is not None else Var("", held.dtype), held)


def let(v: Var, value: object, body: object = None) -> X.LetScope | Expr:
    """A variable for the rest of the block, or for an expression."""
    held = as_expr(value)
    return X.LetScope(v, held) if body is None else Let(v, held, as_expr(body))


def meta_var(value: object) -> X.Meta:
    """A name for a value that is known when parsing."""
    return X.Meta(value)


def var(dtype: str = "int32", name: str = "") -> Var:
    """A variable of the caller's, such as a size."""
    return Var(name, DType(dtype))


def ptr(dtype: str, storage_scope: str = "global") -> Var:
    """A pointer to elements of a type, for a function's arguments."""
    return Var("", DType("handle"))


def evaluate(value: object) -> Evaluate:
    """Evaluate for the effect."""
    return Evaluate(as_expr(value))


def target(spec: object, host: object = None) -> _target.Target:
    """A target, as a function's attribute."""
    return _target.Target(spec, host)


# --- expressions


def Cast(dtype: str, value: object) -> Expr:  # noqa: N802
    """A value converted."""
    return build.cast(as_expr(value), dtype)


def cast(value: object, dtype: object) -> Expr:
    """A value converted; in the order of `Cast`, too."""
    return Cast(value, dtype) if isinstance(value, str) else Cast(str(dtype), value)


def type_annotation(dtype: str) -> Expr:
    """A type as an argument, such as of `tvm_access_ptr`."""
    return builtins.type_annotation(dtype)


def if_then_else(cond: object, t: object, f: object, dtype: str | None = None) -> Expr:
    """One of two values; the other is not evaluated."""
    return build.if_then_else(*map(as_expr, (cond, t, f)))


def broadcast(value: object, lanes: int) -> Expr:
    """A value in every lane."""
    return Broadcast(as_expr(value), lanes)


def call_extern(*args: object, dtype: str | None = None) -> Expr:
    """A call of a C function: `call_extern(dtype, name, …)`, or `call_extern(name, …, dtype=…)`."""
    kind, arguments = (str(args[0]), args[1:]) if dtype is None else (dtype, args)
    return intrinsics.call_extern(kind or "void", str(arguments[0]), *map(as_expr, arguments[1:]))


def call_packed(*args: object, dtype: str = "int32") -> Expr:
    """A call of a registered function."""
    result = builtins.builtin("call_packed")(*args)
    return Call(DType(dtype or "void"), result.name, result.args) if isinstance(result, Call) else result


tvm_call_packed = call_packed


def _converted(function: Callable[..., Expr], name: str) -> Callable[..., Expr]:
    """A function of `armillary.tir` over what scripts write; `dtype=` gives the type of a call."""

    def construct(*args: object, dtype: str | None = None, **named: object) -> Expr:
        arguments = [as_expr(a) if isinstance(a, IterVar | _Buffer) and not isinstance(a, _Buffer) else a for a in args]
        typed = {"dtype": dtype} if dtype is not None and name in builtins.TYPED else {}
        result = function(*arguments, **named, **typed)
        if dtype and isinstance(result, Expr) and result.dtype != dtype:
            return (
                Call(DType(dtype), result.name, result.args) if isinstance(result, Call) else build.cast(result, dtype)
            )
        return result

    construct.__name__ = name
    return construct


def __getattr__(name: str) -> object:
    if _TYPE.fullmatch(name):
        return TypeName(name)
    result = getattr(tir, name, None)
    if result is None or name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return result if isinstance(result, type) or not callable(result) else _converted(result, name)


_OF_NODES = (
    *(f"armillary.tir.{name}" for name in ("blocks.block", "build", "builtins", "expr", "intrinsics", "stmt")),
    *("armillary.tir.vendor_intrinsics", "armillary.te.math", "armillary.script.terms", __name__),
)  # where everything that is public and no module makes terms and nodes, and does nothing else


def word(name: str) -> object:
    """What `T.name` is in a text: a type, a term, a function that makes nodes; nothing else of this module."""
    value = None if name.startswith("_") or name == "prim_func" else globals().get(name)
    if value is None and not name.startswith("_"):
        value = TypeName(name) if _TYPE.fullmatch(name) else getattr(tir, name, None)
    if not isinstance(value, TypeName | _BufferName) and getattr(value, "__module__", None) not in _OF_NODES:
        raise ParseError(f"T.{name} is no word of the language", hint="T has types, loops, blocks and expressions")
    return value if value is globals().get(name) or isinstance(value, TypeName) else __getattr__(name)


__all__ = [
    "Buffer",
    "BufferRegion",
    "Select",
    "axis",
    "max_value",
    "min_value",
    "prim_func",
]
