"""The engine "reference": a module evaluated by its operators' numpy references, which define what is correct.

In: a module without free parameters. Out: a function from named inputs to the outputs in order. Invariant: no pass and
no code generator is involved, so a difference from the engine "armillary" is a defect of one of those.
"""

from __future__ import annotations

from armillary.base.aliases import Array
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate


class Engine:
    """Evaluates "main" when called."""

    def __init__(self, module: IRModule) -> None:
        self.function = module["main"]

    def __call__(self, inputs: dict[str, Array]) -> list[Array]:
        result = evaluate(self.function, inputs)
        return list(result) if isinstance(result, tuple) else [result]
