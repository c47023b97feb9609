"""Random well-typed Relay graphs, drawn from the table of operators.

In: a seed. Out: a `Drawn` graph: a function, arrays for its parameters, and the value of each output with its error
bar (graph_values.py). Invariant: the same seed and the same table of operators give the same graph; every node was
evaluated when it was drawn, so a graph is well-typed and its result is decided by more than rounding.
Every operator with `samples` takes part: a sample is used as it stands, fed from earlier results, or moved to other
shapes and attributes, where the type rule is the judge. graph_motifs.py adds what networks look like.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from graph_values import (
    Array,
    Reject,
    Value,
    apply,
    bundle,
    compared,
    field,
    is_float,
    leaf,
)

from armillary.base.dtype import DType
from armillary.relay.expr import Constant, Expr, Function, Let, Tuple, Var
from armillary.relay.op import OPS, Op, Sample
from armillary.relay.types import TensorType

FLOATS = ("float32", "float16", "float64", "bfloat16")
DTYPES = ("float32",) * 9 + (
    "float16",
    "int8",
    "uint8",
    "int32",
    "int32",
    "int64",
    "bool",
    "float64",
    "int16",
    "uint32",
)
SIZES = (1, 1, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17)
# Operators that mark parts for a library or a device, which the CPU alone is not; an order, which importers write.
LEFT_OUT = ("annotation.", "device_copy", "on_device", "bind_size", "equal_sizes", "run_after", "cpu.conv2d_by_size")
OF_MEMORY = ("in_place",)  # where a result lies, not what it is: only an input of the graph can be changed there


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A graph, its inputs and its outputs' values."""

    seed: int
    function: Function
    inputs: dict[str, Array]
    value: Value


class Draw:
    """The state of one drawing: random numbers, parameters so far, and the values to go on from."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.numpy = np.random.default_rng(seed)
        self.params: list[Var] = []
        self.inputs: dict[str, Array] = {}
        self.pool: list[Value] = []
        self.used: set[int] = set()
        self.special = self.random.random() < 0.04  # NaN and infinities among the inputs
        self.base_dtype = "float16" if self.random.random() < 0.07 else "float32"

    # --- leaves -------------------------------------------------------------------------------------------------------

    def dtype(self) -> str:
        """A dtype: the graph's float type mostly."""
        name = self.random.choice(DTYPES)
        return self.base_dtype if name == "float32" else name

    def shape(self, ndim: int | None = None) -> tuple[int, ...]:
        """A small shape, sometimes without dimensions."""
        count = self.random.choice((0, 1, 2, 2, 3, 3, 4, 4, 5)) if ndim is None else ndim
        while True:
            shape = tuple(self.random.choice(SIZES) for _ in range(count))
            if np.prod(shape, dtype=np.int64) <= 1500:
                return shape

    def array(self, shape: Sequence[int], dtype: str, low: float = -2.0, high: float = 2.0) -> Array:
        """Random values: spread, or multiples of 1/4 (ties and exact sums), rarely NaN and infinities."""
        kind = DType(dtype)
        if kind.is_bool:
            return np.asarray(self.numpy.integers(0, 2, shape)).astype(bool)
        if kind.is_int:
            wide = self.random.random() < 0.15 and (low, high) == (-2.0, 2.0)
            first, last = (kind.min_value, kind.max_value) if wide else (max(low * 3, kind.min_value), high * 3)
            last = min(last, kind.max_value)
            drawn = np.uint64 if last > np.iinfo(np.int64).max else np.int64
            values = self.numpy.integers(int(first), int(last), shape, dtype=drawn, endpoint=True)
            return np.asarray(values).astype(kind.numpy)
        values = np.asarray(self.numpy.uniform(low, high, shape))
        if self.random.random() < 0.2:
            values = np.clip(np.rint(values * 4) / 4, low, high)
        if self.special and values.size and (low, high) == (-2.0, 2.0):
            places = self.numpy.integers(0, values.size, 2)
            values.ravel()[places] = self.random.choice([np.nan, np.inf, -np.inf, -0.0, 1e-30])
        return values.astype(kind.numpy)

    def leaf(self, shape: Sequence[int], dtype: str, low: float = -2.0, high: float = 2.0, known: float = 0.4) -> Value:
        """A new input, or with probability `known` a constant."""
        return self.given(self.array(tuple(shape), dtype, low, high), known)

    def given(self, values: Array | np.generic, known: float = 1.0) -> Value:
        """These values as a constant or (if `known` < 1, perhaps) an input."""
        array = np.ascontiguousarray(values).reshape(values.shape)
        if self.random.random() < known:
            return leaf(Constant(array), array)
        param = Var(f"x{len(self.params)}", TensorType(array.shape, DType(array.dtype.name)))
        self.params.append(param)
        self.inputs[param.name_hint] = array
        return leaf(param, array)

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self, name: str, *args: Value, **attrs: Any) -> Value:
        """Apply an operator by name; several tensors for a variadic input come as one bundle."""
        op = OPS[name]
        return apply(op, op.make_attrs((), attrs), args, self.numpy)

    def keep(self, value: Value) -> Value:
        """Put a value (or the fields of a tuple) into the pool."""
        if value.is_tensor:
            self.pool.append(value)
        else:
            for k in range(len(value.base)):
                self.keep(field(value, k))
        return value

    def pick(self, ndim: int | None = None, dtype: str | None = None, kind: str = "") -> Value:
        """A value from the pool of that rank and dtype (or kind: float, int), newer ones sooner; else a new leaf."""
        fitting = [v for v in self.pool if _fits(v, ndim, dtype, kind)]
        if fitting and self.random.random() < 0.93:
            index = len(fitting) - 1 - int(self.random.expovariate(0.5))
            return fitting[index] if index >= 0 else self.random.choice(fitting)
        if dtype is None:
            dtype = {"float": self.base_dtype, "int": self.random.choice(("int32", "int64", "int8"))}.get(kind)
        made = self.leaf(self.shape(ndim), dtype or self.dtype())
        self.pool.append(made)
        return made

    def within(self, value: Value, low: float, high: float) -> Value:
        """The value itself where it lies in an interval, else brought into it."""
        if not value.base.size or (value.base.min() >= low and value.base.max() <= high):
            return value
        if is_float(value.base) and self.random.random() < 0.5:
            dtype = value.base.dtype.name
            width, start = (self.given(np.asarray(v, value.base.dtype)) for v in ((high - low) * 0.9, low))
            start = self.given(np.asarray(low + (high - low) * 0.05, dtype))
            return self.call("add", self.call("multiply", self.call("sigmoid", value), width), start)
        return self.call("clip", value, a_min=float(low), a_max=float(high))

    def fitted(self, wanted: TensorType, low: float, high: float) -> Value:
        """A value of exactly this type, made from the pool where that is possible."""
        same = [v for v in self.pool if v.type == wanted]
        if same and self.random.random() < 0.8:
            return self.within(self.random.choice(same), low, high) if not wanted.dtype.is_bool else same[-1]
        size = wanted.size
        sources = [v for v in self.pool if v.base.size >= size > 0 and v.base.dtype == wanted.dtype.numpy]
        if not sources or self.random.random() < 0.4:
            return self.leaf(wanted.static, wanted.dtype, low, high)
        flat = self.call("reshape", self.random.choice(sources), newshape=(-1,))
        if flat.base.size > size:
            start = self.random.randint(0, flat.base.size - size)
            flat = self.call("strided_slice", flat, begin=(start,), end=(start + size,))
        value = self.call("reshape", flat, newshape=wanted.static)
        return value if wanted.dtype.is_bool else self.within(value, low, high)

    # --- operators by their samples -----------------------------------------------------------------------------------

    def from_samples(self, name: str) -> Value:
        """A call of an operator after one of its samples."""
        op = OPS[name]
        samples = samples_of(name)
        sample = self.random.choice(samples)
        attrs = sample.attrs if self.random.random() < 0.5 else self._other_attrs(op, sample, samples)
        move = not name.startswith("qnn.") and self.random.random() < 0.6
        args = [self._argument(name, want, sample, move) for want in sample.inputs]
        return apply(op, attrs, args, self.numpy)

    def _argument(self, name: str, want: Any, sample: Sample, move: bool) -> Value:
        if isinstance(want, tuple | list):
            return bundle([self._argument(name, w, sample, False) for w in want])
        low, high = sample.domain
        if not isinstance(want, TensorType):
            known = 1.0 if name.startswith(("qnn.", "ml.")) or self.random.random() < 0.7 else 0.0
            return self.given(np.asarray(want), known)
        if not move:
            return self.fitted(want, low, high)
        ndim = want.ndim if self.random.random() < 0.7 else None
        kind = "float" if want.dtype.is_float else "int" if want.dtype.is_int else ""
        value = self.pick(ndim, "bool" if want.dtype.is_bool else None, kind)
        return value if want.dtype.is_bool or (low, high) == (-2.0, 2.0) else self.within(value, low, high)

    def _other_attrs(self, op: Op, sample: Sample, samples: Sequence[Sample]) -> Any:
        """The sample's attributes with one or two fields of another sample, or moved a little."""
        if op.attrs_class is None:
            return None
        changes = {}
        names = [f.name for f in dataclasses.fields(op.attrs_class) if f.name not in OF_MEMORY]
        for name in self.random.sample(names, min(len(names), self.random.choice((1, 1, 2)))):
            old = getattr(sample.attrs, name)
            other = getattr(self.random.choice(samples).attrs, name, old)
            changes[name] = other if self.random.random() < 0.5 else self._moved(old)
        return dataclasses.replace(sample.attrs, **changes)

    def _moved(self, value: Any) -> Any:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return value + self.random.choice((-1, 1, 1, 2))
        if isinstance(value, float):
            return value * self.random.choice((0.5, 2.0, -1.0))
        if isinstance(value, tuple) and value and all(isinstance(v, int) for v in value):
            changed = list(value)
            place = self.random.randrange(len(changed))
            changed[place] = self._moved(changed[place])
            return tuple(changed if self.random.random() < 0.7 else self.random.sample(changed, len(changed)))
        return value


def _fits(value: Value, ndim: int | None, dtype: str | None, kind: str) -> bool:
    if ndim is not None and value.base.ndim != ndim:
        return False
    if dtype is not None and value.base.dtype != DType(dtype).numpy:
        return False
    if kind == "float":
        return is_float(value.base)
    return not kind or (kind == "int" and value.base.dtype.kind in "iu")


_SAMPLES: dict[str, list[Sample]] = {}


def samples_of(name: str) -> list[Sample]:
    """The samples of an operator."""
    if name not in _SAMPLES:
        source = OPS[name].sample_source
        _SAMPLES[name] = list(source()) if source is not None else []
    return _SAMPLES[name]


def drawable() -> list[str]:
    """The operators that take part."""
    return [name for name in sorted(OPS) if not name.startswith(LEFT_OUT) and samples_of(name)]


# --- putting a graph together ---------------------------------------------------------------------------------------


def finish(draw: Draw) -> Drawn | None:
    """The function whose outputs are the values nobody reads (some at least); None where they say nothing."""
    read = {id(e) for v in draw.pool for e in _reads(v.expr)}
    ends = [v for v in draw.pool if id(v.expr) not in read and not isinstance(v.expr, Var | Constant)]
    others = [v for v in draw.pool if v not in ends and not isinstance(v.expr, Constant)]
    chosen = ends[-4:]
    if others and draw.random.random() < 0.35:
        chosen.insert(draw.random.randint(0, len(chosen)), draw.random.choice(others))
    if not any(compared(v) for v in chosen if not isinstance(v.expr, Var | Constant)):
        return None
    value = chosen[0] if len(chosen) == 1 and draw.random.random() < 0.8 else bundle(_nested(draw, chosen))
    params = _used_params(draw, value.expr)
    inputs = {p.name_hint: draw.inputs[p.name_hint] for p in params}
    return Drawn(draw.seed, Function(params, value.expr), inputs, value)


def _nested(draw: Draw, values: list[Value]) -> list[Value]:
    if len(values) > 2 and draw.random.random() < 0.1:
        return [values[0], bundle(values[1:])]
    return values


def _reads(expr: Expr) -> list[Expr]:
    seen: dict[int, Expr] = {}
    stack = list(_children(expr))
    while stack:
        item = stack.pop()
        if id(item) not in seen:
            seen[id(item)] = item
            stack.extend(_children(item))
    return list(seen.values())


def _children(expr: Any) -> list[Expr]:
    if isinstance(expr, Tuple):
        return list(expr.fields)
    if isinstance(expr, Let):
        return [expr.value, expr.body]
    names = ("args", "tuple_value", "cond", "true_branch", "false_branch")
    found: list[Expr] = []
    for name in names:
        part = getattr(expr, name, ())
        found.extend(part if isinstance(part, tuple) else (part,))
    op = getattr(expr, "op", None)
    return [*found, op.body] if isinstance(op, Function) else found


def _used_params(draw: Draw, root: Expr) -> tuple[Var, ...]:
    used = {id(e) for e in (root, *_reads(root))}
    return tuple(p for p in draw.params if id(p) in used)


def rejected(draw: Draw, step: Callable[[Draw], Value]) -> bool:
    """Try one step; whether it was rejected (parameters that it made stay unused)."""
    try:
        draw.keep(step(draw))
    except Reject:
        return True
    return False
