"""`relay.analysis.CallGraph`: which functions of a module name which others.

In: a module. Out: counts of calls and references by global name, whether a function comes back to itself, and a text.
Invariant: a function counts as often as it is named; the module is kept as it is.
"""

from __future__ import annotations

from armillary.ir import GlobalVar, IRModule
from armillary.relay.expr import Call, Expr
from armillary.relay.walk import post_order


class CallGraph:
    """The references between a module's functions."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self._named = {name: _references(function) for name, function in module.items()}

    def _name(self, var: GlobalVar | str) -> str:
        name = var if isinstance(var, str) else var.name_hint
        self.module[name]
        return name

    def global_call_count(self, var: GlobalVar | str) -> int:
        """How many global functions a function calls, each time it does."""
        return len(self._named[self._name(var)])

    def ref_count(self, var: GlobalVar | str) -> int:
        """How often a function is named in the module."""
        name = self._name(var)
        return sum(names.count(name) for names in self._named.values())

    def is_recursive(self, var: GlobalVar | str) -> bool:
        """Whether a function names itself."""
        name = self._name(var)
        return name in self._named[name]

    def print_var(self, var: GlobalVar | str) -> str:
        """The row of one function."""
        name = self._name(var)
        head = f"Call graph node: {name}, #refs = {self.ref_count(name)}"
        called = [f"  call site: {callee}" for callee in dict.fromkeys(self._named[name])]
        return "\n".join([head, *called])

    def __str__(self) -> str:
        return "\n".join(self.print_var(name) for name in self._named)


def _references(function: object) -> list[str]:
    calls = (e for e in post_order(function) if isinstance(e, Call)) if isinstance(function, Expr) else ()
    return [call.op.name_hint for call in calls if isinstance(call.op, GlobalVar)]
