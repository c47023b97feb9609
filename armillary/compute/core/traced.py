"""Bodies of window loops as kernels: a Python function of iterators runs once, on symbols, and becomes native loops.

In: a window, a body, what tells iterators of a trace. Out: `traced`, what runs the kernel, which does at each place
what the body does, in the same order. Invariant: types and wrapping are numpy's (a result has the type that numpy gives
for a sample), nothing is fused; what numpy refuses, or leaves to the machine, is not traced (`Untraceable`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from armillary import tir
from armillary.base.aliases import AnyFunction, NumpyDtype
from armillary.base.once import Once
from armillary.base.record import record
from armillary.compute.core.loop_kernel import CompiledLoops
from armillary.compute.core.window import NUM_MAX_DIMENSIONS, Window
from armillary.errors import ArmillaryError
from armillary.tir import build as T
from armillary.tir.expr import BufferLoad, Expr, Var
from armillary.tir.ir_builder import IRBuilder
from armillary.tir.ir_builder import Value as Anything
from armillary.tir.stmt import Buffer, BufferStore, PrimFunc

Bytes = npt.NDArray[np.uint8]
_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_TYPES = {np.dtype(name) for name in (*_WHOLE, "float32", "float64")}
_EXACT = {"float32": 1 << 24, "float64": 1 << 53}
_PYTHON = "int"  # the type of a whole number of Python, which has no size
_kernels: Once[CompiledLoops] = Once()


class Untraceable(Exception):
    """The body does what a kernel does not."""


def _refuse(*_: object, **__: object) -> Anything:
    raise Untraceable


_ARITHMETIC: dict[AnyFunction, Callable[..., Expr]] = {
    operator.add: T.add,
    operator.sub: T.sub,
    operator.mul: T.mul,
    operator.truediv: T.div,
    operator.and_: T.bitwise_and,
    operator.or_: T.bitwise_or,
    operator.xor: T.bitwise_xor,
    operator.lt: T.less,
    operator.le: T.less_equal,
    operator.gt: T.greater,
    operator.ge: T.greater_equal,
    operator.eq: T.equal,
    operator.ne: T.not_equal,
    np.maximum: T.maximum,
    np.minimum: T.minimum,
}
_OF_PYTHON = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)
_UFUNCS: dict[object, AnyFunction] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.maximum: np.maximum,
    np.minimum: np.minimum,
}


def _forward(function: AnyFunction) -> Callable[[Value, Anything], Value]:
    return lambda self, other: _combined(function, self, other)


def _backward(function: AnyFunction) -> Callable[[Value, Anything], Value]:
    return lambda self, other: _combined(function, other, self)


class Value:
    """A number that is known when the kernel runs; `low` and `high`: of Python's whole numbers, what it is between."""

    def __init__(self, expr: Expr, dtype: str, low: int = 0, high: int = 0) -> None:
        self.expr, self.dtype, self.low, self.high = expr, dtype, low, high

    __add__, __radd__ = _forward(operator.add), _backward(operator.add)
    __sub__, __rsub__ = _forward(operator.sub), _backward(operator.sub)
    __mul__, __rmul__ = _forward(operator.mul), _backward(operator.mul)
    __truediv__, __rtruediv__ = _forward(operator.truediv), _backward(operator.truediv)
    __floordiv__, __mod__ = _forward(operator.floordiv), _forward(operator.mod)
    __and__, __rand__ = _forward(operator.and_), _backward(operator.and_)
    __or__, __ror__ = _forward(operator.or_), _backward(operator.or_)
    __xor__, __rxor__ = _forward(operator.xor), _backward(operator.xor)
    __lt__, __le__ = _forward(operator.lt), _forward(operator.le)
    __gt__, __ge__ = _forward(operator.gt), _forward(operator.ge)
    __eq__, __ne__ = _forward(operator.eq), _forward(operator.ne)  # type: ignore[assignment]  # they build nodes
    __bool__ = __int__ = __float__ = __index__ = __str__ = __hash__ = _refuse
    __repr__ = __format__ = __iter__ = __len__ = __array__ = _refuse

    def __neg__(self) -> Value:
        return _combined(operator.mul, self, -1)

    def astype(self, dtype: object) -> Value:
        """As of a number of numpy; a real one stays real, for what becomes of others is the machine's."""
        if self.dtype == _PYTHON:
            raise Untraceable
        return _converted(self, np.dtype(dtype))  # type: ignore[call-overload]  # numpy judges it

    def __array_ufunc__(self, ufunc: object, method: str, *inputs: Anything, **options: object) -> Value:
        if ufunc not in _UFUNCS or method != "__call__" or options or len(inputs) != 2:
            raise Untraceable
        return _combined(_UFUNCS[ufunc], *inputs)

    def __array_function__(
        self, function: object, types: object, args: tuple[Anything, ...], options: dict[str, object]
    ) -> Value:
        if options or len(args) != 3 or function not in (np.where, np.clip):
            raise Untraceable
        return _chosen(*args) if function is np.where else np.minimum(np.maximum(args[0], args[1]), args[2])


def _sample(value: Anything) -> Anything:
    """A number of the same type, and the same number where it is known."""
    if not isinstance(value, Value):
        return value
    return 1 if value.dtype == _PYTHON else np.dtype(value.dtype).type(1)


def _converted(value: Anything, dtype: NumpyDtype) -> Value:
    """In another type, as numpy converts it."""
    name = dtype.name
    if dtype not in _TYPES:
        raise Untraceable
    if not isinstance(value, Value):
        known = dtype.type(value)  # OverflowError: Python's number does not fit
        if not np.isfinite(known):
            raise Untraceable
        return Value(T.const(known.item(), name), name)
    if value.dtype == _PYTHON:
        most = _EXACT.get(name, 0)
        low, high = (-most, most) if most else (int(np.iinfo(name).min), int(np.iinfo(name).max))
        if not low <= value.low <= value.high <= high:
            raise Untraceable
    elif "float" in value.dtype and "float" not in name:
        raise Untraceable
    return Value(T.cast(value.expr, name), name)


def _typed(function: AnyFunction, *values: Anything) -> NumpyDtype:
    """The type of what numpy makes of such values."""
    with np.errstate(all="ignore"):
        return np.asarray(function(*map(_sample, values))).dtype


def _combined(function: AnyFunction, a: Anything, b: Anything) -> Value:
    pair = (a, b)
    if all(type(v) is int or (isinstance(v, Value) and v.dtype == _PYTHON) for v in pair):
        return _of_python(function, a, b)
    if function not in _ARITHMETIC or not all(isinstance(v, Value | int | float | np.number) for v in pair):
        raise Untraceable
    dtype = _typed(function, *pair)
    common = _typed(operator.add, *pair) if dtype == np.bool_ else dtype
    kinds = {v.dtype if isinstance(v, Value) else np.asarray(v).dtype.name for v in pair}
    if "bool" in kinds or (
        common.kind == "f" and (kinds >= {"int64", "uint64"} or function in (np.maximum, np.minimum))
    ):
        raise Untraceable
    value = _ARITHMETIC[function](*(_converted(v, common).expr for v in pair))
    if function is operator.mul and common.kind == "f":
        value = _rounded(value)
    return Value(value, dtype.name)


def _rounded(product: Expr) -> Expr:
    """A real product as it is: code for sums must not see that it is one, or rounds both operations as one."""
    name = str(product.dtype)
    same: Expr = tir.reinterpret(name, tir.reinterpret(name.replace("float", "int"), product))
    return same


def _of_python(function: AnyFunction, a: Anything, b: Anything) -> Value:
    """Whole numbers of Python: in 64 bits, where they are known to fit."""
    if function not in _OF_PYTHON:
        raise Untraceable
    x, y = (v if isinstance(v, Value) else Value(T.const(v, "int64"), _PYTHON, v, v) for v in (a, b))
    if function in (operator.floordiv, operator.mod):
        if isinstance(b, Value) or b <= 0:
            raise Untraceable
        if function is operator.mod:
            return Value(T.floormod(x.expr, y.expr), _PYTHON, 0, b - 1)
        return Value(T.floordiv(x.expr, y.expr), _PYTHON, x.low // b, x.high // b)
    ends = [function(m, n) for m in (x.low, x.high) for n in (y.low, y.high)]
    if max(ends) >= 1 << 62 or min(ends) <= -(1 << 62):
        raise Untraceable
    return Value(_ARITHMETIC[function](x.expr, y.expr), _PYTHON, min(ends), max(ends))


def _chosen(condition: Anything, a: Anything, b: Anything) -> Value:
    if not isinstance(condition, Value) or condition.dtype != "bool":
        raise Untraceable
    dtype = np.asarray(np.where(True, _sample(a), _sample(b))).dtype
    return Value(T.select(condition.expr, _converted(a, dtype).expr, _converted(b, dtype).expr), dtype.name)


@record(slots=True)
class _Memory:
    """The bytes of a tensor as a loop walks them: `offset` at the first place, `steps` from place to place."""

    bytes: Bytes
    offset: int
    steps: tuple[int, ...]
    last: int  # `offset` at the last place


class Pointer:
    """`Iterator.ptr()` while a body is traced."""

    def __init__(self, trace: Trace, memory: _Memory, dtype: NumpyDtype, count: int) -> None:
        self._trace, self._memory, self._dtype, self._count = trace, memory, dtype, count

    def view(self, dtype: object) -> Pointer:
        """The bytes from here on as another type."""
        kind, size = np.dtype(dtype), self._count * self._dtype.itemsize  # type: ignore[call-overload]  # numpy judges
        at = (self._memory.offset, len(self._memory.bytes), *self._memory.steps, size)
        if kind not in _TYPES or any(n % kind.itemsize for n in at):
            raise Untraceable
        return Pointer(self._trace, self._memory, kind, size // kind.itemsize)

    def __getitem__(self, at: object) -> Anything:
        if isinstance(at, slice):
            if at.start not in (None, 0) or at.step not in (None, 1) or type(at.stop) is not int or at.stop < 0:
                raise Untraceable
            return Pointer(self._trace, self._memory, self._dtype, min(self._count, at.stop))
        return self._trace.read(self._memory, self._dtype, self._index(at))

    def __setitem__(self, at: object, value: Anything) -> None:
        if isinstance(at, slice) or not isinstance(value, Value | int | float | np.number):
            raise Untraceable
        if isinstance(value, float | np.floating) and self._dtype.kind != "f":
            raise Untraceable
        self._trace.write(self._memory, self._dtype, self._index(at), _converted(value, self._dtype))

    def _index(self, at: object) -> int:
        if type(at) is not int or not 0 <= at < self._count:
            raise Untraceable
        return at

    __iter__ = __len__ = __array__ = _refuse


class _Place:
    """The coordinates of a place."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._values = values

    def x(self) -> Value:
        """Along a row."""
        return self._values[0]

    def y(self) -> Value:
        """The row."""
        return self._values[1]

    def z(self) -> Value:
        """The plane."""
        return self._values[2]

    def __getitem__(self, n: object) -> Value:
        if type(n) is not int or not 0 <= n < NUM_MAX_DIMENSIONS:
            raise Untraceable
        return self._values[n]

    __iter__ = __len__ = __str__ = __repr__ = __format__ = _refuse


class Trace:
    """The loops of a window, and what a body reads and writes in them."""

    def __init__(self, window: Window) -> None:
        self.window, self._builder = window, IRBuilder()
        self._counts = [window.num_iterations(n) for n in range(NUM_MAX_DIMENSIONS)]
        self._buffers: dict[tuple[int, int, str], tuple[Buffer, Bytes]] = {}
        self._scalars: dict[str, tuple[Var, int]] = {}
        self._loops: list[Expr] = []
        self._memories: dict[int, int] = {}  # numbers of those that are walked, by identity
        self._reads = 0

    def memory(self, buffer: Bytes, offset_of: Callable[[Sequence[int]], int]) -> _Memory:
        """A tensor's bytes; `offset_of` says where a place is."""
        first = [self.window[n].start() for n in range(NUM_MAX_DIMENSIONS)]
        steps, begin = [], offset_of(first)
        for n, count in enumerate(self._counts):
            moved = [at + self.window[n].step() * (n == k) for k, at in enumerate(first)]
            steps.append(offset_of(moved) - begin if count > 1 else 0)
        last = begin + sum(step * (count - 1) for step, count in zip(steps, self._counts, strict=True))
        if begin < 0 or any(step < 0 for step in steps) or len(buffer) >= 1 << 31:
            raise Untraceable
        return _Memory(buffer, begin, tuple(steps), last)

    def pointer(self, memory: _Memory) -> Pointer:
        """The bytes from an iterator's place on; those that are there at every place."""
        return Pointer(self, memory, np.dtype(np.uint8), len(memory.bytes) - memory.offset)

    def compiled(self, body: Callable[[Anything], object]) -> Callable[[], None]:
        """Run the body on symbols; returns what runs the kernel."""
        builder, places = self._builder, []
        with ExitStack() as opened:
            opened.enter_context(builder.for_range(0, self._scalar("calls", 1), name="call", kind="parallel"))
            for n in reversed(range(NUM_MAX_DIMENSIONS)):
                if self._counts[n] > 1:
                    extent = self._scalar(f"count{n}", self._counts[n])
                    self._loops.append(opened.enter_context(builder.for_range(0, extent, name=f"i{n}")))
                else:
                    self._loops.append(T.const(0))  # its only place
            self._loops.reverse()
            for n, index in enumerate(self._loops):
                dim = self.window[n]
                at = T.add(self._scalar(f"begin{n}", dim.start()), T.mul(index, self._scalar(f"step{n}", dim.step())))
                places.append(Value(T.cast(at, "int64"), _PYTHON, dim.start(), max(dim.start(), dim.end() - 1)))
            body(_Place(places))
        return self._bound()

    def _bound(self) -> Callable[[], None]:
        retained = list(self._buffers.values())
        spans = sorted((b.ctypes.data, b.ctypes.data + len(b)) for _, b in retained)
        if any(a[1] > b[0] for a, b in pairwise(spans)):
            raise Untraceable  # two names of the same bytes
        scalars = [var for var, _ in self._scalars.values()]
        function = PrimFunc(
            (*(b for b, _ in retained), *scalars), self._builder.get(), (("global_symbol", "window_loop"),)
        )
        loops = _kernels.get(str(function), lambda: CompiledLoops.built(function))
        values = {name: value for name, (_, value) in self._scalars.items()}
        return lambda: loops.bind_values([b.ctypes.data for _, b in retained], values, 1).run(0, 1, 0)

    def _scalar(self, name: str, value: int) -> Var:
        return self._scalars.setdefault(name, (T.var(name), value))[0]

    def _place(self, memory: _Memory, dtype: NumpyDtype, index: int) -> tuple[Buffer, tuple[Expr]]:
        size, data = dtype.itemsize, memory.bytes
        if memory.last + (index + 1) * size > len(data):
            raise Untraceable
        key = (data.ctypes.data, len(data), dtype.name)
        number = len(self._buffers)
        if key not in self._buffers:
            shape = self._scalar(f"size{number}", len(data) // size)
            self._buffers[key] = (tir.decl_buffer((shape,), dtype.name, name=f"data{number}"), data)
        buffer = self._buffers[key][0]
        name = f"{dtype.name}{self._memories.setdefault(id(memory), len(self._memories))}"
        at: Expr = self._scalar(f"{name}_at", memory.offset // size)
        for n, step in enumerate(memory.steps):
            if step:
                pitch = T.const(step // size) if n == 0 else self._scalar(f"{name}_pitch{n}", step // size)
                at = T.add(at, T.mul(self._loops[n], pitch))
        return buffer, (T.add(at, T.const(index)),)

    def read(self, memory: _Memory, dtype: NumpyDtype, index: int) -> Value:
        """What is there now, whatever is written afterwards."""
        buffer, at = self._place(memory, dtype, index)
        self._reads += 1
        return Value(self._builder.let(f"v{self._reads}", BufferLoad(buffer, at)), dtype.name)

    def write(self, memory: _Memory, dtype: NumpyDtype, index: int, value: Value) -> None:
        """Set what is there."""
        buffer, at = self._place(memory, dtype, index)
        self._builder.emit(BufferStore(buffer, value.expr, at))


def traced(window: Window, body: Callable[[Anything], object], attach: Callable[[Trace], None]) -> Callable[[], None]:
    """What runs the kernel of a body; `attach` tells the iterators of the trace. Untraceable: there is none."""
    if int(np.__version__.split(".")[0]) < 2:
        raise Untraceable  # whose types depend on values
    trace = Trace(window)
    try:
        attach(trace)
        return trace.compiled(body)
    except (Untraceable, ArmillaryError, ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
        raise Untraceable from error
