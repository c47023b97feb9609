"""The Op record: everything about one operator, in one value.

In: an operator's file in `ops/` creates `Op("nn.softmax", kind=Kind.REDUCE, inputs=("data",))` and attaches facets
with decorators: attrs, infer, reference, compute, layout, samples, bad_samples. Out: the record, found by
name with `get_op`, and callable: `softmax(x, axis=-1)` builds a Call (inputs first, then attributes in field order).
Invariant: an op has attrs (or none), infer and reference; and compute or decompose. Names are unique.
Tests, `docs/operators.md` and benchmarks are generated from these records.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

from armillary.base import slots
from armillary.base.aliases import AnyFunction
from armillary.base.aliases import Array as Array
from armillary.base.boundary import boundary, bounded
from armillary.base.dtype import DType
from armillary.base.lazy import deferred, lazy_names, similar
from armillary.base.record import record
from armillary.errors import ArmillaryError, ConfigError, ExecutionError, InternalError, TypeMismatch, UnsupportedError
from armillary.ir import BaseFunc
from armillary.relay.expr import Call, Constant, Expr, Tuple, as_expr
from armillary.relay.lazy_registry import LazyRegistry, current_name
from armillary.relay.op.attribute_values import attribute_values as _attribute_values
from armillary.relay.op.attribute_values import freeze as _freeze
from armillary.relay.op.facts import Axes, Fact, Follows, Precision
from armillary.relay.types import TensorType, Type
from armillary.target.generic_func import GenericFunc
from armillary.target.target import Target

if TYPE_CHECKING:
    from armillary.tir.expr import Callee

with deferred():
    from armillary.base.old_modules import old_name as _old_name
    from armillary.tir.intrinsics import callee_of as _callee_of
_REGISTERS = (
    "register_alter_op_layout",
    "register_convert_op_layout",
    "register_infer_correct_layout",
    "register_pattern",
    "register_stateful",
)
_STRATEGIES = (
    "OpImplementation",
    "OpStrategy",
    "register_broadcast_schedule",
    "register_compute",
    "register_injective_schedule",
    "register_reduce_schedule",
    "register_schedule",
    "register_strategy",
)
_resolve, __dir__ = lazy_names(
    __name__,
    {
        "OpPattern": f"{__name__}.attributes:OpPattern",
        "const": "armillary.relay.expr:const",
        "contrib": "armillary.relay.op.contrib",
        "op": __name__,
        "own_strategy": "armillary.relay.backend.lowering:own_strategy",
        "register": f"{__name__}.attributes:register",
        "register_gradient": "armillary.ops.gradient.rules:register_gradient",
        **{name: f"{__name__}.attributes:{name}" for name in _REGISTERS},
        "strategy": f"{__name__}.strategy",
        **{name: f"{__name__}.strategy:{name}" for name in _STRATEGIES},
    },
)


def __getattr__(name: str) -> Any:  # Any: a module, an operator or a namespace of operators
    """`relay.op.add`, `relay.op.nn.conv2d`: what `relay.add` and `relay.nn.conv2d` are."""
    with suppress(AttributeError):
        return _resolve(name)
    result = None if name.startswith("__") else slots.find_operator(name)
    return _old_name(__name__, name) if result is None else result


STRATEGY, COMPUTE = "FTVMStrategy", "FTVMCompute"  # under which strategy.py holds what a script says of an operator


class Kind(enum.IntEnum):
    """How an operator takes part in fusion; the numbers are Relay's op patterns."""

    ELEMENTWISE = 0  # one output element from the same element of each input
    BROADCAST = 1  # as above, inputs broadcast
    INJECTIVE = 2  # each output element from one input element elsewhere (reshape, transpose, concatenate…)
    REDUCE = 3  # a commutative reduction of one input
    CONTRACTION = 4  # convolution, dense, matmul, pooling: elementwise consumers may fuse into its output
    TUPLE = 7
    OPAQUE = 8  # never fused


@record
class Sample:
    """One use of an operator for the generated tests: attrs, then input types or arrays.

    An input given as an array (indices, shapes, non-negative data…) is used as it is; a TensorType is filled with
    random values in `domain`. `rtol`/`atol` of None mean the default for the dtype.
    """

    attrs: Any
    inputs: tuple[object, ...]
    domain: tuple[float, float] = (-2.0, 2.0)
    rtol: float | None = None
    atol: float | None = None


@record
class BadSample:
    """A misuse of an operator and a part of the message it must give."""

    attrs: Any
    inputs: tuple[object, ...]
    message: str


OPS: LazyRegistry[str, Op] = LazyRegistry(str)


def _broadcast(types: Sequence[Type], attrs: object) -> TensorType:
    """The type of two tensors that are combined element by element."""
    del attrs
    left, right = types
    if not isinstance(left, TensorType) or not isinstance(right, TensorType) or left.dtype != right.dtype:
        raise TypeMismatch(f"the type relation Broadcast is of two tensors of one dtype, got {left} and {right}")
    wide, narrow = sorted((left.shape, right.shape), key=len, reverse=True)
    padded = (*([1] * (len(wide) - len(narrow))), *narrow)
    for a, b in zip(wide, padded, strict=True):
        if a != b and 1 not in (a, b):
            raise TypeMismatch(f"the shapes {left.shape} and {right.shape} do not broadcast")
    return TensorType(tuple(b if a == 1 else a for a, b in zip(wide, padded, strict=True)), left.dtype)


def _compared(types: Sequence[Type], attrs: object) -> TensorType:
    return TensorType(_broadcast(types, attrs).shape, DType("bool"))


KNOWN_RELATIONS: dict[str, Callable[..., Type | None]] = {
    "Identity": lambda types, attrs: types[0],
    "Broadcast": _broadcast,
    "BroadcastComp": _compared,
}


@bounded
class Op(Expr):
    """An operator. `inputs` names its tensor arguments ("*data" as last: any number, passed as one Tuple)."""

    __slots__ = (
        "arity",
        "attrs_class",
        "bad_sample_source",
        "complete_rule",
        "compute_rule",
        "decompose_rule",
        "doc",
        "expands",
        "facts",
        "fast",
        "flops_rule",
        "infer_rule",
        "inputs",
        "kind",
        "layout_axes",
        "layout_follows",
        "layout_rule",
        "macs_rule",
        "name",
        "precision",
        "quantized",
        "reads_rule",
        "reference_rule",
        "sample_source",
        "simplify_after_layouts",
        "simplify_rules",
        "stateful",
        "wider",
    )

    def __init__(self, name: str, *, kind: Kind, inputs: Sequence[str] = ("data",), doc: str = "") -> None:
        if OPS.is_taken(name):
            raise ConfigError(f"operator {name!r} is defined twice", hint="give the new one another name")
        self.name, self.kind, self.inputs, self.doc = name, kind, tuple(inputs), doc
        self.attrs_class: type | None = None
        self.infer_rule: Callable[..., Type] | None = None
        self.complete_rule: Callable[..., Sequence[Type | None]] | None = None
        self.reference_rule: AnyFunction | None = None
        self.compute_rule: AnyFunction | None = None
        self.decompose_rule: Callable[..., Expr | None] | None = None
        self.simplify_rules: tuple[Callable[[Call], Expr | None], ...] = ()
        self.simplify_after_layouts = False
        self.layout_rule: AnyFunction | None = None
        self.flops_rule: Callable[..., float] | None = None
        self.macs_rule: Callable[..., int] | None = None
        self.reads_rule: Callable[..., Sequence[int]] | None = None
        self.sample_source: Callable[[], Iterator[Sample]] | None = None
        self.bad_sample_source: Callable[[], Iterator[BadSample]] | None = None
        self.facts: frozenset[Fact] = frozenset()
        self.precision: Precision | None = None
        self.layout_follows: Follows | None = None
        self.layout_axes: Axes | None = None  # of an operator that can be asked for a layout
        self.fast = ""  # the name of an approximation that takes a fraction of the time
        self.quantized = ""  # the name of what the qnn dialect has for it, of integers with scales and zero points
        self.wider = ""  # the name of the same over one more axis of the data
        self.stateful = False
        self.expands = False  # makes weights larger: stays in the graph and runs when they are loaded
        OPS[name] = self

    def __repr__(self) -> str:
        return f"Op({self.name})"

    @property
    def variadic(self) -> bool:
        """Whether the tensors come as one Tuple (concatenate, stack…)."""
        return bool(self.inputs) and self.inputs[-1].startswith("*")

    def attrs(self, cls: type) -> type:
        """Facet: the frozen dataclass of attributes, with names, types and defaults."""
        self.attrs_class = cls
        for name, method in _MAPPING.items():
            setattr(cls, name, method)
        return cls

    def infer(self, rule: Callable[..., Type]) -> Callable[..., Type]:
        """Facet: (attrs, *input types) -> type. Raises TypeMismatch with got and wanted.

        attrs is None for an operator without attributes.
        """
        self.infer_rule = rule
        return rule

    def complete(self, rule: Callable[..., Sequence[Type | None]]) -> Callable[..., Sequence[Type | None]]:
        """Facet: (attrs, *input types, None for variables without one) -> types of all, None where still unknown."""
        self.complete_rule = rule
        return rule

    def reference(self, rule: Callable[..., object]) -> AnyFunction:
        """Facet: (attrs, *arrays) -> array or tuple of arrays. The definition of correct."""
        self.reference_rule = rule
        return rule

    def compute(self, rule: Callable[..., object]) -> AnyFunction:
        """Facet: (attrs, *te tensors) -> te tensor or list of them."""
        self.compute_rule = rule
        return rule

    def decompose(self, rule: Callable[..., Expr | None]) -> Callable[..., Expr | None]:
        """Facet: (attrs, *exprs) -> expr made of other operators, or None to stay; applied by simplify-inference."""
        self.decompose_rule = rule
        return rule

    def simplify(self, *rules: Callable[[Call], Expr | None], after_layouts: bool = False) -> None:
        """Facet: (call) -> something smaller that means the same, or None; the first that gives something holds.

        `after_layouts`: the rules leave which operators compute, so they are asked again once layouts are chosen.
        """
        self.simplify_rules, self.simplify_after_layouts = rules, after_layouts

    def layout(self, rule: Callable[..., object]) -> AnyFunction:
        """Facet: how the op follows layouts; see backends/cpu/graph/alter_op_layout.py."""
        self.layout_rule = rule
        return rule

    def flops(self, rule: Callable[..., float]) -> Callable[..., float]:
        """Facet: (attrs, input types, result type) -> operations done, where they differ from two per multiply-add."""
        self.flops_rule = rule
        return rule

    def macs(self, rule: Callable[..., int]) -> Callable[..., int]:
        """Facet of contractions: (attrs, input types, result type) -> multiply-adds of the definition (op/macs.py)."""
        self.macs_rule = rule
        return rule

    def reads(self, rule: Callable[..., Sequence[int]]) -> Callable[..., Sequence[int]]:
        """Facet: (attrs, input types, result type) -> bytes read of each input, where it is not all of it."""
        self.reads_rule = rule
        return rule

    def samples(self, source: Callable[[], Iterator[Sample]]) -> Callable[[], Iterator[Sample]]:
        """Facet: uses of the op; feeds every generated test and benchmark."""
        self.sample_source = source
        return source

    def bad_samples(self, source: Callable[[], Iterator[BadSample]]) -> Callable[[], Iterator[BadSample]]:
        """Facet: misuses and what the message must say."""
        self.bad_sample_source = source
        return source

    # what scripts of the Relay era say of an operator of their own (relay/op/attributes.py: register)

    def set_num_inputs(self, n: int) -> None:
        """How many tensors the operator takes."""
        known = self.inputs[:n]
        self.inputs = (*known, *(f"data_{k}" for k in range(len(known), n)))

    def add_argument(self, name: str, type: str = "", description: str = "") -> None:
        """The name of the next tensor; its type and description are not kept."""
        del type, description
        place = next((k for k, known in enumerate(self.inputs) if known == f"data_{k}"), len(self.inputs))
        self.inputs = (*self.inputs[:place], name, *self.inputs[place + 1 :])

    def add_type_rel(self, rel_name: str, type_rel_func: Callable[..., Type | None] | None = None) -> None:
        """The rule of the result's type: a function of (input types, attributes), or the name of a known one."""
        rule = type_rel_func or KNOWN_RELATIONS.get(rel_name)
        if rule is None:
            hint = f"pass a function, or one of {', '.join(KNOWN_RELATIONS)}"
            raise ConfigError(f"operator {self.name}: there is no type relation {rel_name!r}", hint=hint)

        def infer(attrs: object, *types: Type) -> Type:
            result = rule(list(types), attrs)
            if result is None:
                raise TypeMismatch(f"{self.name}: the type relation {rel_name} gave no type for {types}")
            return result

        self.infer_rule = infer

    def set_support_level(self, level: int) -> None:
        """Accepted: there are no levels."""

    def set_attrs_type_key(self, key: str) -> None:
        """Accepted: an operator without a class of attributes has none."""

    def __call__(self, *args: object, **attrs: object) -> Call:  # expressions, arrays, numbers; attribute values
        """A Call: tensor arguments first, then attributes, by position in field order or by name."""
        count = len(self.inputs)
        positional = list(args[:count])
        for name in self.inputs[len(positional) :]:
            if name.lstrip("*") in attrs:
                positional.append(attrs.pop(name.lstrip("*")))
        if len(positional) != count:
            raise TypeMismatch(f"{self.name}: expected {count} tensor arguments {self.inputs}, got {len(positional)}")
        tensors = self._tensors(positional)
        if any(isinstance(value, Expr) for value in (*args[count:], *attrs.values())) and self.attrs_class is not None:
            return self._of_values(tensors, args[count:], attrs)
        return Call(self, tensors, self.make_attrs(args[count:], attrs))

    def _of_values(self, tensors: tuple[Expr, ...], positional: Sequence[object], named: dict[str, object]) -> Call:
        """A call with expressions for attributes: numbers where they are known, else `dynamic`."""
        names = [f.name for f in dataclasses.fields(self.attrs_class or object)]
        values_by_name = {**named, **dict(zip(names, positional, strict=False))}
        known = {n: slots.static_attribute(v) if isinstance(v, Expr) else v for n, v in values_by_name.items()}
        values = {n: v for n, v in values_by_name.items() if isinstance(v, Expr) and known[n] is None}
        settings = {n: _freeze(v) for n, v in known.items() if n not in values}
        if not values or len(positional) > len(names) or not set(values_by_name) <= set(names):
            return Call(self, tensors, self.make_attrs(positional[len(names) :], known))
        return slots.dynamic_call(self, tensors, settings, values)

    def _tensors(self, operands: list[object]) -> tuple[Expr, ...]:
        if self.variadic and isinstance(operands[-1], tuple | list):
            operands[-1] = Tuple(tuple(as_expr(v) for v in operands[-1]))
        like = next((g for g in operands if isinstance(g, Expr)), None)
        return tuple(as_expr(g, like) for g in operands)

    def of_text(self, args: Sequence[Expr], named: dict[str, object]) -> Call:
        """A call as texts write it: of some operators (nn.pad) an attribute stands behind the tensors."""
        also: tuple[str, ...] = getattr(self.attrs_class, "_behind", ())
        count = len(self.inputs)
        if count < len(args) <= count + len(also):
            return self(*args[:count], **named, **dict(zip(also, args[count:], strict=False)))
        return Call(self, tuple(args), self.make_attrs((), named))

    def make_attrs(self, positional: Sequence[object] = (), named: dict[str, object] | None = None) -> Any:
        """The attrs value; lists become tuples, names are checked."""
        named = dict(named or {})
        if self.attrs_class is None:
            if positional or named:
                raise TypeMismatch(f"{self.name} takes no attributes, got {list(positional) + sorted(named)}")
            return None
        names = [f.name for f in dataclasses.fields(self.attrs_class)]
        if len(positional) > len(names):
            raise TypeMismatch(f"{self.name}: too many arguments; its attributes are {', '.join(names)}")
        named.update(zip(names, positional, strict=False))
        also: Mapping[str, str] = getattr(self.attrs_class, "_also", {})  # other names that scripts use
        named = {also.get(name, name): value for name, value in named.items()} if also else named
        unknown = sorted(set(named) - set(names))
        if unknown:
            raise TypeMismatch(f"{self.name}: unknown attribute {unknown[0]!r}", hint=f"it has: {', '.join(names)}")
        for name, value in named.items():
            if isinstance(value, Expr):
                named[name] = self._known(name, value)
        fields = {f.name: f for f in dataclasses.fields(self.attrs_class)}
        try:
            return self.attrs_class(**_attribute_values(self.name, fields, named))
        except TypeError as error:
            raise TypeMismatch(f"{self.name}: {error}", hint=f"its attributes are {', '.join(names)}") from None

    def _known(self, name: str, value: Expr) -> Any:  # Any: an attribute's value
        """The value of an attribute that is given as an expression, which must not depend on inputs."""
        result = slots.static_attribute(value)
        if result is None:
            hint = f"its tensor arguments are {', '.join(self.inputs)}; attributes are known when the graph is made"
            raise TypeMismatch(f"{self.name}: attribute {name!r} is a value, got a tensor expression", hint=hint)
        return result

    @property
    def num_inputs(self) -> int:
        """How many arguments a call has."""
        return len(self.inputs)

    @staticmethod
    def get(op_name: str) -> Op | Callee:
        """The operator of a name, `ir.Op.get("nn.conv2d")`; of an intrinsic, `"tir.exp"`, what `tir.Call` calls."""
        callee: Callee | None = _callee_of(op_name)
        return get_op(op_name) if callee is None else callee

    def get_attr(self, attr_name: str) -> Any:  # Any: a rule or a value
        """What `register_op_attr` holds for this operator; None where there is nothing."""
        if attr_name == "TOpPattern":
            return int(self.kind)
        held = self.registered(attr_name)
        if held is None and attr_name == STRATEGY and self.compute_rule is not None:
            return self.own_strategy
        return held

    @property
    def own_strategy(self) -> AnyFunction:
        """What a build takes, as a rule of scripts."""
        return partial(_resolve("own_strategy"), self)

    def registered(self, attr_name: str) -> AnyFunction | None:
        """The rule that a script has registered for this operator; None where there is nothing."""
        held = LEGALIZE_RULES.get(attr_name, {}).get(self.name)
        return None if held is None else held[1]

    def has_attr(self, attr_name: str) -> bool:
        """Whether there is something."""
        return self.get_attr(attr_name) is not None

    @property
    def is_scripted(self) -> bool:
        """Whether a script says how the operator is computed for the current target."""
        return self.is_scripted_for(Target.current())

    def is_scripted_for(self, target: Target | None) -> bool:
        """Whether a script says how it is computed for a target (strategy.py); None: for some target."""
        rule = self.registered(STRATEGY)
        is_said = rule is not None and (not isinstance(rule, GenericFunc) or rule.covers(target))
        return is_said or self.registered(COMPUTE) is not None

    def set_attr(self, attr_name: str, value: object, plevel: int = 10) -> None:  # a rule or a value
        """Hold a value under a name, unless one of a higher level is there."""
        register_op_attr(self.name, attr_name, value, plevel)

    def reset_attr(self, attr_name: str) -> None:
        """Forget what is held under a name."""
        LEGALIZE_RULES.get(attr_name, {}).pop(self.name, None)

    def infer_type(self, attrs: object, types: Sequence[Type]) -> Type:
        """The result type of a call."""
        if self.infer_rule is None:
            raise InternalError(f"operator {self.name} has no type rule")
        if len(types) != len(self.inputs):
            raise TypeMismatch(f"{self.name}: expected {len(self.inputs)} arguments {self.inputs}, got {len(types)}")
        try:
            return self.infer_rule(attrs, *types)
        except ArmillaryError:
            raise
        except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
            message = f"{self.name}: no type for these arguments: {type(error).__name__}: {error}"
            raise TypeMismatch(message, hint=f"{', '.join(map(str, types))}; {attrs}"[:300]) from error

    def evaluate(self, attrs: object, arrays: Sequence[object]) -> Any:
        """The reference result: an array or a tuple of arrays. A variadic last input is a tuple of arrays."""
        if self.reference_rule is None:
            raise UnsupportedError(f"operator {self.name} has no reference implementation")
        try:
            return self.reference_rule(attrs, *arrays)
        except ArmillaryError:
            raise
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            problem = f"{self.name}: no value for these arguments: {type(error).__name__}: {error}"
            raise ExecutionError(problem, hint="constants among them are what a fold sees first") from error


def _attribute(self: object, key: str) -> object:  # attributes of any operator
    try:
        return getattr(self, key)
    except AttributeError:
        raise KeyError(key) from None


def _names_of(self: Any) -> list[str]:  # Any: attributes of any operator
    return [f.name for f in dataclasses.fields(self)]


# Attributes also read like a mapping, as Relay-era scripts write it: `relay.nn.conv2d(x, w, **call.attrs)`.
_MAPPING: dict[str, AnyFunction] = {
    "__getitem__": _attribute,
    "keys": _names_of,
    **dict.fromkeys(("get_int", "get_str", "get_int_tuple"), _attribute),
    "list_field_info": lambda self: list(dataclasses.fields(self)),
}


@boundary("get", arguments=True)
def get(op_name: str) -> Op:
    """The operator of a name, as scripts ask for it: `relay.op.get("nn.conv2d")`."""
    return get_op(op_name)


@boundary("relay.op.get_op", arguments=True)
def get_op(name: str) -> Op:
    """The operator of that name, or of the one that it had before."""
    if OPS.registered(name) is None:
        name = current_name(name)
    if name not in OPS:
        close = sorted((n for n in OPS if name.split(".")[-1] in n), key=lambda n: (len(n), n))[:5]
        close = close or similar(name, OPS, 3, 0.6)
        hint = f"similar: {', '.join(close)}" if close else "docs/operators.md lists them"
        raise UnsupportedError(f"there is no operator {name!r}", hint=hint)
    return OPS[name]


def state(
    names: str,
    *facts: Fact,
    precision: Precision | None = None,
    follows: Follows | None = None,
    axes: Axes | None = None,
    fast: str = "",
    quantized: str = "",
    wider: str = "",
) -> None:
    """State facts of operators that the calling file defines; `names` are separated by blanks."""
    for name in names.split():
        op = OPS.registered(name)
        if op is None:
            raise InternalError(f"a fact is stated of {name!r} in a file that does not define it")
        op.facts |= frozenset(facts)
        op.precision = precision if op.precision is None else op.precision
        op.layout_follows = follows if op.layout_follows is None else op.layout_follows
        op.layout_axes = axes if op.layout_axes is None else op.layout_axes
        op.fast = fast or op.fast
        op.quantized, op.wider = quantized or op.quantized, wider or op.wider


def has(expr: object, *facts: Fact) -> bool:
    """Whether `expr` is a call of an operator that states one of the facts."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and not expr.op.facts.isdisjoint(facts)


def is_call(expr: object, *names: str) -> TypeGuard[Call]:
    """Whether `expr` is a call of one of the named operators."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name in names


# --- what users register: above all rules for the passes legalize, qnn-legalize, qnn-canonicalize ------------------

LegalizeRule = Callable[[Any, Sequence[Expr], Sequence[Type]], Expr | None]  # Any: attributes
LEGALIZE_RULES: dict[str, dict[str, tuple[int, LegalizeRule]]] = {}  # by the Relay-era attribute name, then operator


def register_legalize(
    op_name: str, legal_op: LegalizeRule | None = None, level: int = 10, *, kind: str = "FTVMLegalize"
) -> Any:
    """Say how a call of an operator is written otherwise: `rule(attrs, inputs, types) -> expression, or None to stay`.

    `types` are those of the inputs, then that of the result. Of two rules for an operator the one of the higher level
    holds. The rule runs under `with target:`, so `Target.current()` tells what is compiled for. Also a decorator.
    """

    return register_op_attr(op_name, kind, legal_op, level)


@boundary("relay.op.register_op_attr", arguments=True)
def register_op_attr(op_name: str, attr_key: str, value: object = None, level: int = 10) -> Any:  # Any: rules, values
    """Hold a value, usually a rule, for an operator under a name; also a decorator. The higher level holds."""

    def register(held: Any) -> Any:
        rules = LEGALIZE_RULES.setdefault(attr_key, {})
        old = rules.get(op_name)
        if old is not None and old[0] == level:
            raise ConfigError(f"operator {op_name!r} has a {attr_key} rule of level {level} already")
        if old is None or old[0] < level:
            rules[op_name] = (level, held)
        return held

    return register(value) if value is not None else register


def constant_value(expr: Expr) -> Array | None:
    """The array of a Constant, else None."""
    return expr.data if isinstance(expr, Constant) else None


def is_primitive(expr: object) -> bool:
    """Whether `expr` is a function that becomes one kernel."""
    return isinstance(expr, BaseFunc) and bool(expr.get_attr("Primitive", 0))
