"""What every loop pass shares: registration, and a walker that rebuilds statements.

In: a function `PrimFunc -> PrimFunc`. Out: a registered pass over modules. Invariant: a pass applies to every PrimFunc
of a module and to nothing else; a function it does not change is returned as it is. Order of passes: `tir/lower.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from armillary.base.boundary import boundary
from armillary.base.node import replace
from armillary.ir import IRModule
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.substitute import map_stmt
from armillary.transform import Pass, PassContext, define_pass, module_pass

FunctionRule = Callable[..., S.PrimFunc]
NOTHING = S.Evaluate(E.IntImm(E.INT32, 0))


FIRST: list[
    Callable[[str], Pass]
] = []  # in front of all others, for a kind of target; tir/transform/scripts/datatypes.py adds one


def prim_pass(spec: str, name: str, opt_level: int = 0) -> Callable[[FunctionRule], Callable[..., Pass]]:
    """Register `function(func, **options) -> func` as a pass over modules; the result builds `Pass` objects."""

    def register(function: FunctionRule) -> Callable[..., Pass]:
        @functools.wraps(function)
        def over_module(module: IRModule, **options: object) -> IRModule:  # the options of this pass
            return module.map_functions(
                lambda _, f: function(f, **options) if isinstance(f, S.PrimFunc) else None,
            )

        return define_pass(spec, opt_level=opt_level, name=name)(over_module).bind

    return register


@boundary("prim_func_pass", arguments=True)
def prim_func_pass(function: Any = None, opt_level: int = 0, name: str = "", required: tuple[str, ...] = ()) -> Any:
    """Decorator for user passes: `f(func, module, context) -> func` becomes a Pass over the PrimFuncs of a module."""

    def wrap(user: Callable[[S.PrimFunc, IRModule, PassContext], S.PrimFunc]) -> Pass:
        def over_module(module: IRModule, context: PassContext) -> IRModule:
            return module.map_functions(lambda _, f: user(f, module, context) if isinstance(f, S.PrimFunc) else None)

        result: Pass = module_pass(over_module, opt_level, name or user.__name__, required)
        return result

    return wrap(function) if function is not None else wrap


def with_body(func: S.PrimFunc, body: S.Stmt) -> S.PrimFunc:
    """The function with another body."""
    result: S.PrimFunc = replace(func, body=body)
    return result


def map_bottom_up(item: S.Stmt, rule: Callable[[S.Stmt], S.Stmt]) -> S.Stmt:
    """Rebuild statements from the leaves; expressions stay."""
    return rule(map_stmt(item, lambda e: e, lambda s: map_bottom_up(s, rule)))


def is_nothing(item: S.Stmt) -> bool:
    """Whether the statement does nothing."""
    return isinstance(item, S.Evaluate) and isinstance(item.value, E.IntImm)


def sequence(items: list[S.Stmt]) -> S.Stmt:
    """The statements that do something, in order."""
    retained = [s for s in items if not is_nothing(s)]
    return S.seq(*retained) if retained else NOTHING


def statements_of(item: S.Stmt) -> tuple[S.Stmt, ...]:
    """The elements of a sequence, or the statement alone."""
    return item.statements if isinstance(item, S.SeqStmt) else (item,)
