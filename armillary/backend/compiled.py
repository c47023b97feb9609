"""The engine "armillary": a module compiled for this machine, run by the graph executor.

In: a module without free parameters. Out: a function from named inputs to the outputs in order. Invariant: a runner
owns its executor; runners of different modules share nothing.
"""

from __future__ import annotations

from armillary.base.aliases import Array
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.ir import IRModule
from armillary.runtime.device import cpu
from armillary.transform import PassContext


class Engine:
    """Compiles on construction, runs when called."""

    def __init__(self, module: IRModule, target: str = "llvm -mcpu=native", opt_level: int = 3) -> None:
        with PassContext(opt_level=opt_level):
            factory = build(module, target=target)
        self.executor = GraphModule(factory["default"](cpu(0)))

    def __call__(self, inputs: dict[str, Array]) -> list[Array]:
        for name, value in inputs.items():
            self.executor.set_input(name, value)
        self.executor.run()
        return [self.executor.get_output(i).numpy() for i in range(self.executor.get_num_outputs())]
