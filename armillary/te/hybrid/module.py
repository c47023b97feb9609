"""Scripts as functions, and scheduled programs as scripts.

In: a Python function (`script`), or a schedule with its tensors (`build`). Out: a `Script` that takes arrays or
tensors, a `HybridModule` that is the text of one, which can be saved and loaded. Invariant: a script that is called
with a tensor or an expression anywhere among its arguments is parsed; else Python runs it.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Mapping, Sequence
from types import FunctionType

from armillary.base.boundary import boundary, bounded
from armillary.base.files import read_regular, written_atomically
from armillary.errors import TypeMismatch
from armillary.te.hybrid.parser import Parser, buffer_for
from armillary.te.hybrid.printer import script_text
from armillary.te.hybrid.runtime import lent
from armillary.te.hybrid.text import defined
from armillary.te.lower import lower_schedule
from armillary.te.operation import ExternOp
from armillary.te.schedule import Schedule
from armillary.te.tensor import Tensor
from armillary.tir.expr import Expr, Var
from armillary.tir.ir_builder import IRBuilder
from armillary.tir.stmt import Buffer


class Script:
    """A function in the hybrid language: over arrays it is Python, over tensors it gives tensors."""

    def __init__(self, function: FunctionType, source: str | None = None) -> None:
        functools.update_wrapper(self, function)
        self.function, self._source, self.name = function, source, function.__name__

    @property
    def __globals__(self) -> dict[str, object]:
        return self.function.__globals__

    def __call__(self, *args: object) -> object:
        if any(map(_is_symbolic, args)):
            return self._tensors(args)
        with lent(self.function):
            return self.function(*args)

    def _tree(self) -> ast.FunctionDef:
        text = self._source if self._source is not None else textwrap.dedent(inspect.getsource(self.function))
        tree = next((item for item in ast.parse(text).body if isinstance(item, ast.FunctionDef)), None)
        if tree is None:
            raise TypeMismatch(f"te.hybrid.script: got {self.name}, wanted a function")
        return tree

    def _free(self) -> Mapping[str, object]:
        closure = inspect.getclosurevars(self.function)
        return {**closure.globals, **closure.nonlocals}

    def parse_into(self, builder: IRBuilder, args: Sequence[object]) -> list[Buffer]:
        """The statements of a call inside another script, written into that one's."""
        return Parser(self._tree(), self._free(), builder, inline=True).run(args)

    def _tensors(self, args: Sequence[object]) -> object:
        tensors: dict[Tensor, Buffer] = {}
        builder = IRBuilder()
        parser = Parser(self._tree(), self._free(), builder)
        returned = parser.run([_argument(a, tensors) for a in args])
        extra = [b for b in parser.outputs if b not in returned]
        if extra or any(b not in parser.outputs for b in returned):
            name = extra[0].name if extra else "what it returns"
            raise TypeMismatch(f"hybrid script {self.name}: {name} must be an output_tensor that is returned")
        body = builder.get()
        op = ExternOp(self.name, tuple(tensors), tuple(tensors.values()), tuple(returned), body, "hybrid")
        return op.output(0) if len(returned) == 1 else list(op.outputs)


@boundary("te.hybrid.script", arguments=True)
def script(pyfunc: FunctionType) -> Script:
    """Decorator: the function in the hybrid language."""
    return Script(pyfunc)


@bounded
class HybridModule:
    """The text of a script, and the script: what `te.hybrid.build` gives, or `load` reads."""

    def __init__(self, src: str | None = None, name: str | None = None) -> None:
        self.src_, self.name, self.root_node = "", name, None
        self._script: Script | None = None
        if src is not None:
            self._take(src)

    def _take(self, src: str) -> None:
        function = defined(src)
        self.src_, self.name, self._script = src, function.__name__, Script(function, src)

    def __call__(self, *args: object) -> object:
        if self._script is None:
            raise TypeMismatch("this HybridModule holds no script yet", hint="call load(path)")
        return self._script(*args)

    def get_source(self) -> str:
        """The text of the hybrid function."""
        return self.src_

    @boundary("HybridModule.save", arguments=True, first=1)
    def save(self, path: str) -> None:
        """Write the text to a file, whose name ends in .py."""
        with written_atomically(path if path.endswith(".py") else f"{path}.py") as stream:
            stream.write(self.src_.encode())

    @boundary("HybridModule.load", arguments=True, first=1)
    def load(self, path: str) -> None:
        """Take the script of a file; it runs when it is called with arrays."""
        self._take(read_regular(path).decode())


@boundary("te.hybrid.build", arguments=True)
def build(
    sch: Schedule, inputs: Sequence[object], outputs: Sequence[Tensor], name: str = "hybrid_func"
) -> HybridModule:
    """A scheduled program as the text of a script with these arguments."""
    args = [a for a in inputs if isinstance(a, Tensor | Var)]
    function = lower_schedule(sch, [*args, *outputs], name)
    return HybridModule(script_text(function, name, len(outputs)))


def _is_symbolic(value: object) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_is_symbolic, value))
    return isinstance(value, Tensor | Expr)


def _argument(value: object, tensors: dict[Tensor, Buffer]) -> object:
    """A tensor as its buffer; lists part by part."""
    if isinstance(value, tuple | list):
        return tuple(_argument(item, tensors) for item in value)
    if not isinstance(value, Tensor):
        return value
    if value not in tensors:
        taken = {b.name for b in tensors.values()}
        name = value.name if value.name not in taken else f"{value.name}_{len(taken)}"
        tensors[value] = buffer_for(name, value.shape, value.dtype)
    return tensors[value]
