"""`relay.prelude`: data types and functions that programs find ready, by name.

In: a module (a new one, if none is given). Out: the module with lists, options and trees, and the global names of the
functions over them as attributes: `prelude.map`. The definitions are in std/prelude.txt. Lists of Python values:
`to_list`. Invariant: a module that has the types already is left as it is.
"""

from __future__ import annotations

from armillary.ir import GlobalVar, IRModule
from armillary.relay.adt.module import definitions, find_type, standard_module
from armillary.relay.adt.types import GlobalTypeVar, TypeCall
from armillary.relay.expr import Expr, as_expr
from armillary.relay.types import Type

_FILE = "prelude.rly"


class Prelude:
    """The functions by name; `mod` is the module."""

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        if not any(d.header.name_hint == "List" for d in definitions(self.mod)):
            self.mod.update(standard_module(_FILE))

    def __getattr__(self, name: str) -> GlobalVar:
        if name.startswith("_") or not self.__dict__ or name not in self.mod:
            raise AttributeError(f"the prelude has no function {name!r}")
        return self.mod.get_global_var(name)

    def get_type(self, name: str) -> tuple[object, ...]:
        """The name of a data type, then its constructors."""
        return (find_type(self.mod, name)[0], *find_type(self.mod, name)[1])

    def list_of(self, element: Type) -> TypeCall:
        """The type of lists of a type."""
        return GlobalTypeVar("List")(element)

    def to_list(self, values: list[object]) -> Expr:
        """A list of expressions or numbers."""
        _, data = find_type(self.mod, "List")
        cons, nil = data.constructors
        result: Expr = nil()
        for value in reversed(values):
            result = cons(as_expr(value), result)
        return result
