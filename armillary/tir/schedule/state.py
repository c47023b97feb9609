"""The module that a schedule rewrites, and how its blocks and loops are looked up.

In: a function or module. Out: the base of `Schedule`. Invariant: every loop has a variable of its own and every block
of a function a name of its own, from the beginning on; a LoopRV stays the loop of its variable, a BlockRV the block of
its name. What was called is in `trace`; a primitive inside a primitive is not traced (`depth`).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from armillary.base.boundary import bounded
from armillary.base.node import replace
from armillary.errors import ScheduleError
from armillary.ir import IRModule
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, statements_inside
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.schedule import inline
from armillary.tir.schedule.handles import BlockRV, ExprRV, LoopRV, StmtSRef
from armillary.tir.schedule.trace import Trace, Value, primitive
from armillary.tir.substitute import map_stmt

_Touched = tuple[set[S.Buffer], set[S.Buffer]]
_S = TypeVar("_S", bound="State")


@bounded
class ScheduleState:
    """A module and the statements that blocks and loops of it are."""

    def __init__(self, mod: S.PrimFunc | IRModule, *, debug_mask: object = 0, enable_check: bool = True) -> None:
        del debug_mask, enable_check  # what primitives do is always checked
        self.mod = mod if isinstance(mod, IRModule) else IRModule({"main": mod})

    def get_sref(self, stmt: S.Stmt) -> StmtSRef | None:
        """A block's or loop's statement as an object; None where the module has it no more."""
        bodies = [f.body for _, f in self.mod.items() if isinstance(f, S.PrimFunc)]
        return StmtSRef(stmt) if any(s is stmt for body in bodies for s in all_statements(body)) else None


@bounded
class State:
    """A module, the function that `get_block` looks into (`func_working_on`), and the trace of what was done to it."""

    def __init__(
        self,
        mod: S.PrimFunc | IRModule,
        *,
        seed: int | None = None,
        debug_mask: object = 0,
        error_render_level: str = "detail",
        enable_check: bool = True,
    ) -> None:
        del debug_mask, error_render_level, enable_check  # what primitives do is always checked
        module = mod if isinstance(mod, IRModule) else IRModule({"main": mod})
        self.mod = module.map_functions(lambda _, f: _with_own_names(f) if isinstance(f, S.PrimFunc) else None)
        names = [name for name, f in self.mod.items() if isinstance(f, S.PrimFunc)]
        if not names:
            raise ScheduleError("tir.Schedule: the module has no function of loops")
        self.func_working_on = names[0] if len(names) == 1 or "main" not in names else "main"
        self.trace = Trace([], {})
        self.drawn: dict[ExprRV, E.Expr] = {}
        self.depth, self.decision = 0, None  # type: int, Value
        self._random = random.Random(None if seed is None or seed < 0 else seed)

    @property
    def state(self) -> ScheduleState:
        """The module as it is now."""
        return ScheduleState(self.mod)

    def copy(self: _S) -> _S:
        """A schedule of its own that has come as far; handles are right in both."""
        other = copy.copy(self)
        other.trace, other.drawn = Trace(self.trace.insts, self.trace.decisions), dict(self.drawn)
        other.seed(self.fork_seed())
        return other

    def seed(self, seed: int) -> None:
        """Begin the random numbers again."""
        self._random = random.Random(seed)

    def fork_seed(self) -> int:
        """A number to seed another schedule with."""
        return self._random.randrange(1, 2**31)

    @primitive
    def work_on(self, func_name: str) -> None:
        """Look for blocks in another function."""
        self._function(func_name)
        self.func_working_on = func_name

    def remove_rv(self, rand_var: BlockRV | LoopRV | ExprRV) -> None:
        """Forget a sampled number; blocks and loops have nothing to forget."""
        if isinstance(rand_var, E.Var):
            self.drawn.pop(rand_var, None)

    def show(self, *args: object, **kwargs: object) -> None:
        """Print the module and the trace as they are now."""
        del args, kwargs  # colours and forms
        self.mod.show()
        self.trace.show()

    def _function(self, name: str) -> S.PrimFunc:
        func = self.mod[name]
        if not isinstance(func, S.PrimFunc):
            raise ScheduleError(f"tir.Schedule: {name} is no function of loops")
        return func

    def _set(self, name: str, func: S.PrimFunc) -> None:
        self.mod = IRModule({**dict(self.mod.items()), name: func})

    # --- looking

    @primitive
    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """The block of a name."""
        where = func_name or self.func_working_on
        blocks = [s.name_hint for s in all_statements(self._function(where).body) if isinstance(s, Block)]
        if name not in blocks:
            raise ScheduleError(f"get_block: {where} has no block {name!r}", hint=f"it has: {', '.join(blocks)}")
        return BlockRV(where, name)

    @primitive
    def get_loops(self, block: BlockRV) -> list[LoopRV]:
        """The loops around a block, outermost first, inside the block around it."""
        path = self._path(block)
        inner = next((k for k in range(len(path) - 2, -1, -1) if isinstance(path[k], Block)), -1)
        return [LoopRV(block.function, s.var) for s in path[inner + 1 :] if isinstance(s, S.For)]

    @primitive
    def get_child_blocks(self, block_or_loop: BlockRV | LoopRV) -> list[BlockRV]:
        """The blocks inside a loop or a block."""
        here = self.get(block_or_loop)
        inner = [s for s in all_statements(here) if isinstance(s, Block)]
        return [BlockRV(block_or_loop.function, s.name_hint) for s in inner if s is not here]

    @primitive
    def get_producers(self, block: BlockRV) -> list[BlockRV]:
        """The blocks that write what a block reads."""
        return self._neighbours(block, lambda other, own: bool(other[1] & own[0]))

    @primitive
    def get_consumers(self, block: BlockRV) -> list[BlockRV]:
        """The blocks that read what a block writes."""
        return self._neighbours(block, lambda other, own: bool(other[0] & own[1]))

    @primitive
    def get_output_blocks(self, scope_block: BlockRV) -> list[BlockRV]:
        """The blocks inside a block that write what it has not allocated."""
        own = {b for s in all_statements(self.get(scope_block)) if isinstance(s, Block) for b in s.alloc_buffers}
        inner = _blocks_in(self._block(scope_block).body)
        return [BlockRV(scope_block.function, b.name_hint) for b in inner if inline.touched(b)[1] - own]

    def _neighbours(self, block: BlockRV, near: Callable[[_Touched, _Touched], bool]) -> list[BlockRV]:
        item = self._block(block)
        own, others = inline.touched(item), inline.leaves(self._function(block.function).body)
        names = [b.name_hint for b in others if b is not item and near(inline.touched(b), own)]
        return [BlockRV(block.function, name) for name in names]

    def get(self, rand_var_or_sref: BlockRV | LoopRV | StmtSRef | ExprRV) -> Value:
        """The statement that a block or loop is now, or the value of a sampled number."""
        item = rand_var_or_sref
        if isinstance(item, StmtSRef):
            return item.stmt
        if isinstance(item, BlockRV | LoopRV):
            return self._path(item)[-1]
        if item not in self.drawn:
            raise ScheduleError(f"get: {item!r:.60} is no block, no loop and no number that was sampled here")
        return build.as_int(self.drawn[item])

    def get_sref(self, item: BlockRV | LoopRV) -> StmtSRef:
        """The same, as an object of the old name."""
        return StmtSRef(self.get(item))

    def _path(self, item: BlockRV | LoopRV) -> list[S.Stmt]:
        """The statements from the body of the function to what a handle names."""
        return path_to(self._function(item.function).body, _finder(item))

    def _block(self, item: BlockRV) -> Block:
        if not isinstance(item, BlockRV):
            raise ScheduleError(f"got {item!r:.60}, wanted a block", hint="get_block(name) gives them")
        block = self._path(item)[-1]
        assert isinstance(block, Block), "a name of a block has a block"
        return block

    def _leaf(self, primitive: str, item: BlockRV) -> Block:
        block = self._block(item)
        if inline.leaves(block) != [block]:
            raise ScheduleError(f"{primitive}: block {block.name_hint!r} has blocks inside", hint="name one of these")
        return block

    def _loop(self, primitive: str, item: LoopRV) -> S.For:
        if not isinstance(item, LoopRV):
            raise ScheduleError(f"{primitive}: got {item!r:.60}, wanted a loop", hint="get_loops(block) gives them")
        loop = self._path(item)[-1]
        assert isinstance(loop, S.For), "a variable of a loop has a loop"
        return loop

    def _put(self, function: str, old: S.Stmt, new: S.Stmt) -> None:
        """The function with a statement in the place of another."""

        def visit(item: S.Stmt) -> S.Stmt:
            return new if item is old else map_stmt(item, lambda e: e, visit)

        func = self._function(function)
        self._set(function, func.with_body(visit(func.body)))

    def _free_name(self, function: str, name: str) -> str:
        used = {s.name_hint for s in all_statements(self._function(function).body) if isinstance(s, Block)}
        return next(n for n in (name, *(f"{name}_{k}" for k in range(1, len(used) + 2))) if n not in used)

    def _with_block(self, function: str, func: S.PrimFunc, name: str) -> BlockRV:
        self._set(function, func)
        return BlockRV(function, name)


def _with_own_names(func: S.PrimFunc) -> S.PrimFunc:
    """The function with a variable of its own for each loop and a name for each block."""
    used: dict[str, int] = {}
    seen: set[E.Var] = set()

    def visit(item: S.Stmt) -> S.Stmt:
        if isinstance(item, Block):
            count = used[item.name_hint] = used.get(item.name_hint, 0) + 1
            own = item.name_hint if count == 1 else f"{item.name_hint}_{count - 1}"
            return map_stmt(replace(item, name_hint=own), lambda e: e, visit)
        if isinstance(item, S.For) and item.var in seen:
            var = E.Var(item.var.name, item.var.dtype)
            item = replace(item, var=var, body=inline.moved(item.body, {item.var: var}))
        if isinstance(item, S.For):
            seen.add(item.var)
        return map_stmt(item, lambda e: e, visit)

    return func.with_body(visit(func.body))


def _blocks_in(item: S.Stmt) -> Iterator[Block]:
    """The blocks of a statement in their order, each before those inside it."""
    if isinstance(item, Block):
        yield item
    for part in statements_inside(item):
        yield from _blocks_in(part)


def is_block(item: S.Stmt, name: str) -> bool:
    """Whether a statement is the block of a name."""
    return isinstance(item, Block) and item.name_hint == name


def _finder(item: BlockRV | LoopRV) -> Callable[[S.Stmt], bool]:
    if isinstance(item, BlockRV):
        return lambda s: is_block(s, item.name)
    return lambda s: isinstance(s, S.For) and s.var is item.var


def path_to(root: S.Stmt, wanted: Callable[[S.Stmt], bool]) -> list[S.Stmt]:
    """The statements from the root to the first that is wanted; ScheduleError where none is."""
    if wanted(root):
        return [root]
    paths: list[list[S.Stmt]] = []

    def visit(item: S.Stmt) -> S.Stmt:
        if not paths:
            with suppress(ScheduleError):
                paths.append(path_to(item, wanted))
        return item

    map_stmt(root, lambda e: e, visit)
    if not paths:
        raise ScheduleError("the block or loop is not there any more")
    return [root, *paths[0]]


def where(item: S.Stmt, condition: E.Expr) -> S.Stmt:
    """A statement whose blocks run where the condition holds; what stands outside of blocks is guarded."""
    if isinstance(item, BlockRealize):
        return replace(item, predicate=build.logical_and(item.predicate, condition))
    if isinstance(item, S.For | S.SeqStmt | S.LetStmt | S.AttrStmt):
        return map_stmt(item, lambda e: e, lambda s: where(s, condition))
    return S.IfThenElse(condition, item)
