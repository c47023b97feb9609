"""An MXNet network to a Relay module, without MXNet.

In: a `-symbol.json` file with the `.params` file beside it (of `net.export`), a Symbol, or a HybridBlock of Gluon;
shapes of the inputs. Out: the module and its parameters, named as MXNet names them. Invariant: labels of a training
graph are no inputs; what the results do not need is left out. The files: symbol.py, params.py; the operators: rules/.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.files import MOST_MODEL_BYTES, read_regular
from armillary.errors import ModelError, Span, TypeMismatch, UnsupportedError
from armillary.frontend.folding.fold import Folder
from armillary.frontend.mxnet.node import MXNET_RULES, MxnetNode
from armillary.frontend.mxnet.params import read_params
from armillary.frontend.mxnet.symbol import Symbol, SymbolNode, read_symbol
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, Tuple, Var, var

_FIRST_ONLY = dict.fromkeys(
    ["SoftmaxOutput", "Softmax", "LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput"], 1
)  # the second input of these is a label
_NUMBERED = re.compile(r"-\d{4}\.params")


class HasNumpy(Protocol):
    """An array of MXNet."""

    def asnumpy(self) -> Array: ...


Params = Mapping[str, Array | HasNumpy]


@boundary("from_mxnet", arguments=True)
def from_mxnet(
    symbol: object,  # a path, a Symbol or a HybridBlock of MXNet
    shape: Mapping[str, Sequence[int]] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    arg_params: Params | str | os.PathLike[str] | None = None,
    aux_params: Params | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """Import a network of MXNet; returns the module and its parameters by name.

    `symbol` is the path of a `-symbol.json` file, a Symbol or a HybridBlock. `shape` has the shape of each input by
    name (`{"data": (1, 3, 224, 224)}`), `dtype` one type for all or by name. `arg_params` has the parameters, or the
    path of their file; those of a symbol file are looked for beside it (`net-0000.params`, the highest number), those
    of a block are its own. Raises UnsupportedError, naming all of them, for unknown operators.
    """
    params: dict[str, Array] = {}
    shape = shape or {}
    if isinstance(symbol, str | os.PathLike):
        path = Path(symbol).expanduser()
        graph = read_symbol(_read(path).decode("utf-8", "replace"), str(path))
        beside = None if arg_params is not None else _beside(path)
        params = {} if beside is None else read_params(_read(beside), str(beside))
    elif hasattr(symbol, "tojson"):
        graph = read_symbol(symbol.tojson(), "the symbol")
    elif hasattr(symbol, "collect_params"):
        own = symbol.collect_params().values()
        params = {p.name: p.data().asnumpy() for p in own}
        variable = importlib.import_module("mxnet").sym.Variable
        inputs = [name for name in shape if name not in params] or ["data"]
        output = symbol(*map(variable, inputs))  # type: ignore[operator]  # a block is called with what it reads
        grouped = importlib.import_module("mxnet").sym.Group(output) if isinstance(output, list | tuple) else output
        graph = read_symbol(grouped.tojson(), "the block")
    else:
        hint = "the path of a -symbol.json file, a Symbol or a HybridBlock"
        raise ModelError(f"from_mxnet takes a network of MXNet, got {type(symbol).__name__}", hint=hint)
    if isinstance(arg_params, str | os.PathLike):
        params |= read_params(_read(Path(arg_params)), str(arg_params))
    else:
        params |= _arrays(arg_params)
    return _Importer(graph, params | _arrays(aux_params), shape, dtype).run()


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, MOST_MODEL_BYTES)
    except OSError as error:
        raise ModelError(f"cannot read the file: {error.strerror}", span=Span(str(path))) from None


def _beside(path: Path) -> Path | None:
    """The file of parameters that belongs to a symbol file: the last epoch's."""
    stem = path.name.removesuffix(".json").removesuffix("-symbol")
    try:
        names = sorted(os.listdir(path.parent))
    except OSError:
        return None
    numbered = [name for name in names if name.startswith(stem) and _NUMBERED.fullmatch(name[len(stem) :])]
    candidates = numbered[-1:] or [name for name in names if name == f"{stem}.params"]
    return path.parent / candidates[0] if candidates else None


def _arrays(params: Params | None) -> dict[str, Array]:
    values = dict(params or {})
    arrays = {name: value if isinstance(value, np.ndarray) else value.asnumpy() for name, value in values.items()}
    return {name.partition(":")[2] if name.startswith(("arg:", "aux:")) else name: v for name, v in arrays.items()}


class _Importer:
    def __init__(
        self,
        graph: Symbol,
        params: dict[str, Array],
        shape: Mapping[str, Sequence[int]],
        dtype: str | Mapping[str, str],
    ) -> None:
        self.graph, self.params, self.shape, self.dtype = graph, params, shape, dtype
        self.reached = graph.reached(_FIRST_ONLY)
        self.values: dict[int, list[Expr]] = {}
        self.inputs: list[Var] = []
        self.variables: list[Var] = []
        self.folder = Folder()

    def run(self) -> tuple[IRModule, dict[str, Array]]:
        nodes = [(number, node) for number, node in enumerate(self.graph.nodes) if number in self.reached]
        self.check(node for _, node in nodes)
        for number, node in nodes:
            self.values[number] = [self.variable(node)] if node.op == "null" else self.call(node)
        outputs = [self.result(*head) for head in self.graph.heads]
        body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
        module = IRModule.from_expr(Function((*self.inputs, *self.variables), body))
        return module, {v.name_hint: np.ascontiguousarray(self.params[v.name_hint]) for v in self.variables}

    def check(self, nodes: Iterable[SymbolNode]) -> None:
        """Name all that cannot be imported."""
        rows = list(nodes)
        unknown = sorted({node.op for node in rows if node.op != "null" and node.op not in MXNET_RULES})
        if unknown:
            raise UnsupportedError(f"operators of MXNet that are not known: {', '.join(unknown)}")
        names = {node.name for node in rows if node.op == "null"}
        others = sorted(set(self.shape) - names)
        if others:
            free = ", ".join(sorted(names - set(self.params))) or "none"
            raise ModelError(f"shape: the network has no input {others[0]!r}", hint=f"its inputs: {free}")

    def variable(self, node: SymbolNode) -> Var:
        name, value = node.name, self.params.get(node.name)
        if value is not None and name not in self.shape:
            result = var(name, shape=value.shape, dtype=str(value.dtype))
            self.variables.append(result)
            return result
        sizes = self.shape.get(name) or _sizes(node.attrs.get("__shape__", ""))
        if not sizes or not all(isinstance(n, int | np.integer) and n > 0 for n in sizes):
            hint = f'shape={{"{name}": (1, 3, 224, 224)}}; a parameter is looked for in the .params file'
            raise ModelError(f"the shape of {name!r} is not known: {tuple(sizes)}", hint=hint)
        dtype = self.dtype if isinstance(self.dtype, str) else self.dtype.get(name, "float32")
        result = var(name, shape=tuple(map(int, sizes)), dtype=dtype)
        self.inputs.append(result)
        return result

    def call(self, node: SymbolNode) -> list[Expr]:
        span = Span(node.name)
        inputs = [self.result(*read) for read in node.inputs[: _FIRST_ONLY.get(node.op)]]
        try:
            output = MXNET_RULES[node.op](MxnetNode(node.op, node.name, inputs, node.attrs, span))
        except (IndexError, ValueError) as error:
            message = f"{node.op} {node.name!r} does not fit its {len(inputs)} inputs: {error}"
            raise TypeMismatch(message, span=span) from None
        return [self.folder.settle(value, span) for value in (output if isinstance(output, list) else [output])]

    def result(self, number: int, index: int) -> Expr:
        values = self.values[number]
        if index >= len(values):
            name = self.graph.nodes[number].name
            raise UnsupportedError(f"result {index} of {name!r} is read, and only {len(values)} are computed")
        return values[index]


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in re.findall(r"-?\d+", text))
