"""remove-unused-functions: drop global functions that no entry function reaches.

In: a module and the names of its entry functions. Out: the module without the functions that are not called from them,
directly or through others. Invariant: entry functions stay.

    def @main(%y: Tensor[(2,), float32]) { @used(%y) }
    def @used(%x: Tensor[(2,), float32]) -> Tensor[(2,), float32] { negative(%x) }
    def @unused(%x: Tensor[(2,), float32]) { %x }
    ->
    def @main(%y: Tensor[(2,), float32]) { @used(%y) }
    def @used(%x: Tensor[(2,), float32]) -> Tensor[(2,), float32] { negative(%x) }
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.errors import ModelError
from armillary.ir import GlobalVar, IRModule
from armillary.relay.expr import Call, Function
from armillary.relay.walk import post_order
from armillary.transform import define_pass


@define_pass("remove-unused-functions", opt_level=1)
def remove_unused_functions(module: IRModule, *, entry_functions: Sequence[str] = ("main",)) -> IRModule:
    """Keep the entry functions and what they call."""
    unknown = [name for name in entry_functions if name not in module]
    if unknown:
        raise ModelError(f"remove-unused-functions: the module has no function {unknown[0]!r}")
    reached: set[str] = set()
    pending = list(entry_functions)
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += called_functions(module[name])
    if len(reached) == len(module):
        return module
    return IRModule({v: f for v, f in module.functions.items() if v.name_hint in reached}, module.type_definitions)


def called_functions(function: object) -> list[str]:
    """Names of the global functions a function mentions."""
    if not isinstance(function, Function):
        return []
    order: Sequence[object] = post_order(function)
    named = [e.op if isinstance(e, Call) else e for e in order]  # a global function may be a value, too
    return [e.name_hint for e in named if isinstance(e, GlobalVar)]
