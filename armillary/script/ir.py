"""The names of modules in scripts: `@I.ir_module`.

In: a class whose functions are `@T.prim_func`. Out: an `IRModule` of them. Invariant: what is no function of a script
is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.base.boundary import boundary
from armillary.ir import IRModule
from armillary.tir.stmt import PrimFunc


def of_functions(functions: Mapping[str, PrimFunc]) -> IRModule:
    """A module of functions by name."""
    module = IRModule()
    for name, function in functions.items():
        module[name] = function
    return module


@boundary("ir_module", arguments=True)
def ir_module(cls: type | None = None, check_well_formed: bool = True) -> object:
    """Decorator: the module of a class's functions."""
    if cls is None:
        return lambda module: ir_module(module, check_well_formed)
    return of_functions({name: value for name, value in vars(cls).items() if isinstance(value, PrimFunc)})
