"""The walk over an FX graph of ATen operators, of torch.export or of torch.compile.

In: a graph module and a value for each of its placeholders (expressions of tensors, numbers). Out: the values that the
graph returns. Invariant: a call of an operator becomes what its rule says, settled by the folder, so that every call
has a span and what is constant and small is known; numbers are computed now, those of open sizes as extents
(sizes.py) where they are whole, as tensors where not. What only assertions read is left out.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from armillary.budgets import EXPANDED_NODES
from armillary.errors import ArmillaryError, ModelError, Span, UnsupportedError
from armillary.frontend.folding.fold import Folder
from armillary.frontend.pytorch.complex_values import PARTS, Complex, is_complex
from armillary.frontend.pytorch.control import HIGHER_ORDER
from armillary.frontend.pytorch.sizes import OpenSizes, has_open
from armillary.frontend.pytorch.table import AtenCall, aten_rule
from armillary.frontend.pytorch.tensors import array_of, dtype_name
from armillary.frontend.values import DEFAULT_FLOAT, Value, cast, is_tensor, op, type_of
from armillary.relay.expr import Constant, Expr, Tuple, TupleGetItem
from armillary.relay.types import TensorType, TupleType

if TYPE_CHECKING:
    from torch import FunctionSchema, Tensor
    from torch.fx import GraphModule, Node

_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "neg", "truediv", "pow", "eq", "ne", "lt", "le", "gt", "ge")
_PLAIN = {*(getattr(operator, name) for name in _ARITHMETIC), operator.getitem, max, min}  # of numbers: sizes
_FLOAT_ARITHMETIC = {"float": "", "truediv": "divide", "mul": "multiply", "add": "add", "sub": "subtract"} | {
    "pow": "power",
    "sqrt": "sqrt",
    "neg": "negative",
    "log": "log",
    "exp": "exp",
}
_NOTHING = ("_assert", "sym_constrain", "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_set_grad")


class FxWalk:
    """One import of a graph module and of the graph modules that its control flow calls."""

    def __init__(self, source: str, sizes: OpenSizes | None = None) -> None:
        self.source = source
        self.sizes = sizes or OpenSizes({}, {})
        self.folder = Folder()
        self._walked = 0

    def run(self, module: GraphModule, inputs: Sequence[Value]) -> list[Value]:
        """The values that the graph returns for values of its placeholders."""
        nodes = list(module.graph.nodes)
        self._walked += len(nodes)
        EXPANDED_NODES.check(self._walked, "graphs of control flow", Span(self.source), free=len(nodes))
        values: dict[str, Value] = {}
        pending, live = iter(inputs), _read_nodes(nodes)
        for node in nodes:
            if node.op == "call_function" and node.name not in live:
                continue
            if node.op == "placeholder":
                values[node.name] = self.settled(next(pending), node)
            elif node.op == "get_attr":
                values[node.name] = self.attribute(module, node)
            elif node.op == "call_function":
                values[node.name] = self.called(node, values)
            elif node.op == "output":
                return [resolved(v, values) for v in _flat(node.args[0])]
            else:
                raise UnsupportedError(f"a node of the kind {node.op}", span=self.span(node))
        raise ModelError("the graph returns nothing", span=Span(self.source))

    def span(self, node: Node) -> Span:
        """Where a node is."""
        return Span(self.source, node.name)

    def settled(self, value: Value, node: Node) -> Value:
        """A value with spans and types, constants folded."""
        if isinstance(value, list | tuple):
            return [self.settled(v, node) for v in value]
        if is_complex(value):
            return Complex(self.settled(value.real, node), self.settled(value.imag, node))
        return self.folder.settle(value, self.span(node)) if is_tensor(value) else value

    def attribute(self, module: GraphModule, node: Node) -> Value:
        """What the module holds under the name of a get_attr node: a tensor or a graph module."""
        result = module
        for part in node.target.split("."):
            result = getattr(result, part)
        if hasattr(result, "graph"):
            return result
        constant = self.folder.give(constant_of(result))
        return self.settled(Complex.split(constant) if result.is_complex() else constant, node)

    def called(self, node: Node, values: Mapping[str, Value]) -> Value:
        """The result of a call: an expression, a number, or a list of them."""
        try:
            return self._called(node, values)
        except ArmillaryError as error:
            error.span = error.span or self.span(node)
            raise
        except _MALFORMED as error:
            self.refuse_open(node, values, error)
            message = f"{target_name(node.target)}: {type(error).__name__}: {error}"
            raise UnsupportedError(message, span=self.span(node), hint=_summary(node)) from error

    def refuse_open(self, node: Node, values: Mapping[str, Value], error: Exception) -> None:
        """Raise UnsupportedError where what failed has arguments of open sizes."""
        arguments = [v for n in node.all_input_nodes for v in _flat([values.get(n.name)])]
        shapes = [type_of(v).shape if is_tensor(v) and isinstance(v.checked_type, TensorType) else v for v in arguments]
        if has_open([list(s) if isinstance(s, tuple) else s for s in shapes]):
            shown = ", ".join(map(str, shapes))
            raise UnsupportedError(
                f"{target_name(node.target)}: it is not supported over open sizes: ({shown})",
                span=self.span(node),
                hint='fix the sizes of the inputs: from_exported_program(program, shape={"x": (1, 3, 224, 224)})',
            ) from error

    def _called(self, node: Node, values: Mapping[str, Value]) -> Value:
        target, name = node.target, target_name(node.target)
        arguments, named = resolved(list(node.args), values), resolved(dict(node.kwargs), values)
        if target in _PLAIN or getattr(target, "__module__", "") in ("math", "torch", "torch.fx.experimental.sym_node"):
            is_open = has_open([*arguments, *named.values()]) or any(map(is_tensor, arguments))
            return (
                self.number(node, arguments)
                if is_open and target is not operator.getitem
                else target(*arguments, **named)
            )
        if name.split(".")[1:2] and name.split(".")[1].startswith(_NOTHING):
            return None
        special = HIGHER_ORDER.get(name)
        if special is not None:
            return self.settled(special(self, node, arguments), node)
        dtypes = _dtypes(node)
        is_of_complex = any(map(is_complex, _flat([*arguments, *named.values()]))) or any(d in PARTS for d in dtypes)
        rule = aten_rule(name, is_of_complex)
        if rule is None and is_of_complex:
            raise UnsupportedError(f"{name} has no rule for complex tensors")
        if rule is None or not hasattr(target, "_schema"):
            raise UnsupportedError(f"{name} has no rule", hint="operators with a rule are listed in docs/operators.md")
        call = AtenCall(name, self.span(node), self.folder, dtypes)
        result = rule(call, *bound(target._schema, arguments, named))
        return self.checked(unpacked(self.settled(result, node)), node)

    def number(self, node: Node, arguments: Sequence[Value]) -> Value:
        """Arithmetic over open sizes: an extent where PyTorch has a whole number, else a tensor without dimensions."""
        value = node.meta.get("val")
        if type(value).__name__ == "SymInt" and not any(map(is_tensor, arguments)):
            return self.sizes.extent(value)
        name = str(getattr(node.target, "__name__", "")).removeprefix("_sym_").removeprefix("sym_")
        rule = _FLOAT_ARITHMETIC.get(name)
        if rule is None or type(value).__name__ != "SymFloat":
            raise TypeError(f"{name} of open sizes")
        parts = [cast(v, DEFAULT_FLOAT) for v in arguments]
        return self.settled(op(rule, *parts) if rule else parts[0], node)

    def checked(self, value: Value, node: Node) -> Value:
        """A value whose shape and dtype are those of the program, which is where a wrong rule shows."""
        meta = node.meta.get("val")
        pairs = zip(value, meta, strict=False) if isinstance(value, list) and isinstance(meta, list | tuple) else []
        for got, wanted in pairs if isinstance(value, list) else [(value, meta)]:
            got = got.real if is_complex(got) else got
            if is_tensor(got) and hasattr(wanted, "dtype"):
                _check_type(type_of(got), wanted, node)
                self.sizes.name_by(type_of(got).shape, wanted.shape)
        return value


def _check_type(got: TensorType, wanted: Tensor, node: Node) -> None:
    dtype = _spelled(wanted.dtype)
    dtype = PARTS.get(dtype, dtype)
    sizes = [d if isinstance(d, int) else None for d in wanted.shape]
    agrees = len(sizes) == got.ndim and all(w is None or w == d for w, d in zip(sizes, got.shape, strict=True))
    if str(got.dtype) != dtype or not agrees:
        raise UnsupportedError(
            f"{target_name(node.target)}: its rule gives {got}, the program says {tuple(wanted.shape)} of {dtype}",
            hint="this is a fault of the importer; please report it with the model",
        )


def _read_nodes(nodes: Sequence[Node]) -> set[str]:
    """Names of the nodes on which the results depend; assertions are no results."""
    live: set[str] = set()
    for node in reversed(nodes):
        if node.op == "output" or node.name in live:
            live.add(node.name)
            live.update(n.name for n in node.all_input_nodes)
    return live


def missing_operators(module: GraphModule) -> Counter[str]:
    """Names of the operators of a graph, and of graphs in it, that have no rule, with how often they are called."""
    missing: Counter[str] = Counter()
    for node in module.graph.nodes:
        if node.op == "get_attr" and hasattr(getattr(module, node.target, None), "graph"):
            missing += missing_operators(getattr(module, node.target))
        if node.op == "call_function" and hasattr(node.target, "_schema"):
            name = target_name(node.target)
            is_known = name.split(".")[1].startswith(_NOTHING) or name in HIGHER_ORDER
            if not is_known and aten_rule(name) is None and aten_rule(name, True) is None:
                missing[name] += 1
    return missing


def refuse_missing(module: GraphModule, source: str) -> None:
    """Raise one UnsupportedError that names every operator without a rule."""
    missing = missing_operators(module)
    if missing:
        rows = "; ".join(f"{name} ({count} call{'s'[: count > 1]})" for name, count in sorted(missing.items()))
        raise UnsupportedError(
            f"{len(missing)} operator{'s'[: len(missing) > 1]} of the model cannot be imported: {rows}",
            span=Span(source),
            hint="operators with a rule are listed in docs/operators.md",
        )


def target_name(target: Value) -> str:
    """`aten.add.Tensor`, `higher_order.cond`, or the name of a Python function."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"
    if hasattr(target, "namespace"):
        return f"{target.namespace}.{target.name() if callable(target.name) else target.name}"
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"


def bound(schema: FunctionSchema, arguments: Sequence[Value], named: Mapping[str, Value]) -> list[Value]:
    """The arguments in the order of the schema, with its defaults; places and layouts become None."""
    values = []
    for position, declared in enumerate(schema.arguments):
        value = declared.default_value if declared.has_default_value() else None
        if position < len(arguments):
            value = arguments[position]
        elif declared.name in named:
            value = named[declared.name]
        values.append(plain(value))
    return values


def plain(value: Value) -> Value:
    """A Python value without types of torch: dtypes by name, no devices, layouts and memory formats."""
    kind = type(value).__module__.split(".")[0], type(value).__name__
    if kind == ("torch", "dtype"):
        return _spelled(value)
    if kind[0] == "torch" and kind[1] in ("device", "layout", "memory_format"):
        return None
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


def constant_of(tensor: Tensor) -> Constant:
    """A tensor of torch as a constant, which shares its memory where the layout allows that."""
    return Constant(array_of(tensor))


def resolved(value: Value, values: Mapping[str, Value]) -> Value:
    """Arguments of a node with nodes replaced by what they stand for."""
    if isinstance(value, list | tuple):
        return [resolved(v, values) for v in value]
    if isinstance(value, dict):
        return {name: resolved(v, values) for name, v in value.items()}
    if isinstance(value, slice):
        return slice(*(resolved(v, values) for v in (value.start, value.stop, value.step)))
    return values[value.name] if type(value).__name__ == "Node" else value


def unpacked(value: Value) -> Value:
    """A tuple of tensors as a list of them."""
    if not isinstance(value, Expr):
        return value
    if isinstance(value, Tuple):
        return list(value.fields)
    ty = value.checked_type
    return [TupleGetItem(value, k) for k in range(len(ty.fields))] if isinstance(ty, TupleType) else value


def _flat(value: Value) -> list[Value]:
    return [v for part in value for v in _flat(part)] if isinstance(value, list | tuple) else [value]


def _dtypes(node: Node) -> list[str | None]:
    meta = node.meta.get("val")
    values = meta if isinstance(meta, list | tuple) else [meta]
    return [_spelled(v.dtype) if hasattr(v, "dtype") else None for v in values]


def _spelled(dtype: object) -> str:
    """The name of a dtype, which may be complex."""
    name = str(dtype).removeprefix("torch.")
    return name if name in PARTS else dtype_name(dtype)


def _summary(node: Node) -> str:
    return f"arguments: {node.args} {node.kwargs}"[:300]
