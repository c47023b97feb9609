"""A network that is compiled for each shape it meets.

In: an ONNX model with symbolic dimensions (`JitModule.from_onnx`), or any function from shapes to a graph module.
Out: a `JitModule`, used like a graph module; the first run with new shapes compiles, later ones find what is there.
Invariant: at most `most` variants are kept. Variants known before, in one package: `from_onnx(…, variants=…)`.
"""

from __future__ import annotations

from collections.abc import Callable

import armillary.frontend
from armillary.base.aliases import Array
from armillary.base.aligned import array_of
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.errors import ExecutionError
from armillary.runtime.device import Device, cpu
from armillary.runtime.ndarray import NDArray

Shapes = dict[str, tuple[int, ...]]


class JitModule:
    """Runs a network for any shapes: `compile(shapes)` gives a GraphModule for new ones, which is kept.

    Every `set_input` counts: the shapes of all inputs that were set choose the variant when it runs.
    """

    def __init__(self, compile: Callable[[Shapes], GraphModule], most: int = 16) -> None:
        self.compile, self.most = compile, most
        self.compiled: dict[tuple[tuple[str, tuple[int, ...]], ...], GraphModule] = {}
        self.values: dict[str, Array] = {}
        self.current: GraphModule | None = None

    @staticmethod
    def from_onnx(
        model: object, target: object = None, device: Device | None = None, most: int = 16
    ) -> JitModule:  # Any: as in from_onnx; as in relay.build
        """A JitModule of an ONNX model (path, bytes or ModelProto)."""

        def compiled(shapes: Shapes) -> GraphModule:
            module, params = armillary.frontend.from_onnx(model, shapes)
            return GraphModule(build(module, target, params=params)["default"](device or cpu(0)))

        return JitModule(compiled, most)

    def set_input(self, /, key: str | None = None, value: object = None, **more: object) -> None:  # array-likes
        """Keep inputs by name for the next run."""
        self._keep({**({key: value} if key is not None else {}), **more})

    def _keep(self, inputs: dict[str, object]) -> None:  # array-likes
        for name, item in inputs.items():
            self.values[name] = array_of(item, f"the parameter {name}")

    def run(self, /, **inputs: object) -> None:  # array-likes
        """Run the variant for the shapes of the inputs; compile it if there is none."""
        self._keep(inputs)
        if not self.values:
            raise ExecutionError("no input was set", hint="set_input(name, array)")
        shapes = {name: array.shape for name, array in self.values.items()}
        key = tuple(sorted(shapes.items()))
        if key not in self.compiled:
            while len(self.compiled) >= self.most:  # the oldest goes
                del self.compiled[next(iter(self.compiled))]
            self.compiled[key] = self.compile(shapes)
        self.current = self.compiled[key]
        for name, array in self.values.items():
            self.current.set_input(name, array)
        self.current.run()

    def get_num_outputs(self) -> int:
        """Number of outputs of the variant that ran last."""
        return self._ran().get_num_outputs()

    def get_output(self, index: int) -> NDArray:
        """An output of the last run."""
        return self._ran().get_output(index)

    def _ran(self) -> GraphModule:
        if self.current is None:
            raise ExecutionError("nothing has run yet, so there are no outputs", hint="call run() first")
        return self.current
