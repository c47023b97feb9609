"""A network for any shapes, compiled when it is met: once for all sizes where it has a form over them.

In: an ONNX model with symbolic dimensions (`JitModule.from_onnx`), or any function from shapes to a graph module.
Out: a `JitModule`, used like a graph module. What has no form over named sizes, and what a function makes, is compiled
by the first run with new shapes; later ones find what is there. Invariant: at most `most` such variants are kept.
Variants known before, in one package: `from_onnx(…, variants=…)`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import armillary.frontend
from armillary.base.aliases import Array
from armillary.base.aligned import array_of
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.errors import ArmillaryError, ExecutionError
from armillary.runtime.device import Device, cpu
from armillary.runtime.ndarray import NDArray

Shapes = dict[str, tuple[int, ...]]


class JitModule:
    """Runs a network for any shapes: `compile(shapes)` gives a GraphModule for new ones, which is kept.

    Every `set_input` counts: the shapes of all inputs that were set choose the variant when it runs. `general` is a
    GraphModule that takes all shapes: nothing else is compiled then.
    """

    def __init__(
        self, compile: Callable[[Shapes], GraphModule], most: int = 16, general: GraphModule | None = None
    ) -> None:
        self.compile, self.most, self.general = compile, most, general
        self.compiled: dict[tuple[tuple[str, tuple[int, ...]], ...], GraphModule] = {}
        self.values: dict[str, Array] = {}
        self.current: GraphModule | None = None

    @staticmethod
    def from_onnx(
        model: object, target: object = None, device: Device | None = None, most: int = 16
    ) -> JitModule:  # Any: as in from_onnx; as in relay.build
        """A JitModule of an ONNX model (path, bytes or ModelProto); a warning says why one compile is not enough."""

        def compiled(shapes: Shapes) -> GraphModule:
            module, params = armillary.frontend.from_onnx(model, shapes)
            return GraphModule(build(module, target, params=params)["default"](device or cpu(0)))

        try:
            return JitModule(compiled, most, compiled({}))
        except ArmillaryError as error:  # what is wrong with the model itself is said for its shapes, too
            what = f"the model is compiled for each shape that it meets: {error.message}"
            warnings.warn(what, RuntimeWarning, stacklevel=2)
            return JitModule(compiled, most)

    def set_input(self, /, key: str | None = None, value: object = None, **more: object) -> None:  # array-likes
        """Keep inputs by name for the next run."""
        self._keep({**({key: value} if key is not None else {}), **more})

    def _keep(self, inputs: dict[str, object]) -> None:  # array-likes
        for name, item in inputs.items():
            self.values[name] = array_of(item, f"the parameter {name}")

    def run(self, /, **inputs: object) -> None:  # array-likes
        """Run what takes the shapes of the inputs; compile it if there is nothing yet."""
        self._keep(inputs)
        if not self.values:
            raise ExecutionError("no input was set", hint="set_input(name, array)")
        self.current = self.general or self._variant({name: array.shape for name, array in self.values.items()})
        for name, array in self.values.items():
            self.current.set_input(name, array)
        self.current.run()

    def _variant(self, shapes: Shapes) -> GraphModule:
        key = tuple(sorted(shapes.items()))
        if key not in self.compiled:
            while len(self.compiled) >= self.most:  # the oldest goes
                del self.compiled[next(iter(self.compiled))]
            self.compiled[key] = self.compile(shapes)
        return self.compiled[key]

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
