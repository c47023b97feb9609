"""An instruction in the place of a block: `TensorIntrin.register(name, description, implementation)`, `tensorized`.

In: a function, a block of it, an intrinsic. Out: the function. Invariant: the block computes what the description does,
up to names: the same loops, the same expressions, each buffer of the description being the last dimensions of a part of
one of the block's; else it is refused (ScheduleError) with the first difference. What the implementation computes is
for whoever registers it to know. First values (`T.init`) of the block stay in front of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary
from armillary.base.node import Node, replace
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, uses_any
from armillary.tir.blocks.block import Block, BlockRealize, BufferRegion, MatchBufferRegion
from armillary.tir.schedule.cache import with_buffer
from armillary.tir.schedule.side_by_side import with_free_names, with_statement
from armillary.tir.simplify import simplify
from armillary.tir.substitute import fresh_copy, substitute_expr

_Place = tuple[S.Buffer, tuple[E.Expr, ...]]  # a buffer and where in it the description's begins
_REGISTERED: dict[str, TensorIntrin] = {}


class TensorIntrin:
    """A description, which says what is computed, and an implementation over buffers of the same shapes."""

    def __init__(self, desc: S.PrimFunc, impl: S.PrimFunc) -> None:
        arguments = Arguments("TensorIntrin", ScheduleError)
        arguments.kind("desc", desc, S.PrimFunc, "a function of loops, T.prim_func")
        arguments.kind("impl", impl, S.PrimFunc, "a function of loops, T.prim_func")
        shapes = [[build.as_int(n) for p in f.params if isinstance(p, S.Buffer) for n in p.shape] for f in (desc, impl)]
        if len(desc.params) != len(impl.params) or shapes[0] != shapes[1]:
            raise ScheduleError("TensorIntrin: description and implementation take other buffers")
        self.desc, self.impl = desc, impl

    @staticmethod
    @boundary("TensorIntrin.register", arguments=True)
    def register(name: str, desc: S.PrimFunc, impl: S.PrimFunc, override: bool = False) -> TensorIntrin:
        """Make an intrinsic known by a name."""
        if name in _REGISTERED and not override:
            raise ScheduleError(
                f"the tensor intrinsic {name!r} is registered already", hint="override=True replaces it"
            )
        _REGISTERED[name] = TensorIntrin(desc, impl)
        return _REGISTERED[name]

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> TensorIntrin | None:
        """The intrinsic of a name."""
        if name not in _REGISTERED and not allow_missing:
            known = ", ".join(sorted(_REGISTERED)) or "none"
            raise ScheduleError(f"there is no tensor intrinsic {name!r}", hint=f"registered: {known}")
        return _REGISTERED.get(name)


def tensorized(func: S.PrimFunc, block: Block, intrinsic: TensorIntrin) -> S.PrimFunc:
    """The function whose block is the implementation, over the parts of buffers that the block touches."""
    message = f"tensorize: block {block.name_hint!r}"
    matcher = _Matcher(message)
    matcher.nest(_root(intrinsic.desc).body, block.body)
    used = {s.name_hint for s in all_statements(func.body) if isinstance(s, Block)}
    root = _root(intrinsic.impl)
    if root.match_buffers or root.init is not None:
        raise ScheduleError(f"{message}: the implementation's outermost block has axes, first values or matches")
    own = {b: replace(b, name=f"{b.name}_t") for b in _buffers(intrinsic.impl)}
    body = with_free_names(fresh_copy(root.body, {}), "", used)
    for old, new in own.items():
        body = with_buffer(body, old, new)
    matches = []
    for described, param in zip(intrinsic.desc.params, intrinsic.impl.params, strict=True):
        if not isinstance(described, S.Buffer) or not isinstance(param, S.Buffer) or described not in matcher.places:
            raise ScheduleError(f"{message}: the description does not use its parameter {described}")
        buffer, start = matcher.places[described]
        lead = len(start) - len(param.shape)
        lengths = [build.const(1)] * lead + list(param.shape)
        region = tuple(E.Range.from_min_extent(s, build.cast(n, s.dtype)) for s, n in zip(start, lengths, strict=True))
        matches.append(MatchBufferRegion(own[param], BufferRegion(buffer, region)))
    allocated = tuple(own[b] for b in root.alloc_buffers)
    rebuilt = replace(block, body=body, match_buffers=tuple(matches), alloc_buffers=allocated)
    return with_statement(func, block, rebuilt)


def _root(func: S.PrimFunc) -> Block:
    body = func.body
    if isinstance(body, BlockRealize) and not body.block.iter_vars:
        return body.block
    return Block((), (), (), "root", body)


def _buffers(func: S.PrimFunc) -> list[S.Buffer]:
    return [*(p for p in func.params if isinstance(p, S.Buffer)), *_root(func).alloc_buffers]


class _Matcher:
    """Compares a description with what a block does; `places` says where its buffers lie."""

    def __init__(self, message: str) -> None:
        self.message = message
        self.values: dict[E.Var, E.Expr] = {}
        self.inner: set[E.Var] = set()
        self.places: dict[S.Buffer, _Place] = {}

    def differ(self, wanted: object, got: object) -> ScheduleError:
        return ScheduleError(f"{self.message} is not what the intrinsic describes: got {got}, wanted {wanted}")

    def nest(self, wanted: S.Stmt, got: S.Stmt) -> None:
        """Loops down to a block, or a block."""
        while isinstance(wanted, S.For):
            if not isinstance(got, S.For):
                raise self.differ(f"loop {wanted.var.name}", type(got).__name__)
            lengths = build.as_int(wanted.extent), build.as_int(got.extent)
            if lengths[0] is None or lengths[0] != lengths[1] or build.as_int(got.min) != build.as_int(wanted.min):
                raise self.differ(f"loop {wanted.var.name} of {wanted.extent}", f"{got.var.name} of {got.extent}")
            self.values[wanted.var] = got.var
            self.inner.add(got.var)
            wanted, got = wanted.body, got.body
        if not isinstance(wanted, BlockRealize) or not isinstance(got, BlockRealize):
            raise self.differ(type(wanted).__name__, type(got).__name__)
        self.block(wanted, got)

    def block(self, wanted: BlockRealize, got: BlockRealize) -> None:
        axes = [a.kind for a in wanted.block.iter_vars], [a.kind for a in got.block.iter_vars]
        if axes[0] != axes[1] or build.as_int(got.predicate) != 1:
            raise self.differ(f"a block of axes {axes[0]}", f"axes {axes[1]} where {got.predicate}")
        for a, b in zip(wanted.iter_values, got.iter_values, strict=True):
            self.equal(a, b)
        for x, y in zip(wanted.block.iter_vars, got.block.iter_vars, strict=True):
            self.values[x.var] = y.var
            self.inner.add(y.var)
        if (wanted.block.init is None) != (got.block.init is None):
            raise self.differ("first values" if got.block.init is None else "no first values", "the other")
        if wanted.block.init is not None and got.block.init is not None:
            self.stmt(wanted.block.init, got.block.init)
        self.stmt(wanted.block.body, got.block.body)

    def stmt(self, wanted: S.Stmt, got: S.Stmt) -> None:
        if isinstance(wanted, S.BufferStore) and isinstance(got, S.BufferStore):
            self.access(wanted.buffer, wanted.indices, got.buffer, got.indices)
            self.equal(wanted.value, got.value)
            return
        if isinstance(wanted, S.SeqStmt) and isinstance(got, S.SeqStmt) and len(wanted.seq) == len(got.seq):
            for a, b in zip(wanted.seq, got.seq, strict=True):
                self.stmt(a, b)
            return
        raise self.differ(wanted, got)

    def access(self, wanted: S.Buffer, indices: Sequence[E.Expr], got: S.Buffer, places: Sequence[E.Expr]) -> None:
        lead = len(places) - len(indices)
        if lead < 0 or wanted.dtype != got.dtype:
            raise self.differ(f"{wanted.name}: {wanted.dtype} of {len(indices)} dimensions", f"{got.name}: {got.dtype}")
        own = [substitute_expr(i, self.values) for i in indices]
        start = list(places[:lead]) + [simplify(build.sub(p, i)) for p, i in zip(places[lead:], own, strict=True)]
        if any(uses_any(s, self.inner) for s in start):
            raise self.differ(f"{wanted.name}{list(own)}", f"{got.name}{list(places)}")
        before = self.places.setdefault(wanted, (got, tuple(start)))
        same = all(build.as_int(simplify(build.sub(a, b))) == 0 for a, b in zip(before[1], start, strict=True))
        if before[0] is not got or not same:
            raise self.differ(f"one part of a buffer as {wanted.name}", f"{got.name}{list(places)}")

    def equal(self, wanted: object, got: object) -> None:
        """Expressions, part by part."""
        if isinstance(wanted, E.BufferLoad) and isinstance(got, E.BufferLoad):
            self.access(wanted.buffer, wanted.indices, got.buffer, got.indices)
        elif isinstance(wanted, E.Var):
            value = self.values.get(wanted, wanted)
            if not isinstance(got, E.Expr) or build.as_int(simplify(build.sub(value, got))) != 0:
                raise self.differ(wanted, got)
        elif isinstance(wanted, tuple) and isinstance(got, tuple) and len(wanted) == len(got):
            for a, b in zip(wanted, got, strict=True):
                self.equal(a, b)
        elif isinstance(wanted, Node) and type(wanted) is type(got):
            for name in wanted._fields:
                if name != "span":
                    self.equal(getattr(wanted, name), getattr(got, name))
        elif wanted != got:
            raise self.differ(wanted, got)
